"""Checkpointing of a loop whose length is known only when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pullback.checkpoint.schedules.actions import Action, Advance, Free, Store
from pullback.checkpoint.schedules.reverse_sweep import binomial_sweep
from pullback.checkpoint.schedules.scheme import AbstractScheme, check_count

__all__ = ["Online", "Placement"]

_NEVER = float("inf")


@dataclass(frozen=True)
class Online(AbstractScheme):
    """Place snapshots while the loop runs; when it ends, fill the gaps binomially.

    Optimal, like `Revolve`, up to `(n_snapshots + 1)(n_snapshots + 2)/2 + 1` steps. Beyond, for
    any length, no step is repeated more often than the optimum's most repeated one, and the
    number of forward steps exceeds the optimum by a third or so at most.

    Attributes:
        n_snapshots: Snapshots, besides the state in hand.

    References:
        Stumm and Walther, SIAM J. Sci. Comput. 32 (2010); Wang, Moin and Iaccarino, SIAM J. Sci.
        Comput. 31 (2009). Differs: the state in hand is one more entry of the placement, written
        only when it survives the next step.
    """

    n_snapshots: int

    def __post_init__(self) -> None:
        check_count("n_snapshots", self.n_snapshots, least=1)

    def actions(self, n_steps: int) -> Iterator[Action]:
        """Yield the actions for `n_steps` steps; the first sweep does not use the number."""
        check_count("n_steps", n_steps, least=0)
        if n_steps == 0:
            return
        placement = Placement(self.n_snapshots)
        start, last = 0, n_steps - 1
        for position in range(last):
            moves = placement.leave()
            if moves and start < position:
                yield Advance(start, position)
                start = position
            yield from moves
        if start < last:
            yield Advance(start, last)
        yield from binomial_sweep(placement.stack, placement.free_slots, last, n_steps)


class Placement:
    """Which states are kept while a loop runs on: one call of `leave` before each step.

    The state in hand is the newest entry. An entry has a level; one that has a newer neighbour of
    a higher level is dispensable. A new state takes the place of the newest dispensable entry,
    or, where there is none, of the newest entry, and then rises one level above it.

    Attributes:
        stack: Snapshots that exist, by increasing step.
        free_slots: Slots that may be used; the last is used first.
    """

    def __init__(self, n_snapshots: int) -> None:
        self.stack: list[Store] = []
        self.free_slots = list(range(n_snapshots - 1, -1, -1))
        self._n_entries = n_snapshots + 1
        self._position = 0
        # Indispensable entries by increasing step, with levels that never increase.
        self._entries = [0]
        self._levels = [_NEVER]
        self._dispensable: list[int] = []  # the last is dropped first

    def leave(self) -> tuple[Store | Free, ...]:
        """Return what to free and to store before the next step."""
        here = self._position
        self._position = here + 1
        dropped = self._enter(here + 1)
        if dropped == here:
            return ()
        freed = () if dropped is None else (self._free(dropped),)
        self.stack.append(Store(self.free_slots.pop(), here))
        return (*freed, self.stack[-1])

    def _free(self, step: int) -> Free:
        index = next(i for i in reversed(range(len(self.stack))) if self.stack[i].step == step)
        gone = self.stack.pop(index)
        self.free_slots.append(gone.slot)
        return Free(*gone)

    def _enter(self, step: int) -> int | None:
        """Make state `step` the newest entry; return the entry that it replaces, if any."""
        entries, levels, dispensable = self._entries, self._levels, self._dispensable
        level, dropped = 0, None
        if len(entries) + len(dispensable) == self._n_entries:
            if dispensable:
                dropped = dispensable.pop()
            else:
                dropped, level = entries.pop(), levels.pop() + 1
                kept = len(entries)
                while levels[kept - 1] < level:
                    kept -= 1
                dispensable.extend(entries[kept:])
                del entries[kept:], levels[kept:]
        entries.append(step)
        levels.append(level)
        return dropped
