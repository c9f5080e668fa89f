"""Draw the families of modules as docs/_static/families.svg, from the layers in pyproject.toml.

python docs/families.py
"""

import html
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "_static" / "families.svg"

HOLDS = {
    "cli": "the command affect-xp",
    "experiments": "those of the paper, with the published numbers",
    "report": "a run as an HTML page",
    "persistence": "models on disk",
    "plots": "figures of runs",
    "models": "estimators: Affect, Static, PCQ, PCM, RG; smooth",
    "affect": "block moments, forgetting factor, the step",
    "tracking": "clusters through time",
    "clustering": "static clusterers",
    "io": "reading files and tables",
    "proximity": "representations of W, kernels, transforms",
    "datasets": "simulations and loaders",
    "partition": "labels of one step",
    "alignment": "objects of two steps",
    "checks": "arguments",
    "parameters": "by name",
    "display": "reprs",
    "files": "atomic files, locks",
    "progress": "on stderr",
    "array": "the one door to NumPy, CuPy, torch and dask",
    "exceptions": "errors and warnings",
}
# A step goes through these, in this order.
PATH = ("models", "proximity", "affect", "clustering", "tracking")

WIDTH, HEIGHT, GAP, MARGIN, ARROW = 760, 46, 10, 14, 34


def layers() -> list[list[str]]:
    """Return the families of each floor, from top to bottom."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contract = tomllib.loads(text)["tool"]["importlinter"]["contracts"][0]
    return [[name.strip() for name in floor.split("|")] for floor in contract["layers"]]


def box(name: str, x: float, y: float, width: float) -> str:
    """Return a family as a box with its name and what it holds."""
    number = f"{PATH.index(name) + 1}. " if name in PATH else ""
    kind = "step" if number else "family"
    middle = x + width / 2
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}" rx="6"/>'
        f'<text class="name" x="{middle:g}" y="{y + 19:g}">{number}{name}</text>'
        f'<text class="holds" x="{middle:g}" y="{y + 36:g}">{html.escape(HOLDS[name])}</text>'
    )


def drawn() -> str:
    """Return the picture."""
    floors = layers()
    height = 2 * MARGIN + len(floors) * (HEIGHT + GAP) - GAP
    parts = []
    for row, names in enumerate(floors):
        width = (WIDTH - GAP * (len(names) - 1)) / len(names)
        y = MARGIN + row * (HEIGHT + GAP)
        parts += [box(name, MARGIN + i * (width + GAP), y, width) for i, name in enumerate(names)]
    x, bottom = MARGIN + WIDTH + ARROW / 2, height - MARGIN
    arrow = (
        f"M{x:g} {MARGIN} V{bottom - 2} M{x - 5:g} {bottom - 9} L{x:g} {bottom - 2} L{x + 5:g} {bottom - 9}"
    )
    size = f"{WIDTH + 2 * MARGIN + ARROW} {height}"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img">
<title>The families of modules: imports point down; a step passes the numbered ones</title>
<style>
text {{ font: 12px sans-serif; text-anchor: middle; fill: #444 }}
.name {{ font: bold 14px monospace; fill: #111 }}
.family {{ fill: #f4f5f7; stroke: #b8bcc4 }}
.step {{ fill: #dbe9f8; stroke: #3b78b5 }}
.arrow {{ stroke: #777; stroke-width: 1.5; fill: none }}
</style>
<rect width="100%" height="100%" fill="#fff"/>
{chr(10).join(parts)}
<path class="arrow" d="{arrow}"/>
<text transform="translate({x + 14:g} {height / 2:g}) rotate(90)">imports</text>
</svg>
"""


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
