"""Tables, files and graphs as steps."""

import dataclasses
import datetime
import gzip
import inspect
import itertools
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse

import affect_xp as ax
from affect_xp.exceptions import InputError, InputTypeError, InputWarning
from affect_xp.io import ReadOptions, Snapshot, read_steps
from affect_xp.io.engine import Engine
from affect_xp.io.kinds import _both_ways
from affect_xp.io.times import parse_freq


def day(text):
    return datetime.datetime.fromisoformat(text)


def dense(values):
    return values.toarray() if scipy.sparse.issparse(values) else np.asarray(values)


def simplified(steps):
    return [(step.time, step.ids, dense(step.values).tolist()) for step in steps]


FEATURES = "time,id,x,y\n2024-01-01,a,1,2\n2024-01-02,b,3,4\n2024-01-09,b,5,6\n2024-01-09,c,7,8\n"
WEEKS = [
    (day("2024-01-01"), ("a", "b"), [[1.0, 2.0], [3.0, 4.0]]),
    (day("2024-01-08"), ("b", "c"), [[5.0, 6.0], [7.0, 8.0]]),
]


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def columns_of(text):
    header, *rows = [line.split(",") for line in text.splitlines()]
    return {name: list(values) for name, values in zip(header, zip(*rows, strict=True), strict=True)}


def frame_of(library, text):
    module = pytest.importorskip(library)
    return module.table(columns_of(text)) if library == "pyarrow" else module.DataFrame(columns_of(text))


# Tables


def test_features_in_a_file(tmp_path):
    path = write(tmp_path / "f.csv", FEATURES)
    steps = read_steps(path, freq="7D")
    assert steps.kind == "features" and steps.names == ("x", "y")
    assert simplified(steps) == WEEKS == simplified(steps)  # can be iterated repeatedly
    assert simplified(read_steps(str(path), freq="1W")) == WEEKS


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_features_in_a_frame(library):
    assert simplified(read_steps(frame_of(library, FEATURES), freq="7D")) == WEEKS


def test_a_lazy_frame():
    assert simplified(read_steps(frame_of("polars", FEATURES).lazy(), freq="7D")) == WEEKS


def test_features_in_a_dict_and_a_parquet_file(tmp_path):
    assert simplified(read_steps(columns_of(FEATURES), freq="7D")) == WEEKS
    pytest.importorskip("pyarrow.parquet")
    from pyarrow import parquet

    parquet.write_table(frame_of("pyarrow", FEATURES), tmp_path / "f.parquet", row_group_size=1)
    assert simplified(read_steps(tmp_path / "f.parquet", freq="7D")) == WEEKS
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises(InputError, match=r"bad\.parquet cannot be read"):
        read_steps(tmp_path / "bad.parquet")


def test_pandas_types():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns_of(FEATURES))
    frame["time"] = pandas.to_datetime(frame["time"]).dt.tz_localize("UTC")
    frame["x"] = frame["x"].astype("Float64")
    frame["id"] = frame["id"].astype("category")
    assert simplified(read_steps(frame, freq=pandas.Timedelta("7D"))) == WEEKS
    assert simplified(read_steps(frame.set_index(["time", "id"]), freq="7D")) == WEEKS
    frame.loc[1, "x"] = pandas.NA
    with pytest.raises(InputError, match="row 2 of the DataFrame has no value in column 'x'"):
        list(read_steps(frame, freq="7D"))


def test_dates_of_another_zone_are_those_of_utc():
    pandas = pytest.importorskip("pandas")
    moments = pandas.to_datetime(["2024-01-01 23:00", "2024-01-02 01:00"]).tz_localize("America/New_York")
    steps = read_steps(pandas.DataFrame({"time": moments, "id": ["a", "b"], "x": [1, 2]}), freq="1D")
    assert [step.time for step in steps] == [day("2024-01-02")]


@pytest.mark.parametrize("suffix, delimiter", [(".csv", ";"), (".tsv", "\t"), (".txt", " "), (".txt", "   ")])
def test_delimiters(tmp_path, suffix, delimiter):
    path = write(tmp_path / f"f{suffix}", "# a comment\n" + FEATURES.replace(",", delimiter))
    assert simplified(read_steps(path, freq="7D")) == WEEKS


def test_packed_files_with_a_mark_of_order(tmp_path):
    path = tmp_path / "f.csv.gz"
    path.write_bytes(gzip.compress(("\ufeff" + FEATURES).encode()))
    assert simplified(read_steps(path, freq="7D")) == WEEKS


def test_a_file_without_names(tmp_path):
    path = write(tmp_path / "e.txt", "1 2 100\n2 3 150\n1 2 260\n")
    with pytest.raises(InputError, match=r"line 1 of .* contains numbers, not names.*name its 3 columns"):
        read_steps(path)
    steps = read_steps(path, names=["source", "target", "time"], freq=100)
    assert [(step.time, step.ids) for step in steps] == [(100, ("1", "2", "3")), (200, ("1", "2"))]
    with pytest.raises(InputError, match="names has 2 entries"):
        read_steps(path, names=["source", "target"])


def test_columns_by_name():
    table = {"when": [1, 1], "who": ["a", "b"], "x": [1, 2], "note": ["p", "q"]}
    (step,) = read_steps(table, time="when", id="who", features=["x"])
    assert step.ids == ("a", "b") and step.values.tolist() == [[1.0], [2.0]]
    with pytest.raises(InputError, match=r"cannot find the time column of the dict: it has 'when'"):
        read_steps(table)
    with pytest.raises(InputError, match="id='nobody' is not a column of the dict: it has 'when', 'who'"):
        read_steps(table, time="when", id="nobody")
    with pytest.raises(
        InputError,
        match=r"row 1 of the dict: 'p' in column 'note' is not a number; name the columns .*features=",
    ):
        list(read_steps(table, time="when", id="who"))


def test_stocks_whose_names_are_letters_are_series():
    steps = read_steps({"Date": [1, 2], "T": [1, 2], "U": [1, 2], "V": [3, 4]}, freq="2 rows")
    assert simplified(steps) == [(1, ("T", "U", "V"), [[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]])]


def test_text_files_need_nothing_but_numpy_and_scipy(tmp_path):
    path = write(tmp_path / "f.csv", FEATURES)
    others = ["pandas", "polars", "pyarrow", "networkx", "narwhals"]  # DuckDB 1.4 imports some if it can
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({others})); import affect_xp.io as io; "
        f"print(len(list(io.read_steps({str(path)!r}, freq='7D'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"


# Edges


def slow_adjacency(rows, known):
    """Return ids in the order of `known`, and the sums of the weights between them; self-loops count once."""
    ids = [id for id in known if any(id in row[:2] for row in rows)]
    W = np.zeros((len(ids), len(ids)))
    for a, b, w in rows:
        i, j = ids.index(a), ids.index(b)
        W[i, j] += w
        if i != j:
            W[j, i] += w
    return tuple(ids), W


@pytest.mark.parametrize("sparse", [True, False])
def test_edges(sparse):
    rng = np.random.default_rng(0)
    rows = [(f"n{rng.integers(6)}", f"n{rng.integers(6)}", float(rng.integers(1, 9))) for _ in range(40)]
    times = [t // 20 for t in range(40)]
    table = dict(zip(("source", "target", "weight"), map(list, zip(*rows, strict=True)), strict=True))
    with pytest.raises(InputError, match=r"go both ways.*directed='sum'"):
        read_steps({"t": times, **table})
    steps = read_steps({"t": times, **table}, sparse=sparse, directed="sum")
    assert steps.kind == "edges"
    known = list(dict.fromkeys(end for row in rows for end in row[:2]))
    for step, of_step in zip(steps, (rows[:20], rows[20:]), strict=True):
        ids, W = slow_adjacency(of_step, known)
        assert step.ids == ids and scipy.sparse.issparse(step.values) == sparse
        np.testing.assert_array_equal(dense(step.values), W)


def test_edges_without_weights_that_lead_both_ways():
    table = {"time": [0, 0, 0, 0], "from": [1, 2, 1, 2], "to": [2, 1, 1, 3], "w": [3, 1, 5, 4]}
    expected = {"sum": (4.0, 4.0), "mean": (2.0, 2.0), "max": (3.0, 4.0)}
    for directed, (both, one) in expected.items():
        (step,) = read_steps(table, directed=directed)
        assert step.ids == (1, 2, 3)
        assert dense(step.values).tolist() == [[5.0, both, 0.0], [both, 0.0, one], [0.0, one, 0.0]]


def test_edges_are_summed_in_the_order_of_rows():
    rng = np.random.default_rng(0)
    rows = 500_000  # several threads of DuckDB number the ends, in any order
    i, j = rng.integers(0, 4, (2, rows))
    weights = 10.0 ** rng.integers(-8, 8, rows)
    table = {"time": rng.integers(0, 2, rows), "source": np.minimum(i, j), "target": np.maximum(i, j)}
    table["weight"] = weights
    in_order = read_steps(table, memory_limit="500MB")  # which needs one thread
    steps = read_steps(table)
    assert steps.notes == in_order.notes
    for step, other in zip(steps, in_order, strict=True):
        assert step.ids == other.ids
        np.testing.assert_array_equal(dense(step.values), dense(other.values))


def test_pairs_with_edges_both_ways():
    rng = np.random.default_rng(0)
    for n, rows in ((1, 0), (1, 3), (5, 4), (100, 1000), (2**31 - 1, 50)):
        i, j = rng.integers(0, n, (2, rows), dtype=np.int32)
        i, j = np.append(i, j[: rows // 3]), np.append(j, i[: rows // 3])
        edges = set(zip(i.tolist(), j.tolist(), strict=True))
        assert set(_both_ways(i, j)) == {(a, b) for a, b in edges if a < b and (b, a) in edges}


def test_edges_with_gaps():
    table = {
        "time": [0, 0, 0],
        "source": ["a", "", "b"],
        "target": ["b", "c", "c"],
        "weight": ["1", "2", "na"],
    }
    with pytest.raises(InputError, match="row 2 of the dict has no id in column 'source'"):
        read_steps({**table, "weight": [1, 2, 3]})
    (step,) = read_steps(table, missing="drop")
    assert step.ids == ("a", "b")
    with pytest.raises(InputError, match=r"row 1 of the dict has no value in column 'weight'"):
        list(read_steps({name: column[2:] for name, column in table.items()}))


def test_a_model_follows_edges():
    rng = np.random.default_rng(1)
    pairs = [
        (t, 5 * c + a, 5 * c + b) for t in range(3) for c in range(2) for a in range(5) for b in range(a)
    ]
    pairs += [(t, rng.integers(5), 5 + rng.integers(5)) for t in range(3)]
    table = dict(zip(("time", "source", "target"), map(list, zip(*sorted(pairs), strict=True)), strict=True))
    model = ax.Affect(ax.Spectral(2), random_state=0).fit(read_steps(table))
    assert model.n_steps_ == 3 and model.history_.times == [0, 1, 2]
    by_id = dict(zip(model.ids_, model.labels_.tolist(), strict=True))
    assert len({by_id[i] for i in range(5)}) == len({by_id[i] for i in range(5, 10)}) == 1


# Series


PRICES = {
    "date": [f"2024-01-0{d}" for d in range(1, 8)],
    "A": [1, 2, 4, 8, 8, 8, 9],
    "B": [5, 4, 3, 2, 1, 1, 1],
}


def test_series_by_rows_leave_out_the_last_part():
    with pytest.warns(
        InputWarning, match="rows at the end of the dict that do not fill a window of 3 rows were left out: 1"
    ):
        steps = read_steps(PRICES, freq="3 rows")
    assert simplified(steps) == [
        (day("2024-01-01"), ("A", "B"), [[1.0, 2.0, 4.0], [5.0, 4.0, 3.0]]),
        (day("2024-01-04"), ("A", "B"), [[8.0, 8.0, 8.0], [2.0, 1.0, 1.0]]),
    ]


def test_series_by_time_in_a_frame_with_an_index_of_dates():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"A": PRICES["A"], "B": PRICES["B"]}, index=pandas.to_datetime(PRICES["date"]))
    steps = list(read_steps(frame, freq="4D"))
    assert [step.values.shape for step in steps] == [(2, 4), (2, 3)]
    assert [step.time for step in steps] == [day("2024-01-01"), day("2024-01-05")]


@pytest.mark.parametrize(
    "changes, expected",
    [("absolute", [1.0, 2.0]), ("relative", [1.0, 1.0]), ("log", [np.log(2), np.log(2)])],
)
def test_changes_are_counted_across_windows_and_chunks(changes, expected, monkeypatch, tmp_path):
    monkeypatch.setattr("affect_xp.io.kinds.CHUNK_VALUES", 2)  # one window at a time
    lines = [",".join(map(str, row)) for row in zip(*PRICES.values(), strict=True)]
    path = write(tmp_path / "p.csv", "date,A,B\n" + "\n".join(lines) + "\n")
    steps = list(read_steps(path, freq="2 rows", changes=changes))
    assert [step.time for step in steps] == [day("2024-01-02"), day("2024-01-04"), day("2024-01-06")]
    np.testing.assert_allclose(steps[0].values[0], expected)
    in_memory = list(read_steps(PRICES, freq="2 rows", changes=changes))
    for step, other in zip(steps, in_memory, strict=True):
        np.testing.assert_array_equal(step.values, other.values)


def test_standardized_series_have_correlations_for_dot_products():
    rng = np.random.default_rng(0)
    table = {"t": list(range(8)), **{name: rng.normal(size=8).tolist() for name in "ABC"}, "D": [3.1] * 8}
    (step,) = read_steps(table, freq="8 rows", standardize=True)
    W = step.values @ step.values.T
    np.testing.assert_allclose(W[:3, :3], np.corrcoef([table[name] for name in "ABC"]))
    assert (W[3] == 0).all()


def test_series_with_gaps():
    table = {**PRICES, "B": [5, None, 3, 2, 1, 1, 1]}
    table = {name: column[:6] for name, column in table.items()}
    with pytest.raises(InputError, match=r"row 2 of the dict has no value in column 'B'.*drop"):
        list(read_steps(table, freq="3 rows"))
    assert [step.ids for step in read_steps(table, freq="3 rows", missing="drop")] == [("A",), ("A", "B")]
    with pytest.raises(InputError, match=r"id 'A' has the value inf at time 2"):
        list(read_steps({"t": [1, 2, 3], "A": [0, 1, 2]}, freq="2 rows", changes="relative"))


def test_series_need_windows():
    with pytest.raises(InputError, match="pass the length of a window"):
        read_steps(PRICES)


@pytest.mark.parametrize("option", [{"changes": "log"}, {"standardize": True}, {"freq": "2 rows"}])
def test_options_of_series_alone(option):
    with pytest.raises(InputError, match="is for series, but the dict contains features"):
        read_steps(columns_of(FEATURES), **option)


# Gaps, duplicates, order


def test_features_with_gaps():
    table = {"time": [0, 0, 1], "id": ["a", "b", "a"], "x": [1.0, 2.0, 3.0], "y": [1.0, np.nan, 3.0]}
    with pytest.raises(
        InputError, match=r"row 2 of the dict has no value in column 'y'; pass missing='drop'"
    ):
        list(read_steps(table))
    assert [step.ids for step in read_steps(table, missing="drop")] == [("a",), ("a",)]
    with pytest.raises(InputError, match="row 2 of the dict has no id in column 'id'"):
        list(read_steps({**table, "id": ["a", None, "b"], "y": [1, 2, 3]}))


def test_a_step_of_which_nothing_is_left_is_none():
    steps = read_steps({"time": [0, 1], "id": ["a", "a"], "x": [np.nan, 1.0]}, missing="drop")
    assert [step.time for step in steps] == [1]


def test_rows_without_time():
    table = {"time": ["2024-01-01", ""], "id": ["a", "b"], "x": [1, 2]}
    with pytest.raises(InputError, match="row 2 of the dict has no time in column 'time'"):
        list(read_steps(table))
    assert [step.ids for step in read_steps(table, missing="drop")] == [("a",)]


@pytest.mark.parametrize(
    "aggregate, expected", [("mean", [[2.0], [5.0]]), ("sum", [[4.0], [5.0]]), ("last", [[3.0], [5.0]])]
)
def test_several_rows_of_one_object(aggregate, expected):
    table = {"t": [2, 1, 1], "id": ["a", "a", "b"], "x": [3, 1, 5]}
    with pytest.raises(InputError, match="id 'a' has 2 rows at time 0; pass aggregate='mean' "):
        list(read_steps(table, freq=10))
    (step,) = read_steps(table, freq=10, aggregate=aggregate)
    assert step.ids == ("a", "b") and step.values.tolist() == expected


def test_unsorted(tmp_path, monkeypatch):
    monkeypatch.setattr("affect_xp.io.kinds.CHUNK_VALUES", 4)
    header, *rows = FEATURES.splitlines()
    path = write(tmp_path / "f.csv", "\n".join([header, *reversed(rows)]) + "\n")
    steps = read_steps(path, freq="7D")  # with ids in the order in which they first appear in the file
    assert simplified(steps) == [(time, ids[::-1], X[::-1]) for time, ids, X in WEEKS]
    assert "rows are not in the order of time and were sorted" in steps.notes


def test_rows_of_uneven_length(tmp_path):
    path = write(tmp_path / "f.csv", "time,id,x\n1,a,1\n1,b\n")
    with pytest.raises(
        InputError, match=r"line 3 of .*f\.csv .* '1,b'; it has 2 values, but there are 3 columns"
    ):
        list(read_steps(path))


def test_a_file_in_another_encoding(tmp_path):
    path = tmp_path / "f.csv"
    path.write_bytes("time,id,x\n1,Zoë,1\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"line 2 of .*f.csv cannot be read: '1,Zo.*encoding='latin-1'"):
        list(read_steps(path))
    assert [step.ids for step in read_steps(path, encoding="latin-1")] == [("Zoë",)]


def test_the_steps_of_a_file_are_made_one_at_a_time(tmp_path, monkeypatch):
    path = tmp_path / "long.csv"
    n_steps, n_objects = 60, 1000
    with path.open("w", encoding="utf-8") as file:
        file.write("time,id,x,y\n")
        for t, i in itertools.product(range(n_steps), range(n_objects)):
            file.write(f"{t},object number {i},{i * 0.25},{t * 0.5}\n")

    def peak():
        steps = read_steps(path)
        assert steps.n_steps == n_steps
        tracemalloc.start()
        for step in steps:
            assert step.values.shape == (n_objects, 2)
        _, largest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return largest

    whole = peak()
    monkeypatch.setattr("affect_xp.io.kinds.CHUNK_VALUES", 4000)
    assert peak() < 0.1 * whole


def test_a_file_four_times_the_memory_limit(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    path, rows, days = tmp_path / "contacts.csv", 2_500_000, 100
    day_of = f"strftime(DATE '2024-01-01' + (i * {days} // {rows})::INT, '%Y-%m-%d')"
    columns = (
        f"{day_of} AS time, 'person number ' || hash(i) % 500 AS source, "
        "'place ' || hash(-i) % 500 AS target, 2 AS weight"
    )
    duckdb.sql(f"COPY (SELECT {columns} FROM range({rows}) AS r(i)) TO '{path}' (HEADER)")
    with pytest.warns(InputWarning, match="bipartite"):
        steps = read_steps(path, freq="10D", memory_limit=path.stat().st_size // 4)
    assert [step.values.sum() for step in steps] == [4 * rows / 10] * 10
    with pytest.raises(InputError, match="it needs more memory; pass a larger memory_limit"):
        read_steps(path, freq="10D", memory_limit="2MB")
    with pytest.raises(InputError, match="memory_limit='much' cannot be read: pass a number of bytes, or a"):
        read_steps(path, freq="10D", memory_limit="much")


@pytest.mark.parametrize("kind", ["features", "tidy"])
def test_an_unsorted_file_four_times_the_memory_limit(kind, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    path, n, days = tmp_path / "table.csv", 5000, 300 if kind == "features" else 400
    names = ["a", "b", "c", "d", "e"] if kind == "features" else ["price"]
    values = ", ".join(f"(i + {k}) % 1000 / 8 AS {name}" for k, name in enumerate(names))
    day = f"strftime(DATE '2024-01-01' + (i // {n})::INT, '%Y-%m-%d')"
    rows = f"SELECT {day} AS date, 'object number ' || i % {n} AS id, {values} FROM range({n * days}) AS r(i)"
    duckdb.sql(f"COPY ({rows} ORDER BY hash(i)) TO '{path}' (HEADER)")
    options = {} if kind == "features" else {"value": "price", "freq": "1D"}
    steps = read_steps(path, memory_limit=path.stat().st_size // 4, **options)
    for t, step in enumerate(steps):
        i = t * n + np.array([int(id.removeprefix("object number ")) for id in step.ids])
        expected = np.column_stack([(i + k) % 1000 / 8 for k in range(len(names))])
        np.testing.assert_array_equal(step.values, expected)
    assert t + 1 == steps.n_steps == days and len(set(step.ids)) == n


# Times


@pytest.mark.parametrize(
    "freq, width, unit",
    [
        ("7D", 7 * 86400e6, "time"),
        ("W", 7 * 86400e6, "week"),
        (" 30 min", 1800e6, "time"),
        ("1.5h", 5400e6, "time"),
        (datetime.timedelta(seconds=1), 1e6, "time"),
        (np.timedelta64(2, "h"), 7200e6, "time"),
        ("3M", 3, "month"),
        ("Q", 3, "month"),
        ("1 year", 12, "month"),
        ("15 rows", 15, "rows"),
        ("2.5", 2.5, "number"),
        (10, 10, "number"),
    ],
)
def test_widths(freq, width, unit):
    parsed = parse_freq(freq)
    assert (parsed.width, parsed.unit) == (width, unit)


@pytest.mark.parametrize("freq", ["7X", "D7", "0D", "-1D", "1.5M", "", ".", 0, -3, float("nan"), "2.5 rows"])
def test_widths_that_are_none(freq):
    with pytest.raises(InputError, match="freq"):
        parse_freq(freq)


def test_widths_of_another_type():
    for freq in ([7], True):
        with pytest.raises(InputTypeError, match="freq must be a string such as '7D'"):
            parse_freq(freq)


def windows_of(times, **options):
    """The time of the step in which each row is."""
    steps = read_steps({"time": times, "id": list(range(len(times))), "x": [0] * len(times)}, **options)
    found = {id: step.time for step in steps for id in step.ids}
    return [found[i] for i in range(len(times))]


def test_windows_of_days_start_at_midnight_and_where_they_are_told():
    times = ["2024-01-03T15:00", "2024-01-09T23:59:59", "2024-01-10"]
    assert windows_of(times, freq="7D") == [day("2024-01-03")] * 2 + [day("2024-01-10")]
    assert windows_of(times, freq="7D", origin="2024-01-01") == [day("2024-01-01")] + [day("2024-01-08")] * 2
    assert windows_of(times[:1], freq="12h") == [day("2024-01-03T12:00")]


def test_windows_of_months_are_those_of_the_calendar():
    times = ["2023-11-30", "2024-02-29", "2024-03-31", "2024-04-01"]
    assert windows_of(times, freq="1M") == [day(t[:7] + "-01") for t in times]
    quarters = ["2023-10-01", "2024-01-01", "2024-01-01", "2024-04-01"]
    assert windows_of(times, freq="1Q") == [day(t) for t in quarters]
    assert windows_of(times, freq="1Y", origin="2023-04") == [day("2023-04-01")] * 3 + [day("2024-04-01")]


def test_windows_of_numbers():
    assert windows_of([0.0, 0.1, 0.3, 0.55], freq=0.1) == [0, 0.1, 0.3, 0.5]
    assert windows_of([-1, 7, 12], freq=10) == [-10, 0, 10]
    assert windows_of(["3", "8"], freq="5", origin=3) == [3, 8]


def test_each_time_is_a_step_without_windows():
    assert windows_of(["2024-01", "2024-02"]) == [day("2024-01-01"), day("2024-02-01")]
    assert windows_of([datetime.date(2024, 1, 1)]) == windows_of(np.array(["2024-01-01"], "M8[D]"))
    assert windows_of([datetime.date(2024, 1, 1)]) == [day("2024-01-01")]
    assert windows_of(["spring", "autumn", "autumn"]) == ["spring", "autumn", "autumn"]
    assert windows_of([1, 2.5]) == [1, 2.5]


def test_labels_come_in_the_order_of_their_appearance():
    with pytest.warns(InputWarning, match="'w10' are labels, in the order in which they appear"):
        steps = read_steps({"time": ["w10", "w9", "w10"], "id": ["a", "a", "b"], "x": [1, 2, 3]})
    assert [(step.time, step.ids) for step in steps] == [("w10", ("a", "b")), ("w9", ("a",))]


def test_a_format_of_dates():
    assert windows_of(["31/12/2024"], time_format="%d/%m/%Y") == [day("2024-12-31")]
    assert windows_of([20241231], time_format="%Y%m%d", freq="1D") == [day("2024-12-31")]
    with pytest.raises(
        InputError, match="'2024-12-31' in column 'time' cannot be read by time_format='%d/%m/%Y'"
    ):
        windows_of(["2024-12-31"], time_format="%d/%m/%Y")


@pytest.mark.parametrize(
    "times, options, told",
    [
        (["soon"], {"freq": "1D"}, "contains labels such as 'soon'; for freq, pass time_format='%d/%m/%Y'"),
        (["01/02/2024"], {"freq": "1D"}, "01 February 2024 by '%d/%m/%Y' and 02 January 2024 by '%m/%d/%Y'"),
        ([17], {"freq": "1D"}, "contains numbers such as 17, but freq is a time.*time_format='s'"),
        (
            ["2024-12-31"],
            {"freq": 7},
            "contains dates such as '2024-12-31'; freq is a number; add a unit, as in '7D'",
        ),
        (["2024-12-31"], {"freq": "7D", "origin": "soon"}, "origin must be a date"),
        ([1, 2], {"freq": 7, "origin": "soon"}, "origin must be a number"),
    ],
)
def test_times_that_do_not_fit(times, options, told):
    with pytest.raises(InputError, match=told):
        windows_of(times, **options)


def test_times_that_turn_into_something_else():
    with pytest.raises(
        InputError, match="row 2 of the dict: 'soon' in column 'time' cannot be read as a date"
    ):
        windows_of(["2024-01-01", "soon"])


def test_zones():
    (step,) = read_steps({"t": ["2024-01-01T01:00+01:00", "2024-01-01T00:00Z"], "id": [1, 2], "x": [1, 2]})
    assert step.time == day("2024-01-01")


# Matrices, frames and graphs


def test_wide_frames_by_time():
    pandas = pytest.importorskip("pandas")
    frames = {
        2023: pandas.DataFrame({"x": [1, 2], "y": [3, 4]}, index=["a", "b"]),
        2024: pandas.DataFrame({"x": [5], "y": [6]}, index=["b"]),
    }
    steps = read_steps(frames)
    assert steps.kind == "features" and steps.n_steps == 2
    assert simplified(steps) == [(2023, ("a", "b"), [[1.0, 3.0], [2.0, 4.0]]), (2024, ("b",), [[5.0, 6.0]])]
    assert [step.time for step in read_steps(list(frames.values()))] == [0, 1]
    square = pandas.DataFrame(np.eye(2), index=["a", "b"], columns=["a", "b"])
    assert read_steps([square]).kind == "proximities"
    assert read_steps([square.set_axis(["x", "y"], axis=1)]).kind == "features"


def test_wide_frames_with_gaps():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1, 2, 3], "y": [3, None, 4]}, index=["a", "b", "c"])
    with pytest.raises(InputError, match=r"id 'b' has no value \(NaN\) at time 2024; .*'drop'"):
        read_steps({2024: frame})
    (step,) = read_steps({2024: frame}, missing="drop")
    assert step.ids == ("a", "c") and step.values.tolist() == [[1.0, 3.0], [3.0, 4.0]]
    square = frame.iloc[:2].set_axis(["a", "b"], axis=1)
    with pytest.raises(InputError, match="id 'b' has no value"):
        read_steps([square], missing="drop")


def test_wide_frames_without_an_index():
    frame = frame_of("polars", "name,x\na,1\nb,2\n")
    assert simplified(read_steps([frame])) == [(0, ("a", "b"), [[1.0], [2.0]])]
    with pytest.raises(InputError, match="no column of ids; pass id="):
        list(read_steps([frame.rename({"name": "who"})]))


@pytest.mark.parametrize("directed", [False, True])
def test_graphs(directed):
    networkx = pytest.importorskip("networkx")
    graph = (networkx.DiGraph if directed else networkx.Graph)()
    graph.add_weighted_edges_from([("a", "b", 2.0), ("b", "b", 3.0)] + directed * [("b", "a", 1.0)])
    graph.add_node("alone")
    if directed:
        with pytest.raises(InputError, match=r"is directed.*directed='sum'"):
            read_steps([graph, graph])
    steps = read_steps([graph, graph], directed="sum" if directed else None)
    assert steps.kind == "edges" and [step.time for step in steps] == [0, 1]
    (step, _) = steps
    ab = 2.0 + directed
    assert step.ids == ("a", "b", "alone")
    assert dense(step.values).tolist() == [[0.0, ab, 0.0], [ab, 3.0, 0.0], [0.0, 0.0, 0.0]]


def test_matrices_of_all_sorts():
    W = np.eye(3)
    for sequence in ([W, W], np.stack([W, W]), [scipy.sparse.csr_array(W)] * 2, (W, W)):
        steps = read_steps(sequence)
        assert steps.kind == "proximities" and steps.n_steps == 2
        assert all(step.ids is None and (dense(step.values) == W).all() for step in steps)
    assert read_steps([W], kind="features").kind == "features"
    assert read_steps([np.ones((3, 2))]).kind == "features"
    given = Snapshot("now", ("a",), np.eye(1))
    assert list(read_steps([given])) == [given] == list(read_steps(read_steps([given])))


def test_an_iterator_is_read_once():
    steps = read_steps(np.eye(2) for _ in range(3))
    assert [step.time for step in steps] == [0, 1, 2]
    with pytest.raises(InputError, match="was read already"):
        list(steps)


def test_stacks_in_files(tmp_path):
    X = np.arange(12.0).reshape(2, 3, 2)
    np.save(tmp_path / "x.npy", X)
    np.savez(
        tmp_path / "x.npz", X=X, ids=["a", "b", "c"], times=np.array(["2024-01-01", "2024-02-01"], "M8[D]")
    )
    np.savez(tmp_path / "each.npz", *X)
    scipy.sparse.save_npz(tmp_path / "one.npz", scipy.sparse.eye_array(3).tocsr())
    for name in ("x.npy", "x.npz", "each.npz"):
        steps = read_steps(tmp_path / name)
        assert steps.kind == "features"
        assert [dense(step.values).tolist() for step in steps] == X.tolist()
    assert [step.time for step in read_steps(tmp_path / "each.npz")] == [0, 1]
    named = list(read_steps(tmp_path / "x.npz"))
    assert named[0].ids == ("a", "b", "c") and named[1].time == day("2024-02-01")
    assert read_steps(tmp_path / "one.npz").kind == "proximities"


def test_toolbox_files(tmp_path):
    from scipy.io import savemat

    def cells(values):
        array = np.empty((1, len(values)), dtype=object)
        array[0, :] = values
        return array

    names = [cells(["ann", "bob"]), cells(["bob", "cy", "dee"])]
    W = [np.eye(2), scipy.sparse.eye_array(3).tocsc()]
    savemat(tmp_path / "t.mat", {"ids": cells(names), "W": cells(W)})
    assert [step.ids for step in read_steps(tmp_path / "t.mat")] == [("ann", "bob"), ("bob", "cy", "dee")]
    assert [dense(step.values).shape for step in read_steps(tmp_path / "t.mat")] == [(2, 2), (3, 3)]
    savemat(
        tmp_path / "n.mat",
        {"ids": cells([np.array([7, 9]), np.array([9])]), "W": cells([np.eye(2), np.eye(1)])},
    )
    assert [step.ids for step in read_steps(tmp_path / "n.mat")] == [(7, 9), (9,)]
    savemat(tmp_path / "s.mat", {"W": np.ones((2, 2, 5))})
    assert [step.ids for step in read_steps(tmp_path / "s.mat")] == [None] * 5
    savemat(tmp_path / "one.mat", {"W": scipy.sparse.eye_array(3).tocsc()})
    assert [dense(step.values).shape for step in read_steps(tmp_path / "one.mat")] == [(3, 3)]
    savemat(tmp_path / "v.mat", {"V": np.eye(2)})
    with pytest.raises(InputError, match="has no variable W"):
        read_steps(tmp_path / "v.mat")
    savemat(tmp_path / "u.mat", {"ids": cells([np.array([7])]), "W": cells([np.eye(2)])})
    with pytest.raises(InputError, match="W of step 0 has 2 rows, but there are 1 ids"):
        read_steps(tmp_path / "u.mat")


@pytest.mark.parametrize(
    "name, told",
    [
        ("x.npy", "cannot be read as an .npy file"),
        ("x.npz", "cannot be read as an .npz file"),
        ("x.mat", "cannot be read as a .mat file"),
        ("x.csv", "is empty"),
        ("x.xlsx", "must end in one of .csv"),
    ],
)
def test_files_that_are_none(tmp_path, name, told):
    (tmp_path / name).touch()
    with pytest.raises(InputError, match=told):
        read_steps(tmp_path / name)
    with pytest.raises(InputError, match="does not exist; check its name"):
        read_steps(tmp_path / "absent" / name)


def test_stacks_of_a_wrong_shape(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(2))
    with pytest.raises(InputError, match=r"has shape \(2, 2\); it must be"):
        read_steps(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", W=np.ones((2, 3, 3)), ids=["a"])
    with pytest.raises(InputError, match="has 2 steps of 3 objects, but ids or times"):
        read_steps(tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", W0=np.eye(3), a=np.ones(3))
    with pytest.raises(InputError, match=r"a has shape \(3,\)"):
        read_steps(tmp_path / "y.npz")


@pytest.mark.parametrize("given", [3, None, np.eye(2), scipy.sparse.eye_array(2).tocsr()])
def test_what_is_no_table(given):
    with pytest.raises(InputTypeError):
        read_steps(given)


def test_empty_inputs():
    with pytest.raises(InputError, match="contains no steps"):
        read_steps([])
    with pytest.raises(InputError, match="sequence is empty"):
        ax.Affect(ax.KMeans(1), proximity="dot").fit(read_steps({"t": [], "id": [], "x": []}))


@pytest.mark.parametrize(
    "option",
    [{"kind": "graph"}, {"missing": "fill"}, {"aggregate": "max"}, {"dtype": "int8"}, {"changes": "daily"}],
)
def test_wrong_options(option):
    with pytest.raises(InputError, match=f"{next(iter(option))} must be one of"):
        read_steps(columns_of(FEATURES), **option)


def test_fitting_is_taking_each_step():
    rng = np.random.default_rng(0)
    table = {
        "time": np.repeat(np.arange(4), 10),
        "id": np.tile(np.arange(10), 4),
        "x": rng.normal(size=40) + np.tile(np.repeat([-3, 3], 5), 4),
        "y": rng.normal(size=40),
    }
    steps = read_steps(table)
    with pytest.raises(InputError, match=r"are features, but the model takes proximities.*proximity='dot'"):
        ax.Affect(ax.KMeans(2)).fit(steps)
    seen = []
    model = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0)
    assert model.fit(steps, callback=seen.append) is model
    X = np.column_stack([table["x"], table["y"]]).reshape(4, 10, 2)
    other = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).fit(X, ids=range(10))
    assert [record.alpha for record in seen] == [record.alpha for record in other.history_]
    np.testing.assert_array_equal(model.labels_, other.labels_)


def test_float32():
    (step,) = read_steps({"t": [0], "id": ["a"], "x": [1]}, dtype="float32")
    assert step.values.dtype == np.float32
    (step,) = read_steps({"t": [0], "source": ["a"], "target": ["b"]}, dtype="float32")
    assert step.values.dtype == np.float32


def test_a_model_takes_frames_by_their_index():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x = pandas.DataFrame(rng.normal(size=(6, 2)), index=list("abcdef"))
    model = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).partial_fit(x)
    assert model.ids_ == tuple("abcdef")
    assert model.partial_fit(x.iloc[::-1]).ids_ == tuple("fedcba")
    expected = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).partial_fit(x.to_numpy())
    np.testing.assert_array_equal(model.history_[0].labels, expected.labels_)


def test_a_frame_of_proximities_has_the_same_names_on_both_sides():
    pandas = pytest.importorskip("pandas")
    w = pandas.DataFrame(np.kron(np.eye(2), np.ones((2, 2))), index=list("abcd"), columns=list("abcd"))
    assert ax.Affect(ax.KMeans(2), random_state=0).partial_fit(w).ids_ == tuple("abcd")
    with pytest.raises(ax.exceptions.InputError, match="index and columns differ"):
        ax.Affect(ax.KMeans(2)).partial_fit(w[list("bacd")])


def test_reading_prints_nothing():
    """By default DuckDB shows a progress bar on stdout after two seconds."""
    assert Engine().run("SELECT current_setting('enable_progress_bar')") == [(False,)]


def test_options_are_those_of_the_dataclass():
    """The command line makes its options of the dataclass: names and defaults must agree."""
    parameters = inspect.signature(read_steps).parameters
    given = {name: parameter.default for name, parameter in parameters.items() if name != "table"}
    assert given == {field.name: field.default for field in dataclasses.fields(ReadOptions)}
