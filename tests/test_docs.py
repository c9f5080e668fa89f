"""The documentation covers all public names, and its examples of extensions satisfy the contracts."""

import importlib
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import reference

import affect_xp as ax
from affect_xp.datasets import boids, colliding_gaussians
from affect_xp.partition import Partition, align

ROOT = Path(__file__).parents[1]
EXTENDING = ROOT / "examples" / "extending"
PACKAGES = ("datasets", "clustering.metrics", "plots", "io", "exceptions", "experiments", "report")

pytestmark = pytest.mark.skipif(not EXTENDING.exists(), reason="not a clone of the repository")


def documented():
    """Return the ids of the objects on an API page, including the contents of modules."""
    shown = set()
    for page in (ROOT / "docs" / "api").glob("*.md"):
        for kind, target in re.findall(r"^\.\. auto(\w+):: (\S+)$", page.read_text("utf-8"), re.MULTILINE):
            found = resolved(target)
            shown.add(id(found))
            if kind == "module":
                shown |= {id(getattr(found, name)) for name in getattr(found, "__all__", vars(found))}
    return shown


def resolved(target):
    """Return the object with a dotted name; fail if there is none."""
    package, *parts = target.split(".")
    found = importlib.import_module(package)
    for name in parts:
        if not hasattr(found, name):
            importlib.import_module(f"{found.__name__}.{name}")
        found = getattr(found, name)
    return found


def test_every_public_name_is_in_the_reference():
    shown = documented()
    public = {f"affect_xp.{name}": getattr(ax, name) for name in ax.__all__}
    for package in PACKAGES:
        module = importlib.import_module(f"affect_xp.{package}")
        public |= {f"{package}.{name}": getattr(module, name) for name in getattr(module, "__all__", ())}
    assert not sorted(name for name, found in public.items() if id(found) not in shown)


def pages_of(docs):
    """Return the names of all pages except those generated with the site."""
    pages = {page.relative_to(docs).with_suffix("").as_posix() for page in docs.rglob("*.md")}
    return {page for page in pages if not page.startswith(("_", "gallery/"))} - {"paper/README"}


def test_every_page_is_in_a_table_of_contents():
    docs = ROOT / "docs"
    pages = pages_of(docs) - {"index"}
    listed = set()
    for page in docs.rglob("*.md"):
        folder = page.parent.relative_to(docs)
        for block in re.findall(r"(?ms)^```\{toctree\}\n(.*?)^```", page.read_text("utf-8")):
            lines = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed |= {(folder / line).as_posix() for line in lines}
    assert pages <= listed, sorted(pages - listed)


def test_every_page_is_on_the_map():
    docs = ROOT / "docs"
    scripts = {f"gallery/{script.stem}" for script in (ROOT / "examples").glob("plot_*.py")}
    listed = re.findall(r"(?m)^- \[.+\]\((.+)\.html\): \S.*$", (docs / "llms.txt").read_text("utf-8"))
    assert sorted(listed) == sorted(pages_of(docs) | scripts | {"gallery/index"})


# Layout: short pages, lines of code that fit, figures drawn by the scripts.

MAX_CODE = 90  # characters of a line of code in the column of the site


def test_lines_of_code_fit():
    docs = ROOT / "docs"
    written = [docs / f"{page}.md" for page in pages_of(docs) if not page.startswith("paper/")]
    code = re.compile(r"(?m)^(?:>>> |\.\.\. |    affect-xp ).*$")
    long = [
        f"{page.name}: {line}"
        for page in [*written, ROOT / "README.md"]
        for line in code.findall(page.read_text("utf-8"))
        if len(line) > MAX_CODE
    ]
    assert not long


def test_first_pages_are_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 110
    for recipe in (ROOT / "docs" / "recipes").glob("*.md"):
        assert len(recipe.read_text("utf-8").splitlines()) <= 60, recipe.name


def test_the_readme_has_the_commands_to_try():
    page = (ROOT / "README.md").read_text("utf-8")
    for command in ("nox -s demo", "nox -s tests"):
        assert f"pip install nox && {command}" in page
    assert "uvx --from '.[cli]' affect-xp demo" in page


def test_pages_draw_their_pictures(monkeypatch, tmp_path):
    """The figures of recipes and tutorials are drawn by their own code; otherwise run docs/pictures.py."""
    pytest.importorskip("matplotlib")
    for needed in ("pandas", "networkx", "duckdb"):
        pytest.importorskip(needed)
    monkeypatch.delenv("AFFECT_XP_DATA", raising=False)
    drawing = runpy.run_path(str(ROOT / "docs" / "pictures.py"))
    pages = drawing["pages"]()
    shown = {page.relative_to(ROOT / "docs").as_posix() for page in pages}
    recipes = {f"recipes/{page.name}" for page in (ROOT / "docs" / "recipes").glob("*.md")} - {
        "recipes/index.md"
    }
    assert shown >= recipes | {f"tutorials/{page}.md" for page in ("stocks", "contacts", "gpu")} | {
        "start.md"
    }
    assert all(picture.exists() for picture in pages.values())
    page = ROOT / "docs" / "recipes" / "animals.md"
    drawing["draw"](page, tmp_path / "animals.svg")
    assert "<svg" in (tmp_path / "animals.svg").read_text("utf-8")


def calls_of(page):
    """Return the calls in the first table of a page: the last cell of each row."""
    table = page.split("\n\n## ")[1]
    return [row.split("|")[-2].strip(" `") for row in table.splitlines() if row.startswith("|")][2:]


def test_every_call_of_the_decision_page_runs():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("duckdb")
    rng = np.random.default_rng(0)
    days = pandas.bdate_range("2024-01-01", periods=61)
    prices = pandas.DataFrame(np.exp(rng.normal(size=(61, 20)).cumsum(axis=0) / 100), index=days)
    prices.columns = [f"S{i}" for i in range(20)]
    bikes = ax.datasets.bike_stations(3)
    contacts = [step.W for step in ax.datasets.contacts(3, daily_contacts=400, rng=0)]
    products = [(X - X.mean(axis=0)) @ (X - X.mean(axis=0)).T for X in bikes.X]
    distances = [ax.to_dissimilarity(W) for W in products]
    calls = calls_of((ROOT / "docs" / "guide" / "which.md").read_text("utf-8"))
    assert len(calls) == 10
    for call in calls:
        steps = bikes.X if "proximity=" in call else products
        steps = contacts if "log1p" in call else steps
        steps = [W > 0 for W in contacts] if "modularity" in call else steps
        steps = distances if "Linkage(4))" in call else steps
        model = eval(call, {"ax": ax, "steps": steps, "prices": prices})
        assert len(model.history_) == 3 and model.history_[-1].k >= 2, call


# The representation of the page on extensions, tested by the contract suite.

N = 11


def symmetric(seed, n=N):
    w = np.random.default_rng(seed).normal(size=(n, n))
    return w + w.T


@pytest.fixture(scope="module")
def packed():
    return runpy.run_path(str(EXTENDING / "packed.py"))["Packed"]


def matrix(proximity):
    return proximity.matmul(np.eye(proximity.n))


def test_packed_is_the_matrix_it_stands_for(packed):
    w = symmetric(0)
    proximity = packed.of(w)
    assert proximity.n == N and proximity.entries.shape == (N * (N + 1) // 2,)
    np.testing.assert_array_equal(proximity.diagonal(), np.diag(w))
    v = np.random.default_rng(1).normal(size=(N, 4))
    np.testing.assert_allclose(proximity.matmul(v), w @ v, rtol=1e-12, atol=1e-13)
    rows, index = np.array([2, 9, 5]), np.array([3, 0, 7, 8])
    np.testing.assert_allclose(proximity.matmul(v[:3], rows), w[:, rows] @ v[:3], rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(matrix(proximity.take(index)), w[np.ix_(index, index)])
    copy = proximity.copy()
    proximity.entries[0] = 99.0
    np.testing.assert_array_equal(matrix(copy), w)


@pytest.mark.parametrize("labels", [[0, 0, 0, 0, 1, 1, 2, 3, 3, 3, 3], [0, -1, 1, 0, 1, -1, 0, 1, 0, -1, 1]])
def test_packed_sums_by_block(packed, labels):
    w, labels = symmetric(0), np.array(labels)
    k = int(labels.max()) + 1
    means, squares = packed.of(w).block_moments(Partition(labels, k))
    for c, d, pairs in reference.blocks(labels):
        if d is not None and pairs:
            values = np.array([w[i, j] for i, j in pairs])
            np.testing.assert_allclose(means[c, d], values.mean(), rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(
                squares[c, d], ((values - values.mean()) ** 2).sum(), rtol=1e-11, atol=1e-12
            )
    given, inside = symmetric(3, k), labels >= 0
    off_diagonal = np.outer(inside, inside) & ~np.eye(N, dtype=bool)
    expected = ((w - given[np.ix_(labels, labels)]) ** 2)[off_diagonal].sum()
    np.testing.assert_allclose(
        packed.of(w).square_distance(Partition(labels, k), given), expected, rtol=1e-12
    )


def test_packed_blends(packed):
    w, past = symmetric(0), symmetric(1, 9)
    ids, past_ids = tuple("abcdefghijk"), tuple("kxbadycif")
    blended = packed.of(w).blend(packed.of(past), 0.25, align(ids, past_ids, np.zeros(1)))
    np.testing.assert_allclose(matrix(blended), reference.blend(w, past, 0.25, ids, past_ids), rtol=1e-14)
    same = packed.of(w).blend(packed.of(symmetric(2)), 0.25, align(ids, ids, np.zeros(1)))
    np.testing.assert_allclose(matrix(same), 0.25 * symmetric(2) + 0.75 * w, rtol=1e-14)


def test_packed_gives_what_dense_gives(packed):
    steps = [step.W for step in colliding_gaussians(rng=0)]
    ids = [range(40 - t % 3) for t in range(len(steps))]
    steps = [W[: len(names), : len(names)] for W, names in zip(steps, ids, strict=True)]
    dense = ax.Affect(ax.KMeans(2), random_state=0).fit(steps, ids=ids)
    own = ax.Affect(ax.KMeans(2), random_state=0).fit(map(packed.of, steps), ids=ids)
    np.testing.assert_allclose(own.history_.alpha, dense.history_.alpha, rtol=1e-10)
    for a, b in zip(own.history_, dense.history_, strict=True):
        np.testing.assert_array_equal(a.labels, b.labels)
    assert type(own.smoothed_) is packed


def test_medoids_follow_flocks():
    medoids = runpy.run_path(str(EXTENDING / "medoids.py"))["KMedoids"]
    steps = list(boids(10, rng=0))
    model = ax.Affect(medoids(4), proximity="euclidean", scale="none").fit(step.X for step in steps)
    scores = [ax.rand_index(r.labels, s.labels) for r, s in zip(model.history_, steps, strict=True)]
    assert min(scores) > 0.9
    with pytest.raises(ax.exceptions.InputError, match="n_clusters must be at least 1, got 0"):
        ax.Affect(medoids(0)).partial_fit(np.eye(3))
    with pytest.raises(ax.exceptions.InputError, match="takes a dissimilarity"):
        ax.Affect(medoids(4), proximity="dot").partial_fit(steps[0].X)


def test_the_picture_of_the_families_follows_the_import_contract():
    """If it is not, run python docs/families.py."""
    drawing = runpy.run_path(str(ROOT / "docs" / "families.py"))
    assert drawing["PICTURE"].read_text("utf-8") == drawing["drawn"]()


def test_the_architecture_names_files_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    names = set(re.findall(r"`((?:[a-z_]+/)+(?:\w+\.\w+)?)`", page))
    assert len(names) > 25
    for name in names:
        assert (ROOT / name).exists() or (ROOT / "affect_xp" / name).exists(), name
