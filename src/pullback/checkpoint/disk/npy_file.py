"""Rows in a file that `numpy.load(path, mmap_mode="r")` can read while it is in use.

The format is NumPy's own (its header is padded, so that the number of rows can change in place);
a row is a record with the fields of `RowHead` and `leaf_0`, `leaf_1`, ...
"""

from __future__ import annotations

import ast
import errno
import os
from collections.abc import Sequence

import numpy as np

from pullback.checkpoint.disk.leaves_on_disk import RowLayout
from pullback.checkpoint.disk.row_file import (
    HEAD_DTYPE,
    NO_HEAD,
    AbstractRowFile,
    RowHead,
    as_record,
    damaged,
    row_dtype,
)
from pullback.checkpoint.storage import StorageError

__all__ = ["NpyFile"]

_MAGIC = b"\x93NUMPY\x02\x00"
_PAGE = 4096
_CANNOT_ALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class NpyFile(AbstractRowFile):
    """A `.npy` file of records.

    Args:
        path: The file; it is made unless it exists.
        layout: What a row consists of.
        is_new: Whether to begin with no rows.
        allocate: Whether rows are given room on the device before they are written.

    Raises:
        StorageError: The file exists and holds something else.
    """

    def __init__(self, path: str, layout: RowLayout, is_new: bool, allocate: bool = True) -> None:
        self.path = path
        self._dtype = row_dtype(layout)
        self.row_bytes = self._dtype.itemsize
        self._allocate = allocate
        self._start = len(self._header(0))
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if is_new else 0)
        self._file = os.open(path, flags, 0o666)
        self.n_rows = 0
        if is_new:
            write_all(self._file, self._header(0), 0)
        else:
            self.n_rows = self._rows_found()

    def _header(self, n_rows: int) -> bytes:
        content = {"descr": self._dtype.descr, "fortran_order": False, "shape": (n_rows,)}
        text = repr(content).encode("latin1")
        # Room for any number of rows, up to a multiple of the page.
        least = len(_MAGIC) + 4 + len(repr({**content, "shape": (0,)})) + 21
        length = -(-least // _PAGE) * _PAGE - len(_MAGIC) - 4
        return _MAGIC + length.to_bytes(4, "little") + text.ljust(length - 1) + b"\n"

    def _rows_found(self) -> int:
        header = os.pread(self._file, self._start, 0)
        try:
            content = ast.literal_eval(header[len(_MAGIC) + 4 :].decode("latin1"))
            (n_rows,) = content["shape"]
            is_ours = header == self._header(n_rows)
        except (ValueError, SyntaxError, KeyError, TypeError):
            n_rows, is_ours = 0, False
        if not is_ours:
            os.close(self._file)
            raise StorageError(
                f"`path`: expected {self.path} to hold snapshots of this loop, found something"
                " else. Pass another path, or remove the file."
            )
        # Killed while it grew, the file has one row more than its header says.
        size = os.fstat(self._file).st_size - self._start
        return max(n_rows, -(-size // self.row_bytes))

    def grow(self, n_rows: int) -> None:
        """Append empty rows until there are `n_rows`."""
        for row in range(self.n_rows, n_rows):
            at = self._at(row)
            # Without room here an error would come later, from the middle of a row.
            if self._allocate:
                self._reserve(at)
            else:
                os.ftruncate(self._file, at + self.row_bytes)
            write_all(self._file, as_record(NO_HEAD), at)
            write_all(self._file, self._header(row + 1), 0)
            self.n_rows = row + 1

    def _reserve(self, at: int) -> None:
        try:
            os.posix_fallocate(self._file, at, self.row_bytes)
        except OSError as error:
            if error.errno not in _CANNOT_ALLOCATE:
                raise
            self._allocate = False
            os.ftruncate(self._file, at + self.row_bytes)

    def write(self, row: int, head: RowHead, arrays: Sequence[np.ndarray]) -> None:
        """Replace the content of a row."""
        at = self._at(row)
        write_all(self._file, as_record(head), at)
        at += HEAD_DTYPE.itemsize
        for array in arrays:
            write_all(self._file, array, at)
            at += array.nbytes

    def head(self, row: int) -> RowHead:
        """Read the head of a row."""
        record = np.empty(1, HEAD_DTYPE)
        self._fill(row, self._at(row), record)
        return RowHead(*record[0].tolist())

    def fill(self, row: int, arrays: Sequence[np.ndarray]) -> None:
        """Fill contiguous arrays with the content of a row."""
        at = self._at(row) + HEAD_DTYPE.itemsize
        for array in arrays:
            self._fill(row, at, array)
            at += array.nbytes

    def _fill(self, row: int, at: int, array: np.ndarray) -> None:
        view = _flat(array)
        while view.nbytes:
            n_read = os.preadv(self._file, [view], at)
            if n_read == 0:
                raise damaged(self.path, row, "the file ends before it")
            view, at = view[n_read:], at + n_read

    def sync(self) -> None:
        """Return when everything would survive a loss of power."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _at(self, row: int) -> int:
        return self._start + row * self.row_bytes


def write_all(file: int, data: bytes | np.ndarray, at: int) -> None:
    """Write everything, however many calls it takes."""
    view = memoryview(data) if isinstance(data, bytes) else _flat(data)
    while view.nbytes:
        n_written = os.pwrite(file, view, at)
        view, at = view[n_written:], at + n_written


def _flat(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
