"""The examples of the pages run in an empty folder, and draw nothing on a screen."""

import pytest


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.delenv("AFFECT_XP_DATA", raising=False)
