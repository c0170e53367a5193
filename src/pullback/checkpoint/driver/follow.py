"""Follow a schedule from where an earlier process stopped.

Every block forward and every U-turn is a piece of work; pieces are numbered from 1. After each,
the state or the adjoint is written with the number, and a process that resumes skips as many.
What lies between two pieces (stores, restores, frees) may be done again without harm.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np

from pullback.checkpoint.driver.loop_functions import (
    Adjoint,
    Loop,
    advance,
    turn,
    value_and_adjoint,
)
from pullback.checkpoint.driver.progress_bar import ProgressBar
from pullback.checkpoint.driver.snapshots import RunSnapshots
from pullback.checkpoint.driver.two_rows import TwoRows
from pullback.checkpoint.leaves import Leaves, floating
from pullback.checkpoint.look_ahead import look_ahead
from pullback.checkpoint.schedules import (
    AbstractScheme,
    Action,
    Advance,
    Free,
    Restore,
    Store,
    UTurn,
)
from pullback.checkpoint.storage import AbstractStorage

__all__ = ["Follower"]


class Follower:
    """Runs one loop forward and back.

    Args:
        loop: What to run.
        n_steps: Its length.
        block: Steps of a block.
        scheme: Yields the schedule of the blocks.
        storage: Keeps the snapshots.
        run: Number of the run.
        folder: Where the newest state and adjoint are written.
        is_new: Whether to forget what the folder holds.
        bar: Is told of every step.
        on_adjoint: Is given (step, adjoint) after each block back.
    """

    def __init__(
        self, loop: Loop, n_steps: int, block: int, scheme: AbstractScheme,
        storage: AbstractStorage, run: int, folder: str, is_new: bool, bar: ProgressBar,
        on_adjoint: Callable[[int, Adjoint], None],
    ) -> None:  # fmt: skip
        self._loop, self._n_steps, self._block = loop, n_steps, block
        self._n_blocks = n_steps // block
        self._wide = np.int32 if n_steps < np.iinfo(np.int32).max else np.int64
        self._actions = scheme.actions(self._n_blocks)
        self._bar, self._on_adjoint = bar, on_adjoint
        self._snapshots = RunSnapshots(storage, run, loop.init, self._advance)
        blank = self._blank_adjoint()
        durable = storage.survives_power_loss
        self._states = TwoRows(
            os.path.join(folder, "state"), (np.int64(0), *loop.init), is_new, durable
        )
        self._adjoints = TwoRows(os.path.join(folder, "adjoint"), blank, is_new, durable)
        self._number = 0  # of the piece that was done last
        self._position: int | None = 0  # the block that the state in hand goes into
        self._state: Leaves | None = loop.init
        self._adjoint: Adjoint | None = None
        self._look_for_earlier_work()
        self._is_live = self._n_done == 0

    def _blank_adjoint(self) -> Adjoint:
        value = value_and_adjoint.eval_shape(
            self._loop.loss, self._loop.loss_consts, self._loop.operands.params, self._loop.init
        ).value
        return Adjoint(
            np.zeros(value.shape, value.dtype),  # pyright: ignore[reportArgumentType]
            floating(self._loop.init),
            floating(self._loop.operands.params),
        )

    def _look_for_earlier_work(self) -> None:
        state, adjoint = self._states.newest(), self._adjoints.newest()
        self._n_done = max(state[0] if state else 0, adjoint[0] if adjoint else 0)
        self._found_state = None if state is None else (int(state[1][0]), tuple(state[1][1:]))
        self._adjoint = None if adjoint is None else adjoint[1]

    def run(self) -> Adjoint:
        """Do what is left; return the value and the gradient."""
        for action in self._hinted():
            match action:
                case Advance(start, stop):
                    self._forward(start, stop)
                case UTurn(start, stop):
                    if stop == self._n_blocks:
                        self._end(start)
                    self._turn(start, stop)
                case _:
                    self._use_storage(action)
        if self._n_blocks == 0:
            self._end(0)
        self._snapshots.flush()
        assert self._adjoint is not None
        return self._adjoint

    def close(self) -> None:
        """Close the files, and leave in the storage what may be needed."""
        self._snapshots.leave()
        self._states.close()
        self._adjoints.close()

    def _hinted(self) -> Iterator[Action]:
        return look_ahead(
            self._actions, lambda slot: self._snapshots.prefetch(slot) if self._is_live else None
        )

    def _forward(self, start: int, stop: int) -> None:
        n_skipped = min(stop - start, self._n_done - self._number) if not self._is_live else 0
        if n_skipped:
            self._number += n_skipped
            self._position, self._state = start + n_skipped, None
            self._bar.count(forward=n_skipped * self._block)
        for at in range(start + n_skipped, stop):
            self._state = self._advance(self._in_hand(), at, at + 1)
            self._position = at + 1
            self._record_state()

    def _end(self, start: int) -> None:
        """Run to the end from the first U-turn, and reverse the steps that fill no block."""
        self._position = start
        n_tail = self._n_steps - self._n_blocks * self._block
        if self._skips():
            self._bar.count(forward=(self._n_blocks - start) * self._block + n_tail, back=n_tail)
            return
        loop, tail = self._loop, self._index(self._n_blocks)
        end = self._advance(self._in_hand(), start, self._n_blocks)
        last = np.asarray(self._n_steps, self._wide)
        out = advance(loop.body, loop.operands, tail, last, end) if n_tail else end
        adjoint = value_and_adjoint(loop.loss, loop.loss_consts, loop.operands.params, out)
        self._on_adjoint(self._n_steps, adjoint)
        if n_tail:
            adjoint = turn(loop.body, n_tail, loop.operands, tail, end, adjoint)
            self._on_adjoint(self._n_blocks * self._block, adjoint)
        self._bar.count(forward=n_tail, back=n_tail)
        self._record_adjoint(adjoint)

    def _turn(self, start: int, stop: int) -> None:
        self._position = start
        n_steps, at = (stop - start) * self._block, self._index(start)
        if not self._skips():
            state, adjoint = self._in_hand(), self._adjoint
            assert adjoint is not None
            adjoint = turn(self._loop.body, n_steps, self._loop.operands, at, state, adjoint)
            self._on_adjoint(start * self._block, adjoint)
            self._record_adjoint(adjoint)
        self._bar.count(back=n_steps)
        self._position, self._state = None, None

    def _use_storage(self, action: Action) -> None:
        # At the border between two processes an action may or may not have been carried out.
        replayed = not self._is_live and self._number < self._n_done
        if not replayed:
            self._go_live()
        match action:
            case Store():
                if replayed:
                    self._snapshots.remember(action)
                else:
                    self._snapshots.store(action, self._in_hand())
            case Restore(slot, step, tier):
                self._position, self._state = step, None
                if not replayed:
                    self._state = self._snapshots.restore(Store(slot, step, tier))
            case Free():
                self._snapshots.free(action)

    def _skips(self) -> bool:
        """Count a piece that an earlier process has done; False if it has not."""
        if self._is_live or self._number >= self._n_done:
            return False
        self._number += 1
        return True

    def _go_live(self) -> None:
        if not self._is_live:
            self._is_live = True
            self._snapshots.recover()

    def _in_hand(self) -> Leaves:
        """Return the state at the current position, however it has to be found."""
        self._go_live()
        assert self._position is not None
        if self._state is None or self._found_state is not None:
            found, self._found_state = self._found_state, None
            if found is not None and found[0] == self._position:
                self._state = found[1]
            elif self._state is None:
                self._state = self._snapshots.recompute(self._position)
        return self._state

    def _record_state(self) -> None:
        assert self._state is not None and self._position is not None
        self._number += 1
        self._snapshots.flush()
        self._states.write(self._number, (np.int64(self._position), *self._state))

    def _record_adjoint(self, adjoint: Adjoint) -> None:
        self._number += 1
        self._snapshots.flush()
        self._adjoints.write(self._number, adjoint)
        self._adjoint = adjoint

    def _advance(self, state: Leaves, start: int, stop: int) -> Leaves:
        if start == stop:
            return state
        bounds = self._index(start), self._index(stop)
        out = advance(self._loop.body, self._loop.operands, *bounds, state)
        self._bar.count(forward=(stop - start) * self._block)
        return out

    def _index(self, block: int) -> np.ndarray:
        return np.asarray(block * self._block, self._wide)
