"""Get and set parameters by name, including those of nested objects such as `clusterer__n_clusters`."""

import dataclasses
import inspect
from collections import defaultdict
from typing import Any, Self

from affect_xp.exceptions import InputError


class Parameters:
    """Base of classes whose constructor stores each argument as an attribute of the same name."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; with `deep` also those of nested objects.

        Examples
        --------
        >>> import affect_xp as ax
        >>> ax.Affect(ax.KMeans(2)).get_params()["clusterer__n_clusters"]
        2
        """
        return parameters_of(self, deep=deep)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, including nested ones.

        Examples
        --------
        >>> import affect_xp as ax
        >>> ax.Affect(ax.KMeans(2)).set_params(clusterer__n_clusters=3, n_iter=5).clusterer.n_clusters
        3
        """
        own, nested = _sorted(self, params)
        for name, value in own.items():
            setattr(self, name, value)
        for name, inner in nested.items():  # last, since the object may be among the others
            setattr(self, name, _changed(name, getattr(self, name), inner))
        return self


def defaults_of(kind: type) -> dict[str, Any]:
    """Return the parameter defaults of a class by name; `inspect.Parameter.empty` if required."""
    return {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}


def parameters_of(owner: Any, *, deep: bool) -> dict[str, Any]:
    """Return the parameters of an object by name."""
    own = {name: getattr(owner, name) for name in defaults_of(type(owner))}
    if not deep:
        return own
    inner = {f"{name}__{key}": x for name, value in own.items() for key, x in _inner(value).items()}
    return own | inner


def _inner(value: Any) -> dict[str, Any]:
    """Return the parameters of a parameter value; most values have none."""
    if isinstance(value, type):
        return {}
    if hasattr(value, "get_params"):
        return value.get_params()
    return parameters_of(value, deep=True) if dataclasses.is_dataclass(value) else {}


def _sorted(owner: Any, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Split parameters into those of an object and, by object name, those of its nested objects."""
    names, own, nested = defaults_of(type(owner)), {}, defaultdict[str, dict[str, Any]](dict)
    for key, value in params.items():
        name, separator, inner = key.partition("__")
        if name not in names:
            raise InputError(
                f"{type(owner).__name__} has no parameter {name!r}; valid ones: {', '.join(names) or 'none'}"
            )
        if separator:
            nested[name][inner] = value
        else:
            own[name] = value
    return own, nested


def _changed(name: str, value: Any, params: dict[str, Any]) -> Any:
    """Return a value with changed parameters: the same object if it is mutable, otherwise a new one."""
    frozen = getattr(getattr(value, "__dataclass_params__", None), "frozen", False)
    if hasattr(value, "set_params") and not frozen and not isinstance(value, type):
        return value.set_params(**params)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise InputError(f"{name}={value!r} has no parameters, but {name}__{next(iter(params))} was given")
    own, nested = _sorted(value, params)
    inner = {key: _changed(f"{name}__{key}", getattr(value, key), x) for key, x in nested.items()}
    return dataclasses.replace(value, **own, **inner)
