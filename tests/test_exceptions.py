"""One hierarchy of errors and warnings, and no code in the package that could execute input."""

import ast
import builtins
import copy
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest

import affect_xp as ax
from affect_xp import exceptions
from affect_xp.array import namespace
from affect_xp.array.namespace import wide_dtype

PACKAGE = Path(ax.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
TREES = {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8")) for path in SOURCES}

OURS = {
    name: value
    for name, value in vars(exceptions).items()
    if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == exceptions.__name__
}
ERRORS = {name for name in OURS if issubclass(OURS[name], exceptions.AffectError)}
WARNINGS = {name for name in OURS if issubclass(OURS[name], exceptions.AffectWarning)}

# Other exceptions that may be raised, with the reason.
OTHERS = {
    "ImportError": ("plots/_style.py", "checks.py"),  # a library is missing
    "CycloptsError": ("cli/app.py",),  # invalid options
    "ValueError": ("cli/options.py",),  # cyclopts reports it as an invalid option
    "KeyboardInterrupt": ("cli/terminal.py", "cli/run.py", "cli/reproduce.py"),  # reports what is kept
    "AssertionError": ("proximity/checks.py", "io/tables.py"),  # cannot happen
    "AttributeError": (
        "__init__.py",
        "experiments/__init__.py",
        "io/__init__.py",
    ),  # a module has no such name
}
# Raised and caught within these files, or by their callers, which convert it to an error of the library.
CAUGHT = {
    "ValueError": ("persistence/_archive.py", "persistence/__init__.py", "persistence/_proximities.py",
                   "persistence/_values.py", "persistence/_steps.py",
                   "datasets/reality.py", "io/matrices.py"),
    "OutOfRangeError": ("clustering/eigen.py",),
}  # fmt: skip


def named(node):
    """Return a name such as `a.b` as text; "" for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{named(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def calls(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


ALL_CALLS = [(name, call) for name, tree in TREES.items() for call in calls(tree)]


def raised(tree):
    """Yield the names of raised exceptions, including those returned by functions of this file."""
    makers = {node.name: named(node.returns) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            name = named(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
            yield makers.get(name, name).removeprefix("exceptions."), node.lineno


# Errors ---------------------------------------------------------------------------------------------------


def test_every_class_is_an_error_or_a_warning_of_ours():
    assert set(OURS) == ERRORS | WARNINGS and not ERRORS & WARNINGS
    assert {"AffectError", "InputError", "FileFormatError"} <= ERRORS and "AffectWarning" in WARNINGS


def test_what_is_raised():
    strange = [
        (name, line, what)
        for name, tree in TREES.items()
        for what, line in raised(tree)
        if what not in ERRORS and name not in OTHERS.get(what, ()) + CAUGHT.get(what, ())
    ]
    assert strange == []


def test_nothing_is_excused_in_vain():
    for what, files in {**OTHERS, **CAUGHT}.items():
        for name in files:
            assert what in {found for found, _ in raised(TREES[name])}, (what, name)


@pytest.mark.parametrize(
    ("ours", "usual"),
    [
        (exceptions.InputError, ValueError),
        (exceptions.InputTypeError, TypeError),
        (exceptions.NotFittedError, AttributeError),
        (exceptions.FileFormatError, ValueError),
        (exceptions.SaveError, OSError),
        (exceptions.AffectWarning, UserWarning),
        (exceptions.ConvergenceWarning, exceptions.AffectWarning),
        (exceptions.PrecisionWarning, exceptions.AffectWarning),
    ],
)
def test_what_is_usually_caught_catches_ours(ours, usual):
    assert issubclass(ours, usual)


@pytest.mark.parametrize("name", sorted(OURS))
def test_the_module_tells_of_each(name):
    """The docstring of the module lists every class, and each class has a docstring."""
    assert f"{name} " in exceptions.__doc__
    assert OURS[name].__doc__


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_errors_travel_between_processes(name):
    error = OURS[name](28, "no room") if name == "SaveError" else OURS[name]("no room")
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(copied) is OURS[name] and copied.args == error.args and str(copied) == str(error)


def test_the_errno_of_a_full_disk_is_kept():
    assert exceptions.SaveError(28, "no room").errno == 28


@pytest.mark.parametrize(
    "ask", ["labels_", "ids_", "alpha_", "alphas_", "smoothed_", "scale_", "gamma_", "rescale_"]
)
def test_results_before_the_first_step(ask):
    model = ax.Affect(ax.KMeans(2))
    with pytest.raises(exceptions.NotFittedError, match="has not taken a step yet; call fit or partial_fit"):
        getattr(model, ask)
    assert not hasattr(model, ask)  # required by scikit-learn


# Warnings -------------------------------------------------------------------------------------------------


def test_what_is_warned_of():
    found = [
        (name, call)
        for name, call in ALL_CALLS
        if named(call.func) == "warn_caller" or (named(call.func) == "warnings.warn" and name != "checks.py")
    ]
    assert len(found) >= 8
    for name, call in found:
        category = call.args[1] if len(call.args) > 1 else None
        assert named(category) in WARNINGS, (name, call.lineno)


def hard_steps(n_steps=3):
    rng = np.random.default_rng(0)
    for _ in range(n_steps):
        x = rng.normal(size=(60, 3))
        yield x @ x.T


def test_a_run_that_does_not_converge_warns_once():
    """By Python's default filter, which shows each text once per location."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        ax.Affect(ax.KMeans(5, max_iter=1), random_state=0).fit(hard_steps())
    (warning,) = caught
    assert warning.category is exceptions.ConvergenceWarning and "increase max_iter" in str(warning.message)


def test_warnings_can_be_made_errors_that_change_nothing():
    model = ax.Affect(ax.KMeans(5, max_iter=1), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", exceptions.AffectWarning)
        with pytest.raises(exceptions.ConvergenceWarning, match="increase max_iter"):
            model.fit(hard_steps())
    assert model.n_steps_ == 0 and "history_" not in vars(model)


class Float32Alone:
    """A library with a device without float64."""

    float32 = "float32"

    @staticmethod
    def __array_namespace_info__():
        return type("Info", (), {"dtypes": lambda self, **options: {"float32": "float32"}})()


def test_a_device_without_float64_is_told_of_once(monkeypatch):
    monkeypatch.setattr(namespace, "_WIDE_DTYPES", {})
    monkeypatch.setattr(namespace, "array_namespace", lambda *arrays: Float32Alone)
    monkeypatch.setattr(namespace, "device_of", lambda x: "a small device")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [wide_dtype(object()) for _ in range(3)] == ["float32"] * 3
    assert [warning.category for warning in caught] == [exceptions.PrecisionWarning]
    assert "a small device has no float64" in str(caught[0].message)


# Security -------------------------------------------------------------------------------------------------

# Modules that execute input, or communicate with other machines or programs, and their permitted users.
FORBIDDEN = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "dbm", "yaml",
    "code", "codeop", "runpy", "imp", "pty", "ctypes", "cffi",
    "socket", "socketserver", "ssl", "http", "urllib", "urllib3", "requests", "httpx", "aiohttp", "ftplib",
    "smtplib", "telnetlib", "xmlrpc", "webbrowser", "asyncio", "subprocess", "multiprocessing", "xml",
}  # fmt: skip
EXCUSED = {
    ("cli/libraries.py", "subprocess"),  # `affect-xp doctor` runs nvidia-smi: no shell, no input
    ("experiments/_runs.py", "multiprocessing"),  # `affect-xp reproduce --jobs` starts copies of itself
}
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "breakpoint", "os.system", "os.popen", "os.execv",
    "os.spawnv", "tempfile.mktemp", "np.loads", "pandas.read_pickle", "pandas.eval", "torch.load",
    "np.fromregex",
}  # fmt: skip


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.lineno


def test_nothing_is_imported_that_runs_input_or_talks():
    used = {(name, module.split(".")[0]) for name, tree in TREES.items() for module, _ in imported(tree)}
    assert {(name, module) for name, module in used if module in FORBIDDEN} == EXCUSED


def test_nothing_is_called_that_runs_input():
    for name, call in ALL_CALLS:
        assert named(call.func) not in FORBIDDEN_CALLS, (name, call.lineno)
        for keyword in call.keywords:
            value = getattr(keyword.value, "value", None)
            assert not (keyword.arg in ("allow_pickle", "shell") and value is not False), (name, call.lineno)


def test_arrays_are_read_without_pickle():
    """`np.load` always gets allow_pickle=False explicitly, although it is the default."""
    found = [(name, call) for name, call in ALL_CALLS if named(call.func) in ("np.load", "numpy.load")]
    assert found
    for name, call in found:
        assert "allow_pickle" in {keyword.arg for keyword in call.keywords}, (name, call.lineno)


def test_modules_are_imported_by_names_of_ours():
    """The argument of `import_module` is a constant or from a table in the source, never from a file."""
    tables = ("cli/", "experiments/", "__init__.py", "io/__init__.py")
    for name, call in ALL_CALLS:
        if named(call.func).endswith("import_module") and not isinstance(call.args[0], ast.Constant):
            assert name.startswith(tables), (name, call.lineno)


def test_programs_are_started_in_one_place_without_a_shell():
    started = [(n, ast.unparse(call)) for n, call in ALL_CALLS if named(call.func).startswith("subprocess.")]
    assert [name for name, _ in started] == ["cli/libraries.py"]
    assert "run([program]" in started[0][1] and "timeout=" in started[0][1]


def test_the_walk_finds_what_it_looks_for():
    tree = ast.parse("import pickle as p\nfrom urllib.request import urlopen\neval('1')\nraise KeyError(1)")
    assert [module for module, _ in imported(tree)] == ["pickle", "urllib.request"]
    assert named(calls(tree)[0].func) in FORBIDDEN_CALLS
    assert [name for name, _ in raised(tree)] == ["KeyError"] and hasattr(builtins, "KeyError")
    assert len(TREES) > 50


def test_a_message_shows_a_long_argument_in_one_line():
    steps = [np.random.default_rng(0).normal(size=(40, 30)) for _ in range(50)]
    with pytest.raises(exceptions.InputTypeError, match="clusterer must be an object") as error:
        ax.smooth(ax.Affect(ax.KMeans(2)), steps)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 800
    with pytest.raises(exceptions.InputError, match="got 'a name that is long but shown in full'"):
        ax.kmeans(np.eye(4), 2, init="a name that is long but shown in full")
