"""A schedule as integer arrays, which a compiled loop reads instead of branching.

The actions before a U-turn become rows `(start, count, slot, tier)`: run `count` steps from
`start` on, then store in `slot`, which is in memory (tier 0) or on disk (1). Where nothing is
stored, `slot` is one more than the largest: a spare row of the snapshot buffer, so that the loop
needs no branch, and XLA has no reason to copy the buffer.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from pullback.checkpoint.schedules import (
    AbstractScheme,
    Action,
    Advance,
    Free,
    Restore,
    Store,
    UTurn,
)
from pullback.checkpoint.schedules.actions import TIERS
from pullback.core import ScheduleError

__all__ = ["Table", "schedule_table"]

_CACHED_TABLES = 64
_NOWHERE = -1


class Table(NamedTuple):
    """A schedule that reverses one step per U-turn.

    Attributes:
        first_row: Row at which the rows of U-turn `u` begin, and one more entry: the number of
            rows that are used; shape (steps + 1,).
        rows: (start, count, slot, tier), and one more that is not used; shape (rows + 1, 4).
        restored: Slot to restore before U-turn `u`; unused for the first; shape (steps,).
    """

    first_row: np.ndarray
    rows: np.ndarray
    restored: np.ndarray


@functools.lru_cache(maxsize=_CACHED_TABLES)
def schedule_table(scheme: AbstractScheme, n_steps: int) -> tuple[Table, int]:
    """Return the table of a scheme and its number of slots.

    Raises:
        ScheduleError: The schedule has U-turns of several steps, or restores in between.
    """
    table = _Builder(n_steps)
    for action in scheme.actions(n_steps):
        if not table.add(action):
            raise ScheduleError(
                f"`scheme`: {scheme} yields {action} for {n_steps} blocks, which a compiled loop"
                " does not support; expected one restore, then advances and stores, before each"
                ' U-turn of one block. Pass mode="host".'
            )
    return table.finished()


class _Builder:
    def __init__(self, n_steps: int) -> None:
        self.n_steps = self.end = n_steps
        self.position = 0
        self.rows: list[list[int]] = []
        self.first_row: list[int] = [0]
        self.restored: list[int] = [_NOWHERE]
        self.slots: dict[int, int] = {}

    def add(self, action: Action) -> bool:
        """Take one action; False where a table cannot hold it."""
        begun = len(self.rows) > self.first_row[-1]
        match action:
            case Advance(start, stop):
                self.rows.append([start, stop - start, _NOWHERE, 0])
                self.position = stop
                return start < stop < self.end
            case Store(slot, step, tier):
                if not begun or self.rows[-1][2] != _NOWHERE:
                    self.rows.append([step, 0, _NOWHERE, 0])
                place = self.slots.setdefault(slot, len(self.slots))
                self.rows[-1][2:] = place, TIERS.index(tier)
                return step == self.position
            case Restore(slot, step):
                self.restored[-1] = self.slots[slot]
                self.position = step
                return not begun and self.end < self.n_steps
            case UTurn(start, stop):
                self.first_row.append(len(self.rows))
                self.restored.append(_NOWHERE)
                self.end = start
                return stop == start + 1 and self.position == start
            case Free():
                return True

    def finished(self) -> tuple[Table, int]:
        n_slots = max(1, len(self.slots))
        unused = [0, 0, _NOWHERE, 0]  # so that the array is never empty
        rows = np.array([*self.rows, unused], np.int32)
        rows[rows[:, 2] == _NOWHERE, 2] = n_slots
        first_row, restored = (np.array(v, np.int32) for v in (self.first_row, self.restored[:-1]))
        return Table(first_row, rows, restored), n_slots
