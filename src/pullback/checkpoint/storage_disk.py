"""Snapshots in files."""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from pullback.checkpoint.disk.codecs import CompressionName, make_codec
from pullback.checkpoint.disk.hdf5_file import import_h5py
from pullback.checkpoint.disk.leaves_on_disk import RowLayout, TreeForm, form_of, to_numpy
from pullback.checkpoint.disk.lock import FolderLock, make_folder
from pullback.checkpoint.disk.shelf import FORMATS, Shelf, file_path, is_snapshot_file
from pullback.checkpoint.disk.writer import Writer
from pullback.checkpoint.schedules.scheme import check_count
from pullback.checkpoint.storage import AbstractStorage, StorageError
from pullback.core.typing import PyTree

__all__ = ["Disk"]

_Durability: TypeAlias = Literal["process", "power"]


@dataclass
class _Kept:
    """Where the content of a slot is."""

    shelf: Shelf
    row: int
    form: TreeForm


@dataclass
class _Pending:
    """A write that is not known to have succeeded; its leaves are still in memory."""

    leaves: list[Any]
    future: Future[Any]
    is_reported: bool = False


@dataclass
class _Files:
    """What has to be tidied up at the end, also without `close`."""

    folder: str
    writer: Writer
    lock: FolderLock
    shelves: dict[RowLayout, Shelf] = field(default_factory=dict)
    is_preserved: bool = False
    process: int = field(default_factory=os.getpid)

    def tidy(self) -> None:
        if self.process != os.getpid():  # a fork has no say
            return
        self.writer.stop()
        for shelf in self.shelves.values():
            shelf.close()
        self.shelves.clear()
        if not self.is_preserved:
            for name in filter(is_snapshot_file, os.listdir(self.folder)):
                os.remove(os.path.join(self.folder, name))
        self.lock.release()
        if not self.is_preserved:
            with contextlib.suppress(OSError):  # it holds something of the user's
                os.rmdir(self.folder)


class Disk(AbstractStorage):
    """Keep snapshots in a folder: written while the loop goes on, checked when they are read.

    All snapshots of the same shapes share one file whose rows are used again. A thread writes
    them; until it has, a snapshot is read from memory. Replacing a snapshot leaves the old one
    whole until the new one is. The files go with the storage. They are not read with pickle and
    can be read by others: see `format`.

    Args:
        path: A folder; it is made. Nobody else may use it: in parallel runs, one per process.
        format: `"npy"` can be read by `numpy.load(file, mmap_mode="r")`, `"hdf5"` by any HDF5
            tool; it needs the extra `hdf5`.
        max_bytes: The most room to take; compressed snapshots count in full.
        compression: `"zstd"` or `"blosc"`, both lossless, from the extra `disk`. Usually dearer
            than the room is worth: numbers of simulations shrink little.
        durability: `"process"`: what is written survives the end of the process; `"power"`: also
            a loss of power.

    Raises:
        StorageError: The folder cannot be used, or is in use; later: it is full, or a snapshot
            is damaged.
        ImportError: An option needs a package that is not installed.
        ValueError: An option is not one of those above.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: Literal["npy", "hdf5"] = "npy",
        max_bytes: int | None = None,
        compression: CompressionName | None = None,
        durability: _Durability = "process",
    ) -> None:
        if format not in FORMATS:
            raise ValueError(f'`format`: expected "npy" or "hdf5", got {format!r}. Give one.')
        if durability not in ("process", "power"):
            raise ValueError(
                f'`durability`: expected "process" or "power", got {durability!r}. Give one.'
            )
        if max_bytes is not None:
            check_count("max_bytes", max_bytes, least=1)
        if format == "hdf5":
            import_h5py()
        self.survives_power_loss = durability == "power"
        self._codec = make_codec(compression)
        self._format, self._max_bytes = format, max_bytes
        self._path = os.path.abspath(path)
        make_folder("path", self._path)
        self._files = _Files(self._path, Writer(), FolderLock("path", self._path))
        self._kept: dict[int, _Kept] = {}
        self._pending: dict[int, _Pending] = {}
        self._prefetched: dict[int, Future[Any]] = {}
        self._sequence = 0
        self._tidy = weakref.finalize(self, self._files.tidy)

    def __repr__(self) -> str:
        return f"Disk({self._path!r})"

    def __len__(self) -> int:
        """Number of slots in use."""
        return len(self._kept)

    def put(self, slot: int, tree: PyTree) -> None:
        """Begin to write a pytree; what the slot held stays until that is done.

        Raises:
            StorageError: There is no room, or an earlier write failed: that snapshot is still in
                memory, and the error is raised once.
        """
        self._raise_failures()
        form = form_of(tree)
        shelf = self._shelf(form.layout)
        row = self._new_row(shelf)
        self._sequence += 1
        leaves, sequence = jax.tree.leaves(tree), self._sequence
        is_durable = self.survives_power_loss

        def write() -> None:
            arrays = [
                to_numpy(leaf).view(f.dtype)
                for leaf, f in zip(leaves, form.layout.fields, strict=True)
            ]
            shelf.write(row, slot, sequence, arrays)
            if is_durable:
                shelf.sync()

        future = self._files.writer.submit(write)
        self._forget(slot)
        self._pending[slot] = _Pending(leaves, future)
        self._kept[slot] = _Kept(shelf, row, form)

    def get(self, slot: int) -> PyTree:
        """Return what the slot holds.

        Raises:
            StorageError: The file is damaged.
            KeyError: The slot holds nothing.
        """
        kept = self._kept[slot]
        pending = self._pending.get(slot)
        if pending is not None:
            return jax.tree.unflatten(kept.form.structure, pending.leaves)
        prefetched = self._prefetched.pop(slot, None)
        arrays = _read(kept, slot) if prefetched is None else prefetched.result()
        return kept.form.to_tree(arrays)

    def prefetch(self, slot: int) -> None:
        """Begin to read a slot, unless that is done or its content is in memory."""
        self._drop_written()
        if slot in self._kept and slot not in self._pending and slot not in self._prefetched:
            # One at a time: whatever was not asked for takes memory.
            self._prefetched.clear()
            kept = self._kept[slot]
            self._prefetched[slot] = self._files.writer.submit(lambda: _read(kept, slot))

    def discard(self, slot: int) -> None:
        """Let the room of a slot be used again."""
        self._forget(slot)

    def flush(self) -> None:
        """Wait until everything is written; raise if something could not be."""
        for pending in list(self._pending.values()):
            pending.future.exception()
        self._raise_failures()

    def recover(self, slot: int, like: PyTree) -> bool:
        """Take over what an earlier process left in a slot, before anything is put."""
        form = form_of(like)
        if form.layout not in self._files.shelves:
            if not os.path.exists(self._file(form.layout)):
                return False
            self._files.shelves[form.layout] = self._open(form.layout, is_new=False)
        shelf = self._files.shelves[form.layout]
        row = shelf.claim(slot)
        if row is None:
            return False
        self._sequence = max(self._sequence, shelf.last_sequence)
        self._kept[slot] = _Kept(shelf, row, form)
        return True

    def set_aside(self, slot: int) -> None:
        """Discard what a slot holds; if it is preserved and written, keep it for `recover`."""
        kept, pending = self._kept.get(slot), self._pending.get(slot)
        failed = pending is not None and pending.future.exception() is not None
        if kept is None or failed or not self._files.is_preserved:
            self.discard(slot)
            return
        del self._kept[slot]
        self._pending.pop(slot, None)
        self._prefetched.pop(slot, None)
        kept.shelf.set_aside(slot, kept.row)

    def preserve(self, whether: bool) -> None:
        """Say whether the files stay when the storage is closed or the process ends."""
        self._files.is_preserved = whether

    def bytes_on_disk(self) -> int:
        """Return the size of all rows."""
        return sum(shelf.n_bytes for shelf in self._files.shelves.values())

    def close(self) -> None:
        """End the thread, remove the files and let others use the folder."""
        self._kept.clear()
        self._pending.clear()
        self._prefetched.clear()
        self._tidy()

    def _shelf(self, layout: RowLayout) -> Shelf:
        shelf = self._files.shelves.get(layout)
        if shelf is None:
            with _naming(self._path):
                shelf = self._open(layout, is_new=True)
            self._files.shelves[layout] = shelf
        return shelf

    def _open(self, layout: RowLayout, is_new: bool) -> Shelf:
        return Shelf(self._path, self._format, layout, self._codec, is_new)

    def _file(self, layout: RowLayout) -> str:
        return file_path(self._path, self._format, layout, self._codec)

    def _new_row(self, shelf: Shelf) -> int:
        more, now = shelf.growth(), self.bytes_on_disk()
        if self._max_bytes is not None and more and now + more > self._max_bytes:
            raise StorageError(
                errno.ENOSPC,
                f"`max_bytes`: expected room for another snapshot of {more} bytes, but"
                f" {len(self._kept)} snapshots take {now} of {self._max_bytes} bytes. Allow more,"
                " or let the scheme have fewer snapshots.",
            )
        with _naming(self._path):
            return shelf.take()

    def _forget(self, slot: int) -> None:
        kept = self._kept.pop(slot, None)
        if kept is not None:
            # The thread keeps the order: whoever takes the row writes after us.
            kept.shelf.give_back(kept.row)
        self._pending.pop(slot, None)
        self._prefetched.pop(slot, None)

    def _drop_written(self) -> None:
        for slot, pending in list(self._pending.items()):
            if pending.future.done() and pending.future.exception() is None:
                del self._pending[slot]

    def _raise_failures(self) -> None:
        self._drop_written()
        for slot, pending in self._pending.items():
            if pending.future.done() and not pending.is_reported:
                pending.is_reported = True
                error = pending.future.exception()
                if not isinstance(error, OSError):
                    pending.future.result()
                    continue
                # Raising the error itself would tie our caller's variables to it, and so to us.
                raise _explained(error, self._path, f"the snapshot in slot {slot}") from error


def _read(kept: _Kept, slot: int) -> list[np.ndarray]:
    with _naming(kept.shelf.path):
        return kept.shelf.read(kept.row, slot)


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turn errors of the operating system into one that says what to do."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise _explained(error, path, "a snapshot") from error


def _explained(error: OSError, path: str, what: str) -> StorageError:
    return StorageError(
        error.errno,
        f"`path`: {what} could not be written to or read from {path!r}:"
        f" {error.strerror or error}. Make room or pass another path; what was kept before is not"
        " affected.",
    )
