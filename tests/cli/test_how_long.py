"""Time and memory of a step by the number of objects."""

import numpy as np
import pytest

from affect_xp.cli import how_long
from affect_xp.cli.how_long import Growth, Prediction
from affect_xp.cli.libraries import Memory


def test_a_power_is_found_again():
    found = Growth((100, 300, 900), tuple(2e-6 * n**1.5 for n in (100, 300, 900)), least=1)
    assert found.exponent == pytest.approx(1.5)
    assert found(10_000) == pytest.approx(2.0)
    assert found(200) == pytest.approx(2e-6 * 200**1.5)


def test_overhead_of_small_sizes_does_not_hide_the_growth():
    found = Growth((100, 200), (1.0 + 1e-5 * 100**2, 1.0 + 1e-5 * 200**2), least=2)
    assert found.exponent == 2
    assert found(2_000) == pytest.approx(1.0 + 1e-5 * 2_000**2)
    assert found(10) == found(100)


@pytest.mark.parametrize("kind", how_long.KINDS, ids=lambda kind: kind.title)
def test_each_kind_can_be_measured(kind):
    (found,) = how_long.measured([kind], scale=0.05, rounds=1)
    assert found.title == kind.title
    assert found.seconds(1000) > 0
    # A step of n objects holds W and Ψ̂, which for arrays are 2n² numbers.
    is_dense = kind.step(50, 0).shape == (50, 50) and isinstance(kind.step(50, 0), np.ndarray)
    assert not is_dense or how_long._peak(kind, 300) >= 2 * 8 * 300**2


def power(a: float, b: float) -> Growth:
    return Growth((1_000, 2_000), (a * 1_000**b, a * 2_000**b), b)


def test_the_table_tells_what_does_not_fit():
    found = [
        Prediction("dense, k-means", power(1e-7, 2), power(20.0, 2)),
        Prediction("other", power(1e-6, 1), power(1.0, 1)),
    ]
    text = how_long.table(found, Memory(free=2**30, total=2 * 10**9), sizes=(1_000, 100_000))
    header, _, first, second = text.splitlines()
    assert header == "| step | n = 1,000 | n = 100,000 | time grows as | memory as |"
    assert first == "| dense, k-means | 100 ms, 20 MB | needs 200 GB | n^2.0 | n^2.0 |"
    assert second == "| other | 1.0 ms, 0.0010 MB | 100 ms, 0.10 MB | n^1.0 | n^1.0 |"
