"""Measures one revision for `compare`: questions come on stdin, answers go to stdout, in lines of JSON.

["where"] → the file of the library; ["names"] → workloads that can be run; ["prepare", name] → its actions;
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
    """Answers questions, one after the other."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.prepared: tuple[str, dict[str, Action]] | None = None

    def where(self) -> str:
        """Return the file of the library."""
        return affect_xp.__file__

    def names(self) -> list[str]:
        """Return the workloads that can be run."""
        return [workload.name for workload in WORKLOADS if workload.obstacle(self.setting) is None]

    def prepare(self, name: str) -> list[str]:
        """Make a workload ready and return the actions that use the library."""
        if self.prepared is None or self.prepared[0] != name:
            self.prepared = None  # let go of the data of the one before
            workload = next(workload for workload in WORKLOADS if workload.name == name)
            self.prepared = name, dict(workload.prepare(self.setting).ours)
        return list(self.prepared[1])

    def run(self, action: str) -> list[float]:
        """Return the seconds of each piece."""
        assert self.prepared is not None
        with limited_threads(self.setting.threads):
            return list(timed_pieces(self.prepared[1][action], self.setting.device.timer))


def answer(answers: Answers, line: str) -> dict[str, Any]:
    """Return the result of a question, or the error it ended with."""
    question, *arguments = json.loads(line)
    try:
        return {"result": getattr(answers, question)(*arguments)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Answer until nothing more is asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    answers = Answers(setting_of(parser.parse_args(arguments)))
    # What the library or a peer prints must not be taken for an answer.
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(answers, line)), file=out, flush=True)


if __name__ == "__main__":
    main()
