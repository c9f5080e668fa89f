"""Models on disk: `save` and `load`, in an open format without pickle.

A file is a zip of arrays in the .npy format, as .npz files are, and of a JSON header. What is not an array
(parameters, ids, events, forgetting factors) stands in the header. It is written whole or not at all,
verified by a checksum before it is read, and cannot run code when it is loaded. The checksum finds damage; it
does not tell who wrote the file.
"""

import dataclasses
import os
from typing import Any

import numpy as np

from affect_xp import __version__
from affect_xp.affect.absence import Away, Meetings
from affect_xp.affect.state import State
from affect_xp.array.namespace import array_namespace, is_array, to_host
from affect_xp.array.typing import Array, Namespace
from affect_xp.clustering.base import KMeans, Linkage, Spectral
from affect_xp.exceptions import AffectError, FileFormatError, InputError, InputTypeError
from affect_xp.models.affect import Affect, Evolving, Static
from affect_xp.models.pcm import PCM
from affect_xp.models.pcq import PCQ
from affect_xp.models.rg import RG
from affect_xp.partition import Partition
from affect_xp.persistence._archive import Reader, write
from affect_xp.persistence._preparation import pack_preparation, unpack_preparation
from affect_xp.persistence._proximities import (
    Arrays,
    pack_groups,
    pack_proximity,
    unpack_groups,
    unpack_proximity,
)
from affect_xp.persistence._steps import (
    KnownNames,
    Names,
    pack_clusters,
    pack_history,
    unpack_clusters,
    unpack_history,
)
from affect_xp.persistence._values import Json, decode, encode
from affect_xp.proximity.chunked import is_dask_array
from affect_xp.tracking.events import EventRules
from affect_xp.tracking.history import History

__all__ = ["load", "save"]

FORMAT = "affect_xp model"
VERSION = 2

# The classes a file may name.
MODELS: dict[str, type[Evolving]] = {kind.__name__: kind for kind in (Affect, Static, PCM, PCQ, RG)}
SETTINGS: dict[str, Any] = {kind.__name__: kind for kind in (KMeans, Spectral, Linkage, EventRules)}


def save(model: Evolving, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, from which `load` makes one that goes on exactly as this one would.

    The file is written beside its place, brought to disk, and then put there in one stroke: whenever the
    process or the machine stops, there is either the old file or the new one. Arrays are written a block of
    rows at a time, chunks one by one.

    Parameters
    ----------
    model : Affect, Static, PCM, PCQ or RG
        It stays as it is. Ids and times must be numbers, strings, booleans, None, dates of the datetime
        module, NumPy scalars, or tuples of these. Functions, scalers and clusterers of other libraries are
        left out, and must be passed to `load` again; a scaler fitted, as `model.preparation_.scaler` is. A
        `random_state` that is a generator becomes the number that the model has drawn from it.
    path : str or path
        The name of the file; what is there is replaced.

    Raises
    ------
    SaveError
        If the file cannot be written, for want of room for instance. What was there before stays whole.

    Examples
    --------
    >>> import tempfile, numpy as np, affect_xp as ax
    >>> from affect_xp.persistence import load, save
    >>> W = np.kron(np.eye(2), np.ones((3, 3)))
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit([W, W])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.affect")
    ...     resumed = load(f"{folder}/model.affect")
    >>> resumed.partial_fit(W).labels_
    array([1, 1, 1, 0, 0, 0])
    """
    if MODELS.get(type(model).__name__) is not type(model):
        raise InputTypeError(f"model must be one of {', '.join(MODELS)}, got {type(model).__name__}")
    if model._interrupted:
        raise AffectError("the last step was interrupted, and its past is lost; call reset() or load a file")
    arrays = Arrays()
    names = Names()
    header = {
        "format": FORMAT,
        "version": VERSION,
        "affect_xp": __version__,
        "model": type(model).__name__,
        "parameters": _pack_parameters(model, arrays),
        "seed": encode(model._seed, "seed"),
        "owns_smoothed": model._owns_smoothed,
        "preparation": pack_preparation(model._preparation, arrays),
        "history": pack_history(getattr(model, "history_", History()), names, arrays),
        "state": _pack_state(model._state, names, arrays),
        "objects": names.pack(arrays),
    }
    write(path, header, arrays)


def load(
    path: str | os.PathLike[str],
    *,
    xp: Namespace = None,
    device: object = None,
    store: str | os.PathLike[str] | None = None,
    **parameters: Any,
) -> Any:
    """Return the model that was saved to a file.

    Parameters
    ----------
    path : str or path
    xp : module, optional
        The array library to which arrays go, for instance `cupy` or `torch`; by default NumPy, whatever the
        model was saved from. The next steps must be of this library.
    device : optional
        A device of this library; by default its own choice.
    store : str or path, optional
        For chunked proximities, as for `Chunked`; needed if they were in a store. With dask.distributed the
        workers read the file themselves.
    **parameters
        Parameters of the model that the file does not hold, being functions or clusterers of other
        libraries, such as `clusterer=DBSCAN(...)`; or others than it holds.

    Raises
    ------
    FileFormatError
        If the file is damaged, is not one of ours, or was written by a newer version.

    Examples
    --------
    >>> import tempfile, affect_xp as ax
    >>> from affect_xp.persistence import load, save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(ax.Affect(ax.KMeans(2), random_state=0), f"{folder}/model.affect")
    ...     load(f"{folder}/model.affect", n_iter=5).n_iter
    5
    """
    with Reader(path, _empty(xp, device)) as file:
        file.verify()
        with file.damage_explained():
            header = file.header()
            _check_version(header, file)
            return _restored(header, file, store, parameters)


def _empty(xp: Namespace, device: object) -> Array:
    """Return an array of a library on a device, to stand for both."""
    try:
        some = np.empty(0) if xp is None else xp.empty((0,))
        like = array_namespace(some).empty((0,), dtype=some.dtype, device=device)
    except Exception as error:
        raise InputTypeError(
            "xp must be an array library such as cupy or torch, and device one of its devices, "
            f"got xp={xp!r} and device={device!r} ({error})"
        ) from error
    if is_dask_array(like):
        raise InputTypeError(
            "xp must be the library of the chunks, not dask itself; leave it out, or use cupy"
        )
    return like


def _check_version(header: Json, file: Reader) -> None:
    if header["format"] != FORMAT:
        raise FileFormatError(f"{file.path} holds {header['format']!r}, not a model")
    if header["version"] > VERSION:
        raise FileFormatError(
            f"{file.path} was written by affect_xp {header['affect_xp']} in version {header['version']} of "
            f"the format, and {__version__} reads up to {VERSION}; install a newer affect_xp"
        )


def _restored(
    header: Json, file: Reader, store: str | os.PathLike[str] | None, given: dict[str, Any]
) -> Evolving:
    """Return the model of a header."""
    model = MODELS[header["model"]](**_unpack_parameters(header["parameters"], file, given))
    state = header["state"]
    if state is not None:
        names = KnownNames(header["objects"], file)
        model.history_ = unpack_history(header["history"], names, file)
        model._state = _unpack_state(state, names, file, store)
        model._seed, model._interrupted = decode(header["seed"]), False
        model._owns_smoothed = bool(header["owns_smoothed"])
        # A file of a version that decided nothing goes on as it did.
        model._preparation = unpack_preparation(header.get("preparation"), file, model.scale)
    return model


def _pack_state(state: State | None, names: Names, arrays: Arrays) -> Json:
    if state is None:
        return None
    partition = state.partition
    return {
        "smoothed": pack_proximity(state.smoothed, arrays),
        "labels": arrays.put("partition", partition.labels),
        "k": partition.k,
        "n_outside": partition.n_outside,
        "clusters": pack_clusters(state.clusters, names),
        "ids": names.add(state.ids),
        "memory": arrays.put("memory", state.memory),
        "groups": pack_groups(state.groups, arrays),
        "away": _pack_away(state.away, arrays),
    }


def _pack_away(away: Away | None, arrays: Arrays) -> Json:
    if away is None:
        return None
    return {
        "last_seen": arrays.put("away.last_seen", away.last_seen),
        "groups": arrays.put("away.groups", away.meetings.groups),
        "met": arrays.put("away.met", away.meetings.met.astype(np.int64)),
    }


def _unpack_away(stored: Json, file: Reader) -> Away | None:
    if stored is None:
        return None
    last_seen, groups, met = (
        file.fresh_array(stored[name], np.empty(0)) for name in ("last_seen", "groups", "met")
    )
    if last_seen.ndim != 1 or groups.ndim != 1 or met.shape != (len(met), len(met)):
        raise ValueError("what is known of absent objects has no shape that it can have")
    if len(groups) and not 0 <= groups.min() <= groups.max() < len(met):
        raise ValueError(f"groups of absent objects are numbers from 0 to {len(met) - 1}")
    return Away(last_seen, Meetings(groups, met > 0))


def _unpack_state(
    stored: Json, names: KnownNames, file: Reader, store: str | os.PathLike[str] | None
) -> State:
    smoothed = unpack_proximity(stored["smoothed"], file, store)
    partition = Partition(file.array(stored["labels"]), stored["k"], stored["n_outside"])
    ids, memory = names.ids(stored["ids"]), stored["memory"]
    state = State(
        smoothed,
        partition,
        unpack_clusters(stored["clusters"], names),
        ids,
        None if memory is None else file.array(memory),
        unpack_groups(stored["groups"], smoothed, partition, file),
        _unpack_away(stored.get("away"), file),
    )
    _check_state(state)
    return state


def _check_state(state: State) -> None:
    """Raise if the parts of a state are not of the same objects and clusters."""
    n, k = len(state.ids), state.partition.k
    sizes = {state.partition.n, *(x.n for x in (state.smoothed,) if x is not None)}
    sizes |= {x.shape[0] for x in (state.memory,) if x is not None}
    sizes |= {len(away.meetings.groups) for away in (state.away,) if away is not None}
    if sizes != {n} or len(state.clusters.names) != k:
        raise ValueError(f"{n} objects in {k} clusters do not fit the arrays")
    labels = to_host(state.partition.labels, reason="are labels in range?")[0]
    if labels.dtype.kind != "i" or labels.ndim != 1 or labels.min() < -1 or labels.max() >= k:
        raise ValueError(f"labels of {k} clusters are integers from -1 to {k - 1}")


def _pack_parameters(model: Evolving, arrays: Arrays) -> Json:
    packed = {}
    for name, value in model.get_params(deep=False).items():
        if isinstance(value, np.random.Generator | np.random.RandomState):
            value = _drawn(model)
        try:
            packed[name] = _pack_parameter(value, name, arrays)
        except InputError:
            packed[name] = {"left out": type(value).__name__}
    return packed


def _drawn(model: Evolving) -> int:
    """Return the number that stands for the generator of a model."""
    if model._seed is None:
        raise InputError(
            "random_state is a generator from which nothing was drawn yet, and cannot be saved; "
            "use an integer, or take a step first"
        )
    return model._seed


def _pack_parameter(value: Any, name: str, arrays: Arrays) -> Json:
    if SETTINGS.get(type(value).__name__) is type(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        packed = {key: _pack_parameter(x, f"{name}.{key}", arrays) for key, x in fields.items()}
        return {"settings": [type(value).__name__, packed]}
    if is_array(value) and not isinstance(value, np.generic):
        return {"array": arrays.put(f"parameter.{name}", value)}
    return encode(value, name)


def _unpack_parameters(stored: Json, file: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a model: those given, and the others from the file."""
    unknown = sorted(given.keys() - stored.keys())
    if unknown:
        raise InputError(f"{', '.join(unknown)}: no parameter of this model; it has {', '.join(stored)}")
    lacking = {name: kind for name, x in stored.items() if (kind := _left_out(x)) and name not in given}
    if lacking:
        what = ", ".join(f"{name} (a {kind})" for name, kind in lacking.items())
        again = ", ".join(f"{name}=..." for name in lacking)
        raise InputError(f"{file.path} cannot hold {what}; pass it again: load(path, {again})")
    return {name: given[name] if name in given else _unpack_parameter(x, file) for name, x in stored.items()}


def _left_out(stored: Json) -> str | None:
    return stored.get("left out") if isinstance(stored, dict) else None


def _unpack_parameter(stored: Json, file: Reader) -> Any:
    if isinstance(stored, dict) and "settings" in stored:
        kind, fields = stored["settings"]
        return SETTINGS[kind](**{name: _unpack_parameter(x, file) for name, x in fields.items()})
    if isinstance(stored, dict) and "array" in stored:
        return file.fresh_array(stored["array"], np.empty(0))
    return decode(stored)
