"""Models on disk: `save` and `load`, in an open format without pickle.

A file is a zip archive of arrays in .npy format, like an .npz file, and a JSON header. The header contains
everything that is not an array (parameters, ids, events, forgetting factors). Files are written atomically,
verified by a checksum before they are read, and cannot run code when they are loaded. The checksum detects
damage; it does not identify the author of a file.
"""

import copy
import dataclasses
import math
import os
from typing import Any

import numpy as np

from affect_xp import __version__
from affect_xp.affect.absence import Away, Meetings
from affect_xp.affect.step import State
from affect_xp.array.namespace import array_namespace, check_in_memory, is_array, to_host
from affect_xp.array.typing import Array, Namespace
from affect_xp.clustering.base import Count
from affect_xp.clustering.kmeans import KMeans
from affect_xp.clustering.linkage import Linkage
from affect_xp.clustering.spectral import Spectral
from affect_xp.exceptions import AffectError, FileFormatError, InputError, InputTypeError
from affect_xp.models.affect import Affect
from affect_xp.models.base import Evolving
from affect_xp.models.pcm import PCM
from affect_xp.models.pcq import PCQ
from affect_xp.models.rg import RG
from affect_xp.models.static import Static
from affect_xp.partition import Partition
from affect_xp.persistence._archive import Reader, write
from affect_xp.persistence._proximities import (
    Arrays,
    pack_groups,
    pack_proximity,
    pack_squares,
    unpack_groups,
    unpack_proximity,
)
from affect_xp.persistence._steps import (
    KnownNames,
    NameTable,
    pack_clusters,
    pack_history,
    unpack_clusters,
    unpack_history,
)
from affect_xp.persistence._values import Json, decode, encode
from affect_xp.proximity.preparation import Preparation
from affect_xp.proximity.transforms import check_transform
from affect_xp.tracking.events import EventRules
from affect_xp.tracking.history import History

__all__ = ["load", "save"]

FORMAT = "affect_xp model"
VERSION = 2

# Integer parameters of a file, such as max_iter and n_init, are at most this; pass larger ones to `load`.
MAX_PARAMETER = 10**7

# The classes that a file may name.
MODELS: dict[str, type[Evolving]] = {kind.__name__: kind for kind in (Affect, Static, PCM, PCQ, RG)}
SETTINGS: dict[str, Any] = {kind.__name__: kind for kind in (KMeans, Spectral, Linkage, EventRules)}


def save(model: Evolving, path: str | os.PathLike[str]) -> None:
    """Write a model to a file; the model that `load` returns continues exactly as this one.

    The data are written to a temporary file in the same folder, flushed to disk, and renamed atomically. If
    the process or the machine stops, either the old or the new file is there. Arrays are written one block of
    rows at a time, and chunks one by one.

    Parameters
    ----------
    model : Affect, Static, PCM, PCQ or RG
        The model, which is not changed. Ids and times must be numbers, strings, booleans, None, dates of the
        datetime module, NumPy scalars, or tuples of these. Functions, scalers and external clusterers are not
        saved, and must be passed to `load` again; pass the fitted scaler, `model.preparation_.scaler`. A
        generator as `random_state` is replaced by the seed that the model drew from it.
    path : str or path
        The name of the file; an existing file is replaced.

    Raises
    ------
    SaveError
        If the file cannot be written, for example because the disk is full. An existing file is intact.

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
        raise AffectError("the last step was interrupted and the past is lost; call reset() or load a file")
    arrays = Arrays()
    names = NameTable()
    header = {
        "format": FORMAT,
        "version": VERSION,
        "affect_xp": __version__,
        "model": type(model).__name__,
        "parameters": _pack_parameters(model, arrays),
        "seed": encode(model._seed, "seed"),
        "owns_smoothed": model._owns_smoothed,
        "preparation": _pack_preparation(model._preparation, arrays),
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
        The array library of the loaded arrays, for example `cupy` or `torch`; by default NumPy, whatever
        library the model used. The next steps must use this library.
    device : optional
        A device of this library; by default that of the library.
    store : str or path, optional
        For chunked proximities, as for `Chunked`; required if they were in a store. With dask.distributed the
        workers read the file themselves.
    **parameters
        Parameters of the model that are not saved, such as functions and external clusterers
        (`clusterer=DBSCAN(...)`); or parameters to override.

    Raises
    ------
    FileFormatError
        If the file is damaged, is not a saved model, or was written by a newer version.

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
    """Return an array that represents a library and a device."""
    try:
        some = np.empty(0) if xp is None else xp.empty((0,))
        like = array_namespace(some).empty((0,), dtype=some.dtype, device=device)
    except Exception as error:
        raise InputTypeError(
            "xp must be an array library such as cupy or torch, and device one of its devices, "
            f"got xp={xp!r} and device={device!r} ({error})"
        ) from error
    check_in_memory(like, "xp must be the library of the chunks, not dask; omit xp, or use cupy")
    return like


def _check_version(header: Json, file: Reader) -> None:
    if header["format"] != FORMAT:
        raise FileFormatError(f"{file.path} contains {header['format']!r}, not a model")
    if header["version"] > VERSION:
        raise FileFormatError(
            f"{file.path} was written by affect_xp {header['affect_xp']} in format version "
            f"{header['version']}, but {__version__} reads up to {VERSION}; install a newer affect_xp"
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
        # Files of versions without a preparation continue without one.
        model._preparation = _unpack_preparation(header.get("preparation"), file, model.scale)
    return model


def _pack_state(state: State | None, names: NameTable, arrays: Arrays) -> Json:
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
        "squares": pack_squares(state.groups, arrays),
        "away": _pack_away(state.away, arrays),
        "count": state.count,
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
    last_seen, groups, met = (file.host_array(stored[name]) for name in ("last_seen", "groups", "met"))
    if last_seen.ndim != 1 or groups.ndim != 1 or met.shape != (len(met), len(met)):
        raise ValueError("the arrays of absent objects have an invalid shape")
    if len(groups) and not 0 <= groups.min() <= groups.max() < len(met):
        raise ValueError(f"groups of absent objects must be numbers from 0 to {len(met) - 1}")
    return Away(last_seen, Meetings(groups, met > 0))


def _unpack_state(
    stored: Json, names: KnownNames, file: Reader, store: str | os.PathLike[str] | None
) -> State:
    smoothed = unpack_proximity(stored["smoothed"], file, store)
    partition = Partition(file.array(stored["labels"]), stored["k"], stored["n_outside"])
    count = stored.get("count")
    state = State(
        smoothed,
        partition,
        unpack_clusters(stored["clusters"], names),
        names.ids(stored["ids"]),
        file.array(stored["memory"]),
        unpack_groups(stored["groups"], smoothed, partition, file, stored.get("squares")),
        _unpack_away(stored.get("away"), file),
        None if count is None else Count(*map(int, count)),
    )
    _check_state(state)
    return state


def _check_state(state: State) -> None:
    """Raise if the parts of a state are inconsistent."""
    n, k = len(state.ids), state.partition.k
    if not 1 <= k <= n:
        raise ValueError(f"{n} objects in {k} clusters")
    sizes = {state.partition.n, *(x.n for x in (state.smoothed,) if x is not None)}
    sizes |= {x.shape[0] for x in (state.memory,) if x is not None}
    sizes |= {len(away.meetings.groups) for away in (state.away,) if away is not None}
    if sizes != {n} or len(state.clusters.names) != k:
        raise ValueError(f"{n} objects in {k} clusters do not match the arrays")
    labels = to_host(state.partition.labels, reason="are labels in range?")[0]
    if labels.dtype.kind != "i" or labels.ndim != 1 or labels.min() < -1 or labels.max() >= k:
        raise ValueError(f"labels of {k} clusters must be integers from -1 to {k - 1}")


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
    """Return the seed that represents the generator of a model."""
    if model._seed is None:
        raise InputError(
            "random_state is a generator that has not been used yet, and cannot be saved; "
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
    """Return the parameters of a model: the given ones, and the others from the file."""
    unknown = sorted(given.keys() - stored.keys())
    if unknown:
        raise InputError(f"the model has no parameter {', '.join(unknown)}; valid ones: {', '.join(stored)}")
    lacking = {name: kind for name, x in stored.items() if (kind := _left_out(x)) and name not in given}
    if lacking:
        what = ", ".join(f"{name} (a {kind})" for name, kind in lacking.items())
        again = ", ".join(f"{name}=..." for name in lacking)
        raise InputError(f"{file.path} does not contain {what}; pass it again: load(path, {again})")
    return given | _unpack_fields({name: x for name, x in stored.items() if name not in given}, file)


def _unpack_fields(stored: dict[str, Json], file: Reader) -> dict[str, Any]:
    values = {name: _unpack_parameter(x, file) for name, x in stored.items()}
    for name, value in values.items():
        if name != "random_state" and isinstance(value, int) and abs(value) > MAX_PARAMETER:
            raise ValueError(f"{name}={value} is larger than {MAX_PARAMETER}")
    return values


def _left_out(stored: Json) -> str | None:
    return stored.get("left out") if isinstance(stored, dict) else None


def _unpack_parameter(stored: Json, file: Reader) -> Any:
    match stored:
        case {"settings": [kind, fields]}:
            return SETTINGS[kind](**_unpack_fields(fields, file))
        case {"array": str(name)}:
            return file.host_array(name)
    return decode(stored)


def _pack_preparation(preparation: Preparation | None, arrays: Arrays) -> Json:
    """Return the encoded decisions; a fitted object is not saved, and must be passed to `load` again."""
    if preparation is None:
        return None
    return {
        "location": arrays.put("preparation.location", preparation.location),
        "scale": arrays.put("preparation.scale", preparation.scale),
        "gamma": encode(preparation.gamma, "gamma"),
        "rescale": encode(preparation.rescale, "rescale"),
        "has_scaler": preparation.scaler is not None,
    }


def _unpack_preparation(stored: Json, file: Reader, given: Any) -> Preparation:
    """Return the decoded and checked decisions; `given` is the parameter `scale` of the model."""
    if stored is None:
        return Preparation()
    location, scale = file.host_array(stored["location"]), file.host_array(stored["scale"])
    gamma, rescale = decode(stored["gamma"]), decode(stored["rescale"])
    for x in (x for x in (location, scale) if x is not None):
        if x.ndim != 1 or x.dtype != np.float64 or not np.isfinite(x).all():
            raise ValueError("location and scale of features must be vectors of finite numbers")
        x.flags.writeable = False
    if location is not None and scale is not None and location.shape != scale.shape:
        raise ValueError("location and scale have different numbers of features")
    if scale is not None and not (scale > 0).all():
        raise ValueError("scales of features must be positive")
    if gamma is not None and not (isinstance(gamma, float) and 0 < gamma < math.inf):
        raise ValueError("gamma must be a positive number")
    if rescale is not None:
        check_transform(str(rescale))
    return Preparation(location, scale, gamma, rescale, _scaler(given) if stored["has_scaler"] else None)


def _scaler(given: Any) -> Any:
    """Return a copy of a fitted object; raise if it has no attribute that ends in _."""
    is_fitted = any(name.endswith("_") and not name.startswith("_") for name in vars(given))
    if isinstance(given, str) or not is_fitted:
        raise InputError(
            f"scale={given!r} is not fitted, but the model was saved with a fitted object; pass that one: "
            "load(path, scale=model.preparation_.scaler)"
        )
    return copy.deepcopy(given)
