"""The demonstration: two colliding Gaussians, clustered statically and with AFFECT."""

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.clustering.kmeans import KMeans
from affect_xp.clustering.metrics import rand_index
from affect_xp.datasets import GaussianStep, colliding_gaussians
from affect_xp.models.affect import Affect
from affect_xp.models.static import Static
from affect_xp.plots.flows import CLUSTER_COLOURS
from affect_xp.tracking.history import History


@dataclasses.dataclass(frozen=True, eq=False)
class Demo:
    """What the demonstration found."""

    steps: list[GaussianStep]
    history: History  # of AFFECT
    affect: list[float]  # Rand index at each step
    static: list[float]

    def table(self) -> str:
        """Return α and both Rand indices by step, as text."""
        lines = ["step      α   Rand AFFECT   Rand static"]
        for t, record in enumerate(self.history):
            alpha = f"{record.alpha:6.3f}" if t else "     -"
            lines.append(f"{t:4} {alpha} {self.affect[t]:13.3f} {self.static[t]:13.3f}")
        n = len(self.steps)
        lines.append(f"mean {'':6} {sum(self.affect) / n:13.3f} {sum(self.static) / n:13.3f}")
        return "\n".join(lines)

    def draw(self, path: Path) -> None:
        """Write a picture: the data at three steps, α, and both Rand indices over time."""
        import matplotlib
        from matplotlib.figure import Figure

        from affect_xp.plots import plot_alpha, plot_scores

        with matplotlib.rc_context({"font.size": 9}):
            figure = Figure(figsize=(9, 6), layout="constrained")
            grid = figure.add_gridspec(3, 3, height_ratios=[1.3, 1, 1])
            for column, t in enumerate((0, 9, len(self.steps) - 1)):
                self._scatter(figure.add_subplot(grid[0, column]), t)
            plot_alpha(self.history, ax=figure.add_subplot(grid[1, :]))
            scores = {"AFFECT": self.affect, "static": self.static}
            plot_scores(scores, ax=figure.add_subplot(grid[2, :]))
            figure.savefig(path, dpi=130)

    def _scatter(self, ax: Any, t: int) -> None:
        """Draw the samples of a step, coloured by cluster; those put with the others are circled."""
        step, labels = self.steps[t], self.history[t].labels
        x, y = step.X.T
        flipped = (labels != step.labels).mean() > 0.5  # cluster numbers are arbitrary
        wrong = (labels != step.labels) ^ flipped
        ax.scatter(x, y, c=np.array(CLUSTER_COLOURS)[labels], s=18)
        ax.scatter(x[wrong], y[wrong], s=70, facecolors="none", edgecolors="k", linewidths=1)
        ax.set(title=f"step {t}: {wrong.sum()} of {len(wrong)} misplaced", xticks=[], yticks=[])


def run(seed: int = 0) -> Demo:
    """Cluster the simulated steps with AFFECT k-means and with static k-means.

    Examples
    --------
    >>> from affect_xp.cli import demo
    >>> result = demo.run(seed=0)
    >>> sum(result.affect) > sum(result.static)
    True
    """
    steps = list(colliding_gaussians(rng=seed))
    affect = Affect(KMeans(2), init="static", random_state=seed)
    static = Static(KMeans(2), random_state=seed)
    scores = [
        [rand_index(record.labels, step.labels) for record, step in zip(model.history_, steps, strict=True)]
        for model in (affect.fit(step.W for step in steps), static.fit(step.W for step in steps))
    ]
    return Demo(steps, affect.history_, *scores)


def show(seed: int, out: Path) -> int:
    """Run the demonstration, print its table, draw its picture, and return the exit code."""
    print("Two Gaussian clouds collide and exchange members; 40 new samples are drawn at each of 25 steps.")
    print("AFFECT estimates at each step how much to trust the past (α) and clusters what it has smoothed.\n")
    result = run(seed)
    print(result.table())
    if importlib.util.find_spec("matplotlib") is None:
        print("\nfor a picture: pip install 'affect_xp[plot]'")
    else:
        result.draw(out)
        print(f"\npicture: {out}")
    return 0
