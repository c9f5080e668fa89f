"""What a step of AFFECT k-means costs on a GPU, on paper: made without a GPU, from counts and data sheets.

    python -m bench.gpu_model                            # print the tables
    python -m bench.gpu_model --write docs/gpu.md        # put them into the page, between its marks
    python -m bench.gpu_model --counts counts.json       # use what was counted, or keep it
    python -m bench.gpu_model --measured results.json    # add times of `python -m bench --device cuda`

Counting needs CuPy executed on a CPU: `tools/cupy_cpu/run python -m bench.gpu_model`.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from affect_xp.progress import progress

from . import _scenario
from ._gpu_counts import ITEM, Asked, count_asked
from ._report import markdown_table

SIZES = (1_000, 5_000, 20_000, 50_000, 100_000)
GPUS = {"A100": 2.0e12, "H100": 3.35e12, "RTX 4090": 1.008e12}  # bytes a second, by data sheet
CPU = 204.8e9  # of a server with 32 cores and eight channels of DDR4-3200
SHARE = 0.85  # of the bandwidth that is reached in practice
LAUNCH, WAIT = 10e-6, 20e-6  # seconds
ASKED_SIZES = (400, 500, 600)  # two for the fit, one to check it
CHURN = 0.02  # share of the objects that leave and come
MARKS = ("<!-- begin: python -m bench.gpu_model -->", "<!-- end: python -m bench.gpu_model -->")
HEADER = (
    "n",
    "bytes moved",
    "launches",
    "host waits",
    "extra memory",
    *(f"{gpu}, model" for gpu in GPUS),
    "CPU, model",
    *(f"{gpu}, floor" for gpu in GPUS),
    "measured",
)


@dataclasses.dataclass
class Counts:
    """What was counted, by the `init` of AFFECT: at three sizes, and with churn."""

    asked: dict[str, list[Asked]] = dataclasses.field(default_factory=dict)
    with_churn: dict[str, Asked] = dataclasses.field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> "Counts":
        """Read what was counted before."""
        saved = json.loads(path.read_text(encoding="utf-8"))
        return Counts(
            {init: [Asked(**row) for row in rows] for init, rows in saved["asked"].items()},
            {init: Asked(**row) for init, row in saved["with_churn"].items()},
        )

    def write(self, path: Path) -> None:
        """Keep what was counted."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def counted(label: str | None = None) -> "Counts":
        """Count on CuPy."""
        counts = Counts()
        for init in progress(_scenario.INITS, len(_scenario.INITS), label):
            counts.asked[init] = [count_asked(n, init) for n in ASKED_SIZES]
            n = ASKED_SIZES[0]
            counts.with_churn[init] = count_asked(n, init, churn=round(CHURN * n))
        return counts


def line_through(points: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Return the line through the first two points."""
    (x0, y0), (x1, y1) = points[:2]
    slope = (y1 - y0) / (x1 - x0)
    return lambda x: y0 + slope * (x - x0)


def bytes_moved(asked: Sequence[Asked]) -> Callable[[int], float]:
    """Return A·n² + B·n with A and B from the first two counts."""
    per_object = line_through([(count.n, count.n_bytes / count.n) for count in asked])  # A·n + B
    return lambda n: n * per_object(n)


def passes(asked: Sequence[Asked]) -> float:
    """Return how often a step reads or writes a matrix."""
    return asked[-1].entries / asked[-1].n ** 2


def gpu_seconds(asked: Sequence[Asked], n: int, bandwidth: float) -> float:
    """Return the time of a step: launches are made while the device works, waits are not."""
    work = bytes_moved(asked)(n) / (SHARE * bandwidth)
    return max(work, LAUNCH * asked[-1].launches) + WAIT * asked[-1].waits


def floor_seconds(asked: Sequence[Asked], n: int, bandwidth: float) -> float:
    """Return the time of the passes over n×n alone, in storage precision."""
    return passes(asked) * n * n * ITEM / (SHARE * bandwidth)


def break_even(asked: Sequence[Asked], bandwidth: float) -> int:
    """Return the n from which on a step takes less time than the passes take on the CPU, up to hundreds."""
    for n in range(100, 200_000, 100):
        if gpu_seconds(asked, n, bandwidth) < floor_seconds(asked, n, CPU):
            return n
    raise ValueError("a step on this device is never faster than on the CPU")


def table(counts: Counts, init: str, measured: Mapping[str, Sequence[float]] | None = None) -> str:
    """Return the table for one way to start."""
    return markdown_table([HEADER, *(_cells(counts.asked[init], init, n, measured or {}) for n in SIZES)])


def _cells(asked: Sequence[Asked], init: str, n: int, measured: Mapping[str, Sequence[float]]) -> list[str]:
    seconds = measured.get(f"n = {n}, init {init}")
    peak = line_through([(count.n, count.peak) for count in asked])(n)
    return [
        f"{n:,}",
        f"{bytes_moved(asked)(n) / 1e9:,.1f} GB",
        f"{asked[-1].launches:,}",
        str(asked[-1].waits),
        f"{peak / 1e9:.2f} GB",
        *(_milliseconds(gpu_seconds(asked, n, bandwidth)) for bandwidth in GPUS.values()),
        _milliseconds(floor_seconds(asked, n, CPU)),
        *(_milliseconds(floor_seconds(asked, n, bandwidth)) for bandwidth in GPUS.values()),
        "" if not seconds else _milliseconds(seconds[-1]),
    ]


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.{0 if seconds >= 0.01 else 1}f} ms"


def remarks(counts: Counts, init: str) -> list[str]:
    """Return what the table does not tell, and the prediction errors of the fits on held-out counts."""
    *_, last = asked = counts.asked[init]
    churn = counts.with_churn[init]
    even = ", ".join(f"{break_even(asked, bandwidth):,} ({gpu})" for gpu, bandwidth in GPUS.items())
    off = bytes_moved(asked)(last.n) / last.n_bytes - 1
    per_entry = line_through([(count.n, count.n_bytes / count.n) for count in asked])
    slope = per_entry(1) - per_entry(0)
    return [
        f"{passes(asked):.1f} passes over n×n, {slope:.0f} bytes per entry of W for large n; "
        f"{last.lloyd} Lloyd iterations",
        f"break-even with the CPU: n = {even}",
        f"when {CHURN:.0%} of the objects leave and come: {churn.launches:,} launches, {churn.waits} waits, "
        f"{passes([churn]):.1f} passes",
        f"bytes at n = {last.n:,}: model error {off:+.1%}",
    ]


def page_part(counts: Counts, measured: Mapping[str, Sequence[float]] | None = None) -> str:
    """Return what stands between the marks of the page."""
    parts = []
    for init in counts.asked:
        lines = "\n".join(f"- {line}" for line in remarks(counts, init))
        parts += [f'`init="{init}"`:', table(counts, init, measured), lines]
    return "\n\n".join(parts)


def with_part(page: str, part: str) -> str:
    """Return a page with the part between its marks replaced."""
    begin, end = MARKS
    if begin not in page or end not in page:
        raise ValueError(f"the page has no marks {begin} and {end}; add them where the tables should be")
    before, rest = page.split(begin, 1)
    return f"{before}{begin}\n{part}\n{end}{rest.split(end, 1)[1]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, and print or write the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--counts", type=Path, metavar="FILE", help="what was counted; counted if there is none"
    )
    parser.add_argument("--measured", type=Path, metavar="FILE", help="results.json of a GPU")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page to put the tables into")
    options = parser.parse_args(arguments)
    known = options.counts is not None and options.counts.is_file()
    counts = Counts.read(options.counts) if known else Counts.counted("counting")
    if options.counts is not None:
        counts.write(options.counts)
    measured = None if options.measured is None else measured_steps(options.measured)
    part = page_part(counts, measured)
    if options.write is None:
        print(part)
    else:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(with_part(page, part), encoding="utf-8")
    return 0


def measured_steps(path: Path) -> dict[str, list[float]]:
    """Return the seconds of the steps that a GPU was measured with, by name."""
    details = json.loads(path.read_text(encoding="utf-8"))["details"]
    seconds: dict[str, list[float]] = details.get("step-on-device", {}).get("seconds", {})
    return seconds


if __name__ == "__main__":
    sys.exit(main())
