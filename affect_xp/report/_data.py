"""The data of the page as JSON, limited to a size that browsers can handle."""

import heapq
from typing import Any

from affect_xp.checks import check_int
from affect_xp.display import time_format
from affect_xp.plots.flows import CLUSTER_COLOURS, Flow, flow
from affect_xp.plots.memberships import Memberships, memberships
from affect_xp.tracking.change_points import told_changes
from affect_xp.tracking.history import History

# Limits that keep the page at a few megabytes.
MAX_ENTRIES = 1_000_000  # of the matrix of members, objects × steps
MAX_BARS = 100_000  # clusters × steps
MAX_LINKS = 100_000  # ribbons
MAX_EVENTS = 20_000
MAX_ID = 80  # characters

OMITTED_KIND = "continuation"  # of events: the most common one


def report_data(history: History, *, max_objects: int = 2000) -> dict[str, Any]:
    """Return a run as lists, numbers and strings.

    Examples
    --------
    >>> from affect_xp.tracking.history import History
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
    changes, changes_note = told_changes(history)
    return {
        "times": [_short(shown(time)) for time in history.times],
        "n": [record.n for record in history],
        "k": [len(sizes) for sizes in found.sizes],
        "alpha": [None if t == 0 else round(record.alpha, 5) for t, record in enumerate(history)],
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
        "nObjects": members.n_objects,
        "notes": _notes(members, n_bars_left_out, n_links_left_out, n_events_left_out),
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
    """Return the events of each step without continuations, and the number of omitted ones."""
    most = max(1, MAX_EVENTS // max(1, len(history)))
    listed = [[event for event in record.events if event.kind != OMITTED_KIND] for record in history]
    kept = [
        [
            {"kind": event.kind, "text": str(event), "before": event.before, "after": event.after}
            for event in events[:most]  # the most important come first
        ]
        for events in listed
    ]
    return kept, sum(map(len, listed)) - sum(map(len, kept))


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
