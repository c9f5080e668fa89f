"""How long Chromium takes to draw the report of a large run.

    python -m bench.report_page

Needs Playwright, and Chromium on the PATH. The time is from the start of the navigation to the first frame
after the page was drawn, in a new context each time.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from affect_xp.report import write_report
from affect_xp.tracking.history import History, Record

RUNS = ((2000, 20, 50), (3000, 100, 100))  # objects, clusters, steps
LOADS = 6
DRAWN = "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"


def large_run(n: int, k: int, n_steps: int) -> History:
    """Return a run in which 3 % of the objects draw a new cluster at each step."""
    rng, labels, records = np.random.default_rng(0), np.arange(n) % k, []
    ids = tuple(f"object {i}" for i in range(n))
    for t in range(n_steps):
        labels = np.where(rng.random(n) < 0.03, rng.integers(0, k, n), labels)
        records.append(Record(t, n, k, 0.5, (0.5,), labels, ids))
    return History(tuple(records))


def main() -> None:
    """Print the size of each page, and the shortest and longest time to draw it."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        # Root in a container cannot use the sandbox; the page is our own.
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for n, k, n_steps in RUNS:
            path = write_report(large_run(n, k, n_steps), Path(folder, "report.html"))
            seconds = []
            for _ in range(LOADS):
                context = browser.new_context(viewport={"width": 1100, "height": 900})
                page = context.new_page()
                page.goto(path.as_uri())
                seconds.append(page.evaluate(DRAWN) / 1000)
                context.close()
            size = path.stat().st_size / 1e6
            what = f"{n:,} objects, {k} clusters, {n_steps} steps"
            print(f"{what}: {size:.2f} MB, drawn in {min(seconds):.2f} to {max(seconds):.2f} s")
        browser.close()


if __name__ == "__main__":
    main()
