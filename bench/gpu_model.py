"""What a step of AFFECT k-means costs on a GPU, on paper: made without a GPU, from counts and data sheets.

    python -m bench.gpu_model                            # print the tables
    python -m bench.gpu_model --write docs/gpu.md        # put them into the page, between its marks
    python -m bench.gpu_model --counts counts.json       # keep what was counted here, and use what is there
    python -m bench.gpu_model --measured results.json    # add times of `python -m bench --device cuda`

torch counts bytes and memory; `cupy_cpu`, CuPy's own code executed on a CPU, counts launches and waits. They
may live in different environments: run it in each with the same `--counts`. What cannot be counted is left
empty.
"""

import argparse
import dataclasses
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from affect_xp.progress import progress

from . import _scenario
from ._gpu_counts import ITEM, Asked, Traffic, count_asked, count_traffic, n_blocks, peak_bytes
from ._report import markdown_table

SIZES = (5_000, 20_000, 50_000, 100_000)
BANDWIDTHS = {"A100": 2.0e12, "H100": 3.35e12}  # bytes a second, by data sheet
SHARE = 0.85  # of the bandwidth that is reached in practice
FLOOR = 30  # passes over n×n in storage precision, if every product is whole and no temporary is written
LAUNCH, WAIT = 5e-6, 20e-6  # seconds
TRAFFIC_SIZES = (1_000, 2_000, 3_000)  # two for the fit, one to check it
ASKED_SIZE, ASKED_BLOCKS = 240, (2, 4, 8)  # the same
MARKS = ("<!-- begin: python -m bench.gpu_model -->", "<!-- end: python -m bench.gpu_model -->")
HEADER = (
    "n",
    "passes over n×n",
    "bytes moved",
    "launches",
    "host waits",
    "extra memory",
    *(f"{gpu}, model" for gpu in BANDWIDTHS),
    *(f"{gpu}, floor" for gpu in BANDWIDTHS),
    "measured",
)


@dataclasses.dataclass
class Counts:
    """What was counted, by the `init` of AFFECT."""

    traffic: dict[str, list[Traffic]] = dataclasses.field(default_factory=dict)
    peaks: dict[str, dict[int, int]] = dataclasses.field(default_factory=dict)
    asked: dict[str, list[Asked]] = dataclasses.field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> "Counts":
        """Read what was counted before, if anything."""
        if not path.is_file():
            return Counts()
        saved = json.loads(path.read_text(encoding="utf-8"))
        return Counts(
            {init: [Traffic(**row) for row in rows] for init, rows in saved["traffic"].items()},
            {init: {int(n): size for n, size in sizes.items()} for init, sizes in saved["peaks"].items()},
            {init: [Asked(**row) for row in rows] for init, rows in saved["asked"].items()},
        )

    def write(self, path: Path) -> None:
        """Keep what was counted."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", encoding="utf-8")

    def count(self, *, label: str | None = None) -> None:
        """Count anew what can be counted here."""
        todo: list[Callable[[], None]] = []
        for init in _scenario.INITS:
            if importlib.util.find_spec("torch") is not None:
                todo += [lambda init=init: self._with_torch(init)]  # type: ignore[misc]
            if importlib.util.find_spec("cupy_cpu") is not None:
                todo += [lambda init=init: self._with_cupy(init)]  # type: ignore[misc]
        for action in progress(todo, len(todo), label):
            action()

    def _with_torch(self, init: str) -> None:
        self.traffic[init] = [count_traffic(n, init) for n in TRAFFIC_SIZES]
        self.peaks[init] = {n: peak_bytes(n, init) for n in SIZES}

    def _with_cupy(self, init: str) -> None:
        self.asked[init] = [count_asked(ASKED_SIZE, blocks, init) for blocks in ASKED_BLOCKS]


def line_through(points: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Return the line through the first two points."""
    (x0, y0), (x1, y1) = points[:2]
    slope = (y1 - y0) / (x1 - x0)
    return lambda x: y0 + slope * (x - x0)


def bytes_moved(traffic: Sequence[Traffic]) -> Callable[[int], float]:
    """Return A·n² + B·n with A and B from the first two counts."""
    per_object = line_through([(count.n, count.n_bytes / count.n) for count in traffic])  # A·n + B
    return lambda n: n * per_object(n)


def launches_of(asked: Sequence[Asked]) -> Callable[[int], float]:
    """Return the launches by n: a line in the number of blocks, from the first two counts."""
    by_blocks = line_through([(count.blocks, count.launches) for count in asked])
    return lambda n: by_blocks(n_blocks(n))


def model_seconds(n_bytes: float, launches: float, waits: float, bandwidth: float) -> float:
    """Return the time of a step: launches are made while the device works, waits are not."""
    return max(n_bytes / (SHARE * bandwidth), LAUNCH * launches) + WAIT * waits


def floor_seconds(n: int, bandwidth: float) -> float:
    """Return the time of a step that multiplies whole matrices and writes no temporaries."""
    return FLOOR * n * n * ITEM / (SHARE * bandwidth)


def table(counts: Counts, init: str, measured: Mapping[str, Sequence[float]] | None = None) -> str:
    """Return the table for one way to start."""
    return markdown_table([HEADER, *(_cells(counts, init, n, measured or {}) for n in SIZES)])


def _cells(counts: Counts, init: str, n: int, measured: Mapping[str, Sequence[float]]) -> list[str]:
    traffic, asked, peak = (
        counts.traffic.get(init),
        counts.asked.get(init),
        counts.peaks.get(init, {}).get(n),
    )
    moved = bytes_moved(traffic)(n) if traffic else None
    launches = launches_of(asked)(n) if asked else None
    waits = asked[-1].waits if asked else None
    times = [
        model_seconds(moved, launches, waits, bandwidth)
        if moved is not None and launches is not None and waits is not None
        else None
        for bandwidth in BANDWIDTHS.values()
    ]
    seconds = measured.get(f"n = {n}, init {init}")
    return [
        f"{n:,}",
        _shown(traffic and traffic[-1].passes, "{:.0f}"),
        _shown(moved and moved / 1e9, "{:,.0f} GB"),
        _shown(launches, "{:,.0f}"),
        _shown(waits, "{:d}"),
        _shown(peak and peak / 1e9, "{:.2f} GB"),
        *(_shown(time and 1e3 * time, "{:,.0f} ms") for time in times),
        *(f"{1e3 * floor_seconds(n, bandwidth):,.0f} ms" for bandwidth in BANDWIDTHS.values()),
        _shown(seconds and 1e3 * seconds[-1], "{:,.0f} ms"),
    ]


def _shown(value: Any, form: str) -> str:
    return "" if value is None else form.format(value)


def checks(counts: Counts) -> list[str]:
    """Return the prediction errors of the fits on held-out counts."""
    told = []
    for init in _scenario.INITS:
        if init in counts.traffic:
            *_, last = fitted = counts.traffic[init]
            off = bytes_moved(fitted)(last.n) / last.n_bytes - 1
            told.append(
                f'init="{init}", {last.lloyd} Lloyd iterations: '
                f"bytes at n = {last.n:,}: model error {off:+.1%}"
            )
        if init in counts.asked:
            rows = counts.asked[init]
            line = line_through([(count.blocks, count.launches) for count in rows])
            off = line(rows[-1].blocks) / rows[-1].launches - 1
            same = len({(count.waits, count.copies) for count in rows}) == 1
            waits = "waits do not depend on the blocks" if same else "waits depend on the blocks"
            told.append(
                f'init="{init}": launches with {rows[-1].blocks} blocks: model error {off:+.1%}; {waits}'
            )
    return told


def page_part(counts: Counts, measured: Mapping[str, Sequence[float]] | None = None) -> str:
    """Return what stands between the marks of the page."""
    parts = []
    for init in _scenario.INITS:
        parts += [f'`init="{init}"`:', table(counts, init, measured)]
    return "\n\n".join([*parts, "\n".join(f"- {line}" for line in checks(counts))]).rstrip()


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
    parser.add_argument("--counts", type=Path, metavar="FILE", help="what was counted, here and elsewhere")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="results.json of a GPU")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page to put the tables into")
    options = parser.parse_args(arguments)
    counts = Counts() if options.counts is None else Counts.read(options.counts)
    counts.count(label="counting")
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
