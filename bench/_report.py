"""What was measured: figures beside what they must reach, as text, as JSON, as Markdown and as pictures."""

import dataclasses
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from affect_xp.plots import style

from ._measure import fitted_exponent

HEADER = ("workload", "against", "figure", "must", "aim", "verdict")


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a figure must reach, and what it should; figures are to be small unless `at_least`."""

    must: float
    aim: float | None = None
    at_least: bool = False

    def verdict(self, figure: float) -> str:
        """Return "aim", "must", or "MISSED"; "met" where there is no aim."""
        if not self._reaches(figure, self.must):
            return "MISSED"
        if self.aim is None:
            return "met"
        return "aim" if self._reaches(figure, self.aim) else "must"

    def _reaches(self, figure: float, bound: float) -> bool:
        return figure >= bound if self.at_least else figure <= bound

    def texts(self) -> tuple[str, str]:
        """Return must and aim as they are written."""
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {self.must:g}", "" if self.aim is None else f"{sign} {self.aim:g}"


@dataclasses.dataclass(frozen=True)
class Curve:
    """How something grows with n."""

    quantity: str  # "time" or "memory"
    sizes: Sequence[int]
    values: Sequence[float]

    @property
    def exponent(self) -> float:
        """The fitted b of a·nᵇ."""
        return fitted_exponent(self.sizes, self.values)


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
        """Which of must and aim the figure reaches."""
        return "" if self.goal is None else self.goal.verdict(self.figure)

    def cells(self, *, judged: bool = True) -> tuple[str, ...]:
        """Return the row of the table."""
        shown = f"n^{self.figure:.2f}" if self.curve else f"{self.figure:.3g} ×"
        goals = ("", "") if self.goal is None else self.goal.texts()
        return (self.what, self.against, shown, *goals, self.verdict if judged else "")

    def as_json(self) -> dict[str, Any]:
        """Return the row in types that JSON knows."""
        return dataclasses.asdict(self) | {"verdict": self.verdict}


@dataclasses.dataclass(frozen=True)
class Results:
    """All rows of a run.

    Attributes
    ----------
    rows : by workload
    problems : by workload, why it was left out or failed
    details : by workload, what the rows were computed from
    environment : the machine, the versions, and how it was run
    """

    rows: Mapping[str, Sequence[Row]]
    problems: Mapping[str, str]
    details: Mapping[str, Any]
    environment: Mapping[str, Any]

    def all_rows(self) -> list[Row]:
        """Return the rows of all workloads."""
        return [row for rows in self.rows.values() for row in rows]

    def table(self) -> list[tuple[str, ...]]:
        """Return the header and a row for each figure; tiny runs are not judged."""
        judged = self.environment.get("size") != "tiny"
        return [HEADER, *(row.cells(judged=judged) for row in self.all_rows())]

    def remarks(self) -> list[str]:
        """Return the notes, each once, and what was left out."""
        notes: dict[str, str] = {}
        for row in self.all_rows():
            if row.note:
                notes.setdefault(row.note, f"{row.what}: {row.note}.")
        return [*notes.values(), *(f"{name}: {why}." for name, why in self.problems.items())]

    def text(self) -> str:
        """Return everything for a terminal."""
        parts = [aligned(self.table())]
        if self.remarks():
            parts.append("\n".join(self.remarks()))
        return "\n\n".join([*parts, self._told()])

    def markdown(self, pictures: Iterable[str] = ()) -> str:
        """Return everything as a page."""
        parts = ["# Benchmarks", self._told(), markdown_table(self.table())]
        if self.remarks():
            parts.append("\n".join(f"- {remark}" for remark in self.remarks()))
        parts += [f"![{Path(name).stem} against n]({name})" for name in pictures]
        return "\n\n".join(parts) + "\n"

    def _told(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.environment.items())

    def as_json(self) -> dict[str, Any]:
        """Return everything but the pictures in types that JSON knows."""
        return {
            "environment": self.environment,
            "workloads": {name: [row.as_json() for row in rows] for name, rows in self.rows.items()},
            "problems": self.problems,
            "details": self.details,
        }

    def write(self, folder: Path, *, draw: bool) -> list[Path]:
        """Write results.json, results.md and, if asked to, the pictures; return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        pictures = draw_curves(self.all_rows(), folder) if draw else []
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
    """Count the columns a text takes; the hat of Ψ̂ takes none."""
    return sum(not unicodedata.combining(character) for character in text)


def draw_curves(rows: Iterable[Row], folder: Path) -> list[Path]:
    """Draw a picture for each quantity, both axes logarithmic, with the fitted exponents in its legend."""
    import matplotlib
    from matplotlib.figure import Figure

    drawn = []
    with matplotlib.rc_context(style()):
        for quantity, unit in (("time", "seconds"), ("memory", "bytes")):
            shown = [row for row in rows if row.curve is not None and row.curve.quantity == quantity]
            if not shown:
                continue
            figure = Figure(figsize=(6, 4), layout="constrained")
            ax = figure.subplots()
            for row in shown:
                curve = row.curve
                assert curve is not None
                ax.plot(curve.sizes, curve.values, marker="o", label=f"{row.what} (n^{curve.exponent:.2f})")
            ax.set(xscale="log", yscale="log", xlabel="objects n", ylabel=unit)
            ax.legend(frameon=False)
            ax.grid(alpha=0.3)
            drawn.append(folder / f"{quantity}.png")
            figure.savefig(drawn[-1], dpi=150)
    return drawn
