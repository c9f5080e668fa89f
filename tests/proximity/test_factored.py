"""Features as a proximity: AFFECT on `Factored` equals AFFECT on U diag(s) Uᵀ, without an n×n matrix."""

import os
import pathlib
import tracemalloc

import numpy as np
import pytest
import reference
from alphas import estimate
from conftest import Backend
from hypothesis import given, settings
from hypothesis import strategies as st
from representations import N, assert_answers, factored_float32

import affect_xp as ax
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.partition import Partition, align
from affect_xp.proximity._columns import rows_of
from affect_xp.proximity.factored import Factored


def test_sums_of_float32_features_are_wide(eager_xp):
    proximity, w = factored_float32(eager_xp, np.random.default_rng(7))
    np.testing.assert_allclose(eager_xp.numpy(proximity.diagonal()), np.diag(w), rtol=1e-14)
    found = proximity.matmul(eager_xp.array(np.eye(N)))
    np.testing.assert_allclose(eager_xp.numpy(found), w, rtol=1e-12, atol=1e-14)
    assert eager_xp.numpy(proximity.copy().factors[0].x).dtype == np.float32
    assert eager_xp.numpy(proximity.to_dense().array).dtype == np.float32


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=60, derandomize=True)
@given(seed=seeds, n=st.integers(1, 12), p=st.integers(0, 4), k=st.integers(1, 4), n_steps=st.integers(1, 4))
def test_any_sequence_of_blends_is_the_dense_one(seed, n, p, k, n_steps):
    rng = np.random.default_rng(seed)
    psi = dense = before = None
    for _ in range(n_steps):
        ids = tuple(rng.permutation(15)[:n].tolist())
        x = rng.normal(size=(n, p)) * rng.integers(0, 2, p)
        w, w_dense = Factored.from_features(x), ax.Dense(x @ x.T)
        if psi is not None:
            alignment, alpha = align(ids, before, x), float(rng.choice([0.0, 0.3, 1.0, rng.random()]))
            alpha = alpha if rng.random() < 0.5 else np.asarray(alpha)
            w, w_dense = w.blend(psi, alpha, alignment), w_dense.blend(dense, alpha, alignment)
        psi, dense, before = w, w_dense, ids
        if rng.random() < 0.5:
            psi.square_distance(Partition(rng.integers(0, k, n), k), np.zeros((k, k)))
    labels = rng.integers(-1, k, n)
    labels[0] = k - 1
    assert_answers(Backend("numpy", np), psi, dense.array, labels, 1e-10)
    assert float(psi.error) == 0.0 or float(psi.error) < 1e-15


@pytest.mark.parametrize("ratio", [1.0, 1e3, 1e5])
def test_moments_keep_their_digits_where_the_mean_is_large(ratio):
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 3
    x, past = (ratio + rng.normal(size=(40, 3)) for _ in range(2))
    wide = x.astype(np.longdouble)
    partition = Partition(labels, 3)
    means, squares = Factored.from_features(x).block_moments(partition)
    w = wide @ wide.T
    for c, d, pairs in reference.blocks(labels):
        if d is not None:
            values = np.array([w[i, j] for i, j in pairs])
            np.testing.assert_allclose(means[c, d], float(values.mean()), rtol=1e-14)
            np.testing.assert_allclose(
                squares[c, d], float(((values - values.mean()) ** 2).sum()), rtol=1e-14 + 1e-15 * ratio
            )
    psi = past.astype(np.longdouble) @ past.T.astype(np.longdouble)
    expected = float(reference.forgetting_factor(w, psi, labels))
    found = estimate(Factored.from_features(x), Factored.from_features(past), partition, partition)
    assert abs(found - expected) < 1e-14 + 1e-16 * ratio


def sequence(seed, n_steps=6, p=4, offset=0.0):
    """Yield features and ids of objects that come, go and change positions."""
    rng = np.random.default_rng(seed)
    for _ in range(n_steps):
        ids = rng.permutation(50)[: rng.integers(25, 45)]
        yield offset + rng.normal(size=(len(ids), p)) + 2 * np.eye(p)[ids % 3], ids


@pytest.mark.parametrize(
    "clusterer", [ax.KMeans(3), ax.KMeans(4, init="k-means++")], ids=["random", "k-means++"]
)
@pytest.mark.parametrize("seed", range(4))
def test_affect_is_that_of_dense(eager_xp, clusterer, seed):
    ours, dense = (ax.Affect(clusterer, random_state=0) for _ in range(2))
    for x, ids in sequence(seed):
        ours.partial_fit(Factored.from_features(eager_xp.array(x)), ids=ids)
        dense.partial_fit(x @ x.T, ids=ids)
        np.testing.assert_array_equal(eager_xp.numpy(ours.labels_), dense.labels_)
        np.testing.assert_allclose(ours.alphas_, dense.alphas_, rtol=0, atol=1e-12)
    smoothed = eager_xp.numpy(ours.smoothed_.to_dense().array)
    np.testing.assert_allclose(smoothed, dense.smoothed_.array, atol=1e-12)


def test_affect_on_float32_features_is_that_of_the_same_features_in_float64(eager_xp):
    ours, wide = (ax.Affect(ax.KMeans(3), random_state=0) for _ in range(2))
    for x, ids in sequence(1):
        x = x.astype(np.float32)
        ours.partial_fit(Factored.from_features(eager_xp.array(x)), ids=ids)
        wide.partial_fit(Factored.from_features(x.astype(np.float64)), ids=ids)
        np.testing.assert_array_equal(eager_xp.numpy(ours.labels_), wide.labels_)
        np.testing.assert_allclose(ours.alphas_, wide.alphas_, rtol=1e-12)


def nasdaq_windows():
    """Yield the windows of 15 daily changes of NASDAQ opening prices in 2008, standardised by stock."""
    folder = os.environ.get("AFFECT_XP_DATA")
    if not folder or not (path := pathlib.Path(folder) / "nasdaq2008.npz").exists():
        pytest.skip("AFFECT_XP_DATA does not name a folder with nasdaq2008.npz")
    # Prices are stored in float32: rounding the products of these features to float32 would change W.
    opens = np.load(path, allow_pickle=False)["opens"].astype(np.float64)
    changes = np.diff(opens[:, ~np.isnan(opens).any(axis=0)], axis=0)
    for t in range(16):
        window = changes[15 * t : 15 * (t + 1)].T  # (stocks, 15)
        centred, spread = window - window.mean(axis=1, keepdims=True), window.std(axis=1, keepdims=True)
        yield np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0)


@pytest.mark.slow
def test_stocks_of_2008_give_the_alpha_and_the_labels_of_dense():
    ours, dense = (ax.Affect(ax.KMeans(12, max_iter=1000), random_state=0) for _ in range(2))
    for x in nasdaq_windows():
        ours.partial_fit(Factored.from_features(x))
        dense.partial_fit(ax.Dense(x @ x.T))
        np.testing.assert_array_equal(ours.labels_, dense.labels_)
        np.testing.assert_allclose(ours.alphas_, dense.alphas_, rtol=0, atol=1e-10)
    assert ours.smoothed_.rank == 16 * 15
    assert ours.n_steps_ == 16 and min(ours.history_.alpha[1:]) == ours.history_.alpha[13]  # the crash


def test_stocks_that_come_and_go_give_the_alpha_of_dense():
    rng = np.random.default_rng(0)
    ours, dense = (ax.Affect(ax.KMeans(12), random_state=0) for _ in range(2))
    for t, x in enumerate(nasdaq_windows()):
        if t == 6:
            break
        ids = rng.permutation(len(x))[:600]
        ours.partial_fit(Factored.from_features(x[ids]), ids=ids)
        dense.partial_fit(ax.Dense(x[ids] @ x[ids].T), ids=ids)
        np.testing.assert_array_equal(ours.labels_, dense.labels_)
        np.testing.assert_allclose(ours.alphas_, dense.alphas_, rtol=0, atol=1e-10)


def same_objects(n, like):
    return align(range(n), range(n), like)


def test_a_blend_shares_the_past_and_copies_the_present():
    x, y = np.ones((4, 2)), np.ones((4, 2))
    past = Factored.from_features(y)
    blended = Factored.from_features(x).blend(past, 0.5, same_objects(4, x))
    assert blended.factors[0].x is y
    x[:] = 7
    np.testing.assert_allclose(blended.to_dense().array, 2.0)


def test_new_objects_cost_no_further_features():
    """The columns X and PX share one array, before and after the objects are permuted."""
    rng = np.random.default_rng(0)
    like, steps = np.zeros(1), [rng.normal(size=(6, 2)) for _ in range(3)]
    psi, before = Factored.from_features(steps[0]), tuple("abcdef")
    for x, ids in zip(steps[1:], ("bcdefg", "hgcbaf"), strict=True):
        psi = Factored.from_features(x).blend(psi, 0.5, align(tuple(ids), before, like))
        before = tuple(ids)
    assert psi.rank == 10
    assert len({id(factor.x) for factor in psi.factors}) == 3


def test_decayed_columns_are_dropped_and_the_bound_holds(eager_xp):
    rng = np.random.default_rng(0)
    exact = short = None
    same = same_objects(N, eager_xp.array([0.0]))
    for t in range(9):
        x = eager_xp.array(rng.normal(size=(N, 2)))
        kept, dropping = Factored.from_features(x), Factored.from_features(x, tolerance=1e-2)
        exact = kept if t == 0 else kept.blend(exact, 0.25, same)
        short = dropping if t == 0 else dropping.blend(short, 0.25, same)
        if t % 2:
            assert short._scatter.q == short.rank  # the cached scatter must match the remaining columns
    assert exact.rank == 18 and exact.error == 0.0
    assert short.rank == 2 * 4  # 0.75 · 0.25³ is the last weight above 0.01
    gap = eager_xp.numpy(exact.to_dense().array) - eager_xp.numpy(short.to_dense().array)
    assert 0 < np.linalg.norm(gap) <= float(eager_xp.numpy(short.error)) < 0.5
    labels = np.array([0, -1, 1, 0, 1, -1, 0, 1, 0, -1, 1])
    assert_answers(eager_xp, short, eager_xp.numpy(short.to_dense().array), labels)


def test_without_a_past_nothing_of_it_is_kept():
    x = np.eye(3)
    blended = Factored.from_features(x).blend(Factored.from_features(x), 0.0, same_objects(3, x))
    assert blended.rank == 3
    all_past = Factored.from_features(2 * x).blend(Factored.from_features(x), 1.0, same_objects(3, x))
    np.testing.assert_allclose(all_past.to_dense().array, np.eye(3))


def test_an_unknown_alpha_drops_nothing(eager_xp):
    x = eager_xp.array(np.eye(3))
    past = Factored.from_features(x, tolerance=0.9)
    assert past.blend(past, eager_xp.array(0.0), same_objects(3, x)).rank == 6


def test_max_rank_keeps_the_best_approximation_and_says_how_far_it_is(eager_xp):
    rng = np.random.default_rng(0)
    ids, past_ids = tuple("abcdefghijk"), tuple("kxbadycif")
    x, y = rng.normal(size=(11, 3)) + 2, rng.normal(size=(9, 3))
    alignment = align(ids, past_ids, eager_xp.array([0.0]))
    past = Factored.from_features(eager_xp.array(y))
    blended = Factored.from_features(eager_xp.array(x), max_rank=4).blend(
        past, eager_xp.array(0.4), alignment
    )
    w = reference.blend(x @ x.T, y @ y.T, 0.4, list(ids), list(past_ids))
    values = np.sort(np.abs(np.linalg.eigvalsh(w)))
    assert blended.rank == 4
    distance = np.linalg.norm(w - eager_xp.numpy(blended.to_dense().array))
    np.testing.assert_allclose(distance, np.sqrt((values[:-4] ** 2).sum()), rtol=1e-10)
    np.testing.assert_allclose(float(eager_xp.numpy(blended.error)), distance, rtol=1e-10)


def test_max_rank_loses_nothing_where_the_rank_is_small():
    rng = np.random.default_rng(0)
    mixing, base = rng.normal(size=(4, 3, 3)), rng.normal(size=(20, 3))
    psi = dense = 0.0
    for t in range(4):
        x = base @ mixing[t]
        w = Factored.from_features(x, max_rank=3)
        psi = w if t == 0 else w.blend(psi, 0.5, same_objects(20, x))
        dense = x @ x.T if t == 0 else 0.5 * dense + 0.5 * x @ x.T
    assert psi.rank == 3
    np.testing.assert_allclose(psi.to_dense().array, dense, atol=1e-12)
    assert psi.error < 1e-12


def test_errors_of_several_steps_add_up():
    rng = np.random.default_rng(0)
    psi = exact = None
    for t in range(6):
        x = rng.normal(size=(30, 2))
        w = Factored.from_features(x, max_rank=5)
        psi = w if t == 0 else w.blend(psi, 0.7, same_objects(30, x))
        exact = x @ x.T if t == 0 else 0.7 * exact + 0.3 * x @ x.T
    gap = np.linalg.norm(exact - psi.to_dense().array)
    assert 0 < gap <= psi.error < 3 * gap


def test_the_scatter_is_carried_along_rather_than_recomputed(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 20, 2))
    ids = [tuple(range(20)), tuple(range(3, 23)), tuple(range(2, 22))]
    psi = Factored.from_features(x[0])
    for t in (1, 2):
        assert psi._scatter.q == psi.rank
        psi = Factored.from_features(x[t]).blend(psi, 0.5, align(ids[t], ids[t - 1], x))
        assert psi.leading is not None
    fresh = Factored(psi.factors, psi.weights)
    u = rows_of(psi.factors, slice(0, 20)) - psi._scatter.centre
    np.testing.assert_allclose(psi._scatter.sums, u.T @ u, atol=1e-12)
    partition = Partition(np.arange(20) % 3, 3)
    np.testing.assert_allclose(
        psi.square_distance(partition, np.zeros((3, 3))), fresh.square_distance(partition, np.zeros((3, 3)))
    )


def test_nothing_n_by_n_is_made():
    n = 20_000
    rng = np.random.default_rng(0)
    model = ax.Affect(ax.KMeans(3, init=np.arange(n) % 3), random_state=0)
    tracemalloc.start()
    try:
        for t in range(3):
            x = rng.normal(size=(n, 2)) + 3 * np.eye(3)[np.arange(n) % 3][:, :2]
            model.partial_fit(Factored.from_features(x), ids=range(t, n + t))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n * n / 10  # bytes; n×n floats would be 8·n²


def test_transfers():
    strict = pytest.importorskip("array_api_strict")
    from transfers import DEVICE, counted

    rng = np.random.default_rng(0)
    like = strict.asarray(np.zeros(1), device=DEVICE)
    w, past = (
        Factored.from_features(strict.asarray(rng.normal(size=(40, 3)), device=DEVICE)) for _ in range(2)
    )
    labels = Partition(strict.asarray(np.arange(40) % 3, device=DEVICE), 3, n_outside=0)
    for ids in (range(40), range(5, 45)):
        moves = align(ids, range(40), like)
        with counted() as seen:
            now = labels.masked(moves.source, moves.n_new)
            alpha = estimate(w, past, now, labels.take(moves.target, moves.n_gone))
        assert not seen, seen.where
        with counted() as seen:
            w.blend(past, alpha, moves)
        assert not seen, seen.where


def test_representations_do_not_mix():
    x = np.eye(3)
    w = Factored.from_features(x)
    with pytest.raises(InputTypeError, match=r"cannot blend Factored with Dense; call \.to_dense\(\) first"):
        w.blend(ax.Dense(x), 0.5, same_objects(3, x))
    np.testing.assert_array_equal(w.to_dense().blend(ax.Dense(x), 0.5, same_objects(3, x)).array, x)


@pytest.mark.parametrize(
    ("x", "kwargs", "error", "message"),
    [
        (np.ones(3), {}, InputError, r"X must have a row for each object .* got shape \(3,\)"),
        (np.ones((0, 2)), {}, InputError, r"got shape \(0, 2\)"),
        (np.array([[1.0], [np.nan]]), {}, InputError, r"X\[1, 0\] = nan"),
        (np.array([[1.0, -np.inf]]), {}, InputError, r"X\[0, 1\] = -inf"),
        (np.ones((2, 2), dtype=np.float16), {}, InputTypeError, "float32 or float64, got float16"),
        (np.ones((2, 2), dtype=complex), {}, InputTypeError, "must be real"),
        (np.ones((2, 2)), {"weights": np.ones(3)}, InputError, r"weights must be of shape \(2,\)"),
        (np.ones((2, 2)), {"max_rank": 1}, InputError, "max_rank=1, but X has 2 columns"),
        (np.ones((2, 2)), {"max_rank": 2.5}, InputTypeError, "max_rank must be an integer"),
        (np.ones((2, 2)), {"tolerance": -1}, InputError, "tolerance must be between 0 and 1"),
    ],
)
def test_bad_input_is_refused(x, kwargs, error, message):
    with pytest.raises(error, match=message):
        Factored.from_features(x, **kwargs)


def test_integers_and_lists_are_taken():
    np.testing.assert_array_equal(
        Factored.from_features([[1, 2], [3, 4]]).to_dense().array, [[5, 11], [11, 25]]
    )
