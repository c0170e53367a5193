"""The newest of a sequence of pytrees, safe against being killed while it is written."""

from __future__ import annotations

import os

import jax

from pullback.checkpoint.disk.leaves_on_disk import form_of, to_numpy
from pullback.checkpoint.disk.shelf import Shelf
from pullback.checkpoint.storage import StorageError
from pullback.core.typing import PyTree

__all__ = ["TwoRows"]


class TwoRows:
    """A file of two rows, written in turn: one of them is always whole.

    Args:
        folder: Where the file is.
        like: A pytree of the structure, shapes, dtypes and shardings of all that come.
        is_new: Whether to forget what the file holds.
        is_durable: Whether every write survives a loss of power.
    """

    def __init__(self, folder: str, like: PyTree, is_new: bool, is_durable: bool) -> None:
        self._form = form_of(like)
        self._is_durable = is_durable
        os.makedirs(folder, exist_ok=True)
        self._shelf = Shelf(folder, "npy", self._form.layout, None, is_new)
        self._shelf.make_rows(2)
        self._next_row = 0

    def write(self, number: int, tree: PyTree) -> None:
        """Write a pytree with a number that is larger than those before."""
        fields = self._form.layout.fields
        leaves = zip(jax.tree.leaves(tree), fields, strict=True)
        arrays = [to_numpy(leaf).view(field.dtype) for leaf, field in leaves]
        self._shelf.write(self._next_row, 0, number, arrays)
        if self._is_durable:
            self._shelf.sync()
        self._next_row = 1 - self._next_row

    def newest(self) -> tuple[int, PyTree] | None:
        """Return the newest pytree that is whole, and its number."""
        found: dict[int, tuple[int, PyTree]] = {}
        for row in range(2):
            try:
                arrays = self._shelf.read(row, 0)
                found[row] = self._shelf.sequence(row), self._form.to_tree(arrays)
            except StorageError:  # empty, or being written when the process was killed
                continue
        if not found:
            return None
        row = max(found, key=lambda row: found[row][0])
        self._next_row = 1 - row
        return found[row]

    def close(self) -> None:
        """Close the file."""
        self._shelf.close()
