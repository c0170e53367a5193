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
from typing import Self

from pullback.checkpoint.schedules import Tier
from pullback.core.typing import PyTree

__all__ = ["AbstractStorage", "StorageError"]


class StorageError(OSError):
    """A storage cannot keep, find or trust a snapshot; the others are not affected."""


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
    7. What cannot be done is one `StorageError`; other slots keep what they hold.

    Attributes:
        compiles: Whether compiled code can keep the snapshots itself, in one array in memory.
            A storage for which this is False sees every snapshot: compiled code calls it.
        survives_power_loss: Whether what has been flushed does.
    """

    compiles: bool = False
    survives_power_loss: bool = False
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

    def prefetch(self, slot: int) -> None:
        """Hear that `get(slot)` is likely to come next: a hint, which may be ignored."""
        del slot

    def flush(self) -> None:
        """Return when every `put` is where it will stay; raise if one failed."""
        return

    def recover(self, slot: int, like: PyTree) -> bool:
        """Take over what an earlier process left in a slot that has not been used since.

        Args:
            slot: The number that the earlier process used.
            like: A pytree of the structure, shapes, dtypes and shardings that are expected.

        Returns:
            Whether there is something; `get` finds out whether it is whole.
        """
        del slot, like
        return False

    def set_aside(self, slot: int) -> None:
        """Discard what a slot holds, but keep it for `recover` if that is possible and wanted."""
        self.discard(slot)

    def preserve(self, whether: bool) -> None:
        """Say whether `close`, or the end of the process, leaves behind what the slots hold."""
        del whether

    def bytes_on_disk(self) -> int:
        """Return how much room the storage takes on disk."""
        return 0

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
        self._give_back(slot)

    def leave(self, slot: int) -> None:
        """Let others use a reserved slot; what is preserved of its content can be recovered."""
        self.set_aside(slot)
        self._give_back(slot)

    def _give_back(self, slot: int) -> None:
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
