"""Snapshots in memory."""

from __future__ import annotations

from pullback.checkpoint.storage import AbstractStorage
from pullback.core.typing import PyTree

__all__ = ["RAM"]


class RAM(AbstractStorage):
    """Keep arrays where they are: no copy, sharded arrays stay sharded.

    A compiled loop keeps its snapshots itself, in one array in the memory of the device; then
    nothing is put here.
    """

    compiles: bool = True

    def __init__(self) -> None:
        self._kept: dict[int, PyTree] = {}

    def __repr__(self) -> str:
        return "RAM()"

    def __len__(self) -> int:
        """Number of slots in use."""
        return len(self._kept)

    def put(self, slot: int, tree: PyTree) -> None:
        """Keep a pytree in a slot."""
        self._kept[slot] = tree

    def get(self, slot: int) -> PyTree:
        """Return what the slot holds."""
        return self._kept[slot]

    def discard(self, slot: int) -> None:
        """Forget what the slot holds, if anything."""
        self._kept.pop(slot, None)

    def close(self) -> None:
        """Forget everything."""
        self._kept.clear()
