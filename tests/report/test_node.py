"""The modules of the page in node, without a browser."""

import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from affect_xp.report import MODULES, script

NODE = shutil.which("node")
TESTS = sorted(Path(__file__).with_name("js").glob("*.test.mjs"))


def sources():
    folder = resources.files("affect_xp.report").joinpath("js")
    return {name: folder.joinpath(f"{name}.mjs").read_text(encoding="utf-8") for name in MODULES}


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_in_node(path):
    found = subprocess.run([NODE, "--test", str(path)], capture_output=True, text=True, encoding="utf-8")
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_joined_script_is_valid(tmp_path):
    path = tmp_path / "page.js"
    path.write_text(script(), encoding="utf-8")
    subprocess.run([NODE, "--check", str(path)], check=True)


@pytest.mark.skipif(shutil.which("tsc") is None, reason="TypeScript is not installed")
def test_types():
    folder = resources.files("affect_xp.report").joinpath("js")
    options = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--module", "nodenext", "--target", "es2023"]
    libraries = ["--lib", "es2023,dom,dom.iterable"]
    paths = [str(folder.joinpath(f"{name}.mjs")) for name in MODULES]
    command = [shutil.which("tsc"), *options, *libraries, *paths]
    found = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert found.returncode == 0, found.stdout


def test_all_modules_are_joined_each_after_those_it_imports():
    folder = resources.files("affect_xp.report").joinpath("js")
    assert {path.name for path in folder.iterdir()} == {f"{name}.mjs" for name in MODULES}
    for name, text in sources().items():
        assert text.startswith("// @ts-check\n")
        for imported in re.findall(r'^import [^;]* from "\./(\w+)\.mjs";', text, re.MULTILINE):
            assert MODULES.index(imported) < MODULES.index(name)
    assert not re.search(r"^(import|export)\b", script(), re.MULTILINE)


def test_functions_of_modules_have_distinct_names():
    """The joined modules share one scope, in which a second function replaces the first without an error."""
    found = [
        name
        for text in sources().values()
        for name in re.findall(r"^(?:export )?function (\w+)", text, re.MULTILINE)
    ]
    assert "makeFlow" in found and sorted(found) == sorted(set(found))
