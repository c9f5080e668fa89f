"""Replace a function of the package in every module that imported it."""

import sys


def replace_everywhere(monkeypatch, name, replacement):
    """Replace a function in each module of the package that contains it."""
    for module in [m for key, m in sys.modules.items() if key.partition(".")[0] == "affect_xp"]:
        if hasattr(module, name):
            monkeypatch.setattr(module, name, replacement)
