"""Type aliases for arrays, namespaces and seeds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any  # an array of any library that follows the array API standard
Namespace = Any  # the module of such a library
Seed = int | Sequence[int] | np.random.Generator | None
