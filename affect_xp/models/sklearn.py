"""The estimator protocol of scikit-learn, which is imported only when its tools call these methods."""

from typing import Any, Self

from affect_xp.exceptions import InputError
from affect_xp.parameters import Parameters

# Metadata of each method: arguments with one entry per step, besides the sequence and y.
METADATA = {"fit": ("ids", "times"), "score": ("ids",)}


class SklearnEstimator(Parameters):
    """Parameters, tags and metadata requests in the form that scikit-learn's tools expect.

    In cross-validation the samples are the steps: a split divides the sequence, never the objects.
    """

    proximity: Any
    _state: Any
    _metadata_request: Any

    def __sklearn_is_fitted__(self) -> bool:
        return self._state is not None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        precomputed = isinstance(self.proximity, str) and self.proximity == "precomputed"
        # Not pairwise, although a step may be: pairwise input is split along both axes, but samples are steps
        # here.
        given = InputTags(two_d_array=not precomputed, three_d_array=True, sparse=precomputed, pairwise=False)
        return Tags(
            estimator_type="clusterer",
            target_tags=TargetTags(required=False),
            array_api_support=True,
            input_tags=given,
        )

    def get_metadata_routing(self) -> Any:
        """Return the metadata request for ids and times; used by scikit-learn's tools."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=type(self).__name__)
        known = self.__dict__.get("_metadata_request")
        for method, names in METADATA.items():
            asked = {} if known is None else getattr(known, method).requests
            for name in names:
                getattr(request, method).add_request(param=name, alias=asked.get(name))
        return request

    def set_fit_request(self, **requests: bool | str | None) -> Self:
        """Request that scikit-learn's tools pass `ids` or `times` to `fit` and `fit_predict`.

        True requests it, False does not, a string requests the metadata of that name, and None makes the
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
        """Request that scikit-learn's tools pass `ids` to `score`; see `set_fit_request`."""
        return self._request("score", requests)

    def _request(self, method: str, requests: dict[str, bool | str | None]) -> Self:
        unknown = [name for name in requests if name not in METADATA[method]]
        if unknown:
            can = " and ".join(METADATA[method])
            raise InputError(f"{method} does not accept {', '.join(unknown)}; it accepts {can}")
        routing = self.get_metadata_routing()
        for name, alias in requests.items():
            getattr(routing, method).add_request(param=name, alias=alias)
        self._metadata_request = routing  # `clone` copies this attribute
        return self
