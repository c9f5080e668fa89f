"""Compare two revisions: both are measured in the same run, by turns, and slower ones are pointed out.

    python -m bench.compare REV          # the working tree against REV
    python -m bench.compare OLD NEW      # NEW against OLD

Each revision runs in a process of its own with the benchmarks of the working tree, so that only the library
differs. What a revision cannot do yet is left out.
"""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from affect_xp._progress import progress
from affect_xp.exceptions import AffectError, InputError

from .__main__ import add_options
from ._measure import Effort
from ._report import aligned
from ._suite import EFFORTS

ROOT = Path(__file__).parents[1]
SLOWER = 1.10  # flagged from here on
HEADER = ("workload", "action", "old, s", "new, s", "new / old", "")


@dataclasses.dataclass(frozen=True)
class Difference:
    """The seconds of one action in both revisions."""

    workload: str
    action: str
    old: float
    new: float

    @property
    def ratio(self) -> float:
        """How much longer it takes now."""
        return self.new / self.old

    @property
    def is_slower(self) -> bool:
        """Whether that is more than noise excuses."""
        return self.ratio > SLOWER

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        flag = "SLOWER" if self.is_slower else "faster" if self.ratio < 1 / SLOWER else ""
        return self.workload, self.action, f"{self.old:.4g}", f"{self.new:.4g}", f"{self.ratio:.2f}", flag


def tell(differences: Sequence[Difference], problems: Mapping[str, str]) -> str:
    """Return the table, what was left out, and a sentence."""
    parts = [aligned([HEADER, *(difference.cells() for difference in differences)])]
    parts += [f"{name}: left out, {why}" for name, why in problems.items()]
    slower = sum(difference.is_slower for difference in differences)
    share = f"{100 * (SLOWER - 1):.0f} %"
    return "\n\n".join([*parts, f"{slower} of {len(differences)} slower by more than {share}"])


class Worker:
    """A process that measures one revision; it is asked and answers in lines of JSON."""

    def __init__(self, tree: Path, options: Sequence[str]) -> None:
        paths = [str(tree), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}._worker", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tree,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        found = Path(self.ask("where"))
        if tree.resolve() not in found.resolve().parents:
            raise AffectError(f"the library was to come from {tree}, but came from {found}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, *question: str) -> Any:
        """Return the answer, or raise what went wrong there."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(question), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise AffectError(f"the process that measures a revision has died over {question}")
        answer = json.loads(line)
        if "error" in answer:
            raise AffectError(answer["error"])
        return answer["result"]


def compare_workload(name: str, old: Any, new: Any, effort: Effort) -> list[Difference]:
    """Let two workers take turns at each action of a workload, the first one changing."""
    known = set(old.ask("prepare", name))
    actions = [action for action in new.ask("prepare", name) if action in known]
    effort = dataclasses.replace(effort, seconds=2 * effort.seconds / max(1, len(actions)))
    differences = []
    for action in actions:
        rounds, spent = 0, 0.0
        best: dict[Any, np.ndarray] = {}
        while effort.goes_on(rounds, spent):
            for worker in (old, new) if rounds % 2 == 0 else (new, old):
                seconds = np.array(worker.ask("run", action))
                best[worker] = np.minimum(best.get(worker, seconds), seconds)
                spent += float(seconds.sum())
            rounds += 1
        differences.append(Difference(name, action, float(best[old].sum()), float(best[new].sum())))
    return differences


def compare(
    names: Sequence[str], old: Any, new: Any, effort: Effort, *, label: str | None = None
) -> tuple[list[Difference], dict[str, str]]:
    """Return the differences of all workloads, and why some were left out."""
    differences: list[Difference] = []
    problems: dict[str, str] = {}
    for name in progress(names, len(names), label):
        try:
            differences += compare_workload(name, old, new, effort)
        except AffectError as error:
            problems[name] = str(error)
    return differences, problems


@contextlib.contextmanager
def tree_of(revision: str | None) -> Iterator[Path]:
    """Yield a folder with the library of a revision; None is the working tree."""
    if revision is None:
        yield ROOT
        return
    with tempfile.TemporaryDirectory() as folder:
        # An archive, unlike a worktree, leaves nothing behind in the repository.
        packed = _git("archive", "--format=tar", _commit(revision), "affect_xp")
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def _commit(revision: str) -> str:
    return _git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout
    except FileNotFoundError as error:
        raise InputError("git is needed to compare revisions; install it") from error
    except subprocess.CalledProcessError as error:
        told = error.stderr.decode().strip()
        raise InputError(f"git {arguments[0]} failed: {told}; name a commit, branch or tag") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and return the exit code: 0 nothing slower, 1 something slower, 2 wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", help="a commit, branch or tag")
    parser.add_argument("new", nargs="?", help="another one (default: the working tree)")
    add_options(parser)
    options = parser.parse_args(arguments)
    passed_on = [
        "--threads",
        str(options.threads),
        *([] if options.size == "full" else [f"--{options.size}"]),
    ]
    try:
        with (
            tree_of(options.old) as old_tree,
            tree_of(options.new) as new_tree,
            Worker(old_tree, passed_on) as old,
            Worker(new_tree, passed_on) as new,
        ):
            names = options.only or new.ask("names")
            differences, problems = compare(names, old, new, EFFORTS[options.size], label="compare")
    except AffectError as error:
        parser.error(str(error))
    print(tell(differences, problems))
    return int(any(difference.is_slower for difference in differences))


if __name__ == "__main__":
    sys.exit(main())
