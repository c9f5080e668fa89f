"""scikit-learn transformers for sequences of steps."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from affect_xp.array.namespace import array_namespace, as_array, is_array
from affect_xp.array.typing import Array
from affect_xp.checks import check_choice
from affect_xp.exceptions import InputError, InputTypeError, NotFittedError
from affect_xp.io import Snapshot
from affect_xp.models.inputs import is_feature_table, steps_of
from affect_xp.parameters import Parameters

__all__ = ["OverSteps"]


class OverSteps(Parameters):
    """Apply a transformer of features, such as scikit-learn's StandardScaler, to each step of a sequence.

    For use in pipelines. One copy of the transformer is fitted and transforms all steps, so that they share
    one coordinate system.

    Parameters
    ----------
    transformer : object with fit and transform
        It is copied; the copy is fitted.
    fit_on : "first" or "all"
        The data to fit: the first step, so that no future data are used; or the objects of all steps passed
        to `fit`.

    Attributes
    ----------
    transformer_ : object
        The fitted copy.

    Examples
    --------
    >>> import affect_xp as ax
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> steps = [1000 * step.X for step in ax.datasets.colliding_gaussians(n_steps=5, rng=0)]
    >>> affect = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0)
    >>> model = make_pipeline(ax.OverSteps(StandardScaler()), affect).fit(steps)
    >>> len(model[-1].history_), model[0].transformer_.n_features_in_
    (5, 2)
    """

    def __init__(self, transformer: Any, *, fit_on: str = "first") -> None:
        self.transformer = transformer
        self.fit_on = fit_on

    def fit(self, sequence: Any, y: object = None) -> Self:
        """Fit a copy of the transformer.

        Parameters
        ----------
        sequence : list of (n, p) arrays, DataFrames or steps of `read_steps`, or one (T, n, p) array
        y : ignored
        """
        self._fit(_listed(sequence))
        return self

    def transform(self, sequence: Any) -> Any:
        """Return the transformed steps in the format of the input: arrays, frames, or a (T, n, q) array."""
        return self._transform(sequence, _listed(sequence))

    def fit_transform(self, sequence: Any, y: object = None) -> Any:
        """Fit a copy of the transformer and return the transformed steps; a generator is read once."""
        steps = _listed(sequence)
        self._fit(steps)
        return self._transform(sequence, steps)

    def _fit(self, steps: list[Any]) -> None:
        check_choice("fit_on", self.fit_on, ("first", "all"))
        if isinstance(self.transformer, type) or not hasattr(self.transformer, "transform"):
            raise InputTypeError(
                f"transformer must have fit and transform, like StandardScaler(), got {self.transformer!r}"
            )
        if not steps:
            raise InputError("sequence is empty; pass at least one step")
        values = [_values_of(step) for step in steps]
        fitted = copy.deepcopy(self.transformer)
        fitted.fit(values[0] if self.fit_on == "first" else _joined(values))
        self.transformer_ = fitted

    def _transform(self, sequence: Any, steps: list[Any]) -> Any:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this OverSteps is not fitted yet; call fit first")
        results = [self._one(step) for step in steps]
        if is_array(sequence):
            return results[0] if sequence.ndim == 2 else array_namespace(*results).stack(results)
        return results[0] if is_feature_table(sequence) else results

    def _one(self, step: Any) -> Any:
        values = _values_of(step)
        result = self.transformer_.transform(values)
        if is_feature_table(values):
            result = self._framed(values, np.asarray(result))
        return dataclasses.replace(step, values=result) if isinstance(step, Snapshot) else result

    def _framed(self, frame: Any, values: np.ndarray) -> Any:
        """Return values as a frame with the index of `frame`, and its columns if their number is the same."""
        names = list(frame.columns)
        if values.shape[1] != len(names):
            known = getattr(self.transformer_, "get_feature_names_out", None)
            names = [str(j) for j in range(values.shape[1])] if known is None else list(known())
        if hasattr(frame, "index"):
            return type(frame)(values, index=frame.index, columns=names)
        return type(frame)(values, schema=names)

    def __sklearn_is_fitted__(self) -> bool:
        return "transformer_" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(two_d_array=True, three_d_array=True),
        )

    def __repr__(self) -> str:
        return f"OverSteps({self.transformer!r}, fit_on={self.fit_on!r})"


def _listed(sequence: Any) -> list[Any]:
    return list(steps_of(sequence, of_features=True))


def _values_of(step: Any) -> Any:
    """Return the features of a step as an array or a frame."""
    values = step.values if isinstance(step, Snapshot) else step
    return values if is_feature_table(values) else as_array(values)


def _joined(values: Sequence[Any]) -> Array:
    """Return the concatenated rows of all steps."""
    if is_feature_table(values[0]):
        rows = np.concatenate([frame.to_numpy() for frame in values])
        names = {"columns" if hasattr(values[0], "index") else "schema": list(values[0].columns)}
        return type(values[0])(rows, **names)
    return array_namespace(*values).concat(list(values))
