"""The public API: names, examples, and imports."""

import ast
import inspect
import subprocess
import sys

import pytest

import affect_xp as ax


def test_all_is_complete():
    public = {
        name for name, value in vars(ax).items() if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public <= set(ax.__all__)
    assert len(ax.__all__) == len(set(ax.__all__))


@pytest.mark.parametrize("name", [n for n in ax.__all__ if not inspect.ismodule(getattr(ax, n))])
def test_public_names_have_docstrings(name):
    assert inspect.getdoc(getattr(ax, name))


def test_names_are_found_when_they_are_used():
    tree = ast.parse(inspect.getsource(ax))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))  # for type checkers
    checked = {name.name for node in guarded.body for name in node.names}
    assert checked == set(ax.__all__) == {*ax._MODULE_OF, *ax._MODULES}
    assert set(ax.__all__) <= set(dir(ax))
    with pytest.raises(AttributeError, match="module 'affect_xp' has no attribute 'nothing'"):
        ax.nothing  # noqa: B018


def test_import_is_light():
    heavy = ["numpy", "scipy", "cupy", "torch", "dask", "sklearn", "pandas", "matplotlib", "jax", "networkx"]
    code = f"import sys, affect_xp; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
