"""The number of fuzz examples: few in the suite, AFFECT_XP_FUZZ for all tests together in a long run."""

import os

import pytest
from hypothesis import HealthCheck, settings

IS_LONG = "AFFECT_XP_FUZZ" in os.environ
EXAMPLES = int(os.environ.get("AFFECT_XP_FUZZ", "180"))
PARTS = 4 if IS_LONG else 1  # which can run in parallel


def fuzz(share):
    """Run a test on its share of all examples; short runs use the same examples each time."""

    def decorate(test):
        settled = settings(
            max_examples=max(10, int(share * EXAMPLES / PARTS) + 1),
            deadline=None,
            derandomize=not IS_LONG,
            suppress_health_check=[
                HealthCheck.too_slow,
                HealthCheck.data_too_large,
                HealthCheck.filter_too_much,
            ],
        )(test)
        return pytest.mark.parametrize("part", range(PARTS))(settled)

    return decorate
