"""The memory of one thread: a static layout of named regions inside the scratch block."""

from __future__ import annotations

import numpy as np

ALIGN = 64


class Scratch:
    """Hands out aligned byte ranges of the thread's scratch block."""

    def __init__(self) -> None:
        self.size = 0
        self._free: dict[int, list[int]] = {}

    def take(self, n_bytes: int) -> int:
        """Reserve `n_bytes` and return their offset."""
        start = self.size
        self.size += -(-n_bytes // ALIGN) * ALIGN
        return start

    def array(self, n_items: int, dtype: np.dtype) -> int:
        """Reserve `n_items` of `dtype` and return their offset."""
        return self.take(max(n_items, 1) * dtype.itemsize)

    def region(self, n_bytes: int) -> Region:
        """Return a range that may be used again once the returned object is gone.

        Code is emitted in the order it runs, so a range whose last reference is dropped while the
        kernel is built is dead at that point of the kernel too (loops keep what they capture).
        """
        rounded = -(-n_bytes // ALIGN) * ALIGN
        waiting = self._free.get(rounded)
        offset = waiting.pop() if waiting else self.take(rounded)
        return Region(offset, rounded, self._free)


class Region:
    """A byte range of the scratch block that returns itself when it is garbage."""

    def __init__(self, offset: int, n_bytes: int, free: dict[int, list[int]]) -> None:
        self.offset = offset
        self._size = n_bytes
        self._free = free

    def __del__(self) -> None:
        """Give the range back."""
        self._free.setdefault(self._size, []).append(self.offset)
