"""Damaged files: each gives the correct steps or an error that names the line."""

import csv
import io
import os
import re

import numpy as np
import pytest

from affect_xp.exceptions import AffectError, InputError
from affect_xp.io import read_steps

COUNT = int(os.environ.get("AFFECT_XP_MUTATIONS", "60"))
BITS = [
    b",",
    b'"',
    b"\n",
    b"\r\n",
    b"\r",
    b";",
    b"\0",
    b"\xff",
    b"\xc3",
    b" ",
    b"x",
    b"-",
    b"1e9",
    b"NA",
    b"#",
    b"'",
    b"\t",
]


def original(rng):
    """A small table with typical features: blanks, quotes, line breaks, signs, repeated ids."""
    names = ["ann", "bob", '"Smith, Jo"', "Zoë", "007", "  cy", '"two\nlines"', "d-e"]
    rows = [
        f"{t},{name},{rng.normal():.3f},{rng.integers(9)}"
        for t in range(4)
        for name in rng.permutation(names)
    ]
    return ("time,id,x,y\n" + "\n".join(rows) + "\n").encode()


def mutated(text, rng):
    """Return a text with up to three bytes or parts cut, repeated, replaced or inserted."""
    for _ in range(rng.integers(1, 4)):
        i, n = int(rng.integers(len(text))), int(rng.integers(1, 12))
        bit = BITS[rng.integers(len(BITS))]
        change = rng.integers(6)
        if change == 0:
            text = text[:i] + text[i + n :]
        elif change == 1:
            text = text[:i] + bit + text[i:]
        elif change == 2:
            text = text[:i] + bit + text[i + 1 :]
        elif change == 3:
            text = text[:i] + text[i : i + n] + text[i:]
        elif change == 4:
            text = text[:i] + bytes([rng.integers(256)]) + text[i + 1 :]
        else:
            text = text[: max(i, 30)]
    return text


def slow_rows(text):
    """Return the rows (time, id, x, y) of a well-formed text, read by the csv module; otherwise None."""
    try:
        lines = csv.reader(io.StringIO(text.decode("utf-8-sig"), newline=""), strict=True)
        first, *rows = (row for row in lines if row)  # an empty line is not a row
        rows = [row[:-1] if len(row) == len(first) + 1 and not row[-1] else row for row in rows]
        if any(len(row) != len(first) for row in rows):
            return None
        columns = [name.strip() for name in first]
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        return [
            (
                float(row["time"]),
                row["id"].strip(" \t\r\n\u00a0"),
                [float(row[name]) for name in columns if name not in ("time", "id")],
            )
            for row in found
        ]
    except (UnicodeError, csv.Error, ValueError, KeyError, IndexError):
        return None


def slow_steps(text):
    rows = slow_rows(text)
    if rows is None or not all(name and np.isfinite([time, *values]).all() for time, name, values in rows):
        return None
    order = list(dict.fromkeys(name for _, name, _ in rows))
    steps = {}
    for time, name, values in sorted(rows, key=lambda row: (row[0], order.index(row[1]))):
        steps.setdefault(time, []).append((name, values))
    return [
        (time, tuple(name for name, _ in found), [values for _, values in found])
        for time, found in steps.items()
    ]


def check(seed, folder):
    rng = np.random.default_rng(seed)
    text = mutated(original(rng), rng)
    file = folder / "f.csv"
    file.write_bytes(text)
    try:
        found = [
            (step.time, step.ids, step.values.tolist()) for step in read_steps(file, time="time", id="id")
        ]
    except AffectError as error:
        said = str(error)
        known = re.search(r"line \d+ of|row \d+ of|id .* has \d+ rows|column|is empty|encoding", said)
        assert known and "\n  file = " not in said, (seed, text, said)
        return
    assert found == slow_steps(text), (seed, text)


@pytest.mark.parametrize("batch", range(4))
def test_damaged_files(batch, tmp_path):
    for seed in range(batch, COUNT, 4):
        check(seed, tmp_path)


def test_a_damaged_file_that_starts_with_a_carriage_return(tmp_path):
    check(2904, tmp_path)


@pytest.mark.parametrize("above", ["", "\r", "\n", "\r\n", "\n\r\n", "\r\n\n", "\n\n\r"])
@pytest.mark.parametrize("rows", ["", "1,a,2\n1,b,3\n", "1,a,2\r1,b,3\n", "1,a,2\r\n1,b,3\r\n"])
@pytest.mark.parametrize("names", [None, ["time", "id", "x"]])
def test_lines_above_the_names_may_end_in_any_way(tmp_path, above, rows, names):
    file = tmp_path / "f.csv"
    first = "time,id,x\n" if names is None else "1,c,4\n"
    file.write_text(above + first + rows, newline="")
    found = [(step.time, step.ids) for step in read_steps(file, names=names)]
    ids = (*("c" if names else ""), *("ab" if rows else ""))
    assert found == ([(1, ids)] if ids else [])


@pytest.mark.parametrize("first", ['""time,id,x', 'time,""id,x'])
def test_a_file_with_rows_does_not_give_no_steps(tmp_path, first):
    """DuckDB, which skips the first line, takes text after a closed quote for one that is still open."""
    file = tmp_path / "f.csv"
    file.write_text(f"{first}\n\n1,a,2\n")
    with pytest.raises(InputError, match=r"no row of .*f\.csv was read, not even '1,a,2.*; correct"):
        read_steps(file)
    file.write_text(f"{first}\n\n")
    assert list(read_steps(file, time="time", id="id")) == []
