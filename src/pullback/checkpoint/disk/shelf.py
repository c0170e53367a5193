"""All rows of one layout: which are free, what the others hold, and how arrays become rows."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Sequence

import numpy as np

from pullback.checkpoint.disk.checksum import preferred_algorithm
from pullback.checkpoint.disk.codecs import RowCodec
from pullback.checkpoint.disk.hdf5_file import Hdf5File
from pullback.checkpoint.disk.leaves_on_disk import Field, RowLayout, empty_array
from pullback.checkpoint.disk.npy_file import NpyFile
from pullback.checkpoint.disk.row_file import AbstractRowFile, RowHead, damaged, sealed
from pullback.checkpoint.storage import StorageError

__all__ = ["FORMATS", "Shelf", "file_path", "is_snapshot_file"]

FORMATS: dict[str, Callable[..., AbstractRowFile]] = {"npy": NpyFile, "hdf5": Hdf5File}
_SUFFIX = {"npy": ".npy", "hdf5": ".h5"}


class Shelf:
    """A file of rows, and who owns them.

    Rows are taken and given back by one thread; another may write and read them.

    Args:
        folder: Where the file is.
        format_name: A key of `FORMATS`.
        layout: What is kept in a row.
        codec: How rows are compressed, if they are.
        is_new: Whether to forget what the file holds.

    Attributes:
        layout: What is kept in a row.
    """

    def __init__(
        self, folder: str, format_name: str, layout: RowLayout, codec: RowCodec | None,
        is_new: bool,
    ) -> None:  # fmt: skip
        self.layout = layout
        self._codec = codec
        stored = layout
        options = {}
        if codec is not None:
            sizes = [(f.n_bytes, np.dtype(f.dtype).itemsize) for f in layout.fields]
            stored = RowLayout((Field("|u1", (codec.capacity(sizes),)),))
            if format_name == "npy":
                # Rows are seldom filled: holes take no room.
                options = {"allocate": False}
        path = file_path(folder, format_name, layout, codec)
        self._file = FORMATS[format_name](path, stored, is_new, **options)
        if is_new:
            _sync_folder(folder)
        self._algorithm = preferred_algorithm()
        self._free: list[int] = []
        # Rows of an earlier process that may still be asked for, by slot.
        self._left: dict[int, tuple[int, int]] = {}
        self.last_sequence = 0
        if not is_new:
            self._look_around()

    def _look_around(self) -> None:
        for row in range(self._file.n_rows):
            try:
                head = self._file.head(row)
            except StorageError:
                continue
            self.last_sequence = max(self.last_sequence, head.sequence)
            if head.sequence > self._left.get(head.slot, (-1, 0))[0]:
                self._left[head.slot] = head.sequence, row
        kept = {row for _, row in self._left.values()}
        self._free = [row for row in range(self._file.n_rows) if row not in kept]

    @property
    def path(self) -> str:
        """The file."""
        return self._file.path

    @property
    def n_bytes(self) -> int:
        """Size of the rows."""
        return self._file.n_rows * self._file.row_bytes

    def claim(self, slot: int) -> int | None:
        """Return the row that an earlier process left for a slot, once."""
        found = self._left.pop(slot, None)
        return None if found is None else found[1]

    def set_aside(self, slot: int, row: int) -> None:
        """Keep a row for `claim`."""
        self._left[slot] = 0, row

    def growth(self) -> int:
        """Return by how many bytes the next `take` makes the file longer."""
        return 0 if self._free or self._left else self._file.row_bytes

    def take(self) -> int:
        """Return a row for new content; what is left of an earlier process is given up."""
        if self._left:
            for _, row in self._left.values():
                heapq.heappush(self._free, row)
            self._left.clear()
        if self._free:
            return heapq.heappop(self._free)
        self._file.grow(self._file.n_rows + 1)
        return self._file.n_rows - 1

    def make_rows(self, n_rows: int) -> None:
        """Have at least so many rows, for use without `take`."""
        self._file.grow(n_rows)

    def sequence(self, row: int) -> int:
        """Return the number that a row was written with."""
        return self._file.head(row).sequence

    def give_back(self, row: int) -> None:
        """Let a row be used again."""
        heapq.heappush(self._free, row)

    def write(self, row: int, slot: int, sequence: int, arrays: Sequence[np.ndarray]) -> None:
        """Write arrays with the dtypes and shapes of the layout."""
        stored = arrays if self._codec is None else [self._codec.encode(arrays)]
        self._file.write(row, sealed(slot, sequence, self._algorithm, stored), stored)

    def read(self, row: int, slot: int) -> list[np.ndarray]:
        """Return new arrays with the content of a row.

        Raises:
            StorageError: The row is damaged.
        """
        head = self._file.head(row)
        if head.slot != slot:
            raise damaged(self._file.path, row, f"it is marked {head.slot}, not {slot}")
        arrays = [empty_array(field) for field in self.layout.fields]
        if self._codec is None:
            n_bytes = self.layout.n_bytes
            self._check_size(row, head, n_bytes, n_bytes)
            self._file.read(row, head, arrays)
            return arrays
        self._check_size(row, head, 0, self._file.row_bytes)
        stored = np.empty(head.n_bytes, np.uint8)
        self._file.read(row, head, [stored])
        self._codec.decode(stored, arrays)
        return arrays

    def _check_size(self, row: int, head: RowHead, least: int, most: int) -> None:
        if not least <= head.n_bytes <= most:
            why = f"it says that it has {head.n_bytes} bytes, of {most}"
            raise damaged(self._file.path, row, why)

    def sync(self) -> None:
        """Return when everything would survive a loss of power."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _sync_folder(folder: str) -> None:
    # Without it a new file may be gone after a loss of power, however well it was written.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_path(folder: str, format_name: str, layout: RowLayout, codec: RowCodec | None) -> str:
    """Return the path of the file for a layout."""
    kind = "" if codec is None else f"-{codec.name}"
    return os.path.join(folder, f"snapshots-{layout.name}{kind}{_SUFFIX[format_name]}")


def is_snapshot_file(name: str) -> bool:
    """Whether a file in the folder is one of ours."""
    return name.startswith("snapshots-") and name.endswith(tuple(_SUFFIX.values()))
