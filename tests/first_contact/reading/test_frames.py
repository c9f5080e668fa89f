"""Typical frames, graphs and lists of users, with the expected result."""

import datetime
import decimal
import gzip
import subprocess
import sys

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.exceptions import InputError, InputWarning
from affect_xp.io import read_steps

nx, pd, pl, pa = map(pytest.importorskip, ("networkx", "pandas", "polars", "pyarrow"))

DAYS = pd.to_datetime(["2024-01-01", "2024-01-01", "2024-01-02"])
LONG = pd.DataFrame({"date": DAYS, "id": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]})
EDGES = {"source": ["a", "b"], "target": ["b", "c"]}
TWO_DAYS = [("2024-01-01", ("a", "b"), [[1.0], [2.0]]), ("2024-01-02", ("a",), [[3.0]])]


def dense(values):
    return (values.toarray() if hasattr(values, "toarray") else np.asarray(values)).tolist()


def steps_of(table, **options):
    steps = read_steps(table, **options)
    return [(str(step.time).removesuffix(" 00:00:00"), step.ids, dense(step.values)) for step in steps]


class Arrow:
    """An object that only has an Arrow stream."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


FRAMES = {
    "pandas": lambda: LONG,
    "pandas with an index of two levels": lambda: LONG.set_index(["date", "id"]),
    "pandas with an index without names": lambda: LONG.set_index(["date", "id"]).rename_axis([None, None]),
    "pandas with an index of dates": lambda: LONG.set_index("date"),
    "pandas with zones": lambda: LONG.assign(date=LONG["date"].dt.tz_localize("UTC")),
    "pandas with nullable types": lambda: LONG.assign(
        x=LONG["x"].astype("Float64"), id=LONG["id"].astype("category")
    ),
    "pandas with texts for dates": lambda: LONG.assign(date=LONG["date"].dt.strftime("%d.%m.%Y")),
    "pandas with names in a column without a usual name": lambda: LONG.rename(columns={"id": "place"}),
    "the same as categories": lambda: LONG.rename(columns={"id": "place"}).astype({"place": "category"}),
    "the same of polars": lambda: pl.from_pandas(LONG.rename(columns={"id": "place"})),
    "polars": lambda: pl.from_pandas(LONG),
    "a lazy frame": lambda: pl.from_pandas(LONG).lazy(),
    "an Arrow table": lambda: pa.Table.from_pandas(LONG),
    "a record batch reader": lambda: Arrow(pa.Table.from_pandas(LONG)),
    "a dict of columns": lambda: {name: LONG[name].tolist() for name in LONG},
    "a dict with dates": lambda: {**LONG.to_dict("list"), "date": [day.date() for day in DAYS]},
    "a list of frames with times": lambda: [LONG.iloc[:2], LONG.iloc[2:]],
    "a list of frames in two libraries": lambda: [LONG.iloc[:2], pl.from_pandas(LONG.iloc[2:])],
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames(name):
    expected = TWO_DAYS
    if "texts" in name:
        with pytest.raises(InputError, match=r"is ambiguous: '02\.01\.2024' is 02 January 2024"):
            read_steps(FRAMES[name]())
        assert steps_of(FRAMES[name](), time_format="%d.%m.%Y") == expected
    else:
        assert steps_of(FRAMES[name]()) == expected


def test_files_of_every_kind(tmp_path):
    LONG.to_csv(tmp_path / "1.csv")
    LONG.to_parquet(tmp_path / "2.parquet")
    LONG.to_json(tmp_path / "3.jsonl", orient="records", lines=True, date_format="iso")
    (tmp_path / "4.csv.gz").write_bytes(gzip.compress(LONG.to_csv(sep=";").encode()))
    duckdb = pytest.importorskip("duckdb")
    columns = f"SELECT date, id, x FROM '{tmp_path / '1.csv'}'"
    duckdb.sql(f"COPY ({columns}) TO '{tmp_path / '5.csv.zst'}' (HEADER, COMPRESSION zstd)")
    for path in sorted(tmp_path.iterdir()):
        assert steps_of(path) == TWO_DAYS, path.name
    assert steps_of([tmp_path / "1.csv", tmp_path / "2.parquet"], aggregate="mean") == TWO_DAYS


def test_lists_of_files_and_patterns(tmp_path):
    for day, name in (("2024-01-02", "b"), ("2024-01-01", "a")):
        (tmp_path / f"{name}.csv").write_text(f"date,id,x\n{day},{name},1\n", encoding="utf-8")
    expected = [("2024-01-01", ("a",), [[1.0]]), ("2024-01-02", ("b",), [[1.0]])]
    assert steps_of(str(tmp_path / "*.csv")) == expected
    assert steps_of([tmp_path / "b.csv", str(tmp_path / "a.csv")]) == expected
    with pytest.raises(InputError, match=r"no file matches .*\*\.tsv"):
        read_steps(str(tmp_path / "*.tsv"))
    (tmp_path / "c.csv").write_text("date,id,y\n2024-01-03,c,1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"c\.csv has no column 'x', unlike .*a\.csv"):
        read_steps(str(tmp_path / "*.csv"))
    (tmp_path / "c.csv").write_text("date,id,x\n2024-01-03,c,1\n2024-01-04,c\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 3 of .*c\.csv cannot be read: '2024-01-04,c'"):
        read_steps(str(tmp_path / "*.csv"))


def test_names_that_mean_something_in_sql(tmp_path):
    path = tmp_path / "it's; [1] DROP TABLE raw--.csv"
    path.write_text("date,id,x\"y;'\n1,o'neil;--,2\n", encoding="utf-8")
    assert steps_of(path) == [("1", ("o'neil;--",), [[2.0]])]


def test_ids_stay_what_they_are():
    ids = ["007", 7, "Zoë", (1, 2), " b "]
    (step,) = read_steps({"time": [0] * 5, "id": ids, "x": range(5)})
    assert step.ids == ("007", 7, "Zoë", (1, 2), "b")
    (step,) = read_steps({"time": [0, 0], "id": np.array([3, 1]), "x": [1, 2]})
    assert step.ids == (3, 1)
    with pytest.raises(InputError, match="'7' and 7 are both written '7'; rename one"):
        read_steps({"time": [0, 0], "id": [7, "7"], "x": [1, 2]})


def test_rolling_correlations():
    rng = np.random.default_rng(0)
    dates = pd.date_range("2024-01-01", periods=6)
    returns = pd.DataFrame(rng.normal(size=(6, 3)), columns=list("ABC"), index=dates)
    with pytest.warns(InputWarning, match="3 times without any value are left out"):
        steps = read_steps(returns.rolling(4).corr())
    assert steps.kind == "proximities"
    assert [step.time for step in steps] == [day.to_pydatetime() for day in dates[3:]]
    np.testing.assert_allclose(list(steps)[-1].values, returns.iloc[2:].corr())


def test_dicts_by_time():
    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=["a", "b"])
    assert [(t, ids) for t, ids, _ in steps_of({2024: frame, 2023: frame})] == [
        ("2023", ("a", "b")),
        ("2024", ("a", "b")),
    ]
    edges = {"2024-01-02": pd.DataFrame(EDGES), "2024-01-01": pd.DataFrame(EDGES).iloc[:1]}
    links = steps_of(edges)
    assert [(t, ids) for t, ids, _ in links] == [("2024-01-01", ("a", "b")), ("2024-01-02", ("a", "b", "c"))]
    graphs = {datetime.date(2024, 1, 2): nx.path_graph(2), datetime.date(2024, 1, 1): nx.path_graph(3)}
    assert [(t, ids) for t, ids, _ in steps_of(graphs)] == [("2024-01-01", (0, 1, 2)), ("2024-01-02", (0, 1))]
    for second, first in (
        (pd.Period("2024-02"), pd.Period("2024-01")),
        ("2024Q2", "2024Q1"),
        ("2024", "2023"),
    ):
        found = read_steps({second: nx.path_graph(2), first: nx.path_graph(3)})
        assert [step.time for step in found] == [first, second]
    labels = read_steps({"late": nx.path_graph(2), "early": nx.path_graph(3)})
    assert [step.time for step in labels] == ["late", "early"]


def test_graphs():
    with pytest.raises(InputError, match=r"the graph at time 0 is directed.*directed='sum'"):
        read_steps([nx.DiGraph([(1, 2)])])
    both = nx.DiGraph()
    both.add_weighted_edges_from([(1, 2, 3.0), (2, 1, 1.0), (1, 1, 5.0)])
    for directed, w in (("sum", 4.0), ("mean", 2.0), ("max", 3.0)):
        assert steps_of([both], directed=directed) == [("0", (1, 2), [[5.0, w], [w, 0.0]])]
    with pytest.warns(InputWarning, match="is bipartite"):
        read_steps([nx.complete_bipartite_graph(2, 2)])


def test_zones_in_some_tables_only():
    aware = LONG.assign(date=LONG["date"].dt.tz_localize("UTC"))
    for naive, zoned in ((LONG, aware), (pl.from_pandas(LONG), pl.from_pandas(aware))):
        with pytest.raises(InputError, match="column 'date' has a time zone in some tables only"):
            read_steps([naive, zoned])
    assert steps_of([aware.iloc[:2], pl.from_pandas(aware.iloc[2:])]) == TWO_DAYS


def test_a_model_takes_them_as_they_are(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"time": np.repeat(np.arange(3), 8), "id": np.tile(np.arange(8), 3), "x": rng.normal(size=24)}
    )
    table.to_csv(tmp_path / "f.csv", index=False)
    models = [
        ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).fit(given)
        for given in (
            read_steps(table),
            table,
            pl.from_pandas(table).lazy(),
            table.to_dict("list"),
            tmp_path / "f.csv",
        )
    ]
    assert all(model.history_.times == [0, 1, 2] for model in models)
    assert all((model.labels_ == models[0].labels_).all() for model in models)
    with pytest.raises(InputError, match="the model takes proximities"):
        ax.Affect(ax.KMeans(2)).fit(str(tmp_path / "f.csv"))


def test_notes_say_what_was_done(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text(",day,name,x\n0,02/01/2024,a,1\n1,13/01/2024,b,\n2,01/01/2024,c,2\n", encoding="utf-8")
    steps = read_steps(path, missing="drop")
    assert list(steps.notes) == [
        "features: time 'day', id 'name', values 'x'; not used: ''",
        "times such as '02/01/2024' are read as %d/%m/%Y",
        "rows without a value left out: 1",
        "rows are not in the order of time and were sorted",
    ]
    assert steps.n_steps == 2


def test_without_duckdb_the_error_says_what_to_install(tmp_path):
    (tmp_path / "f.csv").write_text("time,id,x\n1,a,1\n", encoding="utf-8")
    np.save(tmp_path / "x.npy", np.ones((2, 3, 3)))
    code = f"""
import sys
sys.modules["duckdb"] = None
import affect_xp as ax
assert len(list(ax.io.read_steps({str(tmp_path / "x.npy")!r}))) == 2
try:
    ax.io.read_steps({str(tmp_path / "f.csv")!r})
except ax.exceptions.InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "tables are read by DuckDB; install it: pip install 'affect-xp[io]'"


def pack(path, content):
    try:
        import compression.zstd as zstd  # of Python 3.14
    except ImportError:
        zstd = pytest.importorskip("pyarrow").Codec("zstd")
    path.write_bytes(bytes(zstd.compress(content)))


@pytest.mark.parametrize("name", ["f.csv.zst", "f.jsonl.zst"])
def test_packed_files_whose_lines_end_in_several_ways(name, tmp_path):
    pytest.importorskip("duckdb")
    pack(tmp_path / name, b"a\r\nb\n")
    how = "its lines end in several ways; unpack it, or save it with the same end of all lines"
    with pytest.raises(InputError, match=f"{name} cannot be read: {how}"):
        read_steps(tmp_path / name)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_packed_files_in_another_encoding(encoding, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    packed = tmp_path / "f.csv.zst"
    pack(packed, "time,id,x\n1,Zoë,2\n".encode(encoding))
    assert duckdb and steps_of(packed, encoding=encoding) == [("1", ("Zoë",), [[2.0]])]
    with pytest.raises(InputError, match="cp1252"):
        read_steps(packed, encoding="cp1252")


def test_columns_with_one_name():
    with pytest.raises(InputError, match="the DataFrame has more than one column 'x'"):
        read_steps(pd.concat([LONG, LONG[["x"]]], axis=1))
    with pytest.raises(InputError, match="the columns of the DataFrame must be of one length"):
        read_steps(pd.DataFrame())


def test_a_series_with_times_and_ids():
    assert steps_of(LONG.set_index(["date", "id"])["x"]) == TWO_DAYS


def test_names_of_columns_that_are_numbers():
    frame = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], index=DAYS[1:], columns=[7, 8])
    assert steps_of(frame, freq="2 rows") == [("2024-01-01", (7, 8), [[1.0, 3.0], [2.0, 4.0]])]


def test_ids_that_are_all_tuples():
    assert steps_of({"time": [1, 1], "id": [("a", 1), ("b", 2)], "x": [1, 2]}) == [
        ("1", (("a", 1), ("b", 2)), [[1.0], [2.0]])
    ]


def test_offsets_of_pandas():
    found = steps_of(LONG, freq=pd.offsets.MonthEnd(), aggregate="sum")
    assert found == [("2024-01-01", ("a", "b"), [[4.0], [2.0]])]


def test_a_folder(tmp_path):
    with pytest.raises(InputError, match="is a folder; name the file in it"):
        read_steps(tmp_path)


def test_ids_that_are_numbers_with_a_gap():
    gap = LONG.assign(id=[1.0, np.nan, 1.0])
    with pytest.raises(InputError, match="row 2 of the DataFrame has no id in column 'id'"):
        read_steps(gap)
    assert [ids for _, ids, _ in steps_of(gap, missing="drop")] == [(1,), (1,)]


def with_x(x):
    return LONG.assign(x=x)


def with_id(id):
    return LONG.assign(id=id)


def two_days(first, second, ids=("a", "b")):
    return [("2024-01-01", ids, [[first[0]], [first[1]]]), ("2024-01-02", ids[:1], [[second]])]


FLAGS = two_days((1.0, 0.0), 1.0)
POLARS = pl.from_pandas(LONG)
QUARTERS = [("2024-01-01", ("a", "b"), [[1.0], [2.0]]), ("2024-04-01", ("a",), [[3.0]])]
ODD_FRAMES = {  # frame, steps, options
    "nullable integers": (lambda: with_x(pd.array([1, 2, 3], "Int64")), TWO_DAYS, {}),
    "NA, dropped": (lambda: with_x(pd.array([1, 2, None], "Int64")), TWO_DAYS[:1], {"missing": "drop"}),
    "flags": (lambda: with_x([True, False, True]), FLAGS, {}),
    "nullable flags": (lambda: with_x(pd.array([True, False, True], "boolean")), FLAGS, {}),
    "categories that are numbers": (lambda: with_x(pd.Categorical([1, 2, 3])), TWO_DAYS, {}),
    "types of pyarrow": (lambda: LONG.convert_dtypes(dtype_backend="pyarrow"), TWO_DAYS, {}),
    "decimals": (lambda: with_x([decimal.Decimal(i) for i in (1, 2, 3)]), TWO_DAYS, {}),
    "quarters": (
        lambda: LONG.assign(date=pd.PeriodIndex(["2024Q1", "2024Q1", "2024Q2"], freq="Q")),
        QUARTERS,
        {},
    ),
    "large ids": (lambda: with_id([2**60, 2**60 + 1, 2**60]), two_days((1, 2), 3, (2**60, 2**60 + 1)), {}),
    "a named index that counts": (lambda: LONG.rename_axis("row"), TWO_DAYS, {}),
    "an index of three levels": (
        lambda: LONG.assign(k=[1, 2, 3]).set_index(["date", "id", "k"]),
        TWO_DAYS,
        {},
    ),
    "an index that repeats": (lambda: LONG.set_index(pd.Index([0, 0, 0])), TWO_DAYS, {}),
    "a lazy filter": (lambda: POLARS.lazy().filter(pl.col("x") < 3), TWO_DAYS[:1], {}),
    "an enum of polars": (
        lambda: POLARS.with_columns(pl.col("id").cast(pl.Enum(["a", "b"]))),
        TWO_DAYS,
        {},
    ),
    "dates of polars": (lambda: POLARS.with_columns(pl.col("date").cast(pl.Date)), TWO_DAYS, {}),
    "decimals of polars": (lambda: POLARS.with_columns(pl.col("x").cast(pl.Decimal(10, 2))), TWO_DAYS, {}),
    "nanoseconds with a zone of Arrow": (
        lambda: pa.table({**LONG.to_dict("list"), "date": pa.array(DAYS).cast(pa.timestamp("ns", "UTC"))}),
        TWO_DAYS,
        {},
    ),
    "no rows": (lambda: POLARS.head(0), [], {}),
    "a tensor": (
        lambda: {**LONG.to_dict("list"), "x": pytest.importorskip("torch").arange(1, 4)},
        TWO_DAYS,
        {},
    ),
    "frames by name with times": (lambda: {"all": LONG}, TWO_DAYS, {}),
    "a list of edges": (
        lambda: [pd.DataFrame(EDGES).iloc[:1], pd.DataFrame(EDGES).iloc[1:]],
        [("0", ("a", "b"), [[0, 1], [1, 0]]), ("1", ("b", "c"), [[0, 1], [1, 0]])],
        {},
    ),
    "an index of months": (
        lambda: pd.DataFrame({"A": [1.0, 2.0]}, index=pd.period_range("2024-01", periods=2, freq="M")),
        [("2024-01-01", ("A",), [[1.0]]), ("2024-02-01", ("A",), [[2.0]])],
        {"freq": "MS"},
    ),
}


@pytest.mark.parametrize("name", ODD_FRAMES)
def test_odd_frames(name):
    frame, expected, options = ODD_FRAMES[name]
    assert steps_of(frame(), **options) == expected


REFUSED = {  # frame, what the error says, options
    "times with and without zones": (
        lambda: LONG.assign(
            date=pd.Series([DAYS[0], DAYS[1].tz_localize("UTC"), DAYS[2]], dtype=object).to_numpy()
        ),
        "row 2 of the DataFrame.* mixes times with and without a time zone",
        {},
    ),
    "no time": (lambda: LONG.assign(date=[*DAYS[:2], pd.NaT]), "row 3 of the DataFrame has no time", {}),
    "lists for values": (
        lambda: POLARS.with_columns(y=pl.lit([1, 2])),
        r"column 'y' contains .*\[\]; name those with numbers",
        {},
    ),
    "NaN of polars": (lambda: POLARS.with_columns(x=pl.lit(float("nan"))), "row 1 .* has no value", {}),
    "milliseconds read as seconds": (
        lambda: {"time": [1704067200000], "id": ["a"], "x": [1]},
        "row 1 of the dict: '1704067200000' in column 'time' cannot be read by time_format='s'",
        {"time_format": "s"},
    ),
    "prices with columns of two levels": (
        lambda: pd.DataFrame(
            np.ones((3, 4)), DAYS, pd.MultiIndex.from_product([["Close", "Volume"], ["A", "B"]])
        ),
        r"columns of the DataFrame have 2 levels; choose one, as in frame\['Close'\]",
        {"freq": "2 rows"},
    ),
    "a number for the sensor": (
        lambda: {"time": [1, 2], "sensor_id": [7, 8], "x": [1.0, 2.0]},
        "column 'sensor_id' of the dict could be the id, or a series; pass id='sensor_id', or kind='series'",
        {"freq": 1},
    ),
    "keys with and without zones": (
        lambda: {
            datetime.datetime(2024, 1, 2): nx.path_graph(2),
            datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC): nx.path_graph(3),
        },
        "keys of the dict are not in an order .* all with a time zone or all without",
        {},
    ),
    "a value with an underscore": (
        lambda: [pd.DataFrame({"x": ["1_000", "2"]}, index=["a", "b"])],
        "column 'x' contains a value that is not a number: '1_000'",
        {},
    ),
    "no values": (
        lambda: {"time": [1, 2], "id": ["a", "b"]},
        "the dict has no columns of values besides 'time', 'id'; add some",
        {},
    ),
    "one column for two roles": (
        lambda: {"time": [1, 2], "a": ["x", "y"], "b": [1, 2]},
        "a column of the dict has two roles: 'time', 'a', 'a'; use each once",
        {"source": "a", "target": "a"},
    ),
    "a list of frames with other columns": (
        lambda: [LONG, LONG.rename(columns={"x": "y"})],
        "the DataFrame has no column 'x', unlike the DataFrame",
        {},
    ),
    "an unknown format": (
        lambda: {"time": ["1"], "id": ["a"], "x": [1]},
        "time_format='%Q' is not",
        {"time_format": "%Q"},
    ),
    "a weight that is not finite": (
        lambda: [nx.Graph([("a", "b", {"weight": float("nan")})])],
        "the step at time 0 is a graph whose edge 'a' - 'b' has weight=nan",
        {},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_frames(name):
    frame, said, options = REFUSED[name]
    with pytest.raises(InputError, match=said):
        read_steps(frame(), **options)


def test_a_dict_of_matrices_that_are_dicts():
    dok = pytest.importorskip("scipy.sparse").dok_matrix(np.eye(2))
    assert steps_of({2: dok, 1: dok}) == [("1", None, np.eye(2).tolist()), ("2", None, np.eye(2).tolist())]


def test_a_file_of_similarities_and_features(tmp_path):
    np.savez(tmp_path / "both.npz", W=np.zeros((1, 2, 2)), X=np.zeros((1, 2, 3)))
    with pytest.raises(InputError, match="contains W and X; store one of them in a file"):
        read_steps(tmp_path / "both.npz")
