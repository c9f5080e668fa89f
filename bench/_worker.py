"""Measures one revision for `compare`: requests on stdin, responses on stdout, as lines of JSON.

["where"] → the file of the library; ["names"] → the available workloads; ["prepare", name] → its actions;
["run", action] → the seconds of each piece.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import affect_xp

from .__main__ import add_options, setting_of
from ._measure import Action, timed_pieces
from ._suite import Setting, limited_threads
from .workloads import WORKLOADS


class Answers:
    """Handles requests."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.prepared: tuple[str, dict[str, Action]] | None = None

    def where(self) -> str:
        """Return the file of the library."""
        return affect_xp.__file__

    def names(self) -> list[str]:
        """Return the available workloads."""
        return [workload.name for workload in WORKLOADS if workload.obstacle(self.setting) is None]

    def prepare(self, name: str) -> list[str]:
        """Prepare a workload and return the actions that use the library."""
        if self.prepared is None or self.prepared[0] != name:
            self.prepared = None  # free the data of the previous workload
            workload = next(workload for workload in WORKLOADS if workload.name == name)
            self.prepared = name, dict(workload.prepare(self.setting).ours)
        return list(self.prepared[1])

    def run(self, action: str) -> list[float]:
        """Return the seconds of each piece."""
        assert self.prepared is not None
        with limited_threads(self.setting.threads):
            return list(timed_pieces(self.prepared[1][action], self.setting.device.timer))


def answer(answers: Answers, line: str) -> dict[str, Any]:
    """Return the result of a request, or its error."""
    question, *arguments = json.loads(line)
    try:
        return {"result": getattr(answers, question)(*arguments)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Handle requests until stdin is closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    answers = Answers(setting_of(parser.parse_args(arguments)))
    # Output of the library or a peer must not be mistaken for a response.
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(answers, line)), file=out, flush=True)


if __name__ == "__main__":
    main()
