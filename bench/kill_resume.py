"""Repeatedly kill and resume a run that saves at each step, and compare it with an uninterrupted run.

    python bench/kill_resume.py --kills 200
    python bench/kill_resume.py --kills 0 --mutations 20000     # change bytes of a file and load it

A run of a few steps, with objects that come and go, is started in a child process, killed (SIGKILL) at a
random time and resumed from its file until it is complete. The final file must equal that of an uninterrupted
run byte for byte: the same labels, α and smoothed proximities. Runs of several kinds alternate until the
number of kills is reached. Needs os.fork.

Mutations change, drop or repeat some bytes of the whole file or of one of its members, and correct the
checksums. Loading such a file must return a model or raise an error of the library.
"""

import argparse
import contextlib
import hashlib
import io
import os
import signal
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse

import affect_xp as ax
from affect_xp.exceptions import AffectError, FileFormatError
from affect_xp.persistence import load, save
from affect_xp.persistence._archive import DIGEST, MARK

K = 3
LONGEST = 0.5  # maximum seconds before a kill, if the disk is slow


def models() -> list[tuple[str, ax.Affect | ax.PCM]]:
    """Return a new model of each kind, and a function that makes the input of its steps."""
    return [
        ("dense", ax.Affect(ax.KMeans(K), random_state=1)),
        ("features", ax.Affect(ax.KMeans(K), proximity="dot", random_state=1)),
        ("sparse", ax.Affect(ax.KMeans(K), random_state=1)),
        (
            "features",
            ax.Affect(ax.Spectral(K, objective="average_association"), proximity="dot", random_state=1),
        ),
        ("features", ax.Affect(ax.Linkage(K), proximity="euclidean", random_state=1)),
        ("dense", ax.PCM(ax.Spectral(K, objective="average_association"), random_state=1)),
    ]


def steps(kind: str, n: int, n_steps: int) -> Iterator[tuple[object, list[str]]]:
    """Yield the input and the ids of each step; a tenth of the objects is replaced at each."""
    for t in range(n_steps):
        rng = np.random.default_rng(t)
        ids = rng.permutation(np.arange(t * n // 10, t * n // 10 + n))
        x = 4 * np.eye(K)[ids % K] + rng.normal(size=(n, K))
        names = [f"object {i}" for i in ids.tolist()]
        if kind == "features":
            yield x, names
        elif kind == "dense":
            yield x @ x.T, names
        else:
            yield scipy.sparse.csr_array(np.where(x @ x.T > 4, x @ x.T, 0)), names


def run(index: int, path: Path, options: argparse.Namespace) -> None:
    """Continue from the file, if it exists, to the last step; save at each step."""
    kind, model = models()[index]
    if path.exists():
        model = load(path)
    for t, (observed, ids) in enumerate(steps(kind, options.n, options.steps)):
        if t >= model.n_steps_:
            model.partial_fit(observed, ids, time=t)
            save(model, path)


def killed(index: int, path: Path, delay: float | None, options: argparse.Namespace) -> bool:
    """Run in a child process, kill it after a delay if given, and return whether it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            run(index, path, options)
            code = 0
        os._exit(code)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit(f"a resumed run failed; its file is {path.read_bytes()[:200]!r}...")
    return os.WIFSIGNALED(status)


def kill(folder: Path, options: argparse.Namespace) -> None:
    """Kill runs of all kinds in turn, and compare their final files."""
    rng = np.random.default_rng(options.seed)
    kills = cuts = runs = 0
    whole: dict[int, tuple[bytes, float]] = {}
    while kills < options.kills:
        index, runs = runs % len(models()), runs + 1
        if index not in whole:
            start = time.perf_counter()
            run(index, folder / f"whole.{index}", options)
            whole[index] = ((folder / f"whole.{index}").read_bytes(), time.perf_counter() - start)
        expected, duration = whole[index]
        path, allowed = folder / f"run.{runs}", kills + max(1, options.kills // len(models()))
        while killed(index, path, _delay(duration, rng) if kills < allowed else None, options):
            kills += 1
            cuts += any(folder.glob(f".run.{runs}.*.tmp"))  # killed while writing
        if path.read_bytes() != expected:
            raise SystemExit(f"run {runs} ({models()[index]}) differs from an uninterrupted run")
        path.unlink()
    left = [p.name for p in folder.glob(".*")]
    print(f"{kills} kills, {cuts} of them while a file was written, in {runs} runs of {options.steps} steps")
    print(f"every run ended with the same file, byte for byte; files left behind: {left or 'none'}")


def members(data: bytes) -> dict[str, bytes]:
    """Return the members of a file by name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rebuilt(contents: dict[str, bytes]) -> bytes:
    """Return a file with these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
        archive.comment = MARK + b"0" * DIGEST
    return signed(file.getvalue())


def forged(data: bytes, rng: np.random.Generator) -> bytes:
    """Return a modified file with correct checksums."""
    if rng.integers(4) == 0:
        return signed(mutated(data, rng))
    contents = members(data)
    name = str(rng.choice(list(contents)))
    return rebuilt({**contents, name: mutated(contents[name], rng)})


def _delay(duration: float, rng: np.random.Generator) -> float:
    return rng.uniform(0, min(duration / 2, LONGEST))


def signed(data: bytes) -> bytes:
    """Return the contents of a file with the correct checksum."""
    return data[:-DIGEST] + hashlib.sha256(data[:-DIGEST]).hexdigest().encode()


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Return data with a few bytes changed, dropped or repeated."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at, length = int(rng.integers(len(changed))), int(rng.integers(1, 9))
        kind = rng.integers(4)
        if kind == 0:
            changed[at] = int(rng.integers(256))
        elif kind == 1:
            del changed[at : at + length]
        elif kind == 2:
            changed[at:at] = changed[at : at + length]
        else:
            changed[at : at + length] = rng.bytes(length)
    return bytes(changed)


def mutate(folder: Path, options: argparse.Namespace) -> None:
    """Load many modified files."""
    rng = np.random.default_rng(options.seed)
    small = argparse.Namespace(n=9, steps=3)
    counts = {"read as a model": 0, "refused": 0}
    for i in range(options.mutations):
        index, path = i % len(models()), folder / "mutated"
        original = folder / f"original.{index}"
        if not original.exists():
            run(index, original, small)
        path.write_bytes(forged(original.read_bytes(), rng))
        try:
            load(path)
            counts["read as a model"] += 1
        except AffectError:
            counts["refused"] += 1
        data = mutated(original.read_bytes(), rng)
        if data != original.read_bytes():
            path.write_bytes(data)
            with contextlib.suppress(FileFormatError):
                load(path)
                raise SystemExit("a file with a wrong checksum was read")
    print(f"{options.mutations} files with changed bytes and corrected checksums: {counts}")
    print("without corrected checksums: all rejected")


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--mutations", type=int, default=0)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.kills:
            kill(Path(folder), options)
        if options.mutations:
            mutate(Path(folder), options)


if __name__ == "__main__":
    main()
