"""Draw the pictures of the documentation: `python docs/pictures.py [page ...]`.

The examples of a page that shows `name.svg`, in the same folder, are run, and the last figure is saved.
The picture of the README shows the NASDAQ stocks of the paper, if AFFECT_XP_DATA is the folder of the data.
"""

import doctest
import os
import re
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
from PIL import Image

import affect_xp as ax

DOCS = Path(__file__).parent
SHOWN = re.compile(r"^```\{image\} (\w+\.svg)$", re.MULTILINE)
LEHMAN = 11 + 19 / 22  # 15 September 2008, in windows: 19 of the 22 days of window 11
DARK = ["dark_background", {"figure.facecolor": "#0d1117", "axes.facecolor": "#0d1117"}]
REPRODUCIBLE = {"svg.hashsalt": "affect_xp", "savefig.bbox": "tight"}


def pages() -> dict[Path, Path]:
    """Return the picture that each page draws, by page."""
    found = {page: SHOWN.search(page.read_text("utf-8")) for page in sorted(DOCS.rglob("*.md"))}
    return {page: page.parent / name[1] for page, name in found.items() if name}


def draw(page: Path, picture: Path) -> None:
    """Run the examples of a page in an empty folder, and save the last figure."""
    plt.close("all")
    here = Path.cwd()
    test = doctest.DocTestParser().get_doctest(page.read_text("utf-8"), {}, page.name, str(page), 0)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            runner.run(test, clear_globs=False)
        finally:
            os.chdir(here)
    if runner.failures:
        raise SystemExit(f"{page}: {runner.failures} examples failed")
    save(plt.figure(plt.get_fignums()[-1]), picture)


def save(figure, path: Path, **options) -> None:
    """Write a figure, the same at each run."""
    with mpl.rc_context(REPRODUCIBLE):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, **options)


def nasdaq(data: Path) -> None:
    """Draw the flow and α of the stocks of 2008, for light and dark pages."""
    steps = ax.datasets.load_nasdaq(data)
    model = ax.Affect(ax.KMeans(12), proximity="dot", random_state=0)
    model.fit([step.X for step in steps], times=[f"{step.start:%-d %b}" for step in steps])
    for name, look in (("nasdaq", "default"), ("nasdaq-dark", DARK)):
        with plt.style.context(look):
            above, below = ax.plots.plot_run(model, changes=False, events=False)
            figure = above.figure
            figure.set_size_inches(9, 5.2)
            above.set(ylabel="1,929 stocks", title="NASDAQ 2008: 12 clusters of stocks that move together")
            below.set_xlabel("15 trading days from this date")
            below.axvline(LEHMAN, color="#D55E00", linestyle="--", linewidth=1)
            below.text(LEHMAN - 0.1, 0.05, "Lehman Brothers fails", color="#D55E00", ha="right")
            path = DOCS / "_static" / f"{name}.png"
            save(figure, path, dpi=120)
            Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    wanted = [Path(name).resolve() for name in sys.argv[1:]]
    for page, picture in pages().items():
        if not wanted or page.resolve() in wanted:
            draw(page, picture)
            print(picture.relative_to(DOCS))
    stocks = Path(os.environ.get("AFFECT_XP_DATA", ""), "nasdaq2008.npz")
    if stocks.exists() and not wanted:
        nasdaq(stocks)
