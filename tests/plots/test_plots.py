"""Figures: the drawn data against slow twins, and the drawing."""

import datetime
import itertools

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.exceptions import AffectError
from affect_xp.plots.flows import CLUSTER_COLOURS, OTHERS, flow, gathered
from affect_xp.plots.memberships import ABSENT, memberships
from affect_xp.tracking.events import Event
from affect_xp.tracking.history import History, Record

matplotlib = pytest.importorskip("matplotlib", reason="pictures need matplotlib")
matplotlib.use("agg")


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def record(labels, ids, *, time=0, alpha=0.5, events=()):
    return Record(time, len(ids), 0, alpha, (alpha,), np.asarray(labels), tuple(ids), tuple(events))


def random_history(rng, n_steps=7):
    """Objects that come and go, in up to 5 clusters or in none."""
    records = []
    for t in range(n_steps):
        ids = rng.permutation([name for name in "abcdefghijklmnopqrst" if rng.random() < 0.7]).tolist()
        records.append(record(rng.integers(-1, 5, len(ids)), ids, time=t))
    return History(tuple(records))


# ---- flow and memberships ---------------------------------------------------------------------------------


def test_flow_counts_as_a_loop_does():
    history = random_history(np.random.default_rng(0))
    found = flow(history)
    before = {}
    for t, step in enumerate(history):
        now = dict(zip(step.ids, step.labels.tolist(), strict=True))
        sizes, links = {}, {}
        for name, label in now.items():
            if label >= 0:
                sizes[label] = sizes.get(label, 0) + 1
                if before.get(name, -1) >= 0:
                    links[before[name], label] = links.get((before[name], label), 0) + 1
        assert found.sizes[t] == sizes
        assert found.links[t] == links
        before = now
    assert sorted(found.order) == [0, 1, 2, 3, 4]


def test_flow_takes_labels_of_any_library(xp):
    steps = list(ax.datasets.colliding_gaussians(n_samples=16, n_steps=4, rng=0))
    model = ax.Affect(ax.KMeans(2), random_state=0).fit(xp.array(step.W) for step in steps)
    twin = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    assert flow(model.history_).links == flow(twin.history_).links


def test_a_new_cluster_stands_beside_the_one_it_came_from():
    first, second = record([0, 0, 0, 1, 1, 2, 2], "abcdefg"), record([0, 3, 3, 1, 1, 2, 2], "abcdefg")
    assert flow(History((first, second))).order == [0, 3, 1, 2]


def test_clusters_that_meet_have_different_colours():
    n = len(CLUSTER_COLOURS)
    clash = History((record([0, n], "ab"), record([0, n], "ab")))  # both would get the first colour
    assert len(set(flow(clash).colours.values())) == 2
    many = History(tuple(record(np.arange(t, t + n - 1), range(n - 1)) for t in range(40)))
    found = flow(many)
    for sizes in found.sizes:
        assert len({found.colours[name] for name in sizes}) == n - 1


def test_clusters_above_each_other_have_different_colours():
    """Cluster 1 ends and 12 takes its place; with twelve clusters two colours occur twice."""
    before = np.arange(12)
    after = np.where(before == 1, 12, before)
    found = flow(History((record(before, "abcdefghijkl"), record(after, "abcdefghijkl"))))
    for t, sizes in enumerate(found.sizes):
        stacked = [found.colours[name] for name in found.order if name in sizes]
        assert all(a != b for a, b in itertools.pairwise(stacked)), t


def test_stacks_are_as_high_as_sizes_and_do_not_overlap():
    found = flow(random_history(np.random.default_rng(5)))
    for t, sizes in enumerate(found.sizes):
        place = found.stacked(t, gap=0.5)
        assert {name: high - low for name, (low, high) in place.items()} == sizes
        ends = [end for name in found.order if name in place for end in place[name]]
        assert ends == sorted(ends)


def test_memberships_are_those_of_the_history():
    history = random_history(np.random.default_rng(2))
    shown = memberships(history, flow(history))
    assert shown.n_objects == len(shown.ids) == len({name for step in history for name in step.ids})
    for row, name in zip(shown.labels, shown.ids, strict=True):
        for t, step in enumerate(history):
            there = name in step.ids
            assert row[t] == (step.labels[step.ids.index(name)] if there else ABSENT)


def test_memberships_keep_together_what_was_together():
    labels = np.array([0, 1, 0, 1, 1, 0])
    history = History((record(labels, "abcdef"), record(labels, "abcdef")))
    assert memberships(history, flow(history)).ids == ["a", "c", "f", "b", "d", "e"]


def test_memberships_of_many_objects_are_thinned_evenly():
    history = History((record(np.zeros(1000, dtype=int), range(1000)),))
    shown = memberships(history, flow(history), max_objects=10)
    assert shown.ids == list(range(0, 1000, 100)) and shown.n_objects == 1000


# ---- pictures ---------------------------------------------------------------------------------------------


@pytest.fixture
def history():
    """Cluster 1 splits, then 0 and 2 merge; times are days."""
    split = Event("split", (1,), (1, 3), 4, 4, 4)
    merge = Event("merge", (0, 2), (0,), 4, 4, 4)
    rows = [
        ([0, 0, 1, 1, 1, 1, 2, 2], ()),
        ([0, 0, 1, 1, 3, 3, 2, 2], (split,)),
        ([0, 0, 1, 1, 3, 3, 0, 0], (merge,)),
    ]
    return History(
        tuple(
            record(labels, ["$x_1$", *"bcdefgh"], time=datetime.datetime(2024, 1, 1 + t), events=events)
            for t, (labels, events) in enumerate(rows)
        )
    )


def drawn(axes):
    axes.figure.canvas.draw()
    return axes


def measured_history(n_steps, change=None, model=None):
    """A run of three clusters, one of which jumps at a step."""
    rng, centres = np.random.default_rng(0), np.array([[5.0, 0.0], [-3.0, 4.0], [-3.0, -4.0]])
    model = model or ax.Affect(ax.KMeans(3, init="k-means++", n_init=10), proximity="dot", random_state=0)
    for t in range(n_steps):
        centres[0] += 4.0 * (t == change)
        model.partial_fit(centres[np.arange(60) % 3] + rng.normal(size=(60, 2)))
    return model.history_


def test_alpha_marks_change_points():
    history = measured_history(9, change=6)
    axes = drawn(ax.plots.plot_alpha(history, changes=True))
    marks = next(line for line in axes.lines if line.get_label() == "change point")
    assert marks.get_xdata().tolist() == [6] and marks.get_ydata().tolist() == [history.alpha[6]]
    assert not axes.texts
    given = ax.plots.plot_alpha(history, changes=[2, 3])
    assert given.lines[-1].get_xdata().tolist() == [2, 3]
    assert len(ax.plots.plot_alpha(history).lines) == 1


def test_alpha_says_when_change_points_cannot_be_told():
    axes = drawn(ax.plots.plot_alpha(measured_history(3), changes=True))
    assert "3 steps is too short" in axes.texts[0].get_text() and "from step 3 on" in axes.texts[0].get_text()
    assert not ax.plots.plot_alpha(measured_history(3)).texts
    fixed = measured_history(9, model=ax.Affect(ax.KMeans(3), proximity="dot", alpha=0.5, random_state=0))
    assert "estimated" in ax.plots.plot_alpha(fixed, changes=True).texts[0].get_text()


def test_flow_draws_bars_ribbons_and_events(history):
    axes = drawn(ax.plots.plot_flow(history))
    bars, *ribbons = [len(collection.get_paths()) for collection in axes.collections]
    assert bars == 3 + 4 + 3
    assert ribbons == [4, 4]
    assert {line.get_label(): line.get_xdata().tolist() for line in axes.lines} == {
        "split": [0],
        "merge": [2],
    }
    assert [text.get_text().strip() for text in axes.texts] == ["0", "1", "2", "3"]
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        "2024-01-01",
        "2024-01-02",
        "2024-01-03",
    ]
    assert not ax.plots.plot_flow(history, events=False).lines


def test_small_flows_are_gathered():
    n, k = 1000, 10
    before = np.arange(n) % k
    after = np.where(
        np.arange(n) < 30, (before + 1 + np.arange(n) // 10) % k, before
    )  # 30 flows of one object
    found = [record(labels, range(n), time=t) for t, labels in enumerate((before, after))]
    axes = drawn(ax.plots.plot_flow(History(tuple(found))))
    shapes = [path.get_extents() for path in axes.collections[1].get_paths()]
    assert len(shapes) == k + k + k  # objects that stay in, leave and enter each cluster
    heights = np.array([shape.height for shape in shapes])
    np.testing.assert_allclose(heights[k:], 3)
    assert heights[:k].sum() == n - 30


def test_a_cluster_keeps_its_colour(history):
    found, axes = flow(history), ax.plots.plot_flow(history)
    bars = iter(axes.collections[0].get_facecolor())
    for sizes in found.sizes:
        for name in [name for name in found.order if name in sizes]:
            colour = matplotlib.colors.to_hex(next(bars)).upper()
            assert colour == CLUSTER_COLOURS[found.colours[name]]


def test_memberships_are_drawn_in_the_colours_of_clusters(history):
    axes = drawn(ax.plots.plot_memberships(history))
    pixels, found = axes.images[0].get_array(), flow(history)
    shown = memberships(history, found)
    assert pixels.shape == (8, 3, 3)
    for row, labels in zip(pixels, shown.labels.tolist(), strict=True):
        expected = [matplotlib.colors.to_rgb(CLUSTER_COLOURS[found.colours[label]]) for label in labels]
        np.testing.assert_allclose(row, expected)
    assert axes.get_yticklabels()[0].get_text() in [r"\$x_1\$", *"bcdefgh"]


def test_proximity_is_ordered_by_cluster(xp):
    rng = np.random.default_rng(0)
    W = rng.normal(size=(9, 9))
    W = W + W.T
    labels = np.array([2, 0, 1, 2, 0, 1, 0, 0, 2])
    axes = drawn(ax.plots.plot_proximity(xp.array(W), xp.array(labels)))
    order = np.argsort(labels, kind="stable")
    np.testing.assert_allclose(axes.images[0].get_array(), W[np.ix_(order, order)], atol=1e-6)
    assert sorted({float(line.get_ydata()[0]) for line in axes.lines[::2]}) == [3.5, 5.5]


def test_proximity_of_many_objects_is_thinned():
    X = np.random.default_rng(0).normal(size=(1500, 2))
    axes = ax.plots.plot_proximity(X @ X.T, np.arange(1500) % 3)
    assert axes.images[0].get_array().shape == (1000, 1000)


def test_smoothing_is_drawn_in_one_scale():
    panels = ax.plots.plot_smoothing(np.diag([1.0, 5.0]), np.diag([3.0, 2.0]) + 0.5, np.array([0, 1]))
    assert [panel.images[0].get_clim() for panel in panels] == [(0, 5), (0, 5)]
    drawn(panels[0])
    signed = ax.plots.plot_smoothing(np.diag([1.0, 5.0]), np.diag([3.0, 2.0]) - 1, np.array([0, 1]))
    assert [panel.images[0].get_clim() for panel in signed] == [(-5, 5), (-5, 5)]


def test_signed_proximities_are_white_at_zero():
    both = drawn(ax.plots.plot_proximity(np.array([[1.0, -0.25], [-0.25, 1.0]]), [0, 1])).images[0]
    assert both.get_clim() == (-1, 1)
    np.testing.assert_allclose(both.cmap(both.norm(0.0))[:3], 1, atol=0.05)
    for one_sign in (np.eye(2), np.eye(2) - 1e-9, -np.eye(2)):
        assert drawn(ax.plots.plot_proximity(one_sign, [0, 1])).images[0].get_cmap().name == "viridis"


def strip_colours(axes):
    """Return the colours next to a matrix, from the top."""
    bars = sorted(axes.patches, key=lambda bar: bar.get_y())
    return [matplotlib.colors.to_hex(bar.get_facecolor()).upper() for bar in bars]


def test_a_matrix_has_the_colours_of_the_flow():
    n = len(CLUSTER_COLOURS)
    history = History((record([0, n, n], "abc"), record([0, n, n], "abc")))
    axes = drawn(ax.plots.plot_proximity(np.eye(3), history))
    colours = flow(history).colours
    assert strip_colours(axes) == [CLUSTER_COLOURS[colours[name]] for name in (0, n)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", str(n)]
    assert strip_colours(ax.plots.plot_proximity(np.eye(3), [2, 2, 0])) == [
        CLUSTER_COLOURS[0],
        CLUSTER_COLOURS[2],
    ]


def test_frames_are_drawn_as_arrays_are():
    pandas = pytest.importorskip("pandas")
    W, labels = np.array([[1.0, 0.2, 0.1], [0.2, 1.0, 0.3], [0.1, 0.3, 1.0]]), [1, 0, 1]
    frame = pandas.DataFrame(W, index=list("abc"), columns=list("abc"))
    axes = ax.plots.plot_proximity(frame, pandas.Series(labels, index=frame.index))
    expected = ax.plots.plot_proximity(W, labels).images[0].get_array()
    np.testing.assert_array_equal(axes.images[0].get_array(), expected)
    panels = ax.plots.plot_smoothing(frame, frame, labels)
    np.testing.assert_array_equal(panels[1].images[0].get_array(), expected)
    scores = pandas.DataFrame({"static": [0.5, 0.6], "AFFECT": [0.5, 0.9]}, index=[7, 8])
    lines = ax.plots.plot_scores(scores).lines
    assert [line.get_ydata().tolist() for line in lines] == [[0.5, 0.6], [0.5, 0.9]]
    by_k = ax.plots.plot_scores_by_k(pandas.Series({2: 0.4, 3: 0.7}), chosen=3)
    assert by_k.lines[0].get_ydata().tolist() == [0.4, 0.7]
    values = ax.plots.plot_eigenvalues(pandas.Series([3.0, 2.0], index=[5, 6]))
    assert values.lines[0].get_ydata().tolist() == [3, 2]


def test_proximity_rejects_labels_of_other_objects():
    with pytest.raises(AffectError, match=r"labels has shape \(3,\), but W has 2 objects"):
        ax.plots.plot_proximity(np.eye(2), np.array([0, 1, 1]))


@pytest.mark.parametrize("n_clusters", [2, 3, 5])
def test_dendrogram_is_cut_where_the_clusters_are(n_clusters):
    x = np.array([0.0, 1.0, 5.0, 7.5, 20.0])
    tree = ax.linkage(np.abs(x[:, None] - x))
    axes = drawn(ax.plots.plot_dendrogram(tree, n_clusters=n_clusters))
    assert tree.n_clusters_at(axes.lines[-1].get_ydata()[0]) == n_clusters


def test_dendrogram_of_many_objects_is_cut_short():
    x = np.random.default_rng(0).normal(size=200)
    axes = drawn(ax.plots.plot_dendrogram(ax.linkage(np.abs(x[:, None] - x)), max_leaves=20))
    assert len(axes.get_xticklabels()) == 20


def test_branches_have_the_colours_of_their_clusters():
    x = np.array([0.0, 1.0, 5.0, 7.5, 20.0, 21.0])
    tree = ax.linkage(np.abs(x[:, None] - x))
    axes = drawn(ax.plots.plot_dendrogram(tree, n_clusters=3))
    shown = [path for lines in axes.collections for path in lines.get_segments()]
    colours = [
        matplotlib.colors.to_hex(c).upper() for lines in axes.collections for c in lines.get_colors()
        for _ in range(len(lines.get_segments()) // len(lines.get_colors()))
    ]  # fmt: skip
    cut = axes.lines[-1].get_ydata()[0]
    for path, colour in zip(shown, colours, strict=True):
        assert (colour in CLUSTER_COLOURS) == (path[:, 1].max() < cut)
    assert len({colour for colour in colours if colour in CLUSTER_COLOURS}) == 3


def test_eigenvalues_and_scores(xp):
    axes = drawn(ax.plots.plot_eigenvalues(xp.array([3.0, 2.0, 0.1]), n_clusters=2))
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [3, 2, 0.1], rtol=1e-6)
    assert axes.lines[1].get_xdata()[0] == 2.5
    axes = drawn(ax.plots.plot_scores_by_k({4: 0.5, 2: 0.4, 3: 0.7}, chosen=3))
    assert axes.lines[0].get_ydata().tolist() == [0.4, 0.7, 0.5]
    assert axes.lines[1].get_xydata().tolist() == [[3, 0.7]]
    with pytest.raises(AffectError, match="scores is empty"):
        ax.plots.plot_scores_by_k({})


def test_a_model_has_a_tree_eigenvalues_and_scores():
    x = [np.repeat([0.0, 5, 20], 4) + np.random.default_rng(t).normal(size=12) for t in range(3)]
    D = [np.abs(step[:, None] - step) for step in x]
    model = ax.Affect(ax.Linkage(3, method="complete")).fit(D)
    axes = drawn(ax.plots.plot_dendrogram(model))
    expected = drawn(ax.plots.plot_dendrogram(ax.linkage(model.smoothed_, "complete"), n_clusters=3))
    assert axes.get_ylabel() == expected.get_ylabel() == "height (complete linkage)"
    assert axes.lines[-1].get_ydata()[0] == expected.lines[-1].get_ydata()[0]
    model = ax.Affect(ax.Spectral("modularity", max_clusters=6), random_state=0).fit([np.exp(-d) for d in D])
    values = drawn(ax.plots.plot_eigenvalues(model)).lines
    w = model.smoothed_.to_numpy() if hasattr(model.smoothed_, "to_numpy") else np.asarray(model.smoothed_)
    d = w.sum(axis=1)
    laplacian = np.eye(12) - w / np.sqrt(d[:, None] * d)
    np.testing.assert_allclose(values[0].get_ydata(), np.linalg.eigvalsh(laplacian)[:6], atol=1e-3)
    assert values[1].get_xdata()[0] == model.history_[-1].k + 0.5
    record = model.history_[-1]
    for source in (model, model.history_):
        line, circle = ax.plots.plot_scores_by_k(source).lines
        assert dict(line.get_xydata().tolist()) == pytest.approx(record.scores)
        assert circle.get_xydata().tolist() == [[record.k, record.scores[record.k]]]
    with pytest.raises(TypeError, match="a fitted Affect with a Linkage as clusterer"):
        ax.plots.plot_dendrogram(model)


def test_branches_of_a_model_have_the_colours_of_its_flow():
    x = np.array([20.0, 21, 0, 1, 5, 6])
    D = np.abs(x[:, None] - x)
    model = ax.Affect(ax.Linkage([1, 3])).fit([D, D])
    colours = {CLUSTER_COLOURS[c] for c in flow(model).colours.values()}
    axes = drawn(ax.plots.plot_dendrogram(model))
    shown = {matplotlib.colors.to_hex(c).upper() for lines in axes.collections for c in lines.get_colors()}
    assert shown & set(CLUSTER_COLOURS) == colours and len(colours) == 3


RUNS = (ax.plots.plot_alpha, ax.plots.plot_flow, ax.plots.plot_memberships, ax.plots.plot_run)


@pytest.mark.parametrize("draw", RUNS)
def test_a_model_is_drawn_as_its_history_is(draw):
    bikes = ax.datasets.bike_stations(4)
    model = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0).fit(bikes.X, ids=bikes.ids)
    pictures = []
    for given in (model, model.history_):
        axes = np.atleast_1d(draw(given))[-1]
        axes.figure.canvas.draw()
        pictures.append(np.asarray(axes.figure.canvas.buffer_rgba()))
    np.testing.assert_array_equal(*pictures)
    with pytest.raises(AffectError, match="history must be a fitted model or its history_, got 3"):
        draw(3)


def test_a_model_gives_its_labels_and_smoothed_proximities():
    W = [step.W for step in ax.datasets.colliding_gaussians(rng=0)]
    model = ax.Affect(ax.KMeans(2), random_state=0).fit(W)
    given = ax.plots.plot_smoothing(W[-1], model)
    twin = ax.plots.plot_smoothing(W[-1], model.smoothed_, model.labels_)
    for one, other in zip(given, twin, strict=True):
        np.testing.assert_array_equal(one.images[0].get_array(), other.images[0].get_array())


def test_new_axes_have_the_colours_of_the_library(history):
    below = ax.plots.plot_run(history)[1]
    scores = ax.plots.plot_scores({"a": [0.0, 1.0], "b": [1.0, 0.0]})
    assert [line.get_color() for line in scores.lines] == list(ax.plots.COLOURS[:2])
    assert below.lines[0].get_color() not in CLUSTER_COLOURS  # α is not a cluster
    given = matplotlib.figure.Figure().subplots()
    given.set_prop_cycle(color=["red"])
    assert ax.plots.plot_scores({"a": [0.0, 1.0]}, ax=given).lines[0].get_color() == "red"


def test_a_run_has_one_axis_of_time(history):
    above, below = ax.plots.plot_run(history)
    assert above.get_xlim() == drawn(below).get_xlim()
    shown = [label.get_text() for label in below.get_xticklabels()]
    assert shown == ["2024-01-01", "2024-01-02", "2024-01-03"]


@pytest.mark.parametrize("n_steps", [1, 12, 13, 500])
def test_times_do_not_overlap(n_steps):
    start = datetime.datetime(2024, 1, 1)
    times = [start + datetime.timedelta(days=t) for t in range(n_steps)]
    axes = drawn(ax.plots.plot_alpha(History(tuple(record([0], "a", time=time) for time in times))))
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes)) and len(boxes) <= 12


def many_clusters(k, n_steps=6, n=900, seed=0):
    """Random labels of which a tenth changes at each step."""
    rng = np.random.default_rng(seed)
    labels, records = rng.integers(k, size=n), []
    for t in range(n_steps):
        labels = np.where(rng.random(n) < 0.1, rng.integers(k, size=n), labels)
        records.append(record(labels, range(n), time=t))
    return History(tuple(records))


def test_small_clusters_are_gathered():
    history = many_clusters(100)
    whole = flow(history)
    few = gathered(whole, 30)
    for t in range(len(history)):
        kept = few.sizes[t].keys() - {OTHERS}
        assert len(kept) <= 30 and sum(few.sizes[t].values()) == 900
        assert all(few.sizes[t][name] == whole.sizes[t][name] for name in kept)
        assert sum(few.links[t].values()) == sum(whole.links[t].values())
        inside = {link: count for link, count in whole.links[t].items() if set(link) <= kept}
        assert inside == {link: count for link, count in few.links[t].items() if OTHERS not in link}
    peaks = {name: max(sizes.get(name, 0) for sizes in whole.sizes) for name in whole.order}
    kept = set(few.order) - {OTHERS}
    assert len(kept) == 30 and min(peaks[c] for c in kept) >= max(peaks[c] for c in set(peaks) - kept)


def test_clusters_that_follow_each_other_are_not_gathered():
    found = flow(History(tuple(record([t, 99], "ab", time=t) for t in range(20))))
    assert gathered(found, 2) is found


def test_names_of_clusters_do_not_overlap():
    for k in (5, 30, 100):
        axes = drawn(ax.plots.plot_flow(many_clusters(k)))
        boxes = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.y0)
        assert len(boxes) >= min(k, 20)
        for a, b in itertools.pairwise(boxes):
            assert b.y0 + b.y1 - a.y0 - a.y1 > 0.8 * (a.height + b.height) / 2


def test_pictures_of_no_steps():
    for draw in (ax.plots.plot_alpha, ax.plots.plot_flow, ax.plots.plot_memberships):
        drawn(draw(History()))


def test_pictures_go_where_they_are_told(history):
    from matplotlib.figure import Figure

    for draw in (ax.plots.plot_alpha, ax.plots.plot_flow, ax.plots.plot_memberships):
        axes = Figure().subplots()
        assert draw(history, ax=axes) is axes
