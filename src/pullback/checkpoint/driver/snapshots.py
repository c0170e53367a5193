"""Snapshots of a run that may have been interrupted, or have lost some of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.checkpoint.leaves import Leaves
from pullback.checkpoint.schedules import Free, Store
from pullback.checkpoint.storage import AbstractStorage, StorageError

__all__ = ["RunSnapshots"]


class RunSnapshots:
    """The slots of one run. Each snapshot is marked with the run and the block it belongs to.

    Slots are reserved and released in the order of the schedule, so that a process that follows
    the same schedule finds what an earlier one left.

    Args:
        storage: Where they are.
        run: Number of the run.
        init: The first state, which is never lost.
        advance: Function (state, block, to block) -> state.
    """

    def __init__(
        self,
        storage: AbstractStorage,
        run: int,
        init: Leaves,
        advance: Callable[[Leaves, int, int], Leaves],
    ) -> None:
        self._storage = storage
        self._run = run
        self._init = init
        self._advance = advance
        # By the schedule's slot: the storage's slot, and the block.
        self._slots: dict[int, tuple[int, int]] = {}
        self._lost: set[int] = set()
        self._is_flushed = True

    def remember(self, action: Store) -> None:
        """Note a snapshot that an earlier process has made."""
        self._slots[action.slot] = self._storage.reserve(), action.step

    def recover(self) -> None:
        """Look for those that an earlier process has made."""
        like = self._marked(0, self._init)
        for slot, (number, _) in self._slots.items():
            try:
                is_there = self._storage.recover(number, like)
            except StorageError as error:
                is_there = False
                _warn(error)
            if not is_there:
                self._lost.add(slot)

    def store(self, action: Store, state: Leaves) -> None:
        """Make a snapshot."""
        self._slots[action.slot] = self._storage.reserve(), action.step
        self._put(action, state)

    def _put(self, action: Store, state: Leaves) -> None:
        number, block = self._slots[action.slot]
        self._storage.put_in_tier(action.tier, number, self._marked(block, state))
        self._is_flushed = False
        self._lost.discard(action.slot)

    def free(self, action: Free) -> None:
        """Give a snapshot up."""
        self._lost.discard(action.slot)
        self._storage.release(self._slots.pop(action.slot)[0])

    def restore(self, action: Store) -> Leaves:
        """Return the state of a snapshot; if it is lost, run the steps that lead there again."""
        state = self._get(action.slot)
        if state is None:
            state = self.recompute(action.step)
            self._put(action, state)
        return state

    def recompute(self, block: int) -> Leaves:
        """Return the state before a block from the nearest snapshot."""
        near = sorted(
            ((at, slot) for slot, (_, at) in self._slots.items() if at <= block), reverse=True
        )
        for at, slot in near:
            state = self._get(slot)
            if state is not None:
                return self._advance(state, at, block)
        return self._advance(self._init, 0, block)

    def prefetch(self, slot: int) -> None:
        """Pass a hint on."""
        if slot not in self._lost:
            self._storage.prefetch(self._slots[slot][0])

    def flush(self) -> None:
        """Return when all snapshots are where they will stay."""
        if not self._is_flushed:
            self._storage.flush()
            self._is_flushed = True

    def leave(self) -> None:
        """Give all slots back; what survives the process can be recovered."""
        for number, _ in self._slots.values():
            self._storage.leave(number)
        self._slots.clear()

    def _get(self, slot: int) -> Leaves | None:
        if slot in self._lost:
            return None
        number, block = self._slots[slot]
        try:
            mark, *state = self._storage.get(number)
        except StorageError as error:
            _warn(error)
        else:
            if np.array_equal(mark, self._mark(block)):
                return tuple(state)
        self._lost.add(slot)
        return None

    def _mark(self, block: int) -> np.ndarray:
        return np.array([self._run, block], np.int64)

    def _marked(self, block: int, state: Leaves) -> tuple[Any, ...]:
        return (self._mark(block), *state)


def _warn(error: StorageError) -> None:
    warnings.warn(
        f"A snapshot is lost, and steps are run again to replace it: {error}", stacklevel=2
    )
