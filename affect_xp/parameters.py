"""Parameters read and set by name, those of nested objects as in `clusterer__n_clusters`."""

import dataclasses
import inspect
from collections import defaultdict
from typing import Any, Self

from affect_xp.exceptions import InputError


class Parameters:
    """What is made of the arguments of its constructor, each kept as an attribute of the same name."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; with `deep` also those of parameters that have some themselves.

        Examples
        --------
        >>> import affect_xp as ax
        >>> ax.Affect(ax.KMeans(2)).get_params()["clusterer__n_clusters"]
        2
        """
        return parameters_of(self, deep=deep)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, also nested ones.

        Examples
        --------
        >>> import affect_xp as ax
        >>> ax.Affect(ax.KMeans(2)).set_params(clusterer__n_clusters=3, n_iter=5).clusterer.n_clusters
        3
        """
        own, nested = _sorted(self, params)
        for name, value in own.items():
            setattr(self, name, value)
        for name, inner in nested.items():  # after the others: they may be of an object just set
            setattr(self, name, _changed(name, getattr(self, name), inner))
        return self


def defaults_of(kind: type) -> dict[str, Any]:
    """Return the parameters of a class by name with their defaults, `inspect.Parameter.empty` for none."""
    return {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}


def parameters_of(owner: Any, *, deep: bool) -> dict[str, Any]:
    """Return the parameters of an object by name."""
    own = {name: getattr(owner, name) for name in defaults_of(type(owner))}
    if not deep:
        return own
    inner = {f"{name}__{key}": x for name, value in own.items() for key, x in _inner(value).items()}
    return own | inner


def _inner(value: Any) -> dict[str, Any]:
    """Return the parameters of what is itself a parameter; none for most."""
    if isinstance(value, type):
        return {}
    if hasattr(value, "get_params"):
        return value.get_params()
    return parameters_of(value, deep=True) if dataclasses.is_dataclass(value) else {}


def _sorted(owner: Any, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the parameters of an object itself, and by their names the parameters of its parameters."""
    names, own, nested = defaults_of(type(owner)), {}, defaultdict[str, dict[str, Any]](dict)
    for key, value in params.items():
        name, separator, inner = key.partition("__")
        if name not in names:
            raise InputError(
                f"{name!r} is no parameter of {type(owner).__name__}; it has {', '.join(names) or 'none'}"
            )
        if separator:
            nested[name][inner] = value
        else:
            own[name] = value
    return own, nested


def _changed(name: str, value: Any, params: dict[str, Any]) -> Any:
    """Return a value with other parameters: the same object where it can be changed, otherwise a new one."""
    frozen = getattr(getattr(value, "__dataclass_params__", None), "frozen", False)
    if hasattr(value, "set_params") and not frozen and not isinstance(value, type):
        return value.set_params(**params)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise InputError(
            f"{name}={value!r} has no parameters of its own, but {name}__{next(iter(params))} was given"
        )
    own, nested = _sorted(value, params)
    inner = {key: _changed(f"{name}__{key}", getattr(value, key), x) for key, x in nested.items()}
    return dataclasses.replace(value, **own, **inner)
