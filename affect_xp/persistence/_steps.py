"""The steps of a model as JSON and arrays: objects, clusters, history."""

import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from affect_xp.array.namespace import recorded_labels, smallest_int
from affect_xp.exceptions import InputError
from affect_xp.partition import Ids
from affect_xp.persistence._archive import Reader
from affect_xp.persistence._proximities import Arrays
from affect_xp.persistence._values import Json, decode, encode
from affect_xp.tracking.events import Clusters, Dormant, Event
from affect_xp.tracking.history import History, Record


class NameTable:
    """A table of all unique ids, and the indices of the ids of steps and clusters in it."""

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}
        self._names: list[Json] = []
        self._parts: list[np.ndarray] = []
        self._length = 0
        self._last: tuple[Ids | None, np.ndarray, Json] = (None, np.empty(0), None)

    def add(self, ids: Ids) -> Json:
        """Return ids as a range or a slice of the list of indices; unchanged ids get the same slice."""
        if isinstance(ids, range):
            return encode(ids, "ids")
        last, last_places, stored = self._last
        if ids is last:
            return stored
        places = np.fromiter(map(self._place, ids), np.int64, len(ids))
        if last is None or not np.array_equal(places, last_places):
            stored = self._append(places)
        self._last = (ids, places, stored)
        return stored

    def add_members(self, members: Iterable[Hashable]) -> Json:
        """Return unordered ids as a slice of the list of indices."""
        return self._append(np.sort(np.array([self._place(name) for name in members], dtype=np.int64)))

    def _append(self, places: np.ndarray) -> Json:
        self._parts.append(places)
        self._length += len(places)
        return [self._length - len(places), self._length]

    def _place(self, name: Any) -> int:
        # 1, 1.0 and True are equal but distinct: only integers and strings are looked up directly, the others
        # by their encoding.
        key = name if type(name) in (int, str) else (_id_text(name),)
        place = self._places.setdefault(key, len(self._names))
        if place == len(self._names):
            self._names.append(encode(name, "id"))
        return place

    def pack(self, arrays: Arrays) -> Json:
        """Return the table; the indices go to an array."""
        places = np.concatenate([np.empty(0, dtype=np.int64), *self._parts])
        return {"names": self._names, "places": arrays.put("places", smallest_int(places))}


class KnownNames:
    """The table of ids of a file."""

    def __init__(self, stored: Json, file: Reader) -> None:
        self._names = decode(stored["names"])
        self._places = file.host_array(stored["places"])
        if len(self._places) and not 0 <= self._places.min() <= self._places.max() < len(self._names):
            raise ValueError("indices beyond the table of ids")
        self._found: dict[tuple[int, int], tuple[Hashable, ...]] = {}
        self._length = 0

    def ids(self, stored: Json) -> Ids:
        """Return the ids of a step."""
        return decode(stored) if isinstance(stored, dict) else self.listed(stored)

    def listed(self, stored: Json) -> tuple[Hashable, ...]:
        """Return the ids of a slice; all slices together are at most as long as the list of indices."""
        start, stop = stored
        if (start, stop) not in self._found:
            self._length += stop - start
            if not 0 <= start <= stop <= len(self._places) or self._length > len(self._places):
                raise ValueError(f"no ids at {start} to {stop}")
            names = tuple(self._names[i] for i in self._places[start:stop].tolist())
            self._found[start, stop] = names
        return self._found[start, stop]


def _id_text(name: Any) -> str:
    """Return an id as text; equal ids of different classes have different texts."""
    if name != name:
        raise InputError(f"id {name!r} is not equal to itself and could not be found again; use another id")
    return repr(encode(name, "id"))


def pack_clusters(clusters: Clusters, names: NameTable) -> Json:
    """Return the clusters of a step."""
    return {
        "names": clusters.names.tolist(),
        "sizes": clusters.sizes.tolist(),
        "fresh": clusters.fresh,
        "t": clusters.t,
        "dormant": [[d.name, d.last_seen, names.add_members(d.members)] for d in clusters.dormant],
    }


def unpack_clusters(stored: Json, names: KnownNames) -> Clusters:
    """Return the clusters of a step."""
    clusters = Clusters(
        np.array(stored["names"], dtype=np.int64),
        np.array(stored["sizes"], dtype=np.int64),
        fresh=stored["fresh"],
        t=stored["t"],
        dormant=tuple(
            Dormant(name, last_seen, frozenset(names.listed(members)))
            for name, last_seen, members in stored["dormant"]
        ),
    )
    if clusters.names.ndim != 1 or clusters.names.shape != clusters.sizes.shape:
        raise ValueError("the numbers of cluster names and of sizes differ")
    return clusters


def pack_history(history: History, names: NameTable, arrays: Arrays) -> Json:
    """Return all steps; their labels go to one array, and so do probabilities of moves."""
    if moved := [record.moved for record in history if record.moved is not None]:
        arrays.put("moved", np.concatenate(moved))
    if labels := history.labels:
        arrays.put("labels", smallest_int(np.concatenate(labels)))
    return [_pack_record(record, names) for record in history]


_REQUIRED = ("time", "n", "k", "alpha", "n_iter")
_OPTIONAL = ("noise", "drift", "noise_of_means")  # missing in files of earlier versions


def _pack_record(record: Record, names: NameTable) -> Json:
    scores = record.scores
    return {
        **{name: encode(getattr(record, name), name) for name in (*_REQUIRED, *_OPTIONAL)},
        "alphas": encode(list(record.alphas), "alphas"),
        "ids": names.add(record.ids),
        "events": [_pack_event(event) for event in record.events],
        "scores": None if scores is None else [[k, encode(score, "score")] for k, score in scores.items()],
        "moved": record.moved is not None,
    }


def unpack_history(stored: Json, names: KnownNames, file: Reader) -> History:
    """Return all steps."""
    ends = np.cumsum([0, *(record["n"] for record in stored)])
    labels = file.host_array("labels").astype(np.int64) if stored else np.empty(0)
    if len(labels) != ends[-1] or np.any(np.diff(ends) < 1):
        raise ValueError("the numbers of labels and of objects differ")
    parts = [labels[start:stop] for start, stop in itertools.pairwise(ends)]
    moved = _unpack_moved(stored, file)
    rows = zip(stored, parts, moved, strict=True)
    return History(tuple(_unpack_record(r, c, p, names, file) for r, c, p in rows))


def _unpack_moved(stored: Json, file: Reader) -> list[np.ndarray | None]:
    """Return the probabilities of moves of each step; None where they were not known."""
    sizes = [record["n"] if record.get("moved") else 0 for record in stored]  # missing in earlier versions
    moved = file.host_array("moved") if any(sizes) else np.empty(0)
    ends = np.cumsum([0, *sizes])
    if len(moved) != ends[-1] or not np.all((moved >= 0) & (moved <= 1)):
        raise ValueError("probabilities of moves do not fit the objects")
    return [moved[i:j] if j > i else None for i, j in itertools.pairwise(ends)]


def _unpack_record(
    stored: Json, labels: np.ndarray, moved: np.ndarray | None, names: KnownNames, file: Reader
) -> Record:
    ids = names.ids(stored["ids"])
    if len(ids) != stored["n"]:
        raise ValueError(f"{len(ids)} ids for {stored['n']} objects")
    scores = stored["scores"]
    return Record(
        **{name: decode(stored[name]) for name in _REQUIRED},
        **{name: decode(stored.get(name)) for name in _OPTIONAL},
        alphas=tuple(decode(stored["alphas"])),
        labels=recorded_labels(labels, file.like),
        ids=ids,
        events=tuple(_unpack_event(event) for event in stored["events"]),
        scores=None if scores is None else {k: decode(score) for k, score in scores},
        moved=moved,
    )


_EVENT = tuple(field.name for field in dataclasses.fields(Event))
_OF_MOVES = ("objects", "probabilities")  # the last fields; other events do not store them


def _pack_event(event: Event) -> Json:
    fields = [getattr(event, name) for name in _EVENT if name not in _OF_MOVES]
    if not event.objects:
        return fields
    return [*fields, [encode(name, "id") for name in event.objects], list(event.probabilities)]


def _unpack_event(stored: Sequence[Json]) -> Event:
    fields: dict[str, Any] = dict(zip(_EVENT, stored, strict=len(stored) > len(_EVENT) - len(_OF_MOVES)))
    if "objects" in fields:
        fields["objects"] = [decode(name) for name in fields["objects"]]
    values: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in fields.items()}
    return Event(**values)
