"""Change points: the formulas against a slow twin, detections and misses, and the contents of records."""

import dataclasses
import itertools
import math
import warnings

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.exceptions import AffectError, InputError
from affect_xp.experiments import Options, reproduce
from affect_xp.experiments import changes as study
from affect_xp.tracking import change_points
from affect_xp.tracking.history import History, Record

CENTRES = np.array([[5.0, 0.0], [-3.0, 4.0], [-3.0, -4.0]])


def run(seed, n_steps, at=(), share=0.25, scale=1.0, n=60, **options):
    """Run AFFECT on features of three clusters; at some steps a share of the objects moves."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % 3)
    model = ax.Affect(
        ax.KMeans(3, init="k-means++", n_init=10), proximity="dot", random_state=seed, **options
    )
    for t in range(n_steps):
        if t in at:
            who = rng.choice(n, round(share * n), replace=False)
            labels[who] = (labels[who] + 1) % 3
        model.partial_fit(scale * (CENTRES[labels] + rng.normal(size=(n, 2))))
    return model


def history_of(noise, drift, of_means=None):
    """Return records with these values."""
    alpha = [0.0, *(n**2 / (n**2 + d**2 or 1.0) for n, d in zip(noise[1:], drift[1:], strict=True))]
    empty = np.zeros(1, dtype=int)
    rows = zip(itertools.count(), alpha, noise, [None, *drift[1:]], strict=False)
    records = [Record(t, 1, 1, a, (a,), empty, range(1), noise=n, drift=d) for t, a, n, d in rows]
    return History((dataclasses.replace(records[0], noise_of_means=of_means), *records[1:]))


# ---- the formulas -----------------------------------------------------------------------------------------


def tails_slowly(noise, drift, c, level):
    """The formulas at the top of the module, pair by pair."""
    pairs = [
        {"q": q, "h": h, "prior": p * s, "like": 0.0, "v": noise[0], "rest": 0.0}
        for q, p in zip(change_points.LASTING, change_points.LASTING_PRIOR, strict=True)
        for h, s in zip(change_points.SPREADS, change_points.SPREADS_PRIOR, strict=True)
    ]
    usual, count, tails = noise[0], 1, [1.0]
    for n, d in zip(noise[1:], drift[1:], strict=True):
        top, bottom = 0.0, 0.0
        for pair in pairs:
            lasting = pair["q"] * max(usual - pair["v"], 0.0)
            e = pair["v"] + c * usual + lasting
            f = (c * usual + pair["rest"] + change_points.LOOSE * lasting) / e
            sigma = pair["h"] * math.sqrt(
                (1 - f) ** 2 * change_points.RHO**2 * c + f**2 * change_points.TAU**2
            )
            pair["z"], pair["sigma"] = math.log(d / e) / sigma, sigma
            weight = pair["prior"] * math.exp(pair["like"])
            top += weight / (1 + math.exp(min(pair["z"], 700.0)))
            bottom += weight
        changed = top / bottom < level
        alpha = n / (n + d)
        for pair in pairs:
            if not changed or tails[-1] < level:
                z = min(abs(pair["z"]), change_points.MAX_ABS_Z)
                density = math.exp(-z) / (1 + math.exp(-z)) ** 2 / pair["sigma"]
                pair["like"] = change_points.KEPT * pair["like"] + math.log(density)
            if changed:
                off = max(pair["v"], d - c * usual - pair["q"] * max(usual - pair["v"], 0.0))
                pair["rest"], pair["v"] = pair["rest"] + off - pair["v"], off
            pair["rest"] *= alpha**2
            pair["v"] = alpha**2 * pair["v"] + (1 - alpha) ** 2 * n
        if not changed:
            count = min(count + 1, change_points.MEMORY)
            usual += (n - usual) / count
        tails.append(top / bottom)
    return tails


@pytest.mark.parametrize("c, level", [(0.05, 0.005), (0.003, 0.05), (0.2, 0.05)])
def test_change_points_are_those_of_the_formulas(c, level):
    rng, n_found = np.random.default_rng(5), 0
    for _ in range(8):
        noise = np.exp(rng.normal(0, 0.1, 15))
        drift = noise / np.arange(15).clip(1) * np.exp(rng.normal(0, 0.1, 15))
        drift[rng.integers(3, 15, 2)] *= 50
        slow = tails_slowly(noise.tolist(), drift.tolist(), c, level)
        history = history_of(np.sqrt(noise).tolist(), np.sqrt(drift).tolist(), math.sqrt(c * noise[0]))
        found = change_points.change_points(history, level=level)
        seen = [t for t in range(1, 15) if slow[t] < level]
        assert found == [t for t in seen if t - 1 not in seen or slow[t] < slow[t - 1] / 2]
        n_found += len(found)
    assert n_found >= 4


def test_alpha_alone_is_as_good_where_the_noise_is_the_same():
    rng = np.random.default_rng(2)
    n_found = 0
    for _ in range(20):
        drift = 1 / np.arange(12).clip(1) * np.exp(rng.normal(0, 0.2, 12))
        drift[rng.integers(3, 12)] *= 8
        history = history_of([1.0] * 12, np.sqrt(drift).tolist())
        found = change_points.change_points(history)
        assert found == change_points.change_points(history.alpha)
        n_found += len(found)
    assert n_found >= 10


def test_nothing_that_comes_later_matters():
    history = run(1, 30, at=(8, 20)).history_
    found = change_points.change_points(history)
    assert found == [8, 20]
    for end in range(len(history) + 1):
        assert change_points.change_points(history[:end]) == [t for t in found if t < end]


@pytest.mark.parametrize("scale", [2.0**-20, 1e3, 1e30])
def test_units_do_not_matter(scale):
    plain, scaled = (run(3, 10, at=(6,), scale=s).history_ for s in (1.0, scale))
    assert change_points.change_points(plain) == change_points.change_points(scaled) == [6]
    for one, other in zip(plain, scaled, strict=True):
        assert other.noise == pytest.approx(scale**2 * one.noise, rel=1e-6)
        assert (one.drift is None) is (other.drift is None)


def test_extremes_of_alpha():
    assert change_points.change_points([]) == change_points.change_points([0.0]) == []
    assert change_points.change_points([0, 0.5, 0.67, 0.75, 0.0]) == [4]
    assert change_points.change_points([0, 0.5, 1.0, 1.0, 1.0]) == []
    assert change_points.change_points([0, 0, 0, 0]) == [1]  # one persistent change
    assert change_points.change_points(history_of([0.0] * 5, [0.0] * 5)) == []  # neither noise nor drift
    assert change_points.change_points(history_of([0.0] * 5, [0.0, 0.0, 0.0, 1.0, 0.0])) == [3]


def test_objects_that_are_all_new_begin_anew():
    rng, model = np.random.default_rng(0), ax.Affect(ax.KMeans(2), proximity="dot", random_state=0)
    centres = np.array([[4.0, 0.0], [-4.0, 0.0]])
    for t in range(12):
        ids = range(40) if t < 6 else range(100, 140)
        turned = centres if t < 6 else centres[:, ::-1]
        model.partial_fit(turned[np.arange(40) % 2] + rng.normal(size=(40, 2)), ids=ids)
    assert [record.drift is None for record in model.history_] == [t in (0, 6) for t in range(12)]
    assert model.history_[6].noise_of_means is not None
    assert ax.change_points(model) == []


# ---- detections -------------------------------------------------------------------------------------------


def test_the_change_of_the_first_data_set():
    bikes = ax.datasets.bike_stations()
    model = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0).fit(bikes.X)
    assert ax.change_points(model) == ax.change_points(model.history_) == [12]


@pytest.mark.parametrize("n_steps, least", [(8, 0.9), (20, 0.9)])
def test_most_changes_of_a_quarter_are_found(n_steps, least):
    rng, found = np.random.default_rng(n_steps), []
    for seed in range(20):
        t = int(rng.integers(change_points.RELIABLE, n_steps - 1))
        found.append(not {t, t + 1}.isdisjoint(ax.change_points(run(seed, n_steps, at=(t,)))))
    assert np.mean(found) >= least


def test_quiet_steps_are_seldom_called_changes():
    n_steps = [8] * 12 + [20] * 8 + [60] * 4
    n_false = sum(len(ax.change_points(run(100 + i, n))) for i, n in enumerate(n_steps))
    assert n_false <= sum(n_steps) / 100


def test_two_changes_three_steps_apart():
    found = [ax.change_points(run(seed, 14, at=(6, 9))) for seed in range(10)]
    assert sum(6 in steps or 7 in steps for steps in found) >= 9
    assert sum(9 in steps or 10 in steps for steps in found) >= 8
    assert sum(len(set(steps) - {6, 7, 9, 10}) for steps in found) <= 1


def test_clusters_that_move_slowly_are_no_changes():
    found = []
    for seed in range(10):
        rng, way = np.random.default_rng(seed), np.array([[0.1, 0.0], [0.0, -0.1], [0.0, 0.1]])
        model = ax.Affect(ax.KMeans(3, init="k-means++", n_init=10), proximity="dot", random_state=seed)
        for t in range(21):
            model.partial_fit((CENTRES + t * way)[np.arange(60) % 3] + rng.normal(size=(60, 2)))
        found += ax.change_points(model)
    assert len(found) <= 2  # 1 in 100 steps


# ---- inputs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, options, named",
    [
        ([0.5, np.nan], {}, "change_points takes"),
        ([[0.5, 0.5]], {}, "change_points takes"),
        ([0.0, 1.5], {}, "change_points takes"),
        ("abc", {}, "change_points takes"),
        (None, {}, "change_points takes"),
        ([0.5], {"level": 0.0}, "level"),
        ([0.5], {"level": 0.5}, "level"),
    ],
)
def test_change_points_rejects(given, options, named):
    with pytest.raises(AffectError, match=named):
        ax.change_points(given, **options)


@pytest.mark.parametrize("alpha", [0.5, lambda W, past, labels, t: 0.5], ids=["number", "function"])
def test_alpha_that_was_given_tells_no_changes(alpha):
    model = run(0, 5, alpha=alpha)
    assert all((r.noise, r.drift, r.noise_of_means) == (None, None, None) for r in model.history_)
    with pytest.raises(InputError, match='alpha="estimate"'):
        ax.change_points(model)
    assert "estimated" in change_points.changes_with_note(model.history_)[1]
    assert ax.change_points(run(0, 1, alpha=alpha)) == []


def test_hindsight_knows_the_changes_of_the_forward_pass():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    steps = []
    for t in range(10):
        labels = np.roll(labels, 1) if t == 6 else labels
        steps.append(CENTRES[labels] + rng.normal(size=(60, 2)))
    found = ax.smooth(steps, ax.KMeans(3), proximity="dot", random_state=0)
    assert ax.change_points(found) == ax.change_points(found.causal) == [6]


# ---- contents of records ----------------------------------------------------------------------------------


def test_records_know_noise_and_drift(xp):
    model = ax.Affect(ax.KMeans(2), random_state=0)
    steps = list(ax.datasets.colliding_gaussians(n_samples=24, n_steps=4, rng=0))
    past = None
    for t, step in enumerate(steps):
        model.partial_fit(xp.array(step.W))
        record, W = model.history_[-1], step.W
        if t == 0:
            assert record.drift is None
            moments = ax.block_moments(W, xp.numpy(record.labels))
            assert record.noise == pytest.approx(math.sqrt(float(moments.total_variance())) / 24, rel=1e-4)
            assert 0 < record.noise_of_means < record.noise
        else:
            assert record.noise_of_means is None
            alpha = record.noise**2 / (record.noise**2 + record.drift**2)
            assert alpha == pytest.approx(record.alpha, rel=1e-5)
            # The sum of noise and drift depends little on labels: about Σ(w − ψ)² / n².
            both, apart = record.noise**2 + record.drift**2, np.mean((W - past) ** 2)
            assert 0.5 < both / apart < 2
        past = W if t == 0 else record.alpha * past + (1 - record.alpha) * W


def test_noise_is_in_the_units_of_proximities_even_at_the_ends_of_their_range():
    plain = run(4, 4).history_
    for scale in (1e-45, 1e45):  # of features; squares of their products are out of range
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scaled = run(4, 4, scale=scale).history_
        for one, other in zip(plain[1:], scaled[1:], strict=True):
            assert other.noise == pytest.approx(scale**2 * one.noise, rel=1e-6)
            assert other.drift == pytest.approx(scale**2 * one.drift, rel=1e-6)


def test_saved_runs_keep_them(tmp_path):
    model = run(5, 8, at=(5,))
    model.save(tmp_path / "model")
    loaded = ax.load(tmp_path / "model")
    for one, other in zip(model.history_, loaded.history_, strict=True):
        for name in ("noise", "drift", "noise_of_means"):
            assert getattr(one, name) == getattr(other, name)
    assert ax.change_points(loaded) == ax.change_points(model) == [5]


def test_records_of_earlier_versions_are_read():
    from affect_xp.persistence import _steps

    stored = _steps._pack_record(run(0, 2).history_[1], _steps.NameTable())
    older = {key: value for key, value in stored.items() if key not in ("noise", "drift", "noise_of_means")}
    names = type("Names", (), {"ids": lambda self, stored: range(60)})()
    file = type("File", (), {"like": np.empty(0)})()
    record = _steps._unpack_record(older, np.zeros(60, dtype=np.int64), None, names, file)
    assert record.noise is record.drift is record.noise_of_means is None


# ---- the study --------------------------------------------------------------------------------------------


def test_study(monkeypatch):
    setting = dataclasses.replace(study.SETTINGS["features, k-means"], n=45)
    monkeypatch.setattr(study, "SETTINGS", {"features": setting})
    monkeypatch.setattr(study, "LENGTHS", {8: 2, 20: 1})
    report = reproduce("changes", Options(runs=2))
    eight, twenty, early, false = report.tables
    assert eight.title == "Runs of 8 steps" and [e.method for e in twenty.entries] == [
        f"features: {change}" for change in study.CHANGES
    ]
    assert eight["features: 1/4 move"].mean >= 0.75
    assert len(early.entries) == 4 and false["features: 20 steps, no change"].mean <= 3
    assert len(report.claims) == 4


@pytest.mark.parametrize("change", study.CHANGES)
def test_the_study_moves_as_many_as_it_says(change):
    truth = study._truth(80, 12, change, [4, 9], np.random.default_rng(0))
    moved = [(now != before).sum() for before, now in itertools.pairwise(truth)]
    size = round(80 * study.CHANGES[change])
    assert moved == [size if t in (4, 9) else 0 for t in range(1, 12)]
