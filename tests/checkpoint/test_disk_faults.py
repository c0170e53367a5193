"""Every fault of a disk is one clear error; no other snapshot is lost, and nothing hangs."""

import errno
import gc
import os
import shutil
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checkpoint.disk_options import DISK_NAMES, DISKS, disk
from checkpoint.loops import RATE, STATE, scan_loss, scan_with
from pullback.checkpoint import Disk, Revolve, StorageError, storage_disk
from pullback.checkpoint.disk import checksum, lock, npy_file, optional
from pullback.checkpoint.disk.writer import Writer

TREE = (np.arange(50.0),)


def tree(value):
    return (np.full(50, float(value)),)


def reopened(path, name="npy", slots=3):
    """What the next process finds."""
    storage = disk(name, path)
    found = {slot: storage.recover(slot, TREE) for slot in range(slots)}
    return storage, found


@pytest.fixture(params=DISK_NAMES)
def left(request, tmp_path):
    """Three snapshots that a process has left, and the kind of the storage."""
    with disk(request.param, tmp_path) as storage:
        for slot in range(3):
            storage.put(slot, tree(slot))
        storage.preserve(True)
    (file,) = tmp_path.glob("snapshots-*")
    return request.param, tmp_path, file


def test_the_next_process_finds_them(left):
    name, path, _ = left
    storage, found = reopened(path, name)
    with storage:
        assert found == {0: True, 1: True, 2: True}
        assert [storage.get(slot)[0][7] for slot in range(3)] == [0.0, 1.0, 2.0]
        assert not storage.recover(1, TREE), "once"
        assert not storage.recover(4, TREE)
        assert not storage.recover(0, (np.arange(51.0),)), "of another shape"
        # New ones do not overwrite them.
        storage.put(3, tree(3))
        storage.put(1, tree(10))
        storage.flush()
        assert [storage.get(slot)[0][7] for slot in range(4)] == [0.0, 10.0, 2.0, 3.0]


def test_a_changed_byte_is_noticed(left):
    name, path, file = left
    data = bytearray(file.read_bytes())
    at = data.find(np.full(3, 1.0).tobytes())
    at = at if at >= 0 else len(data) - 30  # a compressed row; the last one
    data[at] ^= 4
    file.write_bytes(data)
    storage, _ = reopened(path, name)
    with storage:
        values = {}
        for slot in range(3):
            try:
                values[slot] = storage.get(slot)[0][7]
            except StorageError as error:
                assert "is damaged: " in str(error)
                assert str(file) in str(error)
        assert len(values) >= 2 or DISKS[name].get("format") == "hdf5"
        assert all(value == slot for slot, value in values.items())
        storage.put(1, tree(1))
        assert storage.get(1)[0][7] == 1.0


def test_any_changed_byte_of_a_row_is_noticed(tmp_path):
    with Disk(tmp_path) as storage:
        storage.put(0, (np.arange(2.0),))
        storage.preserve(True)
    (file,) = tmp_path.glob("snapshots-*")
    whole = file.read_bytes()
    for at in range(4096, len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with Disk(tmp_path) as storage:
            storage.preserve(True)
            if storage.recover(0, (np.arange(2.0),)):
                with pytest.raises(StorageError, match="is damaged"):
                    storage.get(0)


@pytest.mark.parametrize("keep", [0.0, 0.4, 0.7])
def test_a_truncated_file_is_noticed(left, keep):
    name, path, file = left
    size = file.stat().st_size
    start = 4096 if file.suffix == ".npy" else 0
    os.truncate(file, int(start + keep * (size - start)))
    storage = disk(name, path)
    with storage:
        n_good = 0
        for slot in range(3):
            try:
                assert storage.recover(slot, TREE)
                assert storage.get(slot)[0][7] == slot
                n_good += 1
            except StorageError as error:
                assert "damaged" in str(error) or "expected" in str(error)
            except AssertionError:
                assert not storage._kept.get(slot), "not found, or the right value"
        assert n_good < 3
        storage.put(0, tree(5))
        storage.flush()
        assert storage.get(0)[0][7] == 5.0


def test_a_missing_file_holds_nothing(left):
    name, path, file = left
    file.unlink()
    storage, found = reopened(path, name)
    with storage:
        assert found == {0: False, 1: False, 2: False}


def test_a_file_of_something_else_is_refused(left):
    name, path, file = left
    file.write_bytes(b"something else" * 1000)
    with disk(name, path) as storage:
        with pytest.raises(StorageError, match=r"`path`: expected .* remove the file"):
            storage.recover(0, TREE)
        storage.put(0, tree(3))  # it was in our folder under our name
        storage.flush()
        assert storage.get(0)[0][7] == 3.0


def test_a_limit_is_an_error_that_says_how_much(tmp_path):
    with Disk(tmp_path, max_bytes=1000) as storage:
        for slot in range(2):
            storage.put(slot, tree(slot))
        with pytest.raises(StorageError, match=r"`max_bytes`: .* 440 bytes, but 2 .* 880 of 1000"):
            storage.put(2, tree(2))
        assert [storage.get(slot)[0][7] for slot in range(2)] == [0.0, 1.0]
        storage.discard(0)
        storage.put(2, tree(2))  # in the room of the other
        storage.flush()
        assert storage.get(2)[0][7] == 2.0
        with pytest.raises(OSError, match="max_bytes") as raised:
            storage.put(1, tree(9))  # the old one must stay until the new one is written
        assert raised.value.errno == errno.ENOSPC
        assert storage.get(1)[0][7] == 1.0


class FullDisk:
    """A disk that takes some more bytes and then none; what fits is written."""

    def __init__(self, monkeypatch, room):
        self.room, self.write = room, os.pwrite
        monkeypatch.setattr(npy_file.os, "pwrite", self.pwrite)

    def pwrite(self, file, data, at):
        n = min(self.room, len(data))
        self.room -= n
        if n == 0 and len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.write(file, data[:n], at)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    with Disk(tmp_path) as storage:
        for slot in (0, 1, 2, 3, 0):  # replacing makes a spare row
            storage.put(slot, tree(slot))
        storage.flush()
        full = FullDisk(monkeypatch, room=100)
        storage.put(0, tree(10))
        with pytest.raises(StorageError, match=r"slot 0 could not be written .* No space left"):
            storage.flush()
        # Once: the loop may go on with what is in memory.
        storage.flush()
        assert [storage.get(slot)[0][7] for slot in range(4)] == [10.0, 1.0, 2.0, 3.0]
        full.room = 10**6
        storage.put(0, tree(20))
        storage.flush()
        assert storage.get(0)[0][7] == 20.0


def test_a_full_disk_ends_a_loop_but_not_the_storage(tmp_path, monkeypatch):
    with Disk(tmp_path) as storage:
        options = {"scheme": Revolve(4), "storage": storage, "block": 2}
        f = jax.value_and_grad(scan_loss(scan_with(**options)))
        want = f(RATE, STATE)
        full = FullDisk(monkeypatch, room=200)
        # A quick loop ends, right, before the first of its writes was tried: wait for each.
        submit = Writer.submit

        def submit_and_wait(*args):
            future = submit(*args)
            future.exception()
            return future

        monkeypatch.setattr(Writer, "submit", submit_and_wait)
        with pytest.raises(StorageError, match="No space left"):
            f(RATE, STATE)
        full.room = 10**6
        gc.collect()
        assert len(storage) == 0
        np.testing.assert_array_equal(f(RATE, STATE), want)


def test_no_room_to_grow(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with Disk(tmp_path) as storage:
        storage.put(0, tree(0))
        monkeypatch.setattr(npy_file.os, "posix_fallocate", refuse)
        with pytest.raises(StorageError, match=r"`path`: .*No space left.* Make room"):
            storage.put(1, tree(1))
        assert storage.get(0)[0][7] == 0.0


def test_file_systems_that_cannot_allocate(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(npy_file.os, "posix_fallocate", refuse)
    with Disk(tmp_path) as storage:
        for slot in range(3):
            storage.put(slot, tree(slot))
        storage.flush()
        assert [storage.get(slot)[0][7] for slot in range(3)] == [0.0, 1.0, 2.0]


def test_permission(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="`path`: expected a folder that can be made"):
        Disk(tmp_path / "file" / "s")

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    # Tests may run as root, whom no permission stops.
    monkeypatch.setattr(lock.os, "open", refuse)
    with pytest.raises(StorageError, match=r"`path`: expected a folder .* Permission denied"):
        Disk(tmp_path)


def test_two_on_one_path(tmp_path):
    with Disk(tmp_path / "s") as storage:
        storage.put(0, TREE)
        with pytest.raises(StorageError, match=r"`path`: .* is in use by this process"):
            Disk(tmp_path / "s")
        code = f"from pullback.checkpoint import Disk; Disk({str(tmp_path / 's')!r})"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment
        )
        assert f"is in use by process {os.getpid()}" in done.stderr
        assert storage.get(0)[0][7] == 7.0
    Disk(tmp_path / "s").close()


def test_a_write_that_failed_does_not_stop_the_thread(tmp_path, monkeypatch):
    with Disk(tmp_path) as storage:
        storage.put(0, tree(0))
        full = FullDisk(monkeypatch, room=0)
        for _ in range(20):  # more than the queue holds
            with pytest.raises(StorageError, match="No space left"):
                storage.put(1, tree(1))
                storage.flush()
        full.room = 10**6
        storage.put(1, tree(2))
        storage.flush()
        assert storage.get(1)[0][7] == 2.0


def test_nothing_stays_behind(tmp_path):
    path = tmp_path / "a" / "s"
    storage = Disk(path)
    storage.put(0, TREE)
    n_threads = threading.active_count()
    del storage
    gc.collect()
    assert not path.exists()
    assert threading.active_count() < n_threads
    (path / "mine").mkdir(parents=True)
    Disk(path).close()
    assert (path / "mine").exists(), "what is the user's"


def test_a_fork_is_told(tmp_path, monkeypatch):
    with Disk(tmp_path) as storage:
        storage.put(0, TREE)
        with monkeypatch.context() as patch:
            patch.setattr(storage_disk.os, "getpid", lambda: -1)
            with pytest.raises(RuntimeError, match="Make the storage after the fork"):
                storage.put(1, TREE)
            storage._files.tidy()
        assert storage.get(0)[0][7] == 7.0


MISTAKES = {
    "format": ({"format": "csv"}, '`format`: expected "npy" or "hdf5", got \'csv\''),
    "compression": ({"compression": "zip"}, '`compression`: expected None, "zstd" or "blosc"'),
    "durability": ({"durability": "fire"}, '`durability`: expected "process" or "power"'),
    "max_bytes": ({"max_bytes": 0}, "`max_bytes`: expected at least 1, got 0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_options(mistake, tmp_path):
    options, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=message):
        Disk(tmp_path, **options)


@pytest.mark.parametrize(
    ("options", "module", "extra"),
    [
        ({"format": "hdf5"}, "h5py", "hdf5"),
        ({"compression": "zstd"}, "zstandard", "disk"),
        ({"compression": "blosc"}, "blosc2", "disk"),
    ],
)
def test_a_missing_package_names_its_extra(options, module, extra, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf'{module}, which .* pip install "pullback\[{extra}\]"'):
        Disk(tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_without_xxhash_there_is_a_checksum(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)
    assert checksum.preferred_algorithm() == checksum.CRC32
    with Disk(tmp_path) as storage:
        storage.put(0, TREE)
        storage.flush()
        assert storage.get(0)[0][7] == 7.0
    with pytest.raises(ImportError, match="pip install"):
        optional.import_optional("xxhash", "Disk", "disk")


def test_objects_are_refused(tmp_path):
    with Disk(tmp_path) as storage, pytest.raises(StorageError, match="expected arrays of numbers"):
        storage.put(0, (object(),))


def test_replacing_is_atomic(tmp_path):
    """At every write of a replacement, what lies on disk is the old snapshot or the new one."""
    path, copies = tmp_path / "s", []
    with Disk(path) as storage:
        storage.put(0, tree(1))
        storage.flush()
        write = os.pwrite

        def torn(file, data, at):
            half = len(data) // 2
            write(file, data[:half], at)
            copies.append(tmp_path / f"copy_{len(copies)}")
            shutil.copytree(path, copies[-1], ignore=shutil.ignore_patterns("lock"))
            return half + write(file, data[half:], at + half)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(npy_file.os, "pwrite", torn)
            storage.put(0, tree(2))
            storage.flush()
    values = []
    for copy in copies:
        with Disk(copy) as storage:
            assert storage.recover(0, TREE)
            try:
                values.append(float(storage.get(0)[0][7]))
            except StorageError:
                values.append(None)
    assert values[0] == 1.0
    assert None in values[1:] or 2.0 in values


def test_jax_arrays_are_not_changed_by_reuse(tmp_path):
    """JAX may share the memory that a snapshot was read into: each read has its own."""
    with Disk(tmp_path) as storage:
        storage.put(0, (jnp.zeros(1000),))
        storage.put(1, (jnp.ones(1000),))
        storage.flush()
        first = storage.get(0)[0]
        storage.get(1)
        storage.put(0, (jnp.full(1000, 3.0),))
        storage.flush()
        assert float(first.max()) == 0.0
