"""What every storage of snapshots promises.

A storage puts, gets and discards pytrees of arrays by slot number and never sees a step. Loops
reserve the numbers that they use, so that several may share a storage at the same time.
"""

from __future__ import annotations

import heapq
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self

from pullback.checkpoint.schedules import Tier
from pullback.core.typing import PyTree

__all__ = ["AbstractStorage"]


@dataclass
class _SlotNumbers:
    """Which numbers may be given out: a heap of those that came back, and all from `n_used`."""

    free: list[int]
    n_used: int


class AbstractStorage(ABC):
    """Where the snapshots of a loop are kept.

    1. `get(slot)` returns what was last put there, bit for bit, as often as it is asked for.
    2. `put` into a slot that is in use replaces its content.
    3. `discard(slot)` makes its room usable again; the slot may never have been used.
    4. Slots are small integers: the least free number is used first.
    5. Arrays may be kept without a copy: they are immutable, and no loop donates a snapshot.
    6. A storage compares by identity and outlives the gradients of the loops that use it.

    Attributes:
        compiles: Whether compiled code can keep the snapshots itself, in one array in memory.
            False for a storage that has to see every snapshot: it needs `mode="host"`.
    """

    compiles: ClassVar[bool] = False
    _numbers: _SlotNumbers

    @abstractmethod
    def put(self, slot: int, tree: PyTree) -> None:
        """Keep a pytree of concrete arrays in a slot."""

    @abstractmethod
    def get(self, slot: int) -> PyTree:
        """Return what the slot holds."""

    @abstractmethod
    def discard(self, slot: int) -> None:
        """Forget what the slot holds, if anything."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; the storage is not used afterwards."""

    def put_in_tier(self, tier: Tier, slot: int, tree: PyTree) -> None:
        """Keep a pytree where the schedule wants it; here there is one place for all."""
        self.put(slot, tree)

    def reserve(self) -> int:
        """Return a slot number that nobody else uses, until it is given to `release`."""
        with _LOCK:
            numbers = getattr(self, "_numbers", None)
            if numbers is None:  # also in a subclass without our `__init__`, or a frozen one
                object.__setattr__(self, "_numbers", numbers := _SlotNumbers([], 0))
            if numbers.free:
                return heapq.heappop(numbers.free)
            numbers.n_used += 1
            return numbers.n_used - 1

    def release(self, slot: int) -> None:
        """Discard what a reserved slot holds and let others use it."""
        self.discard(slot)
        with _LOCK:
            heapq.heappush(self._numbers.free, slot)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


# Held for a few instructions only, so that one lock serves all storages.
_LOCK = threading.RLock()
