"""Replacement of a function of the package wherever it was imported by its name."""

import sys


def replace_everywhere(monkeypatch, name, replacement):
    """Replace a function in each module of the package that has it."""
    for module in [m for key, m in sys.modules.items() if key.partition(".")[0] == "affect_xp"]:
        if hasattr(module, name):
            monkeypatch.setattr(module, name, replacement)
