"""Decisions of the first step: units, offsets, the width of a kernel, the transform of counts."""

import copy
import dataclasses
import warnings

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.array.namespace import to_host
from affect_xp.exceptions import (
    FileFormatError,
    InputError,
    InputTypeError,
    InputWarning,
    NotFittedError,
    ScaleWarning,
)
from affect_xp.proximity.kernels import features_to_proximity
from affect_xp.proximity.kinds import constant_facts
from affect_xp.proximity.preparation import Preparation, Request, decide
from affect_xp.proximity.transforms import sampled_columns

TYPICAL = np.array([[4.0, 0.0], [0.0, 4.0], [-4.0, -4.0]])


def shops(n_steps=9, seed=0):
    """Return features of three groups; at step 7 five objects change groups. As in the five-minute start."""
    rng, kinds = np.random.default_rng(seed), np.repeat([0, 1, 2], 20)
    steps = []
    for t in range(n_steps):
        if t == 7:
            kinds[:5] = 1
        steps.append(TYPICAL[kinds] + 0.7 * rng.normal(size=(60, 2)))
    return steps


def affect(**options):
    return ax.Affect(ax.KMeans(3, init="k-means++"), random_state=0, **{"proximity": "dot", **options})


def same(model, other, rtol=1e-9):
    np.testing.assert_allclose(model.history_.alpha, other.history_.alpha, rtol=rtol, atol=1e-12)
    for mine, theirs in zip(model.history_.labels, other.history_.labels, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def twin(steps, how="standard"):
    """Return features prepared in plain NumPy by the first step."""
    x = steps[0]
    if how == "robust":
        low, middle, high = np.percentile(x, [25, 50, 75], axis=0)
        return [(s - middle) / ((high - low) / 1.349) for s in steps]
    return [(s - x.mean(0)) / (x.std(0) if how == "standard" else 1.0) for s in steps]


# Offsets and units ----------------------------------------------------------------------------------------


def test_an_offset_does_not_hide_a_change():
    steps = shops()
    centred, moved = affect(scale="center").fit(steps), affect().fit([x + 100 for x in steps])
    assert abs(moved.history_[7].alpha - centred.history_[7].alpha) < 0.02
    same(moved, affect(scale="none").fit(twin([x + 100 for x in steps], "center")))
    np.testing.assert_allclose(moved.location_, steps[0].mean(0) + 100)
    assert moved.scale_ is None
    for mine, theirs in zip(moved.history_.labels, centred.history_.labels, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    as_it_is = affect(scale="none").fit([x + 100 for x in steps])
    assert as_it_is.history_[7].alpha > moved.history_[7].alpha + 0.3  # the effect under test


def test_features_near_zero_are_taken_as_they_are():
    steps = shops()
    model = affect().fit(steps)
    assert model.location_ is None and model.scale_ is None
    assert [r.alpha for r in model.history_] == [r.alpha for r in affect(scale="none").fit(steps).history_]


@pytest.mark.parametrize("factors", [[1e4, 1.0], [1.0, 1e-4]], ids=str)
@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize(
    ("clusterer", "kind"),
    [(ax.KMeans(3, init="k-means++"), "dot"), (ax.Linkage(3), "euclidean"), (ax.Spectral(3), "rbf")],
    ids=["dot", "euclidean", "rbf"],
)
def test_units_of_columns(factors, offset, clusterer, kind):
    steps = [(x + offset) * factors for x in shops()]
    model = ax.Affect(clusterer, proximity=kind, random_state=0)
    with pytest.warns(ScaleWarning, match=r"differ in spread by a factor of 9.83e\+03 \(column 0 ") as caught:
        model.fit(steps)
    assert len(caught) == 1 and caught[0].filename == __file__
    same(model, ax.Affect(clusterer, proximity=kind, scale="none", random_state=0).fit(twin(steps)), 1e-7)
    same(model, ax.Affect(clusterer, proximity=kind, scale="standard", random_state=0).fit(steps))


@pytest.mark.parametrize("kind", ["dot", "rbf", "euclidean"])
def test_columns_that_may_have_the_same_unit_are_left(kind):
    x = shops(1)[0] / shops(1)[0].std(0)
    request = Request("auto", "first", kind, translation_free=True, unit_free=True)
    with pytest.warns(ScaleWarning, match=r"factor of 6 \(column 1 6, column 0 1\).*may have the same unit"):
        assert decide(x * [1.0, 6.0], request).scale is None
    assert decide(x * [1.0, 4.5], request).scale is None  # without a warning
    assert decide(x * [1.0, 6.0], dataclasses.replace(request, scale="none")).scale is None


def test_dot_products_of_cuts_stay_positive():
    steps = [np.abs(x) * [1e4, 1.0] for x in shops(3)]
    with pytest.warns(ScaleWarning, match="spread"):
        model = ax.Affect(ax.Spectral(3), proximity="dot", random_state=0).fit(steps)
    assert model.location_ is None and (model.smoothed_.to_dense().array >= 0).all()
    np.testing.assert_allclose(model.scale_, steps[0].std(0))


def test_robust_scales_stand_outliers():
    steps = [x.copy() for x in shops()]
    for x in steps:
        x[59] = 1e6, -1e5
    model = affect(scale="robust").fit(steps)
    same(model, affect(scale="none").fit(twin(steps, "robust")), 1e-7)
    assert (model.scale_ < 20).all()


def test_robust_scale_of_a_column_that_is_mostly_zero():
    x = np.c_[np.arange(20.0), np.arange(20) == 3, np.ones(20)]
    found = decide(x, Request("robust", "first", "dot"))
    np.testing.assert_allclose(found.scale, [9.5 / 1.349, np.sqrt(0.05 * 0.95), 1.0])
    np.testing.assert_array_equal(found.location, [9.5, 0.0, 1.0])


@pytest.mark.parametrize("offset", [0.1, 1e8, 0.0])
def test_constant_columns_keep_their_scale(offset):
    x = np.c_[shops(1)[0], np.full(60, offset)]
    found = decide(x, Request("standard", "first", "dot"))
    assert found.scale[2] == 1 and found.location[2] == offset
    np.testing.assert_allclose(found.scale[:2], x.std(0)[:2])


def test_objects_come_and_go():
    rng, steps, ids = np.random.default_rng(1), [], []
    for x in shops():
        there = np.sort(rng.permutation(60)[:45])
        steps.append((x[there] + 100) * [1.0, 1e3])
        ids.append(there.tolist())
    found, slow = affect(scale="standard"), affect(scale="none")
    same(found.fit(steps, ids=ids), slow.fit(twin(steps), ids=ids), 1e-7)


@pytest.mark.parametrize("size", [1e150, 1e154, 1e200, 1e300, 1e-160, 1e-200, 1e-300])
@pytest.mark.parametrize(
    ("clusterer", "kind"),
    [(ax.KMeans(3, init="k-means++"), "dot"), (ax.Linkage(3), "euclidean"), (ax.Spectral(3), "rbf")],
    ids=["dot", "euclidean", "rbf"],
)
def test_very_large_and_small_features(size, clusterer, kind):
    steps = shops()
    model = ax.Affect(clusterer, proximity=kind, random_state=0).fit([x * size for x in steps])
    same(model, ax.Affect(clusterer, proximity=kind, scale="none", random_state=0).fit(steps), 1e-6)


@pytest.mark.parametrize("size", [1e160, 1e300, 1e-200])
@pytest.mark.parametrize(
    ("clusterer", "kind"),
    [(ax.KMeans(3), "dot"), (ax.Linkage(3), "euclidean"), (ax.Spectral(3), "rbf")],
    ids=["dot", "euclidean", "rbf"],
)
def test_features_out_of_range_are_refused_where_they_are_to_stay(size, clusterer, kind):
    model = ax.Affect(clusterer, proximity=kind, scale="none", random_state=0)
    with pytest.raises(InputError, match=r"too (large|small) for their squares.*scale='standard'"):
        model.partial_fit(shops(1)[0] * size)
    assert not hasattr(model, "preparation_")
    model.partial_fit(shops(1)[0])
    if size > 1:
        with pytest.raises(InputError, match="by a constant"):
            model.partial_fit(shops(1)[0] * size)


@pytest.mark.parametrize("kind", ["rbf", "euclidean"])
@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_kernels_refuse_what_they_cannot_square(kind, size):
    with pytest.raises(InputError, match=f"whose squares, which kind='{kind}' needs"):
        features_to_proximity(shops(1)[0] * size, kind)


def test_products_too_large_are_refused():
    x = shops(1)[0]
    w = x @ x.T
    with pytest.raises(InputError, match="W is too large for k-means: the sum of squares is"):
        ax.Affect(ax.KMeans(3), random_state=0).partial_fit(w / np.abs(w).max() * 1e307)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0, 1e8])
@pytest.mark.parametrize(
    ("clusterer", "kind"),
    [(ax.KMeans(3), "dot"), (ax.Linkage(3), "euclidean"), (ax.Spectral(3), "rbf"), (ax.KMeans(3), "cosine")],
    ids=["dot", "euclidean", "rbf", "cosine"],
)
def test_objects_that_are_all_equal(value, clusterer, kind):
    x = np.full((20, 2), value)
    with pytest.warns(InputWarning, match="there are no clusters") as caught:
        model = ax.Affect(clusterer, proximity=kind, random_state=0).fit([x, x])
    assert len(caught) == 1
    assert 0 <= model.alpha_ <= 1 and len(np.unique(model.labels_)) <= 3


def test_similarities_that_are_all_equal():
    with pytest.warns(InputWarning, match="all entries of W off the diagonal are 1"):
        ax.Affect(ax.KMeans(3), random_state=0).fit([np.ones((20, 20))] * 2)


# Ambiguous data --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clusterer", "kind", "remedy"),
    [(ax.Spectral(3), "dot", "use proximity='rbf'"), (ax.KMeans(3), "cosine", "use scale='center'")],
)
def test_a_mean_that_dominates_is_told_of_where_it_must_stay(clusterer, kind, remedy):
    steps = [x + 100 for x in shops(3)]
    model = ax.Affect(clusterer, proximity=kind, random_state=0)
    with pytest.warns(ScaleWarning, match=f"the mean of the features dominates: .*{remedy}") as caught:
        model.fit(steps)
    assert len(caught) == 1 and model.location_ is None
    ax.Affect(clusterer, proximity=kind, scale="none", random_state=0).fit(steps)  # no warning


@pytest.mark.parametrize(
    ("clusterer", "options"),
    [
        (ax.Linkage(distance_threshold=3.0), {"proximity": "euclidean"}),
        (ax.Spectral(3), {"proximity": "rbf", "gamma": 0.1}),
        (lambda psi: np.arange(psi.n) % 3, {"proximity": "euclidean"}),
    ],
    ids=["threshold", "gamma", "function"],
)
def test_a_parameter_in_units_of_the_features_keeps_them(clusterer, options):
    steps = [x * [1e4, 1.0] for x in shops(2)]
    with pytest.warns(ScaleWarning, match="X is not scaled, because a parameter is in its units") as caught:
        model = ax.Affect(clusterer, random_state=0, **options).fit(steps)
    assert len(caught) == 1 and model.scale_ is None and model.location_ is None


def constants():
    """Return similarities by name, with and without a dominating constant."""
    rng, x = np.random.default_rng(0), shops(1)[0]
    weak, factor = np.clip(rng.normal(0.55, 0.1, 60), 0.1, 0.9), rng.normal(size=(80, 1))
    returns = factor * weak + np.sqrt(1 - weak**2) * rng.normal(size=(80, 60))
    edges = np.triu(rng.random((60, 60)) < 0.9, 1).astype(float)
    return {
        "offset": ((x + 100) @ (x + 100).T, True),
        "smaller offset": ((x + 16) @ (x + 16).T, True),
        "products": (x @ x.T, False),
        "correlations": (np.corrcoef(returns.T), False),
        "wide kernel": (features_to_proximity(x, "rbf", gamma=1e-3).array, False),
        "kernel": (features_to_proximity(x, "rbf").array, False),
        "graph": (edges + edges.T, False),
    }


@pytest.mark.parametrize("name", constants())
def test_a_constant_that_dominates_similarities_is_told_of(name):
    w, dominated = constants()[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = ax.Affect(ax.KMeans(3), random_state=0).partial_fit(w).partial_fit(w)
    assert len(caught) == dominated
    assert all(
        issubclass(c.category, ScaleWarning) and "a constant dominates W" in str(c.message) for c in caught
    )
    assert model.location_ is None
    ax.Affect(ax.KMeans(3), scale="none", random_state=0).fit([w, w])  # no warning
    ax.Affect(ax.KMeans(3), alpha=0.5, random_state=0).fit([w, w])  # no warning: α is fixed


def test_the_data_of_the_paper_hold_no_such_constant():
    for simulated in (ax.datasets.colliding_gaussians, ax.datasets.separated_gaussians):
        for step in simulated(rng=0):
            share, additive = constant_facts(*sampled_columns(ax.Dense(step.W)))
            assert share < 0.85 or additive < 0.93


def constant_twin(w):
    off = ~np.eye(len(w), dtype=bool)
    mean = w[off].mean()
    rows = np.where(off, w, 0).sum(1) / (len(w) - 1)
    rest = (w - rows[:, None] - rows + mean)[off]
    return [
        mean**2 / (w[off] ** 2).mean(),
        1 - (rest**2).sum() / ((w[off] - mean) ** 2).sum(),
    ]


@pytest.mark.parametrize("unit", [1.0, 1e200, 1e-200])
def test_constant_facts(xp, unit):
    x = shops(1)[0]
    w = (x + 3) @ (x + 3).T
    W = ax.as_proximity(xp.array(unit * w))
    found = to_host(constant_facts(*sampled_columns(W)), reason="test")[0]
    np.testing.assert_allclose(found, constant_twin(w), rtol=1e-9)


def test_a_function_of_features_whose_results_are_nearly_constant():
    steps = [x + 100 for x in shops(2)]
    with pytest.warns(ScaleWarning, match="a constant dominates W"):
        model = ax.Affect(ax.KMeans(3), proximity=lambda a, b: a @ b.T, random_state=0).fit(steps)
    assert model.location_ is None


# The width of a kernel ------------------------------------------------------------------------------------


def test_gamma_is_that_of_the_first_step():
    steps = [x * (1 + t) for t, x in enumerate(shops(4))]
    first, each = (
        ax.Affect(ax.Spectral(3), proximity="rbf", gamma=g, random_state=0).fit(steps)
        for g in ("first", "each")
    )
    gamma = 1 / (2 * steps[0].var())
    np.testing.assert_allclose(first.gamma_, gamma, rtol=1e-12)
    assert each.gamma_ is None
    fixed = ax.Affect(ax.Spectral(3), proximity="rbf", gamma=first.gamma_, random_state=0).fit(steps)
    assert [r.alpha for r in fixed.history_] == [r.alpha for r in first.history_]
    for model, width in ((first, gamma), (each, None)):
        by_hand = ax.Affect(ax.Spectral(3), random_state=0)
        same(model, by_hand.fit([features_to_proximity(x, "rbf", gamma=width) for x in steps]))
    assert first.alpha_ != each.alpha_


@pytest.mark.parametrize("scale", ["none", "center", "standard", "robust"])
def test_gamma_is_that_of_scaled_features(scale):
    x = (shops(1)[0] + 10) * [30.0, 1.0]
    found = decide(x, Request(scale, "first", "rbf"))
    np.testing.assert_allclose(found.gamma, 1 / (2 * found.apply(x).var()), rtol=1e-10)


# Libraries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scale", ["center", "standard", "robust"])
def test_preparation_by_the_twin(xp, small_blocks, scale, dtype):
    x = ((shops(1)[0] + 100) * [1e3, 1.0]).astype(dtype)
    found = decide(xp.array(x), Request(scale, "first", "dot"))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(
        found.location, np.median(wide, axis=0) if scale == "robust" else wide.mean(0), rtol=1e-12
    )
    prepared = found.apply(xp.array(x))
    assert xp.owns(prepared) and str(prepared.dtype).endswith(dtype)
    tolerance = 1e-9 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(xp.numpy(prepared), twin([wide], scale)[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["dot", "rbf"])
def test_models_of_all_libraries(xp, kind):
    steps = [(x + 100) * [1e3, 1.0] for x in shops(3)]
    clusterer = ax.KMeans(3, init="k-means++") if kind == "dot" else ax.Spectral(3)
    model, slow = (
        ax.Affect(clusterer, proximity=kind, scale=scale, random_state=0) for scale in ("standard", "none")
    )
    model.fit([xp.array(x) for x in steps])
    slow.fit(twin(steps))
    np.testing.assert_allclose(model.history_.alpha, slow.history_.alpha, rtol=1e-6)
    np.testing.assert_array_equal(xp.numpy(model.labels_), slow.labels_)


def test_integers_are_prepared_as_floats(eager_xp):
    found = decide(eager_xp.array(np.array([[1, 10], [3, 30]])), Request("standard", "first", "dot"))
    prepared = eager_xp.numpy(found.apply(eager_xp.array(np.array([[1, 10], [3, 30]]))))
    np.testing.assert_allclose(prepared, [[-1.0, -1.0], [1.0, 1.0]], rtol=1e-15)


def test_dask_is_computed_once():
    dask, array = pytest.importorskip("dask"), pytest.importorskip("dask.array")
    runs = []

    def noted(block):
        runs.append(1)
        return block

    x = array.from_array(shops(1)[0], chunks=(60, 2)).map_blocks(noted, meta=np.empty((0, 0)))
    with dask.config.set(scheduler="synchronous"):
        found = decide(x, Request("standard", "first", "rbf"))
        assert len(runs) == 1
        assert hasattr(found.apply(x), "dask")
        assert len(runs) == 1


# Kept -----------------------------------------------------------------------------------------------------


def kept(model):
    p = model.preparation_
    return [None if x is None else np.asarray(x).tolist() for x in (p.location, p.scale, p.gamma)] + [
        p.rescale
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: affect(scale="standard"),
        lambda: ax.Affect(ax.Spectral(3), proximity="rbf", scale="robust", random_state=0),
        lambda: ax.Static(ax.Linkage(3), proximity="euclidean", scale="standard", random_state=0),
        lambda: ax.RG(ax.KMeans(3), scale="standard", random_state=0),
        lambda: ax.RG(ax.KMeans(3), proximity="rbf", scale="standard", random_state=0),
        lambda: ax.PCQ(ax.Spectral(3), proximity="rbf", random_state=0),
        lambda: ax.PCM(ax.Spectral(3), proximity="rbf", random_state=0),
    ],
    ids=["dot", "rbf", "static", "RG", "RG rbf", "PCQ", "PCM"],
)
def test_a_saved_model_goes_on_bit_for_bit(make, tmp_path):
    steps = [(x + 10) * [2.0, 1.0] for x in shops(6)]
    through = make().fit(steps)
    model = make().fit(steps[:3])
    model.save(tmp_path / "model.affect")
    resumed = ax.load(tmp_path / "model.affect")
    assert kept(resumed) == kept(model) == kept(through)
    for x in steps[3:]:
        resumed.partial_fit(x)
    for mine, theirs in zip(resumed.history_, through.history_, strict=True):
        assert mine.alphas == theirs.alphas
        np.testing.assert_array_equal(mine.labels, theirs.labels)


def test_a_chosen_transform_is_saved(tmp_path):
    counts = np.exp(np.random.default_rng(0).normal(2, 1.5, size=(2, 30, 30))).round()
    counts = counts + np.swapaxes(counts, 1, 2)
    with pytest.warns(ax.exceptions.SkewedWarning):
        model = ax.Affect(ax.KMeans(2), random_state=0).partial_fit(counts[0])
    model.save(tmp_path / "model.affect")
    resumed = ax.load(tmp_path / "model.affect")  # no warning, here and below
    assert resumed.rescale_ == model.rescale_ == "log1p"
    assert resumed.partial_fit(counts[1]).alpha_ == model.partial_fit(counts[1]).alpha_


@pytest.mark.parametrize(
    "damage", [{"gamma": -1.0}, {"gamma": "x"}, {"rescale": "cube"}, {"scale": "partition"}]
)
def test_a_file_that_makes_no_sense_is_refused(damage, tmp_path, monkeypatch):
    from affect_xp import persistence

    pack = persistence._pack_preparation
    monkeypatch.setattr(persistence, "_pack_preparation", lambda *given: {**pack(*given), **damage})
    affect(scale="standard").fit(shops(2)).save(tmp_path / "model.affect")
    with pytest.raises((FileFormatError, InputError)):
        ax.load(tmp_path / "model.affect")


def test_a_file_without_decisions_goes_on_as_it_did(tmp_path, monkeypatch):
    from affect_xp import persistence

    write = persistence.write

    def older(path, header, arrays):
        del header["preparation"], header["parameters"]["scale"], header["parameters"]["gamma"]
        write(path, header, arrays)

    steps = [x + 100 for x in shops(4)]
    old = affect(scale="none", rescale=None).fit(steps[:2])
    monkeypatch.setattr(persistence, "write", older)
    old.save(tmp_path / "model.affect")
    resumed = ax.load(tmp_path / "model.affect")
    assert kept(resumed) == [None] * 4
    for x in steps[2:]:
        assert resumed.partial_fit(x).alpha_ == old.partial_fit(x).alpha_


def test_reset_forgets_and_fit_decides_anew():
    model = affect(scale="center").fit([x + 100 for x in shops(2)])
    assert not hasattr(model.reset(), "preparation_") and "_preparation" not in model.__dict__
    with pytest.raises(NotFittedError):
        model.location_  # noqa: B018
    np.testing.assert_allclose(model.fit(shops(1)).location_, shops(1)[0].mean(0), atol=1e-12)


def test_a_rejected_first_step_decides_nothing():
    model, bad = affect(scale="standard"), shops(1)[0] + 1000
    with pytest.raises(InputError, match="ids has length 3"):
        model.partial_fit(bad, ids=[1, 2, 3])
    assert model.__dict__.keys() == affect(scale="standard").__dict__.keys()
    np.testing.assert_allclose(model.fit(shops(1)).location_, shops(1)[0].mean(0), atol=1e-12)


def test_a_warning_turned_into_an_error_rejects_the_step():
    model, x = affect(), shops(1)[0] * [1e4, 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScaleWarning)
        with pytest.raises(ScaleWarning):
            model.partial_fit(x)
    assert model.n_steps_ == 0 and "_preparation" not in model.__dict__


def test_decisions_cannot_be_changed():
    model = affect(scale="standard").fit(shops(1))
    with pytest.raises(ValueError, match="read-only"):
        model.scale_[0] = 1
    with pytest.raises(AttributeError):
        model.gamma_ = 1


def test_other_features_are_refused_where_a_scale_is_kept():
    model = affect(scale="standard").fit(shops(1))
    with pytest.raises(InputError, match=r"X has 3 features, but the previous steps had 2, .*scale='none'"):
        model.partial_fit(np.ones((60, 3)))


@pytest.mark.parametrize("kind", ["dot", "rbf"])
def test_hindsight_prepares_both_passes_alike(kind):
    steps = [(x + 100 + t) * [1e3, 1.0] for t, x in enumerate(shops(6))]
    clusterer = ax.KMeans(3, init="k-means++") if kind == "dot" else ax.Spectral(3)
    with pytest.warns(ScaleWarning) as caught:
        found = ax.smooth(steps, clusterer, proximity=kind, random_state=0)
    assert len(caught) == 1
    by_hand = twin(steps)
    gamma = {"gamma": 1 / (2 * by_hand[0].var())} if kind == "rbf" else {}
    slow = ax.smooth(by_hand, clusterer, proximity=kind, scale="none", random_state=0, **gamma)
    np.testing.assert_allclose(found.weights, slow.weights, rtol=1e-6, atol=1e-9)
    for mine, theirs in zip(found.labels, slow.labels, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert kept(found.causal)[:2] == kept(affect(scale="standard").fit(steps[:1]))[:2]


def test_score_uses_what_was_decided():
    steps = [(x + 100) * [1e3, 1.0] for x in shops(6)]
    model, slow = affect(scale="standard").fit(steps[:3]), affect(scale="none").fit(twin(steps)[:3])
    before = kept(model)
    np.testing.assert_allclose(model.score(steps[3:]), slow.score(twin(steps)[3:]), rtol=1e-9)
    assert kept(model) == before


@pytest.mark.parametrize("order", [0, 2])
def test_filtered_features_are_prepared(order):
    steps = [(x + 100) * [1e3, 1.0] for x in shops(5)]
    model, slow = (ax.RG(ax.KMeans(3), order=order, scale=s, random_state=0) for s in ("standard", "none"))
    same(model.fit(steps), slow.fit(twin(steps)))


# Parameters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"scale": "cube"},
            InputError,
            "scale, if not an object with fit and transform, must be one of",
        ),
        ({"scale": 3}, (InputError, InputTypeError), "scale, if not"),
        ({"scale": "standard", "proximity": "precomputed"}, InputError, "pass features with proximity='dot'"),
        ({"gamma": 0.5}, InputError, "gamma=0.5 is for proximity='rbf', got 'dot'; omit gamma"),
        ({"gamma": -1, "proximity": "rbf"}, InputError, "gamma must be positive and finite"),
        (
            {"gamma": True, "proximity": "rbf"},
            InputTypeError,
            "gamma must be 'first', 'each' or a positive number",
        ),
        (
            {"gamma": "last", "proximity": "rbf"},
            InputError,
            "gamma, if not a number, must be one of",
        ),
        ({"rescale": "cube"}, InputError, "must be one of 'auto', 'log1p'"),
    ],
)
def test_parameters_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        affect(**options).partial_fit(shops(1)[0])


def test_columns_are_named_by_the_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(shops(1)[0] * [1e4, 1.0], columns=["sales", "returns"])
    with pytest.warns(ScaleWarning, match=r"\(sales 3.29e\+04, returns 3.35\)"):
        affect().partial_fit(frame)


def test_a_scaler_of_scikit_learn(tmp_path):
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    from sklearn.base import clone

    steps = [(x + 100) * [1e3, 1.0] for x in shops(5)]
    given = preprocessing.StandardScaler()
    model = clone(affect(scale=given)).set_params(scale__with_mean=True).fit(steps)
    same(model, affect(scale="standard").fit(steps))
    assert not hasattr(given, "mean_") and hasattr(model.preparation_.scaler, "mean_")
    model.save(tmp_path / "model.affect")
    with pytest.raises(InputError, match=r"scale \(a StandardScaler\); pass it again"):
        ax.load(tmp_path / "model.affect")
    with pytest.raises(InputError, match=r"is not fitted.*scale=model.preparation_.scaler"):
        ax.load(tmp_path / "model.affect", scale=preprocessing.StandardScaler())
    resumed = ax.load(tmp_path / "model.affect", scale=model.preparation_.scaler)
    assert resumed.partial_fit(steps[0]).alpha_ == model.partial_fit(steps[0]).alpha_


def test_a_scaler_takes_numpy_arrays_alone():
    preprocessing, strict = (
        pytest.importorskip("sklearn.preprocessing"),
        pytest.importorskip("array_api_strict"),
    )
    with pytest.raises(
        InputTypeError, match=r"works on NumPy arrays, got .*; use scale='standard' or 'robust'"
    ):
        affect(scale=preprocessing.StandardScaler()).partial_fit(strict.asarray(shops(1)[0]))


def test_parameters_survive_copies():
    for model in (affect(scale="robust"), ax.PCQ(ax.Spectral(2), proximity="rbf", gamma=0.3)):
        again = type(model)(**model.get_params(deep=False))
        assert repr(again) == repr(model) == repr(copy.deepcopy(model))


def test_nothing_is_decided_for_proximities_that_are_given():
    x = shops(1)[0]
    model = affect().partial_fit(ax.Factored.from_features(x))
    assert kept(model) == [None] * 4
    assert isinstance(model.preparation_, Preparation)
