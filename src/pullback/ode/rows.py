"""Saved rows: what a trajectory keeps of its way, written inside the step loop.

Rows are written in order. A step writes the rows that lie in it, the last one of a trajectory
also all that are left, with the last good point. So nothing is left to do when the loop ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from pullback.core.typing import Array
from pullback.lanes.loop import lane_while, store_row
from pullback.ode.mesh import Mesh, MeshState

__all__ = ["RowCursor", "StepRows", "TimeRows", "row_at", "save_time"]


class RowCursor(NamedTuple):
    """Where the next row goes.

    Attributes:
        row: Rows written; the next one is written there.
        n_saved: How many of them are real.
        time: The next save time.
    """

    row: Array
    n_saved: Array
    time: Array


def row_at(array: Array, index: Array) -> Array:
    """Return `array[index]` with the index clamped to the array."""
    return lax.dynamic_index_in_dim(array, index, keepdims=False)


def save_time(mesh: Mesh, saveat: Array, index: Array) -> Array:
    """Return a save time; one that rounding put past the end is the end."""
    time = row_at(saveat, index)
    return jnp.where(mesh.sign * (time - mesh.t1) > 0, mesh.t1, time)


@dataclasses.dataclass(frozen=True, eq=False)
class TimeRows:
    """Rows at given times.

    Attributes:
        mesh: The mesh they are taken from.
        saveat: Their times, in order.
        ref: Ref of the rows, `(n_saves, n)`.
    """

    mesh: Mesh
    saveat: Array
    ref: Any

    def start(self) -> RowCursor:
        """Return the cursor before the first step."""
        zero = jnp.zeros((), jnp.int32)
        return RowCursor(zero, zero, save_time(self.mesh, self.saveat, zero))

    def save(
        self,
        cursor: RowCursor,
        state: MeshState,
        row_of: Callable[[Array, Array], tuple[Array, Array, Array]],
    ) -> RowCursor:
        """Write the rows of an attempt.

        Args:
            cursor: Where the next row goes.
            state: The mesh after the attempt.
            row_of: Of a row's time and index: the row if it lies strictly inside the step, if it
                is the step's end, and if it will not be reached.
        """
        n_saves = self.saveat.shape[0]

        def is_pending(c: RowCursor) -> Array:
            return ((self._after(state.t, c.time) <= 0) | state.done) & (c.row < n_saves)

        def write(c: RowCursor) -> RowCursor:
            after = self._after(state.t, c.time)
            inside, end, unreached = row_of(c.time, c.row)
            if end is not unreached:
                end = jnp.where(after <= 0, end, unreached)
            store_row(self.ref, c.row, jnp.where(after < 0, inside, end))
            index = c.row + 1
            return RowCursor(
                index,
                c.n_saved + (after <= 0).astype(jnp.int32),
                save_time(self.mesh, self.saveat, index),
            )

        return lane_while(is_pending, write, cursor)

    def _after(self, t: Array, time: Array) -> Array:
        """How far a save time lies behind t, in the direction of integration."""
        return self.mesh.sign * (time - t)


@dataclasses.dataclass(frozen=True, eq=False)
class StepRows:
    """One row after every accepted step.

    Attributes:
        refs: Refs of the rows, `(n_saves, ...)` each.
    """

    refs: tuple[Any, ...]

    def save(
        self,
        before: MeshState,
        state: MeshState,
        row: tuple[Array, ...],
        unreached: tuple[Array, ...],
    ) -> None:
        """Write the row of an attempt; that of a rejected one is written over by the next.

        Args:
            before: The mesh before the attempt.
            state: The mesh after it.
            row: The row if the attempt is accepted.
            unreached: The row for steps that were not taken.
        """
        for ref, value in zip(self.refs, row, strict=True):
            store_row(ref, before.n_accepted, value)
        n_saves = self.refs[0].shape[0]

        def is_pending(index: Array) -> Array:
            return state.done & (index < n_saves)

        def write(index: Array) -> Array:
            for ref, value in zip(self.refs, unreached, strict=True):
                store_row(ref, index, value)
            return index + 1

        lane_while(is_pending, write, state.n_accepted)
