"""The experiments of the paper, with tables and figures that include the published numbers.

Xu, Kliger & Hero, "Adaptive Evolutionary Clustering", Data Min. Knowl. Disc. 28 (2014), section 5.
"""

import dataclasses
import importlib
import typing

from affect_xp.experiments._options import Options

if typing.TYPE_CHECKING:
    from affect_xp.experiments._report import Claim, Entry, Figure, Measured, Report, Table, index_page

__all__ = [
    "EXPERIMENTS",
    "Claim",
    "Entry",
    "Experiment",
    "Figure",
    "Measured",
    "Options",
    "Report",
    "Table",
    "index_page",
    "reproduce",
]


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The module of an experiment, its number of runs and its data files."""

    module: str  # imported when the experiment is run
    title: str
    runs: int  # the number in the paper, if it has the experiment
    quick_runs: int  # enough to show the effect
    data: tuple[str, ...] = ()  # files of real data; it needs one of them

    def is_missing_data(self, options: Options) -> bool:
        """Return whether the experiment needs a file that does not exist."""
        return bool(self.data) and all(options.find_data(name) is None for name in self.data)


EXPERIMENTS = {
    "separated": Experiment("separated", "Two well-separated Gaussians", 100, 10),
    "colliding": Experiment("colliding", "Two colliding Gaussians", 100, 10),
    "boids": Experiment("boids", "Flocks of boids that exchange members", 100, 3),
    "boids-variable": Experiment("boids_variable", "Flocks of boids that scatter and regroup", 100, 3),
    "reality": Experiment("reality", "MIT Reality Mining", 5, 1, ("reality.npz", "reality.mat")),
    "nasdaq": Experiment("nasdaq", "NASDAQ stock prices of 2008", 5, 1, ("nasdaq2008.npz",)),
    "choices": Experiment("choices", "Choices: init and correction", 40, 2),
    "networks": Experiment("networks", "Networks of contacts, measured and simulated", 5, 1),
    "counts": Experiment("counts", 'What rescale="auto" decides on weights of many kinds', 5, 1),
    "movers": Experiment("movers", "Objects that move from one group to another", 20, 1),
    "groups": Experiment("groups", "The number of groups of a network, by rule", 1, 1),
    "changes": Experiment("changes", "Change points: how many are found", 12, 1),
}


def __getattr__(name: str) -> typing.Any:  # reports are imported when they are first used
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}._report"), name)


def reproduce(name: str, options: Options | None = None) -> "Report":
    """Run an experiment of the paper.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`.
    options : Options, optional
        Number of runs, seed, processes, the folder with real data.

    Examples
    --------
    >>> from affect_xp.experiments import Options, reproduce
    >>> report = reproduce("colliding", Options(runs=2))
    >>> report.tables[0]["static"].mean < report.tables[0]["AFFECT, 3 iterations"].mean
    True
    """
    from affect_xp.checks import check_choice

    experiment = EXPERIMENTS[check_choice("name", name, EXPERIMENTS)]
    options = options or Options()
    if options.runs is None:
        options = dataclasses.replace(options, runs=experiment.runs)
    module = importlib.import_module(f"affect_xp.experiments.{experiment.module}")
    report: Report = module.run(options)
    return report
