"""Read .npz files safely: they may be truncated, of another kind, or malicious."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from affect_xp.exceptions import InputError


def existing_file(path: str | Path) -> Path:
    """Return the path of an existing file."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"path must be a file, but {path} is a folder; name the file in it")
    if not path.is_file():
        raise InputError(f"path must be a file, but {path} does not exist; check its name and folder")
    return path


def read_npz(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Return the named arrays of an .npz file, without unpickling."""
    names = tuple(names)
    try:
        # Given the path, NumPy would leave a broken file open.
        with path.open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            found = list(getattr(stored, "files", []))  # a single array has none
            missing = [name for name in names if name not in found]
            arrays = {} if missing else {name: np.asarray(stored[name]) for name in names}
    except Exception as error:  # many kinds, depending on the damage
        raise InputError(
            f"{path} cannot be read as an .npz file of plain arrays ({type(error).__name__}: {error}); "
            "it may be truncated or of another kind: fetch it again"
        ) from error
    if missing:
        raise InputError(
            f"{path} lacks {', '.join(missing)}; it contains {', '.join(found) or 'no named arrays'}; "
            "use the .npz file that the documentation describes"
        )
    return arrays
