"""The flow of objects between clusters: its links, the vertical order of clusters, and their colours.

The functions work on the labels of a history on the host; nothing here draws.
"""

import dataclasses
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from affect_xp.array.namespace import to_host
from affect_xp.partition import align
from affect_xp.plots._style import history_of
from affect_xp.tracking.history import Record

# Ten colour-blind safe colours for white and black backgrounds: those of Okabe & Ito without black, and three
# of Tol's. More than ten clusters at once share colours, so figures also label them.
CLUSTER_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#F0E442", "#AA4466", "#999933", "#8C8C8C"),
)
OTHERS = -1  # the name of small clusters that are gathered


@dataclasses.dataclass(frozen=True, eq=False)
class Flow:
    """Clusters over time, and their common objects from step to step."""

    sizes: list[dict[int, int]]  # at each step, the number of objects of each cluster
    # At each step, the number of objects that moved from cluster c to cluster d, by (c, d). Objects that are
    # new, have left, or are in no cluster do not count. Empty at the first step.
    links: list[dict[tuple[int, int], int]]
    order: list[int]  # all names, ordered so that a new cluster is next to the one it came from
    # The index in `CLUSTER_COLOURS` of each name: the same at all steps, and different for clusters that
    # exist at the same time, as long as there are enough colours.
    colours: dict[int, int]

    def stacked(self, t: int, gap: float = 0.0) -> dict[int, tuple[float, float]]:
        """Return the start and the end of each cluster of step t, stacked in order."""
        place, y = {}, 0.0
        for name in self.order:
            if name in self.sizes[t]:
                place[name] = (y, y + self.sizes[t][name])
                y += self.sizes[t][name] + gap
        return place


def host_labels(record: Record) -> np.ndarray:
    """Return the labels of a step as a NumPy array, (n,)."""
    return to_host(record.labels, reason="labels for a figure")[0]


def flow(history: Any) -> Flow:
    """Count the objects that move between each pair of clusters, given a model or its `history_`.

    Examples
    --------
    >>> import affect_xp as ax
    >>> from affect_xp.plots import flow
    >>> steps = ax.datasets.colliding_gaussians(n_samples=16, n_steps=3, rng=0)
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    >>> found = flow(model)
    >>> sorted(found.sizes[0]), found.order
    ([0, 1], [0, 1])
    """
    sizes: list[dict[int, int]] = []
    links: list[dict[tuple[int, int], int]] = []
    before: tuple[Sequence[Hashable], np.ndarray] | None = None
    for record in history_of(history):
        labels = host_labels(record)
        sizes.append(_counted(labels))
        links.append({} if before is None else _links(*before, record.ids, labels))
        before = record.ids, labels
    order = _order(sizes, links)
    return Flow(sizes, links, order, _colours(sizes, order))


def gathered(found: Flow, most: int) -> Flow:
    """Return the flow with at most `most` clusters at a step, the largest; others are one, `OTHERS`."""
    if max(map(len, found.sizes), default=0) <= most:
        return found
    steps: dict[int, list[int]] = {}  # of each cluster
    peak = Counter[int]()
    for t, sizes in enumerate(found.sizes):
        peak |= Counter(sizes)  # the larger of both
        for name in sizes:
            steps.setdefault(name, []).append(t)
    kept, room = set[int](), Counter(dict.fromkeys(range(len(found.sizes)), most))
    for name, _ in peak.most_common():
        if all(room[t] for t in steps[name]):
            kept.add(name)
            room.subtract(steps[name])
    return _without(found, kept)


def _without(found: Flow, kept: set[int]) -> Flow:
    """Return the flow in which all clusters that are not kept are one."""

    def of(name: int) -> int:
        return name if name in kept else OTHERS

    sizes = [Counter[int]() for _ in found.sizes]
    links = [Counter[tuple[int, int]]() for _ in found.links]
    for t in range(len(sizes)):
        for name, count in found.sizes[t].items():
            sizes[t][of(name)] += count
        for (c, d), count in found.links[t].items():
            links[t][of(c), of(d)] += count
    order = [name for name in found.order if name in kept]
    return Flow([*map(dict, sizes)], [*map(dict, links)], [*order, OTHERS], found.colours)


def _counted(labels: np.ndarray) -> dict[int, int]:
    names, counts = np.unique(labels[labels >= 0], return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def _links(
    ids_before: Sequence[Hashable], before: np.ndarray, ids: Sequence[Hashable], now: np.ndarray
) -> dict[tuple[int, int], int]:
    """Return the number of common objects of each previous and each current cluster."""
    alignment = align(ids, ids_before, now)  # type: ignore[arg-type]
    if not alignment.unchanged:
        here, there = alignment.common()
        before, now = before[there], now[here]
    both = (before >= 0) & (now >= 0)
    span = int(now.max(initial=0)) + 1
    codes, counts = np.unique(before[both].astype(np.int64) * span + now[both], return_counts=True)
    sources, targets = np.divmod(codes, span)
    return dict(zip(zip(sources.tolist(), targets.tolist(), strict=True), counts.tolist(), strict=True))


def _order(sizes: list[dict[int, int]], links: list[dict[tuple[int, int], int]]) -> list[int]:
    """Return the names, each placed after the one most of its first objects came from."""
    order: list[int] = []
    placed: set[int] = set()
    for present, coming in zip(sizes, links, strict=True):
        for name in [name for name in present if name not in placed]:
            sources = {c: count for (c, d), count in coming.items() if d == name}
            place = order.index(max(sources, key=sources.__getitem__)) + 1 if sources else len(order)
            order.insert(place, name)
            placed.add(name)
    return order


def _colours(sizes: list[dict[int, int]], order: list[int]) -> dict[int, int]:
    """Give each name, in order of appearance, the colour least used by its adjacent; unique if possible.

    Its adjacent are the names of the previous step, where ribbons start, and those that return later. Of
    colours that are used equally often, those of the clusters above and below are avoided.
    """
    n = len(CLUSTER_COLOURS)
    last = {name: t for t, present in enumerate(sizes) for name in present}
    rank = {name: i for i, name in enumerate(order)}
    colours: dict[int, int] = {}
    around: set[int] = set()
    for t, present in enumerate(sizes):
        around = {name for name in around if last[name] >= t - 1}
        used = Counter(colours[name] for name in around)
        stacked = sorted(present, key=rank.__getitem__)
        adjacent = dict(zip(stacked, zip([None, *stacked], [*stacked[1:], None], strict=False), strict=True))
        for name in [name for name in present if name not in colours]:
            taken = {colours[other] for other in adjacent[name] if other in colours}
            ahead = [(name + i) % n for i in range(n)]
            colours[name] = min(ahead, key=lambda c: (used[c], c in taken))
            used[colours[name]] += 1
            around.add(name)
    return colours
