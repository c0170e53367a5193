"""What a file of equal rows promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pullback.checkpoint.disk.checksum import checksum, is_known
from pullback.checkpoint.disk.leaves_on_disk import RowLayout
from pullback.checkpoint.storage import StorageError

__all__ = [
    "HEAD_DTYPE",
    "NO_HEAD",
    "AbstractRowFile",
    "RowHead",
    "as_record",
    "damaged",
    "row_dtype",
    "sealed",
]

_EMPTY = -1


class RowHead(NamedTuple):
    """The first numbers of a row, eight bytes each.

    Attributes:
        slot: Whose content the row is; -1 for none.
        sequence: Larger in rows that were written later.
        n_bytes: How many bytes follow.
        algorithm: Which checksum it is.
        check: Checksum of the above and of the bytes that follow.
    """

    slot: int
    sequence: int
    n_bytes: int
    algorithm: int
    check: int


NO_HEAD = RowHead(_EMPTY, 0, 0, 0, 0)
HEAD_DTYPE = np.dtype([(name, "<i8") for name in RowHead._fields])


def sealed(slot: int, sequence: int, algorithm: int, arrays: Sequence[np.ndarray]) -> RowHead:
    """Return the head of a row with its checksum."""
    head = RowHead(slot, sequence, sum(array.nbytes for array in arrays), algorithm, 0)
    return head._replace(check=checksum(algorithm, _bytes(head), arrays))


class AbstractRowFile(ABC):
    """A file of equal rows that grows only by whole rows; rows are written in place.

    1. The file is whole after every method, except for the row that was being written when the
       process was killed: its checksum tells.
    2. `write` and `read` may be called from different threads, for different rows.
    3. Errors of the operating system come through as they are.

    Attributes:
        path: The file.
        n_rows: Number of rows.
        row_bytes: Room of a row, its head included.
    """

    path: str
    n_rows: int
    row_bytes: int

    @abstractmethod
    def grow(self, n_rows: int) -> None:
        """Append empty rows until there are `n_rows`."""

    @abstractmethod
    def write(self, row: int, head: RowHead, arrays: Sequence[np.ndarray]) -> None:
        """Replace the content of a row by contiguous arrays: one per field, or a part of one."""

    @abstractmethod
    def head(self, row: int) -> RowHead:
        """Read the head of a row."""

    @abstractmethod
    def fill(self, row: int, arrays: Sequence[np.ndarray]) -> None:
        """Fill contiguous arrays with the content of a row."""

    @abstractmethod
    def sync(self) -> None:
        """Return when everything would survive a loss of power."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def read(self, row: int, head: RowHead, arrays: Sequence[np.ndarray]) -> None:
        """Fill arrays with the content of a row and verify it.

        Raises:
            StorageError: The row is not what `head` describes.
        """
        if not is_known(head.algorithm):
            raise damaged(self.path, row, f"there is no checksum number {head.algorithm}")
        self.fill(row, arrays)
        bare = head._replace(check=0)
        if checksum(head.algorithm, _bytes(bare), arrays) != head.check:
            raise damaged(self.path, row, "its checksum does not match")


def damaged(path: str, row: int, why: str) -> StorageError:
    """Return the error about a row that cannot be trusted."""
    return StorageError(
        f"`path`: the snapshot in row {row} of {path} is damaged: {why}. Run the loop again; other"
        " snapshots are not affected."
    )


def as_record(head: RowHead) -> np.ndarray:
    """Return a head as it is written."""
    return np.array([tuple(head)], HEAD_DTYPE)


def _bytes(head: RowHead) -> bytes:
    return as_record(head).tobytes()


def row_dtype(layout: RowLayout) -> np.dtype:
    """Return the NumPy dtype of a whole row."""
    head = [(name, "<i8") for name in RowHead._fields]
    fields = [(f"leaf_{i}", f.dtype, f.shape) for i, f in enumerate(layout.fields)]
    return np.dtype(head + fields)
