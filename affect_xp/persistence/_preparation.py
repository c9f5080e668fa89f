"""The decisions of the first step of a model, as JSON and arrays."""

import copy
import math
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError
from affect_xp.persistence._archive import Reader
from affect_xp.persistence._proximities import Arrays
from affect_xp.persistence._values import Json, decode, encode
from affect_xp.proximity.preparation import Preparation
from affect_xp.proximity.transforms import check_transform


def pack_preparation(preparation: Preparation | None, arrays: Arrays) -> Json:
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


def unpack_preparation(stored: Json, file: Reader, given: Any) -> Preparation:
    """Return the decoded and checked decisions; `given` is the parameter `scale` of the model."""
    if stored is None:
        return Preparation()
    location, scale = (
        None if stored[name] is None else file.fresh_array(stored[name], np.empty(0))
        for name in ("location", "scale")
    )
    gamma, rescale = decode(stored["gamma"]), decode(stored["rescale"])
    for x in (location, scale):
        if x is not None and (x.ndim != 1 or x.dtype != np.float64 or not np.isfinite(x).all()):
            raise ValueError("location and scale of features must be vectors of finite numbers")
    if location is not None and scale is not None and location.shape != scale.shape:
        raise ValueError("location and scale have different numbers of features")
    if scale is not None and not (scale > 0).all():
        raise ValueError("scales of features must be positive")
    if gamma is not None and not (isinstance(gamma, float) and 0 < gamma < math.inf):
        raise ValueError("gamma must be a positive number")
    if rescale is not None:
        check_transform(str(rescale))
    for x in (location, scale):
        if x is not None:
            x.flags.writeable = False
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
