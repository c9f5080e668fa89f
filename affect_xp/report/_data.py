"""The data of the page as JSON, limited to a size that browsers can handle."""

import heapq
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from affect_xp.checks import check_int
from affect_xp.clustering.profiles import ClusterProfiles
from affect_xp.display import time_format
from affect_xp.plots.flows import CLUSTER_COLOURS, Flow, flow
from affect_xp.plots.memberships import ABSENT, Memberships, memberships
from affect_xp.report.steps import DescribedStep
from affect_xp.tracking.change_points import changes_with_note
from affect_xp.tracking.history import History, Record

# Limits that keep the page at a few megabytes.
MAX_ENTRIES = 1_000_000  # of the matrix of members, objects × steps
MAX_BARS = 100_000  # clusters × steps
MAX_LINKS = 100_000  # ribbons
MAX_EVENTS = 20_000
MAX_PROFILES = 30_000  # features of clusters, clusters × steps × features
MAX_FEATURES = 6  # of a cluster
MAX_ID = 200  # characters

OMITTED_KIND = "continuation"  # of events: the most common one
MIN_PROBABILITY = 0.5  # of a move, as in `History.moves_to_frame`


def report_data(
    history: History, *, max_objects: int = 2000, described: Sequence[DescribedStep] = ()
) -> dict[str, Any]:
    """Return a run as lists, numbers and strings.

    Examples
    --------
    >>> from affect_xp.tracking.history import History, Record
    >>> from affect_xp.report._data import report_data
    >>> report_data(History())["times"]
    []
    """
    found = flow(history)
    check_int("max_objects", max_objects, 1)
    fits = max(1, min(max_objects, MAX_ENTRIES // max(1, len(history))))
    members = memberships(history, found, fits)
    shown = time_format(history.times)
    sizes, n_bars_left_out = _largest(found)
    links, n_links_left_out = _links(found, sizes)
    events, n_events_left_out = _events(history)
    changes, changes_note = changes_with_note(history)
    return {
        "times": [_short(shown(time)) for time in history.times],
        "n": [record.n for record in history],
        "k": [len(sizes) for sizes in found.sizes],
        "alpha": [_alpha(record) if t > 0 else None for t, record in enumerate(history)],
        "changes": changes,
        "changesNote": changes_note,
        "palette": CLUSTER_COLOURS,
        "order": found.order,
        "colours": {str(name): colour for name, colour in found.colours.items()},
        "sizes": sizes,
        "links": links,
        "events": events,
        "ids": [_short(str(name)) for name in members.ids],
        "labels": members.labels.T.tolist(),  # by step
        "moved": _moved(history, members),
        "nObjects": members.n_objects,
        "notes": _notes(members, n_bars_left_out, n_links_left_out, n_events_left_out),
        **_stability(history, sizes),
        **_described(described, sizes, members),
    }


def _largest(found: Flow) -> tuple[list[list[list[int]]], int]:
    """Return the largest clusters of each step as [name, objects], and the number of omitted ones."""
    most = max(1, MAX_BARS // max(1, len(found.sizes)))
    place = {name: i for i, name in enumerate(found.order)}
    kept = []
    for sizes in found.sizes:
        largest = heapq.nlargest(most, sizes, key=sizes.__getitem__)
        kept.append([[name, sizes[name]] for name in sorted(largest, key=place.__getitem__)])
    return kept, sum(map(len, found.sizes)) - sum(map(len, kept))


def _links(found: Flow, sizes: list[list[list[int]]]) -> tuple[list[list[list[int]]], int]:
    """Return the widest ribbons of kept clusters as [from, to, objects], and the number of omitted ones."""
    most = max(1, MAX_LINKS // max(1, len(found.links)))
    place = {name: i for i, name in enumerate(found.order)}
    kept: list[list[list[int]]] = []
    before: set[int] = set()
    for step, links in zip(sizes, found.links, strict=True):
        now = {name for name, _ in step}
        whole = [(c, d, n) for (c, d), n in links.items() if c in before and d in now]
        widest = heapq.nlargest(most, whole, key=lambda link: link[2])
        kept.append(
            [list(link) for link in sorted(widest, key=lambda link: (place[link[0]], place[link[1]]))]
        )
        before = now
    return kept, sum(map(len, found.links)) - sum(map(len, kept))


def _events(history: History) -> tuple[list[list[dict[str, Any]]], int]:
    """Return the events of each step without continuations, and the number of omitted ones.

    At the first step all clusters are new, which is not an event.
    """
    most = max(1, MAX_EVENTS // max(1, len(history)))
    listed = [
        [event for event in record.events if t > 0 and event.kind != OMITTED_KIND]
        for t, record in enumerate(history)
    ]
    kept = [
        [
            {
                "kind": event.kind,
                "text": str(event),
                "before": event.before,
                "after": event.after,
                "counts": (event.n_common, event.size_before, event.size_after),
            }
            for event in events[:most]  # the most important come first
        ]
        for events in listed
    ]
    return kept, sum(map(len, listed)) - sum(map(len, kept))


def _moved(history: History, members: Memberships) -> list[list[list[float]] | None]:
    """Return for each step [row, probability] of objects that moved or changed clusters, if it is known."""
    row_of = {name: row for row, name in enumerate(members.ids)}
    found: list[list[list[float]] | None] = []
    for t, record in enumerate(history):
        if t == 0 or record.moved is None:
            found.append(None)
            continue
        probability = np.zeros(len(members.ids))
        shown = [(row_of[name], i) for i, name in enumerate(record.ids) if name in row_of]
        rows, places = np.array(shown, dtype=np.int64).reshape(-1, 2).T
        probability[rows] = record.moved[places]
        before, now = members.labels[:, t - 1], members.labels[:, t]
        both = (before != ABSENT) & (now != ABSENT)
        listed = np.flatnonzero(both & ((before != now) | (probability >= MIN_PROBABILITY)))
        found.append([[int(row), round(float(probability[row]), 2)] for row in listed])
    return found


def _stability(history: History, sizes: list[list[list[int]]]) -> dict[str, Any]:
    """Return the share of members that stayed in their cluster, over all clusters and by cluster."""
    kept = history.kept()
    totals = [tuple(map(sum, zip(*by_cluster.values(), strict=True))) for by_cluster in kept]
    return {
        "kept": [_share(*total) if total else None for total in totals],
        "keptByCluster": [
            [_share(*by_cluster.get(name, (0, 0))) for name, _ in step]
            for by_cluster, step in zip(kept, sizes, strict=True)
        ],
    }


def _alpha(record: Record) -> float | None:
    return round(record.alpha, 5) if math.isfinite(record.alpha) else None


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def _described(
    described: Sequence[DescribedStep], sizes: list[list[list[int]]], members: Memberships
) -> dict[str, Any]:
    """Return the cohesion of each step, and profiles or densities in the order of `sizes`."""
    if not described:
        return {"cohesion": None, "profiles": None, "densities": None}
    found: dict[str, Any] = {
        "measure": described[0].measure,
        "cohesion": [None if step.cohesion is None else round(step.cohesion, 4) for step in described],
        "profiles": None,
        "densities": None,
    }
    if isinstance(described[0].clusters, ClusterProfiles):
        names: dict[str, int] = {}
        n_bars = max(1, sum(map(len, sizes)))
        most = max(1, min(MAX_FEATURES, MAX_PROFILES // n_bars))
        found["profiles"] = [
            _in_order(step.clusters, listed, _features_of(step.clusters, most, names))
            for step, listed in zip(described, sizes, strict=True)
        ]
        found["features"] = [_short(name) for name in names]
    else:
        row_of = {name: row for row, name in enumerate(members.ids)}
        found["densities"] = [
            _in_order(step.clusters, listed, _densities_of(step.clusters, row_of))
            for step, listed in zip(described, sizes, strict=True)
        ]
    return found


def _in_order(clusters: Any, listed: list[list[int]], values: list[Any]) -> list[Any]:
    """Return the values of the listed clusters, in their order."""
    by_name = dict(zip(clusters.clusters.tolist(), values, strict=True))
    return [by_name.get(name) for name, _ in listed]


def _features_of(clusters: Any, most: int, names: dict[str, int]) -> list[Any]:
    """Return [feature, mean, std, mean of all, std of all] of the features that differ most."""
    return [
        [
            [
                names.setdefault(clusters.feature_names[f], len(names)),
                *(_number(x) for x in (means[f], stds[f], clusters.mean_of_all[f], clusters.std_of_all[f])),
            ]
            for f in features
        ]
        for means, stds, features in zip(clusters.means, clusters.stds, clusters.top(most), strict=True)
    ]


def _densities_of(clusters: Any, row_of: dict[Any, int]) -> list[Any]:
    """Return [inside, outside, rows of central members] of each cluster."""
    return [
        [_number(inside), _number(outside), [row_of[name] for name in central if name in row_of]]
        for inside, outside, central in zip(clusters.inside, clusters.outside, clusters.central, strict=True)
    ]


def _number(x: float) -> float | None:
    """Return a number with four digits; None if it is not finite."""
    return float(f"{x:.4g}") if math.isfinite(x) else None


def _notes(members: Memberships, n_bars: int, n_links: int, n_events: int) -> list[str]:
    """Return the notes about omitted data."""
    notes = []
    if len(members.ids) < members.n_objects:
        notes.append(
            f"Members are shown for {len(members.ids):,} of {members.n_objects:,} objects, evenly spaced; "
            "sizes and flows count all objects."
        )
    if n_bars:
        notes.append(f"{n_bars:,} small clusters, of steps with many clusters, are omitted.")
    if n_links:
        notes.append(f"The {n_links:,} thinnest ribbons of the flow are omitted.")
    if n_events:
        notes.append(f"{n_events:,} events, of the steps with most events, are omitted.")
    return notes


def _short(text: str) -> str:
    return text if len(text) <= MAX_ID else f"{text[: MAX_ID - 1]}…"
