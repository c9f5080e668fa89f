"""Damaged files of each kind: each gives steps or an error of this library, never another exception."""

import gzip
import io
import json
import os
import warnings

import numpy as np
import pytest
import scipy.sparse

from affect_xp.exceptions import AffectError
from affect_xp.io import read_steps
from tests.first_contact.reading.test_mutations import mutated

COUNT = int(os.environ.get("AFFECT_XP_MUTATIONS", "60")) // 6

EDGES = "time,source,target,weight\n" + "".join(
    f"2024-01-{t:02},n{a},n{a + b},{a + t}\n" for t in range(1, 5) for a in range(4) for b in (1, 2)
)
WIDE = "Date,AAPL,MSFT,IBM\n" + "".join(f"{d}/01/2024,{d / 7:.3f},{-d},1e3\n" for d in range(10, 22))
TIDY = "date;symbol;price\n" + "".join(f"2024-01-0{d} 09:30;{s};{d},5\n" for d in range(1, 7) for s in "ABC")
JSON = "".join(json.dumps({"time": t, "id": f"n{i}", "x": t + i}) + "\n" for t in range(3) for i in range(4))
BLANKS = "# made by hand\ntime id x\n" + "".join(f"{t} a{i}  {i}\n" for t in range(3) for i in range(4))


def stored(write, *arrays, **named):
    """Return the bytes that a function writes to a file."""
    file = io.BytesIO()
    write(file, *arrays, **named)
    return file.getvalue()


def savemat(file, W, **options):
    from scipy.io import savemat

    savemat(file, {"W": W}, **options)


STACK = np.ones((3, 4, 4))
KINDS = {
    "edges.csv": (EDGES.encode(), {}),
    "edges in latin-1.csv": (EDGES.encode(), {"encoding": "latin-1"}),
    "edges with gaps.csv": (EDGES.encode(), {"missing": "drop", "directed": "sum"}),
    "edges.csv.gz": (gzip.compress(EDGES.encode()), {}),
    "wide.csv": (WIDE.encode(), {"freq": "3 rows"}),
    "tidy.csv": (TIDY.encode(), {"freq": "2D", "value": "price", "decimal": ","}),
    "blanks.txt": (BLANKS.encode(), {}),
    "lines.jsonl": (JSON.encode(), {}),
    "stack.npy": (stored(np.save, STACK), {}),
    "stack.npz": (stored(np.savez, W=STACK, ids=list("abcd")), {}),
    "matrices.npz": (stored(np.savez, *STACK), {}),
    "sparse.npz": (stored(scipy.sparse.save_npz, scipy.sparse.eye_array(4).tocsr()), {}),
    "stack.mat": (stored(savemat, STACK), {}),
    "compressed.mat": (stored(savemat, STACK, do_compression=True), {}),
    "of version 4.mat": (stored(savemat, STACK[0], format="4"), {}),
}


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_of_a_kind(name, tmp_path):
    original, options = KINDS[name]
    file = tmp_path / name
    file.write_bytes(original)
    assert len(list(read_steps(file, **options))) > 0
    for seed in range(COUNT):
        text = mutated(original, np.random.default_rng(seed))
        file.write_bytes(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                list(read_steps(file, **options))
            except AffectError as error:
                assert str(file) in str(error) or " id " in f" {error}", (seed, text, str(error))
