"""Compare two revisions: measure both alternately in the same run, and flag differences.

    python -m bench.compare REV          # the working tree against REV
    python -m bench.compare OLD NEW      # NEW against OLD

Each revision runs in its own process with the benchmarks of the working tree, so that only the library
differs. Workloads that a revision does not support are skipped.

A difference is flagged if both the minimum times and the median over the rounds show it: a single fast round
affects the first, temporary load on the machine the second. It is measured again for confirmation. The column
"noise" is the standard error of the median over the rounds.
"""

import argparse
import contextlib
import dataclasses
import io
import json
import math
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from affect_xp.exceptions import AffectError, InputError
from affect_xp.progress import progress

from .__main__ import add_options
from ._measure import Effort
from ._report import aligned
from ._suite import EFFORTS, busy

ROOT = Path(__file__).parents[1]
SLOWER = 1.10  # ratios above this, or below 1 / SLOWER, are flagged
ROUNDS = 3  # minimum for a meaningful median
CHANCES = 3  # number of measurements before a difference is reported
HEADER = ("workload", "action", "old, s", "new, s", "new / old", "median", "noise", "")


@dataclasses.dataclass(frozen=True)
class Difference:
    """The minimum seconds of one action in both revisions, and the median of new / old over the rounds.

    `noise` is the standard error of this median, from the median absolute deviation of the rounds; nan for a
    single round.
    """

    workload: str
    action: str
    old: float
    new: float
    median: float
    noise: float = math.nan

    @property
    def ratio(self) -> float:
        """The relative time, new / old."""
        return self.new / self.old

    @property
    def is_slower(self) -> bool:
        """Whether both the ratio and the median exceed SLOWER."""
        return min(self.ratio, self.median) > SLOWER

    @property
    def is_faster(self) -> bool:
        """Whether both the ratio and the median are below 1 / SLOWER."""
        return max(self.ratio, self.median) < 1 / SLOWER

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        flag = "SLOWER" if self.is_slower else "faster" if self.is_faster else ""
        ratios = f"{self.ratio:.2f}", f"{self.median:.2f}", f"± {self.noise:.2f}"
        return self.workload, self.action, f"{self.old:.4g}", f"{self.new:.4g}", *ratios, flag


def tell(differences: Sequence[Difference], problems: Mapping[str, str]) -> str:
    """Return the table, the skipped workloads, and a conclusion."""
    parts = [aligned([HEADER, *(difference.cells() for difference in differences)])]
    parts += [f"{name}: left out, {why}" for name, why in problems.items()]
    slower = sum(difference.is_slower for difference in differences)
    faster = sum(difference.is_faster for difference in differences)
    share = f"{100 * (SLOWER - 1):.0f} %"
    return "\n\n".join(
        [*parts, f"of {len(differences)}, by more than {share}: {slower} slower, {faster} faster"]
    )


class Worker:
    """A process that measures one revision; requests and responses are lines of JSON."""

    def __init__(self, tree: Path, options: Sequence[str], name: str = "a revision") -> None:
        self.tree, self.name = tree, name
        paths = [str(tree), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}._worker", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tree,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )

    def __enter__(self) -> Self:
        try:
            found = Path(self.ask("where"))
            if self.tree.resolve() not in found.resolve().parents:
                raise AffectError(f"the library was to come from {self.tree}, but came from {found}")
        except AffectError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # a request that was never read
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, *question: str) -> Any:
        """Return the response, or raise the error of the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended, so there is no response
            print(json.dumps(question), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            what = " ".join(question)
            raise AffectError(f"the process that measures {self.name} ended at '{what}': see what it wrote")
        answer = json.loads(line)
        if "error" in answer:
            raise AffectError(answer["error"])
        return answer["result"]


def compare_workload(name: str, old: Any, new: Any, effort: Effort) -> list[Difference]:
    """Compare all actions of a workload that both revisions support."""
    known = set(old.ask("prepare", name))
    actions = [action for action in new.ask("prepare", name) if action in known]
    effort = dataclasses.replace(effort, seconds=2 * effort.seconds / max(1, len(actions)))
    return [compare_action(name, action, old, new, effort) for action in actions]


def compare_action(name: str, action: str, old: Any, new: Any, effort: Effort) -> Difference:
    """Time an action in two workers, in alternating order; repeat if they differ."""
    seconds: dict[Any, list[list[float]]] = {old: [], new: []}  # by round and piece
    for _ in range(CHANCES):
        start, before = time.perf_counter(), len(seconds[old])
        while effort.goes_on(len(seconds[old]) - before, time.perf_counter() - start):
            for worker in (old, new) if len(seconds[old]) % 2 == 0 else (new, old):
                seconds[worker].append(worker.ask("run", action))
        best_old, best_new = (float(np.min(seconds[worker], axis=0).sum()) for worker in (old, new))
        by_round = np.sum(seconds[new], axis=1) / np.sum(seconds[old], axis=1)
        difference = Difference(
            name, action, best_old, best_new, float(np.median(by_round)), noise_of_median(by_round)
        )
        if not (difference.is_slower or difference.is_faster):
            break
    return difference


def noise_of_median(values: np.ndarray) -> float:
    """Return the standard error of a median: √(π/2) · 1.483 MAD / √n, as for normal values."""
    if len(values) < 2:
        return math.nan
    deviation = 1.483 * float(np.median(np.abs(values - np.median(values))))
    return math.sqrt(math.pi / 2) * deviation / math.sqrt(len(values))


def compare(
    names: Sequence[str], old: Any, new: Any, effort: Effort, *, label: str | None = None
) -> tuple[list[Difference], dict[str, str]]:
    """Return the differences of all workloads, and the reasons for skipped ones."""
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
        # An archive, unlike a worktree, leaves no trace in the repository.
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
        message = error.stderr.decode().strip()
        raise InputError(f"git {arguments[0]} failed: {message}; name a commit, branch or tag") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and return the exit code: 0 nothing slower, 1 something slower, 2 invalid arguments."""
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
    busy()
    try:
        with (
            tree_of(options.old) as old_tree,
            tree_of(options.new) as new_tree,
            Worker(old_tree, passed_on, options.old) as old,
            Worker(new_tree, passed_on, options.new or "the working tree") as new,
        ):
            names = options.only or new.ask("names")
            effort = dataclasses.replace(EFFORTS[options.size], fewest=ROUNDS, longest=math.inf)
            differences, problems = compare(names, old, new, effort, label="compare")
    except AffectError as error:
        parser.error(str(error))
    print(tell(differences, problems))
    return int(any(difference.is_slower for difference in differences))


if __name__ == "__main__":
    sys.exit(main())
