"""forgetting="objects": whole runs against the slow twin, between libraries and storages, and its meaning."""

import itertools

import numpy as np
import pytest
import reference_movers as twin
import scipy.sparse
from storages import MAKERS, as_factored

import affect_xp as ax
from affect_xp.exceptions import InputError
from affect_xp.partition import UNCHANGED, Partition, align
from affect_xp.proximity import Dense, ObjectBlend, Pair, TwoSidedBlend, blend, grouped


def steps(n_steps=5, *, churn=True, n=24, seed=0):
    """Return ids and counts between objects of three groups; one object moves at each step."""
    rng, groups, made = np.random.default_rng(seed), np.arange(30) % 3, []
    for t in range(n_steps):
        groups[5 * t % 30] = (groups[5 * t % 30] + 1) % 3
        here = np.sort(rng.permutation(30)[:n]) if churn else np.arange(n)
        c = groups[here]
        upper = np.triu(rng.poisson(np.where(c[:, None] == c, 4.0, 0.7)), 1)
        made.append((here.tolist(), (upper + upper.T).astype(float)))
    return made


def by_anchors(w):
    """A clusterer without rounding: each object joins the most similar of the first three."""
    w = np.asarray(w)
    labels = np.argmax(w[:, :3], axis=1)
    labels[:3] = range(3)
    return labels


@pytest.mark.parametrize("churn", [False, True])
@pytest.mark.parametrize("n_iter", [1, 3])
def test_a_run_is_that_of_the_slow_twin(churn, n_iter):
    given = steps(churn=churn)
    model = ax.Affect(
        by_anchors, forgetting="objects", rescale=None, n_iter=n_iter, alpha_tol=0, random_state=0
    )
    model.fit([w for _, w in given], ids=[ids for ids, _ in given])
    expected = twin.run(given, by_anchors, n_iter)
    for record, (labels, a, p, _) in zip(model.history_, expected, strict=True):
        assert ax.adjusted_rand_index(record.labels, labels) == 1
        np.testing.assert_allclose(record.alpha, a, atol=1e-12)
        if p is not None:
            np.testing.assert_allclose(record.moved, p, atol=1e-9)
    np.testing.assert_allclose(
        np.asarray(model.smoothed_), twin.run(given, by_anchors, n_iter)[-1][3], atol=1e-12
    )


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("forgetting", ["global", "objects"])
def test_libraries_and_storages_agree(eager_xp, make, forgetting):
    given = steps()
    ids = [names for names, _ in given]

    def fitted(w):
        model = ax.Affect(ax.Spectral(3), forgetting=forgetting, rescale=None, random_state=0)
        if make is not as_factored or forgetting == "global" or isinstance(w[0], np.ndarray):
            return model.fit(w, ids=ids)
        with pytest.warns(ax.exceptions.InputWarning, match="are dot products"):
            return model.fit(w, ids=ids)

    expected, found = fitted([w for _, w in given]), fitted([make(eager_xp, w) for _, w in given])
    for a, b in zip(expected.history_, found.history_, strict=True):
        assert ax.adjusted_rand_index(a.labels, eager_xp.numpy(b.labels)) == 1
        np.testing.assert_allclose(b.alpha, a.alpha, atol=1e-9)
        if a.moved is None or (make is as_factored and forgetting == "global"):  # dot products
            assert b.moved is None
        else:
            np.testing.assert_allclose(eager_xp.numpy(b.moved), a.moved, atol=1e-9)


@pytest.mark.filterwarnings("ignore::affect_xp.exceptions.AffectWarning")  # of dot products
@pytest.mark.parametrize("seed", range(6))
def test_new_objects_among_features(seed):
    # The columns of a blend by objects are as many as those of its parts, but rows of movers are smaller.
    x, ids = np.random.default_rng(seed).normal(size=(3, 8, 3)), [range(6), range(8), range(8)]
    given = [features[: len(names)] for features, names in zip(x, ids, strict=True)]
    options = {"forgetting": "objects", "rescale": None, "n_iter": 1, "random_state": 0}
    models = [
        ax.Affect(ax.KMeans(2), **options).fit([make(y) for y in given], ids=ids)
        for make in (lambda y: y @ y.T, ax.Factored.from_features)
    ]
    dense, factored = ([record.alpha for record in model.history_] for model in models)
    assert any(np.any(record.moved > 0.01) for record in models[0].history_ if record.moved is not None)
    np.testing.assert_allclose(factored, dense, atol=1e-9)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "clusterer", [ax.KMeans(3), ax.KMeans(3, n_init=4, init="random"), ax.Spectral(3)], ids=str
)
def test_products_by_parts_of_movers_or_of_the_formed_blend_agree(eager_xp, make, clusterer, monkeypatch):
    if make is as_factored:
        pytest.skip("factors are small")
    given = steps(4)

    def fitted(max_movers_share, max_formed_bytes):
        monkeypatch.setattr(blend, "MAX_MOVERS_SHARE", max_movers_share)
        monkeypatch.setattr(blend, "MAX_FORMED_BYTES", max_formed_bytes)
        model = ax.Affect(clusterer, forgetting="objects", rescale=None, random_state=0)
        return model.fit([make(eager_xp, w) for _, w in given], ids=[names for names, _ in given])

    formed = fitted(-1, 2**28)
    for other in (fitted(-1, 0), fitted(1, 2**28)):
        for a, b in zip(formed.history_, other.history_, strict=True):
            assert eager_xp.numpy(a.labels).tolist() == eager_xp.numpy(b.labels).tolist()
            np.testing.assert_allclose(b.alphas, a.alphas, atol=1e-12)
            if a.moved is not None:  # there is a past
                np.testing.assert_allclose(eager_xp.numpy(b.moved), eager_xp.numpy(a.moved), atol=1e-10)


def pair_by_objects(make, xp, *, churn, n=60):
    """Return W, the past, their alignment and the trust in objects, some of which have moved or are new."""
    rng = np.random.default_rng(7)
    w, past = (x + x.T for x in rng.poisson(2.0, size=(2, n, n)).astype(float))
    past_ids = rng.permutation(np.arange(5, n + 5)) if churn else np.arange(n)
    alignment = align(tuple(range(n)), tuple(past_ids.tolist()), xp.array([0.0]))
    known = np.isin(np.arange(n), past_ids)
    trust = np.where(rng.random(n) < 0.1, rng.random(n), 1.0) * known
    before = np.zeros((n, n))
    place = {name: i for i, name in enumerate(past_ids.tolist())}
    here = np.flatnonzero(known)
    there = [place[i] for i in here]
    before[np.ix_(here, here)] = past[np.ix_(there, there)]
    expected = w + 0.4 * np.outer(trust, trust) * (before - w)
    return ObjectBlend(Pair(make(xp, w), make(xp, past), alignment), 0.4, xp.array(trust)), expected


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("churn", [False, True], ids=["same objects", "churn"])
@pytest.mark.parametrize("share", [-1, 1], ids=["all objects", "movers"])
def test_products_of_a_blend_by_objects(eager_xp, make, churn, share, monkeypatch):
    monkeypatch.setattr(blend, "MAX_MOVERS_SHARE", share)
    blended, expected = pair_by_objects(make, eager_xp, churn=churn)
    rng, n = np.random.default_rng(1), 60
    v, rows = rng.normal(size=(n, 4)), np.array([3, 9, 30, 31])

    def check(found, value):
        np.testing.assert_allclose(eager_xp.numpy(found), value, atol=1e-10)

    check(blended.matmul(eager_xp.array(v)), expected @ v)
    check(blended.matmul(eager_xp.array(v[rows]), eager_xp.array(rows)), expected[:, rows] @ v[rows])
    labels = rng.integers(3, size=(n, 2))
    moved = labels.copy()
    moved[rng.integers(n, size=9), :] = 1
    changed = np.flatnonzero((moved != labels).any(axis=1))
    groups = blended.grouped(eager_xp.array(labels), 3)
    later = groups.regrouped(eager_xp.array(moved), eager_xp.array(changed))
    for found, c in ((groups, labels), (later, moved), (later.of_runs([1]), moved[:, 1:])):
        z = np.concatenate([np.eye(3)[own] for own in c.T], axis=1)
        check(found.rows(slice(0, n)), expected @ z)
        own = np.einsum("ij,ij->j", z, expected @ z).reshape(-1, 3)
        check(found.own(), own)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_squares_of_a_blend_by_objects(dtype, small_blocks):
    rng, n, k = np.random.default_rng(4), 60, 3
    w, past = ((x + x.T).astype(dtype) for x in rng.normal(size=(2, n, n)))
    trust = np.where(rng.random(n) < 0.2, rng.random(n), 1.0)
    partition = Partition(rng.integers(-1, k, size=n), k)
    z, off = np.eye(k + 1)[partition.labels][:, :k], 1 - np.eye(n)
    given = (z.T @ (x * off) @ z for x in (np.float64(w) ** 2, np.float64(past) ** 2, np.float64(w) * past))
    blended = ObjectBlend(Pair(Dense(w), Dense(past), UNCHANGED), 0.4, trust, (partition, *given))
    expected = np.float64(w) + 0.4 * np.outer(trust, trust) * (np.float64(past) - w)
    _, found = blended.block_squares()
    np.testing.assert_allclose(found, z.T @ (expected**2 * off) @ z, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_squares_of_the_past_are_carried_from_step_to_step(dtype, monkeypatch):
    monkeypatch.setattr(grouped, "MIN_NARROW", 50)
    rng, n, c = np.random.default_rng(3), 90, np.arange(90) % 3
    model = ax.Affect(ax.KMeans(3), forgetting="objects", rescale=None, random_state=0)
    for t in range(6):
        c[7 * t] = (c[7 * t] + 1) % 3
        x = rng.normal(size=(n, 4)) + 4 * np.eye(3, 4)[c]
        model.partial_fit(np.exp(-((x[:, None] - x) ** 2).sum(2) / 8).astype(dtype))
        monkeypatch.setattr(Dense, "block_squares", None)  # not needed after the first step
        partition, squares = model._state.groups.earlier
        assert partition is model._state.partition
        z, psi = partition.membership, np.float64(model.smoothed_.array)
        expected = z.T @ (psi**2 * (1 - np.eye(n))) @ z
        tolerance = {"rtol": 1e-4 if dtype == "float32" else 1e-12}
        np.testing.assert_allclose(squares, expected, **tolerance)
        np.testing.assert_allclose(model._state.groups.array, psi @ z, **tolerance)
    assert max(record.moved.max() for record in list(model.history_)[1:]) > 0.9


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("share", [-1, 1], ids=["all objects", "movers"])
def test_a_two_sided_blend(eager_xp, make, share, monkeypatch):
    monkeypatch.setattr(blend, "MAX_MOVERS_SHARE", share)
    rng, n = np.random.default_rng(3), 40
    w, past, future = (x + x.T for x in rng.poisson(2.0, size=(3, n, n)).astype(float))
    s, u = np.where(rng.random((2, n)) < 0.1, rng.random((2, n)), 1.0)
    expected = w + 0.3 * np.outer(s, s) * (past - w) + 0.5 * np.outer(u, u) * (future - w)
    W, same = make(eager_xp, w), align(range(n), range(n), eager_xp.array([0.0]))
    sides = [
        ObjectBlend(Pair(W, make(eager_xp, side), same), eager_xp.array(np.array(a)), eager_xp.array(trust))
        for side, a, trust in ((past, 0.3, s), (future, 0.5, u))
    ]
    both, v, rows = TwoSidedBlend(sides), rng.normal(size=(n, 3)), np.array([2, 7, 11])
    pairs = [
        (both.diagonal(), np.diag(expected)),
        (both.matmul(eager_xp.array(v)), expected @ v),
        (both.matmul(eager_xp.array(v[rows]), eager_xp.array(rows)), expected[:, rows] @ v[rows]),
        (both.submatrix(eager_xp.array(rows)), expected[np.ix_(rows, rows)]),
        (both.formed().matmul(eager_xp.array(v)), expected @ v),
    ]
    for found, value in pairs:
        np.testing.assert_allclose(eager_xp.numpy(found), value, atol=1e-10)


def test_movers_are_reported_whatever_the_forgetting():
    given = steps(8, churn=False)
    for forgetting in ("global", "objects"):
        model = ax.Affect(ax.Spectral(3), forgetting=forgetting, rescale=None, random_state=0)
        history = model.fit([w for _, w in given]).history_
        assert history[0].moved is None
        for t in range(1, 8):
            if 5 * t % 30 < 24:
                assert history[t].moved[5 * t % 30] > 0.5
            assert np.median(history[t].moved) < 0.01


@pytest.mark.parametrize("forgetting", ["global", "objects"])
@pytest.mark.parametrize("threshold", [0.5, 0.9, 1.0])
def test_probable_moves_to_another_cluster_are_events(eager_xp, forgetting, threshold):
    given = steps(8)
    options = {"forgetting": forgetting, "rescale": None, "random_state": 0}
    model = ax.Affect(ax.Spectral(3), events=ax.EventRules(move=threshold), **options)
    history = model.fit([eager_xp.array(w) for _, w in given], ids=[ids for ids, _ in given]).history_
    n_moves = 0
    for before, record in itertools.pairwise(history):
        was, now = before.by_id(), record.by_id()
        probability = dict(zip(record.ids, eager_xp.numpy(record.moved).tolist(), strict=True))
        expected = {
            (i, was[i], c, probability[i])
            for i, c in now.items()
            if i in was and was[i] != c and probability[i] > threshold
        }
        found = [
            (i, *event.before, *event.after, p)
            for event in record.events
            if event.kind == "move"
            for i, p in zip(event.objects, event.probabilities, strict=True)
        ]
        assert set(found) == expected and len(found) == len(expected)
        n_moves += len(found)
    assert (n_moves > 0) == (threshold < 1)


def test_movers_are_reported_by_the_data_and_not_by_the_clusterer():
    given = [w for _, w in steps(4, churn=False)]
    by_cut, by_means = (
        ax.Affect(clusterer, rescale=None, n_iter=1, init="previous", random_state=0).fit(given)
        for clusterer in (ax.Spectral(3), ax.KMeans(3, n_init=10))
    )
    assert by_means.history_[0].moved is None and by_means.history_[2].moved.shape == (24,)
    for a, b in zip(by_cut.history_[1:], by_means.history_[1:], strict=True):
        if ax.adjusted_rand_index(a.labels, b.labels) == 1:
            np.testing.assert_array_equal(a.moved > 0.9, b.moved > 0.9)
    assert ax.Affect(by_anchors, random_state=0).fit(given).history_[1].moved is None  # distances?


@pytest.mark.parametrize("sign", ["centred", "factored"])
def test_signed_similarities_have_no_movers(eager_xp, sign):
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(24, 2)) + 4 * np.eye(2)[np.arange(24) % 2] for _ in range(3)]
    centred = [own - own.mean(axis=0) for own in x]
    if sign == "factored":
        model = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).fit(map(eager_xp.array, centred))
    else:
        model = ax.Affect(ax.KMeans(2), random_state=0).fit([eager_xp.array(own @ own.T) for own in centred])
    assert [record.moved for record in model.history_] == [None] * 3


@pytest.mark.parametrize(
    "proximity, evidence",
    [
        ("precomputed", r"have negative entries \(the lowest is -8\)"),
        ("dot", "are dot products"),
    ],
)
def test_signed_similarities_by_objects_are_warned_of_once(proximity, evidence):
    x = np.array([[2.0], [2.0], [2.0], [-4.0]])
    given = x if proximity == "dot" else x @ x.T
    model = ax.Affect(ax.KMeans(2), proximity=proximity, scale="none", forgetting="objects", random_state=0)
    with pytest.warns(ax.exceptions.InputWarning, match=f"{evidence}.*'global', is better"):
        model.partial_fit(given)
    model.partial_fit(given)  # a warning would be an error
    quiet = ax.Affect(ax.Spectral(2), forgetting="objects", rescale=None, random_state=0)
    quiet.partial_fit(np.abs(x @ x.T))


def test_a_fixed_weight_is_used():
    given = [w for _, w in steps(3, churn=False)]
    model = ax.Affect(ax.Spectral(3), alpha=0.4, forgetting="objects", rescale=None, random_state=0).fit(
        given
    )
    assert [record.alpha for record in model.history_] == [0, 0.4, 0.4]


@pytest.mark.parametrize("alpha", ["estimate", 0.4])
def test_labels_that_hardly_change_end_a_step(alpha):
    given = [w for _, w in steps(4, churn=False)]

    def fitted(tolerance):
        options = {"forgetting": "objects", "rescale": None, "alpha": alpha, "random_state": 0}
        return ax.Affect(ax.Spectral(3), alpha_tol=tolerance, n_iter=5, **options).fit(given).history_

    exact, early = fitted(0.0), fitted(0.05)
    for a, b in zip(exact, early, strict=True):
        assert len(b.alphas) <= len(a.alphas) and abs(b.alpha - a.alpha) < 0.1
        assert ax.adjusted_rand_index(a.labels, b.labels) == 1
    assert sum(len(b.alphas) for b in early) < sum(len(a.alphas) for a in exact) or alpha != "estimate"
    assert [len(b.alphas) for b in fitted(1.0)] == [1] * 4


@pytest.mark.parametrize("insensitive", [False, True])
def test_large_sparse_steps_start_from_the_previous_labels(monkeypatch, insensitive):
    given = [scipy.sparse.csr_array(w) for _, w in steps(5, churn=False)]
    options = {"forgetting": "objects", "rescale": None, "random_state": 0}
    expected = ax.Affect(ax.Spectral(3), init="previous" if insensitive else "static", **options).fit(given)
    monkeypatch.setattr("affect_xp.affect.step.alpha_is_insensitive", lambda *_: insensitive)
    found = ax.Affect(ax.Spectral(3), **options).fit(given)
    for a, b in zip(expected.history_, found.history_, strict=True):
        assert b.alphas == a.alphas
        np.testing.assert_array_equal(b.labels, a.labels)


def test_clusters_other_than_those_of_the_weights_give_new_weights():
    # The groups of the second step have nothing to do with those of the first.
    rng, alphas = np.random.default_rng(0), {}
    for shift in (1, 8):
        groups = [np.arange(24) // 8, np.arange(24) // shift % 3]
        given = [rng.poisson(np.where(c[:, None] == c, 6.0, 0.3)).astype(float) for c in groups]
        options = {"forgetting": "objects", "rescale": None, "init": "previous", "random_state": 0}
        model = ax.Affect(ax.Spectral(3), **options).fit([w + w.T for w in given])
        alphas[shift] = model.history_[1].alphas
    assert len(alphas[1]) > 1 and len(alphas[8]) == 1


def test_saved_and_resumed(tmp_path):
    given = steps(4)
    model = ax.Affect(ax.Spectral(3), forgetting="objects", absent="keep", rescale=None, random_state=0)
    whole = model.fit([w for _, w in given], ids=[ids for ids, _ in given])
    half = ax.Affect(ax.Spectral(3), forgetting="objects", absent="keep", rescale=None, random_state=0)
    half.fit([w for _, w in given[:2]], ids=[ids for ids, _ in given[:2]]).save(tmp_path / "m.npz")
    resumed = ax.load(tmp_path / "m.npz")
    for ids, w in given[2:]:
        resumed.partial_fit(w, ids=ids)
    assert resumed.forgetting == "objects"
    for a, b in zip(whole.history_, resumed.history_, strict=True):
        np.testing.assert_array_equal(a.labels, b.labels)
        np.testing.assert_array_equal(a.moved, b.moved)
        assert a.events == b.events
    assert any(event.objects for record in half.history_ for event in record.events)


@pytest.mark.parametrize(
    ("clusterer", "options", "message"),
    [
        (ax.Spectral(3), {"forgetting": "rows"}, "forgetting must be one of 'global', 'objects', got 'rows'"),
        (ax.Linkage(3), {"forgetting": "objects"}, "forgetting='objects' needs similarities"),
        (ax.Spectral(3), {"forgetting": "objects", "correction": "objects"}, "correction='objects' corrects"),
    ],
)
def test_bad_arguments(clusterer, options, message):
    with pytest.raises(InputError, match=message):
        ax.Affect(clusterer, **options).partial_fit(np.eye(4))
