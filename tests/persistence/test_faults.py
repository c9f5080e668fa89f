"""Damaged, forged or unwritable files: clear errors, no code execution, and the old file is intact."""

import contextlib
import errno
import functools
import io
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import scipy.sparse
from hypothesis import strategies

import affect_xp as ax
from affect_xp import files
from affect_xp.exceptions import AffectError, FileFormatError, InputError, SaveError
from affect_xp.models.base import Evolving
from affect_xp.persistence import _archive, load, save

resource = pytest.importorskip("resource")  # not on Windows

TOOL = Path(__file__).parents[2] / "bench" / "kill_resume.py"


def fitted(kind="dense"):
    x = np.random.default_rng(0).normal(size=(8, 2)) + np.repeat([[3, 0], [0, 3]], 4, axis=0)
    if kind == "features":
        return ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).fit(
            [x, x], ids=[range(8), range(1, 9)]
        )
    if kind == "objects":
        w = np.exp(-((x[:, None] - x) ** 2).sum(axis=2) / 9)
        return ax.Affect(ax.KMeans(2), forgetting="objects", rescale=None, random_state=0).fit([w, w])
    w = scipy.sparse.csr_array(x @ x.T) if kind == "sparse" else x @ x.T
    if kind == "chunked":
        w = pytest.importorskip("dask.array").from_array(w, chunks=4)
    return ax.Affect(ax.KMeans(2), random_state=0).fit([w, w], ids=[list("abcdefgh")] * 2)


@functools.cache
def saved(kind="dense"):
    """Return the contents of a file."""
    with tempfile.TemporaryDirectory() as folder:
        save(fitted(kind), Path(folder, "file"))
        return Path(folder, "file").read_bytes()


def members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def signed(data):
    """Return the contents of a file with the correct checksum."""
    size = len(data) - _archive.DIGEST
    return data[:size] + _archive._digest(io.BytesIO(data), size)


def rebuilt(contents, compression=zipfile.ZIP_STORED):
    """Return a file with these members and a correct checksum."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in contents:
            archive.writestr(name, content)
        archive.comment = _archive.MARK + b"0" * _archive.DIGEST
    return signed(file.getvalue())


def edited(edit, kind="dense"):
    """Return a file with an edited header."""
    contents = members(saved(kind))
    header = json.loads(contents["header.json"])
    edit(header)
    return rebuilt({**contents, "header.json": json.dumps(header)}.items())


def npy(array, allow_pickle=False):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def loaded(data):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "file").write_bytes(data)
        return load(Path(folder, "file"))


class TestDamage:
    def test_every_byte_counts(self, tmp_path):
        data = saved()
        (tmp_path / "file").write_bytes(data)
        with open(tmp_path / "file", "r+b", buffering=0) as file:
            for i, byte in enumerate(data):
                os.pwrite(file.fileno(), bytes([byte ^ (1 << i % 8)]), i)
                with pytest.raises(FileFormatError, match=r"damaged: the checksum|not a model saved by"):
                    load(tmp_path / "file")
                os.pwrite(file.fileno(), data[i : i + 1], i)

    def test_every_cut_is_seen(self):
        data = saved()
        for size in [*range(0, len(data), 97), len(data) - 1]:
            with pytest.raises(FileFormatError, match="not a model saved by affect_xp, or its end is"):
                loaded(data[:size])

    def test_nothing_may_follow(self):
        with pytest.raises(FileFormatError, match="not a model saved by affect_xp"):
            loaded(saved() + b"\0")

    @pytest.mark.parametrize("data", [b"", b"PK", b"a,b\n1,2\n" * 50, npy(np.eye(3)), pickle.dumps([1] * 99)])
    def test_other_files(self, data):
        with pytest.raises(FileFormatError, match="not a model saved by affect_xp"):
            loaded(data)

    def test_another_npz(self, tmp_path):
        np.savez(tmp_path / "other.npz", smoothed=np.eye(3))
        with pytest.raises(FileFormatError, match="not a model saved by affect_xp"):
            load(tmp_path / "other.npz")

    def test_no_file(self, tmp_path):
        with pytest.raises(InputError, match=r"'.*nothing' cannot be opened: No such file"):
            load(tmp_path / "nothing")
        with pytest.raises(InputError, match="cannot be opened: Is a directory"):
            load(tmp_path)

    def test_newer_version(self):
        data = edited(lambda header: header.update(version=3, affect_xp="9.0", state="of another kind"))
        with pytest.raises(
            FileFormatError, match=r"written by affect_xp 9.0 in format version 3, .* install a newer"
        ):
            loaded(data)

    def test_rules_of_an_earlier_version_get_the_defaults_of_new_ones(self):
        def edit(header):
            kind, fields = header["parameters"]["events"]["settings"]
            assert kind == "EventRules"
            for name in ("continuity", "min_share", "min_objects"):
                del fields[name]
            fields["part"] = 0.25

        model = loaded(edited(edit))
        assert model.events == ax.EventRules(part=0.25)
        w = np.kron(np.eye(2), np.ones((4, 4)))
        assert model.partial_fit(w, ids=list("abcdefgh")).n_steps_ == 3

    def test_another_format(self):
        with pytest.raises(FileFormatError, match="contains 'affect_xp graph', not a model"):
            loaded(edited(lambda header: header.update(format="affect_xp graph")))


class TestForgery:
    """Files with a correct checksum but invalid contents."""

    def refused(self, data, reason):
        with pytest.raises(FileFormatError, match=f"contents are inconsistent .*{reason}"):
            loaded(data)

    def test_a_forged_file_can_be_made(self):
        assert loaded(edited(lambda header: None)).n_steps_ == 2

    def test_pickled_arrays_are_not_opened(self):
        class Bomb:
            def __reduce__(self):
                return (exec, ("raise SystemExit('executed')",))

        bomb = np.empty(1, dtype=object)
        bomb[0] = Bomb()
        contents = {**members(saved()), "smoothed.npy": npy(bomb, allow_pickle=True)}
        self.refused(rebuilt(contents.items()), "an array of dtype object")

    def test_sizes_are_checked_before_anything_is_allocated(self):
        header = npy(np.eye(2)).replace(b"(2, 2)", b"(1000000000, 1000000000)")
        contents = {**members(saved()), "smoothed.npy": header}
        self.refused(rebuilt(contents.items()), "smoothed does not have the declared size|unknown header")

    def test_headers_of_python_2_are_refused(self):
        contents = members(saved())
        given = contents["smoothed.npy"]
        contents["smoothed.npy"] = given.replace(b"(8, 8), }  ", b"(8L, 8L), }")
        assert contents["smoothed.npy"] != given
        self.refused(rebuilt(contents.items()), "unknown header")

    def test_a_huge_range_of_ids_is_not_listed(self):
        def edit(header):
            header["state"]["ids"] = header["history"][-1]["ids"] = {"range": [0, size, 1]}

        size = 9
        self.refused(edited(edit), "9 ids for 8 objects")
        size = 10**15
        self.refused(edited(edit), "a range of 1000000000000000 entries")

    @pytest.mark.parametrize("place", [("alpha",), ("clusterer", "n_clusters"), ("events", "part")])
    @pytest.mark.parametrize("stop", [10**12, {"int": hex(10**30)}])
    def test_a_parameter_is_no_longer_than_the_file(self, place, stop):
        def edit(header):
            fields = header["parameters"]
            for name in place[:-1]:
                fields = fields[name]["settings"][1]
            fields[place[-1]] = {"range": [0, stop, 1]}

        self.refused(edited(edit), "a range of|OverflowError")

    @pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400, str(2**53), "1e999", "NaN", "-Infinity"])
    @pytest.mark.parametrize("name", ["n_iter", "max_absence", "random_state", "gamma"])
    def test_a_number_is_one_that_could_be_saved(self, name, number):
        contents = members(saved())
        header = json.loads(contents["header.json"])
        header["parameters"][name] = "HERE"
        text = json.dumps(header).replace('"HERE"', number)
        reason = "a number of .* digits|is not a finite number"
        self.refused(rebuilt({**contents, "header.json": text}.items()), reason)

    def test_an_integer_with_a_tag_has_at_most_256_bits(self):
        largest = 2**256 - 1
        model = loaded(edited(lambda h: h["parameters"].update(random_state={"int": hex(-largest)})))
        assert model.random_state == -largest
        edit = lambda h: h["parameters"].update(random_state={"int": hex(largest + 1)})  # noqa: E731
        self.refused(edited(edit), "an integer of more than 256 bits")
        with pytest.raises(InputError, match="id has 257 bits; use integers of at most 256 bits"):
            save(ax.Static(ax.KMeans(1)).partial_fit(np.eye(2), ids=[0, largest + 1]), "nowhere")

    @pytest.mark.parametrize(
        ("place", "name"), [((), "n_iter"), ((), "max_absence"), (("clusterer",), "n_init")]
    )
    def test_a_number_of_repetitions_is_bounded(self, place, name):
        def edit(header):
            fields = header["parameters"]
            for part in place:
                fields = fields[part]["settings"][1]
            fields[name] = 10**8

        self.refused(edited(edit), f"{name}=100000000 is larger than 10000000")

    def test_there_are_no_more_clusters_than_objects(self):
        def edit(header):
            many = list(range(10**4))
            header["state"].update(k=10**4, groups=None)
            header["state"]["clusters"].update(names=many, sizes=many)

        self.refused(edited(edit), "8 objects in 10000 clusters")

    def test_members_of_clusters_are_not_multiplied(self):
        def edit(header):
            dormant = [[7, 0, [0, stop]] for stop in range(1, 9)] * 1000
            header["state"]["clusters"]["dormant"] = dormant

        self.refused(edited(edit), "no ids at 0 to")

    def test_compressed_members_are_refused(self):
        contents = {**members(saved()), "smoothed.npy": npy(np.zeros((2000, 2000)))}
        self.refused(rebuilt(contents.items(), zipfile.ZIP_DEFLATED), "a member is compressed")

    def test_two_members_of_one_name(self):
        with pytest.warns(UserWarning, match="Duplicate name"):
            data = rebuilt([*members(saved()).items(), ("smoothed.npy", npy(np.eye(8)))])
        self.refused(data, "two members have the same name")

    def test_names_that_are_paths_are_ignored(self, tmp_path):
        path = tmp_path / "folder" / "file"
        path.parent.mkdir()
        path.write_bytes(
            rebuilt([*members(saved()).items(), ("../evil.npy", npy(np.eye(2))), ("/evil", b"evil")])
        )
        assert load(path).n_steps_ == 2
        assert [p.name for p in tmp_path.rglob("*")] == ["folder", "file"]

    def test_columns_beyond_the_matrix(self):
        contents = members(saved("sparse"))
        indices = np.load(io.BytesIO(contents["smoothed.indices.npy"]))
        indices[3] = 10**6
        self.refused(rebuilt({**contents, "smoothed.indices.npy": npy(indices)}.items()), "indices")

    @pytest.mark.parametrize(
        ("name", "array"),
        [
            ("partition", np.full(8, 2)),
            ("partition", np.full(8, -2)),
            ("partition", np.zeros(7, dtype=int)),
            ("partition", np.zeros(8)),
            ("smoothed", np.eye(7)),
            ("smoothed", np.ones((8, 7))),
            ("smoothed", np.eye(8, dtype=complex)),
            ("product", np.ones((7, 2))),
            ("labels", np.zeros(15, dtype=np.int8)),
            ("places", np.full(8, 99)),
        ],
    )
    def test_arrays_that_do_not_fit(self, name, array):
        self.refused(rebuilt({**members(saved()), f"{name}.npy": npy(array)}.items()), "")

    def test_sums_of_squares_that_do_not_fit(self):
        contents = members(saved("objects"))
        assert "squares.npy" in contents
        self.refused(rebuilt({**contents, "squares.npy": npy(np.ones((3, 3)))}.items()), "squares")

    @pytest.mark.parametrize("name", ["smoothed.weights", "smoothed.mask.2", "smoothed.diagonal", "product"])
    def test_factors_that_do_not_fit(self, name):
        contents = members(saved("features"))
        assert f"{name}.npy" in contents
        self.refused(rebuilt({**contents, f"{name}.npy": npy(np.ones((3, 3)))}.items()), "")

    @pytest.mark.parametrize("sizes", [[4, 5], [4, 4, 4], [1] * 100_000, [8], [4, -4], []])
    def test_chunks_that_do_not_fit(self, sizes):
        self.refused(edited(lambda h: h["state"]["smoothed"].update(sizes=sizes), "chunked"), "")

    @pytest.mark.parametrize(
        "edit",
        [
            lambda h: h.update(model="Evolving"),
            lambda h: h.update(model="__import__"),
            lambda h: h["parameters"].update(clusterer={"settings": ["os.system", {"command": "false"}]}),
            lambda h: h["parameters"].update(colour=1),
            lambda h: h["parameters"].update(alpha={"eval": "1"}),
            lambda h: h["state"]["smoothed"].update(kind="Pickled"),
            lambda h: h["state"].update(k=3),
            lambda h: h.pop("state"),
            lambda h: h.update(version="new"),
            lambda h: h["history"].pop(),
        ],
    )
    def test_headers_that_do_not_fit(self, edit):
        self.refused(edited(edit), "")

    @hypothesis.given(strategies.data())
    @hypothesis.settings(max_examples=2 * hypothesis.settings().max_examples)
    def test_any_change_of_bytes_is_a_model_or_an_error_of_ours(self, data):
        kind = data.draw(strategies.sampled_from(["dense", "sparse", "features"]))
        contents = members(saved(kind))
        name = data.draw(strategies.sampled_from([None, "header.json", *contents]))
        changed = bytearray(saved(kind) if name is None else contents[name])
        for _ in range(data.draw(strategies.integers(1, 3))):
            at = data.draw(strategies.integers(0, len(changed)))
            length = data.draw(strategies.integers(0, 4))
            changed[at : at + length] = data.draw(strategies.binary(max_size=4))
        self.check(signed(changed) if name is None else rebuilt({**contents, name: changed}.items()))

    @hypothesis.given(strategies.data())
    @hypothesis.settings(max_examples=2 * hypothesis.settings().max_examples)
    def test_any_change_of_the_header_is_a_model_or_an_error_of_ours(self, data):
        def edit(header):
            place = header
            while True:
                key = data.draw(strategies.sampled_from(_keys(place)))
                if not _keys(place[key]) or data.draw(strategies.integers(0, 5)) == 0:
                    break
                place = place[key]
            place[key] = data.draw(JSON)

        self.check(edited(edit, data.draw(strategies.sampled_from(["dense", "sparse", "features"]))))

    @staticmethod
    def check(data):
        with contextlib.suppress(AffectError):
            assert isinstance(loaded(data), Evolving)


JSON = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers(-5, 10**6)
    | strategies.integers(2**62, 2**65)
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | strategies.sampled_from(["smoothed", "labels", "partition", "", "header"]),
    lambda inner: (
        strategies.lists(inner, max_size=3)
        | strategies.dictionaries(
            strategies.sampled_from(
                ["array", "range", "tuple", "numpy", "date", "settings", "int", "float", "left out"]
            ),
            inner,
            max_size=1,
        )
    ),
)


def _keys(value):
    return (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )


class TestWriting:
    """After any failure, the previous files are intact, and there are no others."""

    @pytest.fixture
    def old(self, tmp_path):
        path = tmp_path / "model"
        save(ax.Affect(ax.KMeans(5)), path)
        yield path
        assert [p.name for p in tmp_path.iterdir()] == ["model"]
        assert load(path).clusterer.n_clusters == 5

    @pytest.mark.parametrize("room", [0, 1000, -1], ids=["no room", "some room", "room for all but a byte"])
    def test_full_disk(self, old, room, monkeypatch):
        class Disk(io.FileIO):
            def write(self, data):
                if self.tell() + len(data) > room % len(saved()):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return super().write(data)

        def full(file, mode="r"):
            return io.BufferedRandom(Disk(file, "x+")) if mode == "x+b" else open(file, mode)

        saved()
        monkeypatch.setattr(files, "open", full, raising=False)
        with pytest.raises(
            SaveError, match=r"No space left on device; free some space .* is unchanged"
        ) as caught:
            save(fitted(), old)
        assert caught.value.errno == errno.ENOSPC

    def test_files_may_not_be_larger(self, old):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
            with pytest.raises(SaveError, match="File too large"):
                save(fitted(), old)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)

    @pytest.mark.parametrize("name", ["fsync", "replace"])
    def test_the_last_strokes_fail(self, old, name, monkeypatch):
        def failing(*_):
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(files.os, name, failing)
        with pytest.raises(SaveError, match="Input/output error"):
            save(fitted(), old)

    def test_read_only_folder(self, old, monkeypatch):
        def read_only(file, mode="r"):
            if "x" in mode:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return open(file, mode)

        monkeypatch.setattr(files, "open", read_only, raising=False)
        with pytest.raises(
            SaveError, match="cannot be written: Read-only file system; free some space or choose an"
        ):
            save(fitted(), old)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_folder_of_another(self, old):
        old.parent.chmod(0o500)
        try:
            with pytest.raises(SaveError, match="Permission denied"):
                save(fitted(), old)
        finally:
            old.parent.chmod(0o700)

    def test_interrupt(self, old, monkeypatch):
        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(_archive, "_write_array", interrupted)
        with pytest.raises(KeyboardInterrupt):
            save(fitted(), old)

    def test_no_such_folder(self, tmp_path):
        with pytest.raises(SaveError, match="No such file or directory"):
            save(fitted(), tmp_path / "nowhere" / "model")
        with pytest.raises(InputError, match="is a folder; give the name of a file in it"):
            save(fitted(), tmp_path)

    def test_what_a_killed_process_left_is_swept_up(self, old):
        left = old.with_name(".model.0123abcd.tmp")
        left.write_bytes(b"half of a model")
        save(ax.Affect(ax.KMeans(5)), old)

    def test_what_another_process_is_writing_stays(self, tmp_path):
        live = tmp_path / ".model.0123abcd.tmp"
        with open(live, "wb") as file:
            assert files._lock(file)
            save(fitted(), tmp_path / "model")
            assert live.exists()

    def test_many_at_once(self, tmp_path):
        models = [ax.Affect(ax.KMeans(k)) for k in range(2, 6)]

        def save_and_load(model):
            for _ in range(15):
                save(model, tmp_path / "model")
                assert load(tmp_path / "model").clusterer.n_clusters in range(2, 6)

        with ThreadPoolExecutor(len(models)) as threads:
            list(threads.map(save_and_load, models))
        assert [p.name for p in tmp_path.iterdir()] == ["model"]

    def test_what_was_begun_anew_is_not_swept_up(self, tmp_path, monkeypatch):
        left = tmp_path / ".model.0123abcd.tmp"
        left.write_bytes(b"of a process that was killed")
        lock = files._lock

        def begun_anew(file, *, wait=True):
            if not wait:
                left.unlink()
                left.write_bytes(b"of one that goes on")
            return lock(file, wait=wait)

        monkeypatch.setattr(files, "_lock", begun_anew)
        save(fitted(), tmp_path / "model")
        assert left.read_bytes() == b"of one that goes on"

    def test_names_that_mean_something_to_a_shell(self, tmp_path):
        other = tmp_path / ".a.0123abcd.tmp"
        other.write_bytes(b"of another model")
        save(fitted(), tmp_path / "[a]*")
        assert other.exists() and load(tmp_path / "[a]*").n_steps_ == 2

    def test_links_and_rights_stay(self, tmp_path):
        save(fitted(), tmp_path / "model")
        (tmp_path / "model").chmod(0o640)
        (tmp_path / "link").symlink_to("model")
        save(ax.Affect(ax.KMeans(5)), tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o640
        assert load(tmp_path / "model").clusterer.n_clusters == 5


@pytest.mark.skipif(not TOOL.exists(), reason="the tool is not here")
def test_killed_runs_resume_as_if_nothing_had_happened():
    command = [sys.executable, str(TOOL), "--kills", "6", "--steps", "4", "--n", "30"]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    assert "every run ended with the same file, byte for byte; files left behind: none" in out.stdout
