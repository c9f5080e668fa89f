"""Conventions that no linter checks: short functions, few parameters, isolated library checks."""

import ast
import sys
from pathlib import Path

import numpy as np

import affect_xp as ax

PACKAGE = Path(ax.__file__).parent
MAX_LINES = 40  # per body, without the docstring
MAX_PARAMETERS = 8
# Calls that depend on the library of an array, or on whether it is lazy or on the host.
LIBRARY_CHECKS = ("is_lazy", "on_host", "is_host_value", "is_dask_array", "is_numpy_array")
MAX_LIBRARY_CHECKS = 14  # outside array/, all in the files of representations
# The files of representations, where these checks are.
REPRESENTATIONS = ("dense", "sparse", "factored", "_factored_groups", "chunked")
MAX_FILES_OF_A_STEP = 20  # may only fall


MAX_ENTRIES = 20  # families and modules of the package
MAX_LINES_OF_STEP = 24  # `affect.step.step`, which reads like the algorithm of the paper


def trees():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE), ast.parse(path.read_text(encoding="utf-8"))


def functions():
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield f"{path}:{node.name}", node


def n_lines(function):
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def n_parameters(function):
    """Count parameters; keyword-only ones do not count for constructors and public functions."""
    arguments = function.args
    positional = [a for a in arguments.posonlyargs + arguments.args if a.arg not in ("self", "cls")]
    options = [] if not function.name.startswith("_") or function.name == "__init__" else arguments.kwonlyargs
    return len(positional) + len(options)


def test_functions_are_short():
    long = {name for name, node in functions() if n_lines(node) > MAX_LINES}
    assert long <= {"cli/run.py:_add_clustering"}


def test_the_step_is_as_short_as_the_algorithm():
    (step,) = [node for name, node in functions() if name == "affect/step.py:step"]
    assert n_lines(step) <= MAX_LINES_OF_STEP


def test_the_package_has_few_entries():
    entries = {path.name for path in PACKAGE.iterdir() if not path.name.startswith("__")} - {"py.typed"}
    assert len(entries) <= MAX_ENTRIES, sorted(entries)


def test_functions_have_few_parameters():
    assert {name for name, node in functions() if n_parameters(node) > MAX_PARAMETERS} == set()


def is_library_check(node):
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    kinds = ast.unparse(node.args[1]) if node.func.id == "isinstance" else ""
    return node.func.id in LIBRARY_CHECKS or "np.ndarray" in kinds


def test_the_libraries_of_arrays_are_looked_at_behind_one_door():
    found = [
        (path, node.lineno)
        for path, tree in trees()
        if path.parts[0] != "array"
        for node in ast.walk(tree)
        if is_library_check(node)
    ]
    assert len(found) <= MAX_LIBRARY_CHECKS, found
    assert all(
        path.parts[0] == "proximity" and path.parts[1].removesuffix(".py") in REPRESENTATIONS
        for path, _ in found
    )


def test_a_step_can_be_followed():
    x = np.random.default_rng(0).normal(size=(3, 60, 2)) + 4 * np.eye(3)[np.arange(60) % 3, :2]
    model, files = ax.Affect(ax.KMeans(3), random_state=0).fit([w @ w.T for w in x[:2]]), set()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        model.partial_fit(x[2] @ x[2].T)
    finally:
        sys.setprofile(None)
    assert len(files) <= MAX_FILES_OF_A_STEP, sorted(files)


def test_nothing_is_remembered_by_a_string_key():
    # What is known of a matrix is a field; only a cached property looks into its own instance.
    found = [
        (path, node.lineno)
        for path, tree in trees()
        if path.parts[0] in ("affect", "clustering", "proximity")
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr == "__dict__")
        or (isinstance(node, ast.Name) and node.id == "vars")
    ]
    assert [path.name for path, _ in found] == ["grouped.py"], found
