"""Rows in an HDF5 file, which other tools can read: a dataset per leaf, a chunk per row."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.checkpoint.disk.leaves_on_disk import RowLayout
from pullback.checkpoint.disk.optional import import_optional
from pullback.checkpoint.disk.row_file import (
    HEAD_DTYPE,
    NO_HEAD,
    AbstractRowFile,
    RowHead,
    as_record,
    row_dtype,
)
from pullback.checkpoint.storage import StorageError

__all__ = ["Hdf5File", "import_h5py"]

_HEAD = "head"


def import_h5py() -> Any:
    """Return the module, or say how to install it."""
    return import_optional("h5py", 'format="hdf5"', "hdf5")


class Hdf5File(AbstractRowFile):
    """An HDF5 file with the datasets `head` and `leaf_0`, `leaf_1`, ...

    The file's own tables change only when it grows, and are flushed then: whoever is killed while
    writing a row loses that row only.

    Args:
        path: The file; it is made unless it exists.
        layout: What a row consists of.
        is_new: Whether to begin with no rows.

    Raises:
        StorageError: The file exists and cannot be read, or holds something else.
    """

    def __init__(self, path: str, layout: RowLayout, is_new: bool) -> None:
        self.path = path
        self.row_bytes = row_dtype(layout).itemsize
        h5py = import_h5py()
        try:
            # Our own lock is on the folder.
            self._file: Any = h5py.File(path, "w" if is_new else "r+", locking=False)
            self._datasets = self._open(h5py, layout, is_new)
        except (OSError, KeyError, ValueError) as error:
            raise StorageError(
                f"`path`: expected {path} to be an HDF5 file of snapshots of this loop, got:"
                f" {error}. Pass another path, or remove the file."
            ) from error
        self.n_rows = self._datasets[0].shape[0]

    def _open(self, h5py: Any, layout: RowLayout, is_new: bool) -> list[Any]:
        fields: list[tuple[str, np.dtype, tuple[int, ...]]] = [(_HEAD, HEAD_DTYPE, ())]
        for i, field in enumerate(layout.fields):
            fields.append((f"leaf_{i}", np.dtype(field.dtype), field.shape))
        return [self._dataset(h5py, *field, is_new) for field in fields]

    def _dataset(
        self, h5py: Any, name: str, dtype: np.dtype, shape: tuple[int, ...], is_new: bool
    ) -> Any:
        if not is_new:
            dataset = self._file[name]
            if dataset.dtype != dtype or dataset.shape[1:] != shape:
                raise ValueError(f"{name} is {dataset.dtype}{dataset.shape[1:]}")
            return dataset
        # A chunk must hold something, and no more than 4 GB.
        chunk = tuple(max(n, 1) for n in shape)
        while np.prod(chunk, dtype=np.int64) * dtype.itemsize >= 2**32 and any(
            n > 1 for n in chunk
        ):
            largest = int(np.argmax(chunk))
            chunk = (*chunk[:largest], chunk[largest] // 2, *chunk[largest + 1 :])
        return self._file.create_dataset(
            name, (0, *shape), dtype, maxshape=(None, *(max(n, 1) for n in shape)),
            chunks=(1, *chunk),
        )  # fmt: skip

    def grow(self, n_rows: int) -> None:
        """Append empty rows until there are `n_rows`."""
        heads, *leaves = self._datasets
        for row in range(self.n_rows, n_rows):
            for dataset in leaves:
                dataset.resize(row + 1, axis=0)
                if dataset.size:
                    dataset[row] = np.zeros(dataset.shape[1:], dataset.dtype)
            heads.resize(row + 1, axis=0)
            heads[row] = as_record(NO_HEAD)[0]
            self._file.flush()
            self.n_rows = row + 1

    def write(self, row: int, head: RowHead, arrays: Sequence[np.ndarray]) -> None:
        """Replace the content of a row."""
        heads, *leaves = self._datasets
        heads[row] = as_record(head)[0]
        for dataset, array in zip(leaves, arrays, strict=True):
            if array.size:
                dataset[(row, *map(slice, array.shape))] = array
        self._file.flush()

    def head(self, row: int) -> RowHead:
        """Read the head of a row."""
        return RowHead(*self._datasets[0][row].tolist())

    def fill(self, row: int, arrays: Sequence[np.ndarray]) -> None:
        """Fill contiguous arrays with the content of a row."""
        try:
            for dataset, array in zip(self._datasets[1:], arrays, strict=True):
                if array.size:
                    array[...] = dataset[(row, *map(slice, array.shape))]
        except OSError as error:
            raise StorageError(
                f"`path`: the snapshot in row {row} of {self.path} is damaged: {error}. Run the"
                " loop again; other snapshots are not affected."
            ) from error

    def sync(self) -> None:
        """Return when everything would survive a loss of power."""
        self._file.flush()
        file = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
