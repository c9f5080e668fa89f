"""Model of the cost of an AFFECT k-means step on a GPU, from operation counts and data sheets.

    python -m bench.gpu_model                            # print the tables
    python -m bench.gpu_model --write docs/gpu.md        # insert them into the page, between its marks
    python -m bench.gpu_model --counts counts.json       # load the counts, or save them
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
from ._gpu_counts import ITEM, Asked, Other, count_asked, count_others
from ._report import markdown_table

SIZES = (1_000, 5_000, 20_000, 50_000, 100_000)
GPUS = {"A100": 2.0e12, "H100": 3.35e12, "RTX 4090": 1.008e12}  # bytes per second, by data sheet
CPU = 204.8e9  # of a server with 32 cores and eight channels of DDR4-3200
SHARE = 0.85  # share of the bandwidth that is reached in practice
LAUNCH, WAIT = 10e-6, 20e-6  # seconds
ASKED_SIZES = (400, 500, 600)
OTHERS_SIZE = 600
CHURN = 0.02  # share of the objects that are replaced
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
    """The counts by `init` of AFFECT: at three sizes, and with churn; and those of other steps."""

    asked: dict[str, list[Asked]] = dataclasses.field(default_factory=dict)
    with_churn: dict[str, Asked] = dataclasses.field(default_factory=dict)
    others: list[Other] = dataclasses.field(default_factory=list)

    @staticmethod
    def read(path: Path) -> "Counts":
        """Read counts from a file."""
        saved = json.loads(path.read_text(encoding="utf-8"))
        return Counts(
            {init: [Asked(**row) for row in rows] for init, rows in saved["asked"].items()},
            {init: Asked(**row) for init, row in saved["with_churn"].items()},
            [Other(**row) for row in saved.get("others", [])],
        )

    def write(self, path: Path) -> None:
        """Write the counts to a file."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def counted(label: str | None = None) -> "Counts":
        """Count with CuPy."""
        counts = Counts()
        for init in progress(_scenario.INITS, len(_scenario.INITS), label):
            counts.asked[init] = [count_asked(n, init) for n in ASKED_SIZES]
            n = ASKED_SIZES[0]
            counts.with_churn[init] = count_asked(n, init, churn=round(CHURN * n))
        counts.others = count_others(OTHERS_SIZE)
        return counts


def line_through(points: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Return the line through the first two points."""
    (x0, y0), (x1, y1) = points[:2]
    slope = (y1 - y0) / (x1 - x0)
    return lambda x: y0 + slope * (x - x0)


def passes(asked: Sequence[Asked]) -> float:
    """Return the maximum number of passes over a matrix in a step."""
    return max(count.entries / count.n**2 for count in asked)


def rest_by_object(count: Asked) -> float:
    """Return the bytes per object outside the passes over n×n: arrays of shape (n, k)."""
    return (count.n_bytes - ITEM * count.entries) / count.n


def bytes_moved(asked: Sequence[Asked]) -> Callable[[int], float]:
    """Return A·n² + B·n, with the passes over n×n in A and the remaining bytes in B."""
    rest = max(rest_by_object(count) for count in asked)
    return lambda n: ITEM * passes(asked) * n * n + rest * n


def gpu_seconds(asked: Sequence[Asked], n: int, bandwidth: float) -> float:
    """Return the time of a step: launches overlap with the work of the device, waits do not."""
    work = bytes_moved(asked)(n) / (SHARE * bandwidth)
    return max(work, LAUNCH * asked[-1].launches) + WAIT * asked[-1].waits


def floor_seconds(asked: Sequence[Asked], n: int, bandwidth: float) -> float:
    """Return the time of the passes over n×n alone, in storage precision."""
    return passes(asked) * n * n * ITEM / (SHARE * bandwidth)


def break_even(asked: Sequence[Asked], bandwidth: float) -> int:
    """Return the smallest n, in hundreds, at which a step is faster than the same passes on the CPU."""
    for n in range(100, 200_000, 100):
        if gpu_seconds(asked, n, bandwidth) < floor_seconds(asked, n, CPU):
            return n
    raise ValueError("a step on this device is never faster than on the CPU")


def table(counts: Counts, init: str, measured: Mapping[str, Sequence[float]] | None = None) -> str:
    """Return the table for one value of `init`."""
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
    """Return remarks on the table: passes, break-even, churn, and bytes outside the passes."""
    *_, last = asked = counts.asked[init]
    churn = counts.with_churn[init]
    even = ", ".join(f"{break_even(asked, bandwidth):,} ({gpu})" for gpu, bandwidth in GPUS.items())
    rest = ", ".join(f"{rest_by_object(count):,.0f} at n = {count.n}" for count in asked)
    return [
        f"{passes(asked):.1f} passes over n×n, {ITEM * passes(asked):.0f} bytes per entry of W for large n; "
        f"{last.lloyd} Lloyd iterations",
        f"break-even with the CPU: n = {even}",
        f"with {CHURN:.0%} of the objects replaced: {churn.launches:,} launches, {churn.waits} waits, "
        f"{passes([churn]):.1f} passes",
        f"bytes per object outside these passes: {rest}",
    ]


def page_part(counts: Counts, measured: Mapping[str, Sequence[float]] | None = None) -> str:
    """Return the text between the marks of the page."""
    parts = []
    for init in counts.asked:
        lines = "\n".join(f"- {line}" for line in remarks(counts, init))
        parts += [f'`init="{init}"`:', table(counts, init, measured), lines]
    if counts.others:
        parts.append(others_table(counts.others))
    return "\n\n".join(parts)


def others_table(others: Sequence[Other]) -> str:
    """Return the table of other steps."""
    header = ("", "launches", "at most", "waits", "at most")
    rows = [
        (x.name, f"{x.launches:,}", f"{x.most_launches:,}", str(x.waits), str(x.most_waits)) for x in others
    ]
    return markdown_table([header, *rows])


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
        "--counts", type=Path, metavar="FILE", help="the counts; created if it does not exist"
    )
    parser.add_argument("--measured", type=Path, metavar="FILE", help="results.json of a GPU")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page to insert the tables into")
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
    """Return the measured seconds of the steps on a GPU, by name."""
    details = json.loads(path.read_text(encoding="utf-8"))["details"]
    seconds: dict[str, list[float]] = details.get("step-on-device", {}).get("seconds", {})
    return seconds


if __name__ == "__main__":
    sys.exit(main())
