"""What scikit-learn asks of an estimator beside its parameters. It is imported only when it asks."""

from typing import Any, Self

from affect_xp.exceptions import InputError
from affect_xp.parameters import Parameters

# What may be passed to a method by steps, beside the sequence and y.
METADATA = {"fit": ("ids", "times"), "score": ("ids",)}


class SklearnEstimator(Parameters):
    """Parameters, tags, and requests for ids and times, as scikit-learn's tools look for them.

    To its cross-validation the samples are the steps: a split in time cuts the sequence, never the objects.
    """

    proximity: Any
    _state: Any
    _metadata_request: Any

    def __sklearn_is_fitted__(self) -> bool:
        return self._state is not None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        precomputed = isinstance(self.proximity, str) and self.proximity == "precomputed"
        # Not pairwise, though a step may be: then both axes of what is split would be samples, and these
        # are steps.
        given = InputTags(two_d_array=not precomputed, three_d_array=True, sparse=precomputed, pairwise=False)
        return Tags(
            estimator_type="clusterer",
            target_tags=TargetTags(required=False),
            array_api_support=True,
            input_tags=given,
        )

    def get_metadata_routing(self) -> Any:
        """Return which of ids and times the methods are to be passed; asked by scikit-learn's tools."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=type(self).__name__)
        known = self.__dict__.get("_metadata_request")
        for method, names in METADATA.items():
            asked = {} if known is None else getattr(known, method).requests
            for name in names:
                getattr(request, method).add_request(param=name, alias=asked.get(name))
        return request

    def set_fit_request(self, **requests: bool | str | None) -> Self:
        """Ask tools of scikit-learn to pass `ids` or `times` on to `fit` and `fit_predict`.

        True asks for it, False does not, a string asks for what is passed by that name, and None lets the
        tool raise an error. It takes effect with `sklearn.set_config(enable_metadata_routing=True)`.

        Examples
        --------
        >>> import affect_xp as ax
        >>> model = ax.Affect(ax.KMeans(2)).set_fit_request(ids=True)
        >>> model.get_metadata_routing().fit.requests
        {'ids': True, 'times': None}
        """
        return self._request("fit", requests)

    def set_score_request(self, **requests: bool | str | None) -> Self:
        """Ask tools of scikit-learn to pass `ids` on to `score`; see `set_fit_request`."""
        return self._request("score", requests)

    def _request(self, method: str, requests: dict[str, bool | str | None]) -> Self:
        unknown = [name for name in requests if name not in METADATA[method]]
        if unknown:
            can = " and ".join(METADATA[method])
            raise InputError(f"{method} cannot be passed {', '.join(unknown)}; it takes {can}")
        routing = self.get_metadata_routing()
        for name, alias in requests.items():
            getattr(routing, method).add_request(param=name, alias=alias)
        self._metadata_request = routing  # by this name `clone` looks for it
        return self
