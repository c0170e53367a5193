"""Where a compiled loop keeps its snapshots: in one array of its own, or by calling a storage.

Both are used as values: what `put` and `get` return is used from then on, so that reads and
writes have an order that compiled code keeps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

from pullback.checkpoint.called_slots import CalledSlots, CalledStorage
from pullback.checkpoint.leaves import Leaves, blank_like, read_slot, write_slot
from pullback.checkpoint.storage import AbstractStorage

__all__ = ["ArraySlots", "Slots", "slots_of"]


@dataclasses.dataclass(frozen=True)
class ArraySlots:
    """Slots in the memory of the device.

    Attributes:
        n_slots: Their number. There is one more, where what need not be kept is written.
    """

    n_slots: int

    def start(self, state: Leaves) -> Leaves:
        """Return empty slots for states like this one."""
        return tuple(blank_like(value, self.n_slots + 1) for value in state)

    def put(self, buffer: Leaves, slot: Any, state: Leaves, tier: Any = 0) -> Leaves:
        """Write a state; slot `n_slots` is for what need not be kept."""
        del tier
        return write_slot(buffer, slot, state)

    def get(
        self, buffer: Leaves, slot: Any, like: Leaves, following: Any = -1, is_last: Any = False
    ) -> tuple[Leaves, Leaves]:
        """Return a state, and the slots."""
        del like, following, is_last
        return read_slot(buffer, slot), buffer

    def for_reverse(self, buffer: Leaves, again: Callable[[Leaves], Leaves]) -> Leaves:
        """Return the slots as they are: however often, they hold what was put there."""
        del again
        return buffer


Slots: TypeAlias = ArraySlots | CalledSlots


def slots_of(storage: AbstractStorage, n_slots: int) -> Slots:
    """Return what a compiled loop with this storage uses."""
    if storage.compiles:
        return ArraySlots(n_slots)
    return CalledSlots(storage, n_slots, CalledStorage(storage, n_slots))
