"""The only door: `nox` runs lint and tests, `nox -l` lists the rest, arguments after `--` are passed on."""

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "tests"]

PYPROJECT = nox.project.load_toml("pyproject.toml")
DOCTESTS = ("--doctest-modules", "affect_xp", "--doctest-glob=README.md", "README.md")


def group(name: str) -> list[str]:
    """Return the requirements of a dependency group; older pips have no `--group`."""
    return nox.project.dependency_groups(PYPROJECT, name)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types and the direction of imports."""
    session.install("-e", ".", *group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
    session.run("lint-imports")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the suite on every array library; without arguments, the doctests too."""
    session.install("-e", ".", *group("test"))
    one_thread = {"OMP_NUM_THREADS": "1"}  # the workers of -n share the processors already
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs, env=one_thread)
    if not session.posargs:
        session.run("python", "-m", "pytest", *DOCTESTS)


@nox.session
def docs(session: nox.Session) -> None:
    """Run the examples of the README and the docstrings."""
    session.install("-e", ".[dask,pandas,plot,sklearn]", *group("docs"))
    session.run("python", "-m", "pytest", *DOCTESTS, *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """Run the demonstration."""
    session.install("-e", ".[plot]")
    session.run("affect-xp", "demo", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmarks; `-- REV` compares the working tree with a revision, `-- OLD NEW` two of them."""
    session.install("-e", ".", *group("bench"))
    compares = bool(session.posargs) and not session.posargs[0].startswith("-")
    session.run("python", "-m", "bench.compare" if compares else "bench", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Try random sequences of steps for long."""
    session.install("-e", ".", *group("test"))
    env = {"AFFECT_XP_FUZZ": "34000", "OMP_NUM_THREADS": "1"}  # examples of each of three tests
    session.run("python", "-m", "pytest", "tests/test_fuzz.py", "-n", "auto", *session.posargs, env=env)


@nox.session
def build(session: nox.Session) -> None:
    """Build sdist and wheel into dist/, check them, and import the wheel away from the sources."""
    session.install("build", "twine")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build")
    session.run("twine", "check", "--strict", *map(str, Path("dist").iterdir()))
    session.install("--force-reinstall", *map(str, Path("dist").glob("*.whl")))
    with session.chdir(session.create_tmp()):
        session.run("python", "-c", "import affect_xp; print(affect_xp.__version__, affect_xp.__file__)")
