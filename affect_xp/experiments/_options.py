"""Options of an experiment; the command line shares them."""

import dataclasses
import os
from pathlib import Path

from affect_xp.exceptions import InputError


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of an experiment.

    Parameters
    ----------
    runs : int, optional
        The number of repetitions with different random numbers; None for that of the paper.
    seed : int
        The seed of all random numbers.
    jobs : int
        The number of processes.
    data : Path, optional
        The folder with `reality.npz` and `nasdaq2008.npz`; by default the value of the environment variable
        AFFECT_XP_DATA.
    show : bool
        Whether to report progress on stderr.
    """

    runs: int | None = None
    seed: int = 0
    jobs: int = 1
    data: Path | None = None
    show: bool = False

    def __post_init__(self) -> None:
        for name, least in (("runs", 1), ("jobs", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} must be at least {least}, got {value}")

    def find_data(self, name: str) -> Path | None:
        """Return the path of a file of real data, or None if it does not exist."""
        folder = self.data or os.environ.get("AFFECT_XP_DATA")
        path = Path(folder) / name if folder else None
        return path if path is not None and path.is_file() else None

    def data_file(self, name: str) -> Path:
        """Return the path of a file of real data; raise if it does not exist."""
        path = self.find_data(name)
        if path is None:
            folder = self.data or os.environ.get("AFFECT_XP_DATA")
            where = f"there is no {name} in {folder}" if folder else f"the file {name} is needed"
            raise InputError(f"{where}; set the folder that contains it by --data or AFFECT_XP_DATA")
        return path
