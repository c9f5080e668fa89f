"""Access to the array libraries."""

import logging

import numpy as np
import pytest

from affect_xp.array.namespace import as_array, gather, one_hot, row_blocks, to_host, wide_dtype
from affect_xp.exceptions import InputError, PrecisionWarning


def test_sums_are_in_float64(eager_xp):
    assert "float64" in str(wide_dtype(eager_xp.array([1.0], np.float32)))


def test_a_device_without_float64_is_named(monkeypatch):
    strict = pytest.importorskip("array_api_strict")
    x = strict.asarray([1.0], dtype=strict.float32, device=strict.Device("no_float64"))
    with pytest.warns(PrecisionWarning, match="has no float64: sums are accumulated in float32"):
        assert wide_dtype(x) == strict.float32
    assert wide_dtype(x) == strict.float32  # one warning only


def test_products_of_few_bits_are_told(monkeypatch):
    cupy = pytest.importorskip("cupy")
    monkeypatch.setattr("affect_xp.array.namespace._WIDE_DTYPES", {})
    monkeypatch.setenv("CUPY_TF32", "1")
    with pytest.warns(PrecisionWarning, match="CUPY_TF32 is set: .* unset it before Python starts"):
        wide_dtype(cupy.zeros(1))


def test_several_arrays_come_to_the_host_in_one_transfer(eager_xp, caplog):
    with caplog.at_level(logging.DEBUG, logger="affect_xp"):
        a, b, c = to_host(
            eager_xp.array([[1, 2], [3, 4]]), eager_xp.array(5), eager_xp.array([0.5]), reason="a test"
        )
    assert a.tolist() == [[1, 2], [3, 4]] and b == 5 and c.tolist() == [0.5]
    assert caplog.messages == ["device to host: a test"]


def test_one_hot(eager_xp):
    z = one_hot(eager_xp.array([1, -1, 0]), 2, eager_xp.xp.float64)
    assert eager_xp.numpy(z).tolist() == [[0, 1], [0, 0], [1, 0]]


def test_gather(eager_xp):
    x = eager_xp.array([[1.0, 2.0], [3.0, 4.0]])
    assert eager_xp.numpy(gather(x, eager_xp.array([1, -1, 0]), 9)).tolist() == [
        [3, 4],
        [9, 9],
        [1, 2],
    ]


@pytest.mark.parametrize(("n", "rows"), [(10, None), (1, None), (7, 3), (7, 0)])
def test_row_blocks_cover_all_rows_once(eager_xp, small_blocks, n, rows):
    x = eager_xp.array(np.zeros((n, n)))
    covered = [i for block in row_blocks(x, rows) for i in range(block.start, block.stop)]
    assert covered == list(range(n if rows is None else rows))


def test_rows_of_different_length():
    with pytest.raises(InputError, match="differ in length"):
        as_array([[1.0, 2.0], [3.0]])
