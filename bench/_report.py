"""Reports of measured values and their goals: as text, JSON, Markdown and figures."""

import dataclasses
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._measure import fitted_power

HEADER = ("workload", "against", "figure", "must", "aim", "verdict")
JUDGED = "full"  # the goals are set for this size
PICTURES = {"time": ("time of a step", "s"), "memory": ("peak memory of a step", "B")}  # axis and unit


@dataclasses.dataclass(frozen=True)
class Goal:
    """A required value and an optional target; smaller is better unless `at_least`."""

    must: float
    aim: float | None = None
    at_least: bool = False

    def verdict(self, figure: float) -> str:
        """Return "aim", "must" or "MISSED"; "met" if there is no aim."""
        if not self._reaches(figure, self.must):
            return "MISSED"
        if self.aim is None:
            return "met"
        return "aim" if self._reaches(figure, self.aim) else "must"

    def _reaches(self, figure: float, bound: float) -> bool:
        return figure >= bound if self.at_least else figure <= bound

    def texts(self) -> tuple[str, str]:
        """Return must and aim as text."""
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {self.must:g}", "" if self.aim is None else f"{sign} {self.aim:g}"


@dataclasses.dataclass(frozen=True)
class Curve:
    """Growth of a quantity with n."""

    quantity: str  # of PICTURES
    sizes: Sequence[int]
    values: Sequence[float]
    most: Sequence[float] | None = None  # upper bounds of the values, if known

    @property
    def power(self) -> tuple[float, float]:
        """The fitted a and b of a·nᵇ."""
        return fitted_power(self.sizes, self.values)

    @property
    def exponent(self) -> float:
        """The fitted b of a·nᵇ."""
        return self.power[1]


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure: a ratio, or the exponent of a curve."""

    what: str
    against: str
    figure: float
    goal: Goal | None = None
    note: str = ""
    curve: Curve | None = None

    @staticmethod
    def growth(what: str, against: str, curve: Curve, goal: Goal | None = None, note: str = "") -> "Row":
        """Return the exponent of a curve."""
        return Row(what, against, curve.exponent, goal, note, curve)

    @property
    def verdict(self) -> str:
        """Whether the figure reaches must and aim."""
        return "" if self.goal is None else self.goal.verdict(self.figure)

    def cells(self, *, judged: bool = True) -> tuple[str, ...]:
        """Return the row of the table."""
        shown = f"n^{self.figure:.2f}" if self.curve else f"{self.figure:.3g} ×"
        goals = ("", "") if self.goal is None else self.goal.texts()
        return (self.what, self.against, shown, *goals, self.verdict if judged else "")

    def as_json(self, *, judged: bool = True) -> dict[str, Any]:
        """Return the row as JSON types."""
        return dataclasses.asdict(self) | {"verdict": self.verdict if judged else ""}


@dataclasses.dataclass(frozen=True)
class Results:
    """All rows of a run.

    Attributes
    ----------
    rows : by workload
    problems : by workload, the reason why it was skipped or failed
    details : by workload, the measurements behind the rows
    environment : the machine, the versions and the settings
    """

    rows: Mapping[str, Sequence[Row]]
    problems: Mapping[str, str]
    details: Mapping[str, Any]
    environment: Mapping[str, Any]

    def all_rows(self) -> list[Row]:
        """Return the rows of all workloads."""
        return [row for rows in self.rows.values() for row in rows]

    @property
    def judged(self) -> bool:
        """Whether runs of this size are compared with the goals."""
        return bool(self.environment.get("size") == JUDGED)

    def table(self) -> list[tuple[str, ...]]:
        """Return the header and a row for each figure."""
        return [HEADER, *(row.cells(judged=self.judged) for row in self.all_rows())]

    def remarks(self) -> list[str]:
        """Return the distinct notes, and the skipped workloads."""
        notes: dict[str, str] = {}
        for row in self.all_rows():
            if row.note:
                notes.setdefault(row.note, f"{row.what}: {row.note}.")
        return [*notes.values(), *(f"{name}: {why}." for name, why in self.problems.items())]

    def text(self) -> str:
        """Return the report for the terminal."""
        parts = [aligned(self.table())]
        if self.remarks():
            parts.append("\n".join(self.remarks()))
        return "\n\n".join([*parts, self._told()])

    def markdown(self, pictures: Iterable[str] = ()) -> str:
        """Return the report in Markdown."""
        parts = ["# Benchmarks", self._told(), markdown_table(self.table())]
        if self.remarks():
            parts.append("\n".join(f"- {remark}" for remark in self.remarks()))
        parts += [f"![{Path(name).stem} against n]({name})" for name in pictures]
        return "\n\n".join(parts) + "\n"

    def _told(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.environment.items())

    def as_json(self) -> dict[str, Any]:
        """Return everything except the figures as JSON types."""
        return {
            "environment": self.environment,
            "workloads": {
                name: [row.as_json(judged=self.judged) for row in rows] for name, rows in self.rows.items()
            },
            "problems": self.problems,
            "details": self.details,
        }

    def write(self, folder: Path, *, draw: bool) -> list[Path]:
        """Write results.json, results.md and, on request, the figures; return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        caption = ", ".join(f"{name}: {self.environment.get(name)}" for name in ("device", "threads", "size"))
        pictures = draw_curves(self.all_rows(), folder, caption) if draw else []
        texts = {
            folder / "results.json": json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n",
            folder / "results.md": self.markdown(path.name for path in pictures),
        }
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        return [*texts, *pictures]


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Return a table with columns of equal width, and a line below the header."""
    widths = [max(_width(row[i]) for row in table) for i in range(len(table[0]))]
    lines = [
        "  ".join(
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in table
    ]
    return "\n".join([lines[0], "-" * max(map(_width, lines)), *lines[1:]])


def markdown_table(table: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    head, *rows = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([head, "|" + "---|" * len(table[0]), *rows])


def _width(text: str) -> int:
    """Return the width of a text in columns; the hat of Ψ̂ has none."""
    return sum(not unicodedata.combining(character) for character in text)


def draw_curves(rows: Iterable[Row], folder: Path, caption: str = "") -> list[Path]:
    """Draw a log-log figure for each quantity, with the fitted exponents in its legend."""
    import matplotlib
    from matplotlib.figure import Figure

    from affect_xp.plots import style

    drawn = []
    grown = [(row, row.curve) for row in rows if row.curve is not None]
    with matplotlib.rc_context(style()):
        for quantity, (name, unit) in PICTURES.items():
            shown = [(row, curve) for row, curve in grown if curve.quantity == quantity]
            if not shown:
                continue
            figure = Figure(figsize=(7, 4.5), layout="constrained")
            ax = figure.subplots()
            for row, curve in shown:
                _draw_curve(ax, row, curve)
            ax.set(xscale="log", yscale="log", xlabel="objects n", ylabel=name)
            ax.set_title(caption, fontsize="medium", loc="left")
            _number(ax, unit)
            drawn.append(folder / f"{quantity}.png")
            figure.savefig(drawn[-1], dpi=150)
    return drawn


def _draw_curve(ax: Any, row: Row, curve: Curve) -> None:
    """Draw the measured values as points, the fitted power law as a line, and the goal in grey."""
    what = row.what.removesuffix(f", {curve.quantity}").replace("Ψ̂", r"$\hat{\Psi}$")  # fonts miss the hat
    a, b = curve.power
    fitted = [a * n**b for n in curve.sizes]
    (line,) = ax.plot(curve.sizes, fitted, label=f"{what}: $n^{{{b:.2f}}}$ fitted")
    ax.plot(curve.sizes, curve.values, "o", color=line.get_color())
    grey = {"color": "0.55", "linestyle": ":", "zorder": 1}
    if row.goal is not None:
        # Only the slope of a goal for an exponent is meaningful: start at the fitted line.
        start = curve.sizes[0]
        goal = [fitted[0] * (n / start) ** row.goal.must for n in curve.sizes]
        ax.plot(curve.sizes, goal, label=f"{what}: $n^{{{row.goal.must:g}}}$, the goal", **grey)
    if curve.most is not None:
        ax.plot(curve.sizes, curve.most, label=f"{what}: the goal", **grey)


def _number(ax: Any, unit: str) -> None:
    """Format numbers for readers: 30,000 objects, 20 ms, 5 GB."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullLocator

    ax.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(EngFormatter(unit=unit))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
    ax.legend(frameon=False)
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
