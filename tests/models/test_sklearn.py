"""The estimators with scikit-learn's tools: checks, parameters, clones, pipelines, searches, routing."""

import inspect
import os
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pytest

import affect_xp as ax

sklearn = pytest.importorskip("sklearn", minversion="1.7")

from sklearn.base import clone, is_clusterer  # noqa: E402
from sklearn.cluster import DBSCAN  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score  # noqa: E402
from sklearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler  # noqa: E402
from sklearn.utils import estimator_checks, get_tags  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402

CHECKED = [
    ax.Affect(ax.KMeans(3), proximity="dot"),
    ax.Affect(ax.Linkage(distance_threshold=1.0), proximity="euclidean"),
    ax.Static(ax.KMeans(3), proximity="cosine", scale="none"),  # the means of all blobs are far from 0
    ax.RG(ax.KMeans(3)),
    ax.PCQ(ax.Spectral(3), proximity="rbf"),
    ax.PCM(ax.Spectral(3), proximity="rbf"),
]

EXPECTED_FAILURES = {
    "check_fit_score_takes_y": "partial_fit takes the ids of its one step second; fit and score do take y, "
    "see test_labels_come_second",
    "check_n_features_in_after_fitting": "a step may have other features than the one before: from step to "
    "step only proximities are compared",
    "check_estimators_partial_fit_n_features": "as for check_n_features_in_after_fitting",
    "check_parameters_default_constructible": "the default of `events` is an EventRules, which is frozen: "
    "no model can change it for all",
    "check_estimators_nan_inf": "the message names the entry, X[0, 0] = nan, where the check looks for NaN; "
    "see test_missing_values_are_an_error",
    "check_fit2d_1sample": "the message speaks of objects, of which there is 1, where the check looks for "
    "samples",
}


def expected_failures(model):
    any_number = getattr(model.clusterer, "distance_threshold", None) is not None
    return {
        name: reason
        for name, reason in EXPECTED_FAILURES.items()
        if not (name == "check_fit2d_1sample" and any_number)
    }


with warnings.catch_warnings():
    # BaseEstimator is not a base class of ours, because `import affect_xp` would then need scikit-learn.
    warnings.filterwarnings("ignore", message=".* does not inherit from `sklearn.base.BaseEstimator`")
    all_checks = estimator_checks.parametrize_with_checks(CHECKED, expected_failed_checks=expected_failures)
    names, pairs = all_checks.args
    all_checks = pytest.mark.parametrize(names, list(pairs), **all_checks.kwargs)  # was a generator


@all_checks
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("model", CHECKED, ids=repr)
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_clustering,
        partial(estimator_checks.check_clustering, readonly_memmap=True),
        estimator_checks.check_clusterer_compute_labels_predict,
        estimator_checks.check_non_transformer_estimators_n_iter,
    ],
)
def test_checks_of_clusterers(model, check):
    # Not among the checks above, which require ClusterMixin.
    check(type(model).__name__, model)


def test_checks_with_arrays_of_other_libraries():
    pytest.importorskip("array_api_strict")
    if "device_name" not in inspect.signature(estimator_checks.check_array_api_input).parameters:
        pytest.skip("this release of scikit-learn does not know the devices of array-api-strict by name")
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "import affect_xp as ax\n"
        "from sklearn.utils.estimator_checks import check_array_api_input\n"
        "for model in (ax.Affect(ax.KMeans(3), proximity='dot'), ax.PCQ(ax.Spectral(3), proximity='rbf')):\n"
        "    for device, dtype in (('CPU_DEVICE', 'float64'), ('device1', 'float32')):\n"
        "        check_array_api_input('model', model, array_namespace='array_api_strict',\n"
        "                              device_name=device, dtype_name=dtype)\n"
    )
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}  # must be set before SciPy is imported
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def features(n_steps=12, seed=0):
    """Return features of three groups that move, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], 8)
    centres = np.array([[6.0, 0.0], [-6.0, 0.0], [0.0, 6.0]])
    steps = [centres[labels] + 0.1 * t + rng.normal(size=(24, 2)) for t in range(n_steps)]
    return steps, [labels] * n_steps


def products(n_steps=12):
    steps, labels = features(n_steps)
    return [x @ x.T for x in steps], labels


def test_labels_come_second():
    x, y = features(1)
    model = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0)
    assert model.fit(x[0], y[0]) is model
    assert model.fit_predict(x[0], y[0]).shape == (24,)
    assert model.score(x[0], y[0]) == 1


def test_missing_values_are_an_error():
    x = features(1)[0][0]
    x[1, 0] = np.nan
    with pytest.raises(ValueError, match=r"X must be finite, but X\[1, 0\] = nan"):
        ax.Affect(ax.KMeans(3), proximity="dot").fit(x)


# Parameters -------------------------------------------------------------------------------------------------


def test_nested_parameters():
    model = ax.Affect(ax.KMeans(2, n_init=4))
    parameters = model.get_params()
    assert parameters["clusterer__n_init"] == 4 and parameters["events__overlap"] == 0.5
    assert "clusterer__n_init" not in model.get_params(deep=False)
    assert model.set_params(clusterer__n_clusters=5, n_iter=7) is model
    assert (model.clusterer.n_clusters, model.n_iter) == (5, 7)
    assert model.set_params(clusterer=ax.Linkage(2), clusterer__method="single").clusterer.method == "single"


def test_rules_are_replaced_and_not_changed():
    model, other = ax.Affect(ax.KMeans(2)), ax.Affect(ax.KMeans(2))
    model.set_params(events__overlap=0.7)
    assert (model.events.overlap, other.events.overlap, ax.EventRules().overlap) == (0.7, 0.5, 0.5)


def test_parameters_of_estimators_from_elsewhere():
    model = ax.Affect(ax.as_external(DBSCAN(eps=0.5, metric="precomputed")))
    assert model.get_params()["clusterer__estimator__eps"] == 0.5
    model.set_params(clusterer__estimator__eps=0.9, clusterer__host_copy=True)
    assert model.clusterer.estimator.eps == 0.9 and model.clusterer.host_copy
    assert ax.Affect(DBSCAN()).set_params(clusterer__eps=0.2).clusterer.eps == 0.2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"clusters": 2},
            "Affect has no parameter 'clusters'; valid ones: clusterer, proximity, scale, gamma, events",
        ),
        ({"clusterer__k": 2}, "KMeans has no parameter 'k'; valid ones: n_clusters, init"),
        ({"events__overlaps": 2}, "EventRules has no parameter 'overlaps'; valid ones: overlap"),
        ({"n_iter__k": 2}, "n_iter=3 has no parameters, but n_iter__k was given"),
        ({"n_iter": 9, "clusters": 2}, "Affect has no parameter 'clusters'"),
    ],
)
def test_unknown_parameters(parameters, message):
    model = ax.Affect(ax.KMeans(2))
    with pytest.raises(ax.exceptions.InputError, match=message):
        model.set_params(**parameters)
    assert model.n_iter == 3


@pytest.mark.parametrize(
    "original",
    [
        ax.Affect(ax.KMeans(2, n_init=3), alpha=[0.1, 0.2], events=ax.EventRules(part=0.3), random_state=4),
        ax.Static(ax.Linkage(distance_threshold=2.0), proximity="euclidean"),
        ax.PCM(ax.Spectral(3), membership="discrete"),
        ax.RG(ax.KMeans(2), order=1),
        ax.Affect(ax.as_external(DBSCAN(eps=0.3, metric="precomputed"))),
        ax.KMeans(4, init="k-means++"),
        ax.Spectral("eigengap", max_clusters=6),
        ax.Linkage(3, method="single"),
    ],
    ids=lambda original: type(original).__name__,
)
def test_clones(original):
    copied = clone(original)
    assert repr(copied) == repr(original) and copied is not original
    for name, value in original.get_params(deep=False).items():
        if hasattr(value, "get_params"):  # copied as well: changing one does not affect the other
            assert getattr(copied, name) is not value


def test_clones_are_not_fitted():
    model = ax.Affect(ax.KMeans(2), random_state=0).fit(products(3)[0])
    check_is_fitted(model)
    with pytest.raises(NotFittedError):
        check_is_fitted(clone(model))
    np.testing.assert_array_equal(clone(model).fit(products(3)[0]).labels_, model.labels_)


def test_tags():
    given, features_given = (get_tags(ax.Affect(ax.KMeans(2), proximity=p)) for p in ("precomputed", "dot"))
    assert is_clusterer(ax.Affect(ax.KMeans(2)))
    assert given.array_api_support and not given.target_tags.required
    assert given.input_tags.sparse and not features_given.input_tags.sparse
    assert given.input_tags.three_d_array and features_given.input_tags.three_d_array
    assert not given.input_tags.two_d_array and features_given.input_tags.two_d_array
    # Samples are steps: the steps of a pairwise estimator would be split along both axes.
    assert not given.input_tags.pairwise


# Scores -----------------------------------------------------------------------------------------------------


def test_score_with_labels_is_the_agreement_step_by_step():
    steps, labels = features(8)
    labels[6] = np.roll(labels[6], 5)
    model = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0).fit(steps[:5])
    by_hand = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0).fit(steps)
    expected = [ax.adjusted_rand_index(by_hand.history_[t].labels, labels[t]) for t in (5, 6, 7)]
    assert model.score(steps[5:], labels[5:]) == pytest.approx(np.mean(expected))
    assert model.score(np.stack(steps[5:]), np.stack(labels[5:])) == pytest.approx(np.mean(expected))
    assert expected[1] < 1


@pytest.mark.parametrize("proximity", ["precomputed", "dot", "euclidean"])
def test_score_without_labels_is_the_silhouette_of_the_clusters_before(eager_xp, proximity):
    x, _ = features(7)
    steps = [eager_xp.array(a @ a.T if proximity == "precomputed" else a) for a in x]
    clusterer = ax.Linkage(3) if proximity == "euclidean" else ax.KMeans(3)
    make = partial(ax.Affect, clusterer, proximity=proximity, random_state=0)
    history = make().fit(steps).history_
    distances = [np.linalg.norm(a[:, None] - a, axis=2) for a in x]
    expected = [
        ax.silhouette(d if proximity == "euclidean" else d * d, labels, kind="dissimilarity")
        for d, labels in zip(distances[4:], [eager_xp.numpy(a) for a in history.labels[3:-1]], strict=True)
    ]
    assert make().fit(steps[:4]).score(steps[4:]) == pytest.approx(float(np.mean(expected)), rel=1e-6)


@pytest.mark.parametrize(
    "model",
    [ax.Affect(ax.KMeans(3), random_state=0), ax.Affect(ax.KMeans(3), proximity="dot"), ax.RG(ax.KMeans(3))],
)
def test_score_leaves_the_model_as_it_is(model):
    steps = (products if model.proximity == "precomputed" else features)(8)[0]
    model = clone(model).set_params(random_state=1)
    undisturbed = clone(model).fit(steps[:4])
    model.fit(steps[:4])
    state, before = model._state, dict(vars(model))
    model.score(steps[4:])
    model.score(steps[4:], features(4)[1])
    assert vars(model) == before and model._state is state and len(model.history_) == 4
    assert not {"membership", "sizes"} & set(vars(state.partition)) - set(vars(undisturbed._state.partition))
    for w in steps[4:]:
        model.partial_fit(w)
        undisturbed.partial_fit(w)
    np.testing.assert_array_equal(model.history_.alpha, undisturbed.history_.alpha)
    np.testing.assert_array_equal(model.labels_, undisturbed.labels_)


def test_score_of_objects_that_come_and_go():
    x, _ = features(2)
    model = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0).partial_fit(x[0][:20], range(20))
    stayed = np.arange(4, 20)
    d = np.linalg.norm(x[1][:, None] - x[1], axis=2) ** 2
    known = dict(zip(range(20), model.labels_.tolist(), strict=True))
    expected = ax.silhouette(d[np.ix_(stayed, stayed)], [known[i] for i in stayed], kind="dissimilarity")
    assert model.score([x[1][4:]], ids=[range(4, 24)]) == pytest.approx(float(expected))
    with pytest.raises(ValueError, match="no step that shares an object with the previous one"):
        model.score([x[1][:3]], ids=[["a", "b", "c"]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [[0] * 24]}, "y has 1 entries, but sequence has more"),
        ({"y": [[0, 1], [0, 1]]}, r"of one length, got shapes \(24,\) and \(2,\)"),
    ],
)
def test_bad_labels(arguments, message):
    steps, _ = products(4)
    model = ax.Affect(ax.KMeans(3), random_state=0).fit(steps[:2])
    with pytest.raises(ValueError, match=message):
        model.score(steps[2:], **arguments)


def test_scores_that_cannot_be():
    steps, _ = products(2)
    with pytest.raises(AttributeError, match="has not taken a step yet"):
        ax.Affect(ax.KMeans(3)).score(steps)
    model = ax.Affect(lambda psi: (psi.array[0] > 0).astype(int)).fit(steps[:1])
    with pytest.raises(ValueError, match="whether W contains similarities"):
        model.score(steps[1:])
    assert model.score(steps[1:], [features(1)[1][0]]) <= 1


# Pipelines, searches, routing -------------------------------------------------------------------------------


def scaled(steps):
    return [StandardScaler().fit_transform(x) for x in steps]


def test_pipeline():
    steps, labels = features(8)
    make = partial(ax.Affect, ax.KMeans(3), proximity="dot", random_state=0)
    pipeline = Pipeline([("scale", FunctionTransformer(scaled)), ("affect", make())]).fit(steps[:5])
    expected = make().fit(scaled(steps[:5]))
    np.testing.assert_array_equal(pipeline["affect"].labels_, expected.labels_)
    assert pipeline.score(steps[5:], labels[5:]) == expected.score(scaled(steps[5:]), labels[5:])
    assert pipeline.set_params(affect__clusterer__n_clusters=2).fit_predict(steps).max() == 1
    assert "Affect" in pipeline._repr_html_()


def over_first(steps):
    return [(x - steps[0].mean(0)) / steps[0].std(0) for x in steps]


@pytest.mark.parametrize("form", ["list", "array", "generator", "pandas", "polars", "snapshots"])
def test_a_transformer_over_steps(form):
    steps, _ = features(4)
    steps = [1e3 * x + 7 for x in steps]
    ids = [f"object {i}" for i in range(24)]
    sequence = steps
    if form == "array":
        sequence = np.stack(steps)
    elif form == "generator":
        sequence = (x for x in steps)
    elif form == "snapshots":
        sequence = list(ax.io.read_steps(dict(enumerate(steps)), kind="features"))
    elif form in ("pandas", "polars"):
        library = pytest.importorskip(form)
        named = {"index": ids, "columns": ["a", "b"]} if form == "pandas" else {"schema": ["a", "b"]}
        sequence = [library.DataFrame(x, **named) for x in steps]
    found = ax.OverSteps(StandardScaler()).fit_transform(sequence)
    assert isinstance(found, np.ndarray if form == "array" else list) and len(found) == 4
    for step, expected in zip(found, over_first(steps), strict=True):
        values = step.values if form == "snapshots" else np.asarray(step)
        np.testing.assert_allclose(values, expected, atol=1e-12)
        if form in ("pandas", "polars"):
            assert list(step.columns) == ["a", "b"]
        if form == "pandas":
            assert list(step.index) == ids
        if form == "snapshots":
            assert step.ids == sequence[0].ids and step.time in range(4)


@pytest.mark.parametrize("form", ["list", "pandas", "polars"])
def test_a_transformer_fitted_to_all_steps(form):
    steps, _ = features(3)
    given = steps
    if form != "list":
        given = [pytest.importorskip(form).DataFrame(x) for x in steps]
    model = ax.OverSteps(StandardScaler(), fit_on="all").fit(given)
    np.testing.assert_allclose(model.transformer_.mean_, np.concatenate(steps).mean(0))
    np.testing.assert_allclose(np.concatenate([np.asarray(x) for x in model.transform(given)]).std(0), 1)


def test_a_transformer_that_makes_columns():
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame(x, columns=["a", "b"]) for x in features(2)[0]]
    assert list(ax.OverSteps(PolynomialFeatures(2)).fit_transform(frames)[1].columns)[-1] == "b^2"


def test_pipeline_of_a_transformer_over_steps():
    steps, labels = features(8)
    steps = [1e3 * x + 7e4 for x in steps]
    pipeline = make_pipeline(
        ax.OverSteps(StandardScaler()), ax.Affect(ax.KMeans(3), proximity="dot", random_state=0)
    )
    pipeline = clone(pipeline).fit(steps[:5])
    expected = ax.Affect(ax.KMeans(3), proximity="dot", scale="standard", random_state=0).fit(steps[:5])
    np.testing.assert_allclose(pipeline[-1].history_.alpha, expected.history_.alpha, rtol=1e-9)
    np.testing.assert_array_equal(pipeline[-1].labels_, expected.labels_)
    assert pipeline.score(steps[5:], labels[5:]) == expected.score(steps[5:], labels[5:])
    pipeline.set_params(oversteps__transformer__with_std=False, oversteps__fit_on="all").fit(steps)
    assert pipeline[0].transformer_.scale_ is None
    assert pipeline[0].get_params()["transformer__with_std"] is False


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ax.OverSteps(StandardScaler()).transform([]), "is not fitted yet; call fit first"),
        (lambda: ax.OverSteps(StandardScaler()).fit([]), "sequence is empty"),
        (lambda: ax.OverSteps(StandardScaler(), fit_on="last").fit(features(1)[0]), "fit_on must be one of"),
        (lambda: ax.OverSteps("standard").fit(features(1)[0]), "transformer must have fit and transform"),
        (lambda: ax.OverSteps(StandardScaler).fit(features(1)[0]), "transformer must have fit and transform"),
    ],
)
def test_errors_of_a_transformer_over_steps(make, message):
    with pytest.raises(ax.exceptions.AffectError, match=message):
        make()


@pytest.mark.parametrize("form", ["list", "array", "snapshots"])
@pytest.mark.parametrize("supervised", [False, True])
def test_search_over_splits_in_time(form, supervised):
    steps, labels = products()
    sequence = np.stack(steps) if form == "array" else steps
    if form == "snapshots":
        sequence = list(ax.io.read_steps(dict(enumerate(steps)), kind="proximities"))
    search = GridSearchCV(
        ax.Affect(ax.KMeans(2, n_init=3), random_state=0),
        {"clusterer__n_clusters": [2, 3, 4]},
        cv=TimeSeriesSplit(3),
        error_score="raise",
    ).fit(sequence, labels if supervised else None)
    assert search.best_params_["clusterer__n_clusters"] == 3
    assert search.best_estimator_.n_steps_ == 12
    split = next(iter(TimeSeriesSplit(3).split(steps)))
    first = clone(search.best_estimator_).fit([steps[t] for t in split[0]])
    after = [steps[t] for t in split[1]]
    expected = first.score(after, labels[: len(after)] if supervised else None)
    assert search.cv_results_["split0_test_score"][search.best_index_] == pytest.approx(expected)


def test_ids_are_routed():
    x, _ = features(9)
    ids = [list(range(t, t + 15)) for t in range(9)]
    steps = [a[i] @ a[i].T for a, i in zip(x, ids, strict=True)]
    model = ax.Affect(ax.KMeans(2), random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        asking = clone(model.set_fit_request(ids=True).set_score_request(ids=True))
        scores = cross_val_score(asking, steps, cv=TimeSeriesSplit(2), params={"ids": ids})
        pipeline = Pipeline([("same", FunctionTransformer()), ("affect", asking)]).fit(steps, ids=ids)
        with pytest.raises(ValueError, match=r"ids.* are passed but are not explicitly set as requested"):
            cross_val_score(ax.Affect(ax.KMeans(2)), steps, cv=TimeSeriesSplit(2), params={"ids": ids})
    first = ax.Affect(ax.KMeans(2), random_state=0).fit(steps[:3], ids=ids[:3])
    assert scores[0] == pytest.approx(first.score(steps[3:6], ids=ids[3:6]))
    assert pipeline["affect"].ids_ == tuple(ids[-1])


def test_requests():
    model = ax.Affect(ax.KMeans(2)).set_fit_request(ids="names", times=False).set_fit_request(times=True)
    routing = model.get_metadata_routing()
    assert routing.fit.requests == routing.fit_predict.requests == {"ids": "names", "times": True}
    assert routing.score.requests == {"ids": None}
    with pytest.raises(ValueError, match="score does not accept times; it accepts ids"):
        model.set_score_request(times=True)


def test_all_else_works_without_scikit_learn():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import numpy as np, affect_xp as ax\n"
        "W = np.kron(np.eye(2), np.ones((3, 3)))\n"
        "model = ax.Affect(ax.KMeans(2), random_state=0).fit([W, W])\n"
        "model.set_params(clusterer__n_clusters=2).partial_fit(W)\n"
        "print(model.score([W]), model.get_params()['clusterer__n_clusters'], model, model._repr_html_())\n"
        "print(len(ax.RG(ax.KMeans(2)).fit(np.stack([W, W])).labels_), hasattr(model, 'predict'))\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1.0 2 Affect(")
