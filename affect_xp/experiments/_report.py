"""The result of an experiment: tables with published values, checked claims, figures and curves."""

import dataclasses
import importlib.util
import json
import math
import statistics
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import affect_xp
from affect_xp.plots import style

_WIDTH = 100  # of text for the terminal


@dataclasses.dataclass(frozen=True)
class Measured:
    """A mean over runs with its standard error, or a single number.

    Examples
    --------
    >>> Measured.of([0.9, 1.0, 0.8])
    Measured(mean=0.9, error=0.0577...)
    """

    mean: float
    error: float | None = None

    @staticmethod
    def of(values: Iterable[float]) -> "Measured":
        """Return the mean and the standard error of the results of several runs."""
        results = [float(value) for value in values]
        mean = statistics.fmean(results)
        if len(results) < 2:
            return Measured(mean)
        return Measured(mean, statistics.stdev(results) / math.sqrt(len(results)))

    def text(self, places: int) -> str:
        """Return the number and its error with the given number of decimal places."""
        mean = f"{self.mean:.{places}f}"
        return mean if self.error is None else f"{mean} ± {self.error:.{places}f}"


@dataclasses.dataclass(frozen=True)
class Entry:
    """A row of a table."""

    method: str
    measured: Measured
    published: float | None = None  # None if the paper gives no number
    remark: str = ""  # for example why it differs


@dataclasses.dataclass(frozen=True)
class Table:
    """One measure for several methods, with the published numbers."""

    title: str
    measure: str
    entries: tuple[Entry, ...]
    note: str = ""

    def __getitem__(self, method: str) -> Measured:
        """Return the measured value of a method."""
        return next(entry.measured for entry in self.entries if entry.method == method)

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the heading and the rows as text, with a column of published numbers if there are any."""
        # The smallest number is shown with four significant digits, the others to the same place.
        sizes = [abs(entry.measured.mean) for entry in self.entries]
        smallest = min((size for size in sizes if size > 0 and math.isfinite(size)), default=1.0)
        places = min(max(4 - math.ceil(math.log10(smallest)), 0), 6)
        rows = [[entry.method, entry.measured.text(places)] for entry in self.entries]
        if all(entry.published is None for entry in self.entries):
            return ["", self.measure], rows
        for row, entry in zip(rows, self.entries, strict=True):
            row.append("–" if entry.published is None else f"{entry.published:.{max(places - 1, 0)}f}")
        return ["", self.measure, "published"], rows

    def text(self) -> str:
        """Return the table for the terminal, its remarks as footnotes."""
        heading, rows = self.cells()
        widths = [max(map(_width, column)) for column in zip(heading, *rows, strict=True)]
        remarks = list(dict.fromkeys(entry.remark for entry in self.entries if entry.remark))
        lines = [self.title, "  " + _aligned(heading, widths)]
        for row, entry in zip(rows, self.entries, strict=True):
            mark = f"  [{remarks.index(entry.remark) + 1}]" if entry.remark else ""
            lines.append("  " + _aligned(row, widths) + mark)
        lines += [_wrapped(f"[{i}] {remark}") for i, remark in enumerate(remarks, start=1)]
        if self.note:
            lines.append(_wrapped(self.note))
        return "\n".join(lines)

    def markdown(self) -> str:
        """Return the table in Markdown, its remarks in a column."""
        heading, rows = self.cells()
        rule = "|---|" + "--:|" * (len(heading) - 1)
        if any(entry.remark for entry in self.entries):
            heading, rule = [*heading, "remark"], rule + "---|"
            rows = [[*row, entry.remark] for row, entry in zip(rows, self.entries, strict=True)]
        lines = [f"### {self.title}", "", _line(heading), rule, *map(_line, rows)]
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper, and whether our numbers confirm it."""

    text: str
    holds: bool

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'FAILS'}: {self.text}"


@dataclasses.dataclass(frozen=True, eq=False)
class Figure:
    """A figure, drawn when it is written."""

    name: str
    caption: str
    draw: Callable[[Any], None]  # fills an empty matplotlib Figure
    size: tuple[float, float] = (7, 3.5)  # inches

    def write(self, stem: Path) -> list[Path]:
        """Draw to `stem`.png and `stem`.svg, the same bytes every time."""
        import matplotlib
        from matplotlib.figure import Figure as Canvas

        with matplotlib.rc_context(style() | {"svg.hashsalt": self.name, "svg.fonttype": "none"}):
            canvas = Canvas(figsize=self.size, layout="constrained")
            self.draw(canvas)
            paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
            canvas.savefig(paths[0], dpi=130, metadata={"Software": None})
            canvas.savefig(paths[1], metadata={"Date": None})
        return paths


@dataclasses.dataclass(frozen=True, eq=False)
class Report:
    """The result of an experiment."""

    name: str
    title: str
    settings: Mapping[str, Any]  # runs, seed: everything needed to reproduce it
    tables: tuple[Table, ...]
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()
    remarks: tuple[str, ...] = ()  # choices that the paper does not specify, and their effect
    series: Mapping[str, Sequence[float] | np.ndarray] = dataclasses.field(default_factory=dict)  # over time

    def text(self) -> str:
        """Return tables, claims and remarks for the terminal."""
        parts = [f"{self.title}\n{'=' * _width(self.title)}\n{_wrapped(self._settings_line(), '')}"]
        parts += [table.text() for table in self.tables]
        for heading, lines in self._lists():
            parts.append("\n".join([heading, *(_wrapped(f"- {line}") for line in lines)]))
        return "\n\n".join(parts)

    def markdown(self, *, figures: bool = True) -> str:
        """Return the report in Markdown, with links to its figures by default."""
        parts = [f"# {self.title}", self._settings_line()]
        parts += [table.markdown() for table in self.tables]
        for figure in self.figures if figures else ():
            parts.append(f"![{figure.caption}]({self._stem(figure)}.png)\n\n*{figure.caption}*")
        for heading, lines in self._lists():
            parts.append("\n".join([f"### {heading}", "", *(f"- {line}" for line in lines)]))
        return "\n\n".join(parts) + "\n"

    def as_json(self) -> dict[str, Any]:
        """Return everything except the figures as JSON types; values that are not finite become None."""
        content = {
            "name": self.name,
            "title": self.title,
            "affect_xp": affect_xp.__version__,
            "settings": self.settings,
            "tables": [dataclasses.asdict(table) for table in self.tables],
            "claims": [dataclasses.asdict(claim) for claim in self.claims],
            "figures": [{"name": self._stem(figure), "caption": figure.caption} for figure in self.figures],
            "remarks": self.remarks,
            "series": self.series,
        }
        plain: dict[str, Any] = _plain(content)
        return plain

    def write(self, folder: Path) -> list[Path]:
        """Write NAME.md, NAME.json and the figures (if matplotlib is installed); return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        drawn = importlib.util.find_spec("matplotlib") is not None
        texts = {
            folder / f"{self.name}.md": self.markdown(figures=drawn),
            folder / f"{self.name}.json": json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n",
        }
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        paths = list(texts)
        for figure in self.figures if drawn else ():
            paths += figure.write(folder / self._stem(figure))
        return paths

    def _stem(self, figure: Figure) -> str:
        return f"{self.name}-{figure.name}"

    def _lists(self) -> list[tuple[str, list[str]]]:
        """Return claims and remarks under their headings, if there are any."""
        lists = [("Claims", [str(c) for c in self.claims]), ("Remarks", list(self.remarks))]
        return [(heading, lines) for heading, lines in lists if lines]

    def _settings_line(self) -> str:
        return "Settings: " + ", ".join(f"{name} {value}" for name, value in self.settings.items()) + "."


def index_page(reports: Sequence[Report], skipped: Sequence[str] = ()) -> str:
    """Return a Markdown page with one line per report, and the experiments that were skipped."""
    lines = [
        "# The experiments of the paper",
        "",
        "| experiment | claims that hold |",
        "|---|---|",
    ]
    for report in reports:
        held = sum(claim.holds for claim in report.claims)
        lines.append(f"| [{report.title}]({report.name}.md) | {held} of {len(report.claims)} |")
    if skipped:
        lines += ["", *(f"- skipped: {reason}" for reason in skipped)]
    return "\n".join(lines) + "\n"


def _width(text: str) -> int:
    """Return the width of a text in columns; combining characters as in Ψ̂ have none."""
    return sum(not unicodedata.combining(character) for character in text)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Pad the first cell on the right, the others on the left."""
    first, *others = [" " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)]
    return "   ".join([cells[0] + first, *(pad + cell for pad, cell in zip(others, cells[1:], strict=True))])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _wrapped(text: str, indent: str = "  ") -> str:
    hanging = indent + ("  " if indent else "")
    return textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=hanging)


def _plain(value: Any) -> Any:
    """Convert mappings, sequences, arrays and numbers of any kind to JSON types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "tolist"):  # an array, or a number of NumPy
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Iterable):
        return [_plain(item) for item in value]
    return str(value)
