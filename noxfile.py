#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.11"
# dependencies = ["nox>=2025.2.9"]
# ///
"""Development tasks: `nox` runs lint and tests, `nox -l` lists all sessions, arguments follow `--`."""

import os
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"  # uv if it is installed
nox.options.reuse_venv = "yes"

PYPROJECT = nox.project.load_toml("pyproject.toml")
DOCTESTS = ("--doctest-modules", "affect_xp", "--doctest-glob=README.md", "README.md")

# Extras whose lower bounds are tested; old releases of torch and CuPy exist only for CUDA.
OF_LOWEST = ("io", "cli", "plot", "sklearn", "dask", "linkage")

# A program that uses each extra alone.
RUN = "sys.exit(main(['run', 'x.csv', '-k', '2', '--quiet']))"
EXTRAS = {
    "": "import affect_xp as ax; ax.Affect(ax.KMeans(2)).fit([np.eye(4)])",
    "io": "import affect_xp as ax; print(len(list(ax.io.read_steps('x.csv'))))",
    "cli": f"from affect_xp.cli import main; {RUN}",
    "plot": "import affect_xp as ax; ax.plots.plot_alpha(ax.Static(ax.KMeans(2)).fit([np.eye(4)]).history_)",
    "sklearn": "import affect_xp as ax; from sklearn.base import clone; clone(ax.Affect(ax.KMeans(2)))",
    "dask": "import affect_xp as ax, dask.array as da; ax.Affect(ax.KMeans(2)).fit([da.eye(4, chunks=2)])",
    "torch": "import affect_xp as ax, torch; ax.Affect(ax.KMeans(2)).fit([torch.eye(4)])",
    "cuda12": "import affect_xp as ax, importlib.util; assert importlib.util.find_spec('cupy')",
    "cuda13": "import affect_xp as ax, importlib.util; assert importlib.util.find_spec('cupy')",
    "linkage": "import affect_xp as ax, fastcluster; ax.Affect(ax.Linkage(2)).fit([1 - np.eye(4)])",
    "all": f"import torch, dask, sklearn, matplotlib, fastcluster; from affect_xp.cli import main; {RUN}",
}
TABLE = "time,source,target\n" + "".join(f"{t},{a},{b}\n" for t in (1, 2) for a, b in ("ab", "cd", "ac"))


def group(name: str) -> list[str]:
    """Return the requirements of a dependency group; older releases of pip have no `--group`."""
    return nox.project.dependency_groups(PYPROJECT, name)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types and the direction of imports."""
    session.install("-e", ".[cli]", *group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
    session.run("lint-imports")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the suite on every array library; without arguments, also the doctests."""
    session.install("-e", ".", *group("test"))
    one_thread = {"OMP_NUM_THREADS": "1"}  # the workers of -n already use all cores
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs, env=one_thread)
    if not session.posargs:
        session.run("python", "-m", "pytest", *DOCTESTS)


@nox.session(venv_backend="none", default=False)
def tests_cupy(session: nox.Session) -> None:
    """Run the suite on the real CuPy code executed on a CPU; the first build takes about five minutes."""
    rig, env = Path("tools/cupy_cpu").resolve(), {"OMP_NUM_THREADS": "1", "AFFECT_XP_BACKENDS": "cupy"}
    session.run(str(rig / "build"), external=True)
    python = (str(rig / "run"), "python", "-m")
    session.run(*python, "pip", "install", "--quiet", *group("test-cupy"), external=True)
    session.run(*python, "pip", "install", "--quiet", "--no-deps", "-e", ".", external=True)
    # Blocks of rows and chunks are plain array code, tested on the other libraries; here they take too long.
    slow = "many and (test_object_blend or test_movers or test_correction)"
    slow += " or as_chunked and (test_objects or test_smooth) or keep and test_by_objects_all_libraries"
    some = f"cupy and not ({slow}) and not (test_contract and (many or chunked or without))"
    options = session.posargs or ("-n", "2", "-k", some)
    session.run(*python, "pytest", *options, env=env, external=True)


@nox.session(default=False)
def tests_jax(session: nox.Session) -> None:
    """Run the tests of steps on JAX; slow, because it compiles each operation for each shape."""
    session.install("-e", ".", *group("test"), "jax")
    env = {"OMP_NUM_THREADS": "1", "AFFECT_XP_BACKENDS": "jax"}
    session.run("python", "-m", "pytest", "-k", "jax", *(session.posargs or ["tests/affect"]), env=env)


@nox.session(default=False)
def coverage(session: nox.Session) -> None:
    """Measure line and branch coverage on NumPy; fail below the minimum in pyproject.toml."""
    session.install("-e", ".", *group("coverage"))
    env = {"AFFECT_XP_BACKENDS": "numpy", "OMP_NUM_THREADS": "1"}
    session.run("python", "-m", "pytest", "-n", "auto", "--cov", *session.posargs, env=env)


@nox.session(default=False)
def review(session: nox.Session) -> None:
    """Check repository conventions: layout, workflows, spelling, Markdown, citation."""
    session.install(*group("review"))
    session.run("repo-review", ".")
    session.run("zizmor", "--offline", ".github")
    session.run("codespell")
    session.run("rumdl", "check", ".")
    session.run("cffconvert", "--validate", "--infile", "CITATION.cff")


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Run the examples of README, docstrings and pages, and build the site; warnings are errors."""
    session.install("-e", ".[cli,dask,plot,sklearn]", *group("docs"))
    session.run("python", "-m", "pytest", *DOCTESTS, *session.posargs)
    session.run("python", "-m", "pytest", "--doctest-glob=*.md", "docs", *session.posargs)
    shutil.rmtree("docs/gallery", ignore_errors=True)  # removes pages of deleted scripts
    quiet = {"AFFECT_XP_DATA": None, "OMP_NUM_THREADS": "1"}  # the gallery uses only public data
    options = ("-b", "html", "-W", "--keep-going", "-E", "-q")
    session.run("python", "-m", "sphinx", *options, "docs", "docs/_build/html", env=quiet)
    session.log("the site is in docs/_build/html/index.html")


@nox.session(default=False)
def demo(session: nox.Session) -> None:
    """Run the demonstration."""
    session.install("-e", ".[cli,plot]")
    session.run("affect-xp", "demo", *session.posargs)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Run the benchmarks; `-- REV` compares the working tree with a revision, `-- OLD NEW` two revisions."""
    session.install("-e", ".", *group("bench"))
    compares = bool(session.posargs) and not session.posargs[0].startswith("-")
    session.run("python", "-m", "bench.compare" if compares else "bench", *session.posargs)


@nox.session(default=False)
def fuzz(session: nox.Session) -> None:
    """Run the fuzz tests with 100,000 random sequences of steps."""
    session.install("-e", ".", *group("test"))
    env = {"AFFECT_XP_FUZZ": "100000", "OMP_NUM_THREADS": "1"}  # examples of all tests together
    files = ("tests/test_fuzz.py", "tests/test_fuzz_agreement.py")
    session.run("python", "-m", "pytest", *files, "-n", "auto", *session.posargs, env=env)


@nox.session(default=False)
def mutations(session: nox.Session) -> None:
    """Read 5,000 damaged files: each gives the right steps, or an error that names the line."""
    session.install("-e", ".[io]", *group("test"))
    env = {"AFFECT_XP_MUTATIONS": session.posargs[0] if session.posargs else "5000"}
    session.run(
        "python", "-m", "pytest", "-n", "auto", "-k", "damaged", "tests/first_contact/reading", env=env
    )


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Take thousands of steps with changing objects; fail if memory or time per step grows."""
    session.install("-e", ".[dask]", *group("bench"))
    session.run("python", "-m", "bench.soak", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session(python="3.11", default=False)
def lowest(session: nox.Session) -> None:
    """Run the suite on the oldest supported Python and dependencies."""
    project = PYPROJECT["project"]
    allowed = [*project["dependencies"]]
    for extra in OF_LOWEST:
        allowed += project["optional-dependencies"][extra]
    oldest = [text.replace(">=", "==") for text in allowed]
    session.install("-e", ".", *group("test"), *oldest, "pyparsing<3.3")  # newer: warnings in old matplotlib
    # Older dask does not pass the warning settings of NumPy to its threads.
    options = ("-n", "auto", "-W", "ignore::RuntimeWarning")
    session.run("python", "-m", "pytest", *options, *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session(default=False)
@nox.parametrize("extra", list(EXTRAS), ids=[extra or "none" for extra in EXTRAS])
def extras(session: nox.Session, extra: str) -> None:
    """Install the package with each extra alone and use it; `nox -s "extras(cli)"` tests one extra."""
    session.install(f".[{extra}]" if extra else ".")
    with session.chdir(session.create_tmp()):
        Path("x.csv").write_text(TABLE, encoding="utf-8")
        shutil.rmtree("affect-xp-run", ignore_errors=True)
        session.run("python", "-c", f"import sys; import numpy as np; {EXTRAS[extra]}")
        if extra not in ("cli", "all"):  # the command reports the missing extra
            missing = session.run("affect-xp", "demo", success_codes=[1], silent=True)
            assert "pip install 'affect_xp[cli]'" in str(missing), missing


@nox.session(default=False)
def audit(session: nox.Session) -> None:
    """Look up known vulnerabilities of all installed dependencies; needs access to pypi.org."""
    session.install(".[cli,plot,sklearn,dask,linkage]", "pip-audit>=2.7")
    session.run("pip-audit", "--local", "--skip-editable", *session.posargs)


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build sdist and wheel into dist/ and check them; run each in an empty environment."""
    session.install("build", "twine")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build")
    built = sorted(Path("dist").resolve().iterdir())
    session.run("twine", "check", "--strict", *map(str, built))
    for archive in built:
        with session.chdir(session.create_tmp()):
            shutil.rmtree("empty", ignore_errors=True)
            session.run("python", "-m", "venv", "empty")
            scripts = Path("empty", "Scripts" if os.name == "nt" else "bin").resolve()
            session.run(str(scripts / "pip"), "install", "--quiet", f"{archive}[cli]", external=True)
            session.run(str(scripts / "affect-xp"), "demo", external=True)
            session.run(str(scripts / "affect-xp"), "bench", "--tiny", external=True)


if __name__ == "__main__":
    nox.main()
