"""Loaders of real data: tiny files of each format, and files truncated, damaged or of another kind."""

import datetime
import io

import numpy as np
import pytest
from scipy import sparse
from scipy.io import savemat

from affect_xp.datasets import load_nasdaq, load_reality
from affect_xp.exceptions import InputError

WEEKS = [
    (["a", "b", "c"], [[0, 5, 1], [5, 0, 0], [1, 0, 0]]),
    (["c", "a"], [[0, 7], [7, 0]]),
    (["b"], [[0]]),
]
AFFILIATION = {"a": 1, "b": 1, "c": 2, "never there": 2}


def reality_arrays():
    """Return the arrays of the .npz file of WEEKS."""
    ids, rows = list(AFFILIATION), [np.array(w) for _, w in WEEKS]
    edges = [np.nonzero(w) for w in rows]
    return {
        "ids": np.array(ids),
        "affiliation": np.array([AFFILIATION[name] for name in ids]),
        "member_ptr": np.cumsum([0, *(len(names) for names, _ in WEEKS)]),
        "member": np.array([ids.index(name) for names, _ in WEEKS for name in names]),
        "edge_ptr": np.cumsum([0, *(len(e[0]) for e in edges)]),
        "row": np.concatenate([e[0] for e in edges]),
        "col": np.concatenate([e[1] for e in edges]),
        "weight": np.concatenate([w[e] for w, e in zip(rows, edges, strict=True)]).astype(float),
    }


def cells(values):
    """Return a MATLAB cell array, (n, 1)."""
    array = np.empty((len(values), 1), dtype=object)
    for i, value in enumerate(values):
        array[i, 0] = value
    return array


def reality_cells(matrix=np.array):
    """Return the variables of the toolbox's .mat file of WEEKS."""
    return {
        "ids": cells([cells(names) for names, _ in WEEKS]),
        "W": cells([matrix(w, dtype=float) for _, w in WEEKS]),
        "labels": cells([np.array([[AFFILIATION[name]] for name in names]) for names, _ in WEEKS]),
        "ids_all": cells(list(AFFILIATION)),
    }


def assert_weeks(steps):
    assert [step.ids for step in steps] == [names for names, _ in WEEKS]
    assert [step.start for step in steps] == [datetime.date(2004, 8, day) for day in (8, 15, 22)]
    for step, (names, w) in zip(steps, WEEKS, strict=True):
        np.testing.assert_array_equal(step.W, w)
        assert step.W.dtype == np.float64 and step.labels.dtype == np.int64
        assert step.labels.tolist() == [AFFILIATION[name] for name in names]


class TestReality:
    def test_npz(self, tmp_path):
        np.savez(tmp_path / "r.npz", **reality_arrays())
        assert_weeks(load_reality(tmp_path / "r.npz"))

    @pytest.mark.parametrize("matrix", [np.array, sparse.csc_matrix])
    @pytest.mark.parametrize("compressed", [False, True])
    def test_mat(self, tmp_path, matrix, compressed):
        savemat(tmp_path / "r.mat", reality_cells(matrix), do_compression=compressed)
        assert_weeks(load_reality(str(tmp_path / "r.mat")))

    def test_mat_with_ids_as_rows_of_characters(self, tmp_path):
        content = reality_cells() | {"ids": cells([np.array(names) for names, _ in WEEKS])}
        savemat(tmp_path / "r.mat", content)
        assert_weeks(load_reality(tmp_path / "r.mat"))

    @pytest.mark.parametrize(
        "change, message",
        [
            ({"weight": None}, "lacks weight; it contains ids, affiliation"),
            ({"member": np.array([0, 1, 4, 2, 0, 1])}, "indices are out of range"),
            ({"member": np.array([0, 1, -1, 2, 0, 1])}, "indices are out of range"),
            ({"member": np.array([0, 1, 1, 2, 0, 1])}, "week 1: a participant appears twice"),
            ({"member_ptr": np.array([0, 3, 2, 6])}, "indices are out of range"),
            ({"member_ptr": np.array([0, 3, 5, 7])}, "indices are out of range"),
            ({"member_ptr": np.array([], dtype=int)}, "indices are out of range"),
            ({"member_ptr": np.array([0.0, 3.0, 5.0, 6.0])}, "member_ptr has shape .* float64"),
            ({"edge_ptr": np.array([0, 6])}, "arrays are inconsistent"),
            ({"affiliation": np.array([1, 1, 2])}, "arrays are inconsistent"),
            ({"row": np.array([0, 0, 1, 3, 0, 1])}, "week 1: row or col points beyond its 3"),
            ({"col": np.array([1, 2, 0, 0, -1, 0])}, "week 2: row or col points beyond its 2"),
            ({"weight": np.array([5, 1, 5, np.nan, 7, 7])}, "week 1: W must be finite"),
            ({"weight": np.array([5, -1, 5, -1, 7.0, 7.0])}, "week 1: W must be finite"),
            ({"weight": np.array([5, 1, 4, 1, 7.0, 7.0])}, "week 1: W must be finite, symmetric"),
            ({"ids": np.array([1, 2, 3, 4])}, "ids has shape .* int64"),
            ({"ids": np.array(["a", None, "b", "c"], dtype=object)}, "fetch it again"),  # would need pickle
        ],
    )
    def test_damaged_npz(self, tmp_path, change, message):
        arrays = {name: array for name, array in (reality_arrays() | change).items() if array is not None}
        np.savez(tmp_path / "r.npz", **arrays)
        with pytest.raises(InputError, match=message) as caught:
            load_reality(tmp_path / "r.npz")
        assert str(tmp_path / "r.npz") in str(caught.value)

    def test_members_repeated_beyond_memory_are_refused_before_a_matrix_is_made(self, tmp_path):
        many = 10**6
        arrays = reality_arrays() | {"member": np.zeros(many, dtype=int), "member_ptr": np.array([0, many])}
        arrays |= {"edge_ptr": np.array([0, 6])}
        np.savez(tmp_path / "r.npz", **arrays)
        with pytest.raises(InputError, match="week 1"):
            load_reality(tmp_path / "r.npz")

    @pytest.mark.parametrize(
        "change, message",
        [
            ({"labels": None}, "cell arrays ids, W, labels .* it contains ids, W, ids_all"),
            ({"W": np.eye(3)}, "cell arrays"),
            ({"W": cells([np.eye(3)])}, "3, 1 and 3 cells"),
            ({"W": cells([np.eye(3), np.eye(3), np.eye(1)])}, r"week 2: W of shape \(3, 3\) for 2 ids"),
            ({"W": cells([np.eye(3), np.full((2, 2), np.inf), np.eye(1)])}, "week 2: W must be finite"),
            (
                {"W": cells([sparse.csc_matrix((10**6, 10**6)), np.eye(2), np.eye(1)])},
                r"week 1: W of shape \(1000000",
            ),
            ({"W": cells([np.eye(3), np.array([["x", "y"], ["y", "x"]]), np.eye(1)])}, "week 2"),
            ({"labels": cells([np.ones(3), np.ones(3), np.ones(1)])}, "week 2: 2 ids, labels of shape"),
            ({"labels": cells([np.ones(3), np.array(["x", "y"]), np.ones(1)])}, "week 2"),
            ({"ids": cells([cells(["a", "a", "c"]), cells(["c", "a"]), cells(["b"])])}, "appears twice"),
            ({name: cells([]) for name in ("ids", "W", "labels")}, "contains no weeks"),
        ],
    )
    def test_damaged_mat(self, tmp_path, change, message):
        content = {name: value for name, value in (reality_cells() | change).items() if value is not None}
        savemat(tmp_path / "r.mat", content)
        with pytest.raises(InputError, match=message) as caught:
            load_reality(tmp_path / "r.mat")
        assert str(tmp_path / "r.mat") in str(caught.value)

    def test_matlab_7_3_is_told_apart(self, tmp_path):
        header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF\r\n\x1a\n"
        (tmp_path / "r.mat").write_bytes(header)
        with pytest.raises(InputError, match=r"version 7\.3.*-v7'"):
            load_reality(tmp_path / "r.mat")

    @pytest.mark.parametrize(
        "name, message", [("r.txt", "end in .npz or .mat"), ("none.npz", "does not exist")]
    )
    def test_wrong_path(self, tmp_path, name, message):
        (tmp_path / "r.txt").write_text("x")
        with pytest.raises(InputError, match=message):
            load_reality(tmp_path / name)

    @pytest.mark.parametrize("kind", ["npz", "mat", "mat compressed"])
    def test_truncate(self, tmp_path, kind):
        path = tmp_path / f"r.{kind[:3]}"
        if kind == "npz":
            np.savez_compressed(path, **reality_arrays())
        else:
            savemat(path, reality_cells(), do_compression="compressed" in kind)
        whole = path.read_bytes()
        cuts = [len(whole) * i // 60 for i in range(60)]
        loaded = [steps for cut in cuts if (steps := loaded_or_refused(path, whole[:cut])) is not None]
        assert len(loaded) <= 10
        for steps in loaded:  # truncated within the last variable of the .mat file, which is not read
            assert_weeks(steps)

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_npz_with_flipped_bits(self, tmp_path, save):
        """A damaged file is either read, or raises an InputError with its path."""
        path, rng = tmp_path / "r.npz", np.random.default_rng(0)
        save(path, **reality_arrays())
        whole = path.read_bytes()
        for _ in range(150):
            spoiled = bytearray(whole)
            spoiled[rng.integers(len(whole))] ^= 1 << rng.integers(8)
            loaded_or_refused(path, bytes(spoiled))


def loaded_or_refused(path, content):
    """Return the weeks of a file with this content, or None if it is rejected; other errors propagate."""
    path.write_bytes(content)
    try:
        return load_reality(path)
    except InputError as error:
        assert str(path) in str(error)
        return None


TICKERS = ["AAA", "BBB", "CCC", "DDD"]
SECTORS = ["Energy", "Technology", "Energy", "Finance"]


def prices():
    """Return 8 days of 4 stocks: the second was not traded on one day, the third is constant at first."""
    rng = np.random.default_rng(0)
    opens = np.round(10 + rng.normal(size=(8, 4)), 3)
    opens[2, 1] = np.nan
    opens[:4, 2] = 9.9
    return opens


def days(count=8):
    return [str(datetime.date(2008, 1, 2) + datetime.timedelta(days=i)) for i in range(count)]


def write_npz(folder, **change):
    arrays = {"opens": prices(), "dates": np.array(days()), "tickers": np.array(TICKERS)}
    arrays |= {"sector": np.array(SECTORS)} | change
    np.savez(folder / "n.npz", **{name: array for name, array in arrays.items() if array is not None})
    return folder / "n.npz"


def slow_windows(opens, window):
    """Return the standardised changes of the complete stocks, stock by stock."""
    complete = [j for j in range(opens.shape[1]) if not any(np.isnan(p) for p in opens[:, j])]
    steps = []
    for start in range(0, len(opens) - window, window):
        rows = []
        for j in complete:
            d = [opens[i + 1, j] - opens[i, j] for i in range(start, start + window)]
            mean = sum(d) / window
            sd = (sum((v - mean) ** 2 for v in d) / window) ** 0.5
            rows.append([0.0] * window if max(d) == min(d) else [(v - mean) / sd for v in d])
        steps.append(rows)
    return steps


class TestNasdaq:
    def test_windows(self, tmp_path):
        steps = load_nasdaq(write_npz(tmp_path), window=3)
        assert len(steps) == 2  # the eighth day fills no window
        for step, slow in zip(steps, slow_windows(prices(), 3), strict=True):
            np.testing.assert_allclose(step.X, slow, atol=1e-12)
            assert step.ids == ["AAA", "CCC", "DDD"]
            assert step.sectors == ["Energy", "Finance"] and step.labels.tolist() == [0, 0, 1]
            np.testing.assert_array_equal(step.W, step.X @ step.X.T)
        assert not steps[0].X[1].any() and steps[1].X[1].any()
        assert [(step.start.day, step.end.day) for step in steps] == [(2, 5), (5, 8)]

    def test_a_constant_change_gives_zeros(self, tmp_path):
        """The changes of a price that rises by 1 a day have no standard deviation."""
        opens = np.stack([np.arange(1.0, 9.0), prices()[:, 0]], axis=1)
        path = write_npz(tmp_path, opens=opens, tickers=np.array(["A", "B"]), sector=np.array(["x", "y"]))
        assert not load_nasdaq(path, window=7)[0].X[0].any()

    @pytest.mark.parametrize(
        "change, message",
        [
            ({"sector": None}, "lacks sector; it contains opens, dates, tickers"),
            ({"opens": np.zeros(8)}, "one date per row"),
            ({"opens": np.zeros((8, 3))}, "one date per row"),
            ({"opens": np.zeros((8, 4), dtype=complex)}, "dtype complex128"),
            ({"opens": np.full((8, 4), np.nan)}, "no stock with a price on every day"),
            ({"opens": np.full((8, 4), np.inf)}, "a price is infinite"),
            ({"dates": np.array(["2008-13-01"] * 8)}, "write dates like"),
            ({"dates": np.array(days()[::-1])}, "dates are not increasing"),
            ({"dates": np.arange(8)}, "one date per row"),
            ({"tickers": np.array(["A", "B", "A", "C"])}, "ticker A appears twice"),
            ({"opens": np.zeros((3, 4)), "dates": np.array(days(3))}, "3 days, .* needs 4"),
            ({"tickers": np.array(["A", None, "B", "C"], dtype=object)}, "fetch it again"),
        ],
    )
    def test_damaged_npz(self, tmp_path, change, message):
        path = write_npz(tmp_path, **change)
        with pytest.raises(InputError, match=message) as caught:
            load_nasdaq(path, window=3)
        assert str(path) in str(caught.value)

    def test_wrong_arguments(self, tmp_path):
        npz = write_npz(tmp_path)
        with pytest.raises(InputError, match="does not exist; check its name"):
            load_nasdaq(tmp_path / "none.npz")
        with pytest.raises(InputError, match="is a folder; name the file in it"):
            load_nasdaq(tmp_path)
        with pytest.raises(InputError, match="window must be at least 2"):
            load_nasdaq(npz, window=1)

    def test_other_files_named_npz(self, tmp_path):
        path = tmp_path / "n.npz"
        buffer = io.BytesIO()
        np.save(buffer, np.zeros(3))
        for content in (b"", b"text", buffer.getvalue(), write_npz(tmp_path).read_bytes()[:-30]):
            path.write_bytes(content)
            with pytest.raises(InputError, match=r"n\.npz"):
                load_nasdaq(path)
