"""Cotangents of the rows saved in a step, folded together before the step is pulled back.

However many rows there are, what is left is one cotangent of the step's end, of its start, and of
each of its stages.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_while, store_row
from pullback.ode.maps import StepMaps
from pullback.ode.mesh import frozen
from pullback.ode.partial_ad import pull_back
from pullback.ode.rows import row_at, save_time
from pullback.ode.sweep import Sweep

__all__ = ["Folded", "RowFold", "TakenStep", "add", "weight2"]


class TakenStep(NamedTuple):
    """A step taken again in the backward sweep.

    Attributes:
        maps: Its maps.
        t: Its start.
        y: State there.
        h: Its size.
        y1: State at its end, behind events.
        stages: Its stages.
        t1: Its end.
        is_first: Whether it is the trajectory's first.
    """

    maps: StepMaps
    t: Array
    y: Array
    h: Array
    y1: Array
    stages: tuple[Array, ...]
    t1: Array
    is_first: Array


class Folded(NamedTuple):
    """Cotangents of the rows of one step, folded together.

    Attributes:
        rows: Rows still to be pulled back.
        time: Time of the next one.
        at_end: Cotangent of the step's end.
        y: Of its start.
        stages: Of its stages.
        t: Of its start's time; None where not wanted.
        h: Of its size; None where not wanted.
        theta: Of theta, as far as rows depend on it themselves; None where they do not.
        weight2: Sum of squares of the cotangents so far, in natural units; None if not wanted.
        t_end: Cotangent of the end's time, with which a row at the end does not move; None
            without events.
    """

    rows: Array
    time: Array
    at_end: Array
    y: Array
    stages: tuple[Array, ...]
    t: MaybeArray
    h: MaybeArray
    theta: tuple[MaybeArray, ...]
    weight2: MaybeArray
    t_end: MaybeArray = None


@dataclasses.dataclass(frozen=True, eq=False)
class RowFold:
    """Folds the rows of one trajectory, step by step from the last.

    Attributes:
        sweep: The sweep whose steps they lie in.
        flags: Which inputs want a cotangent.
        rows_bar: Cotangents of the rows, `(n_saves, n)`.
        is_moving: Whether the result is to be differentiated by the rows' times.
        saveat_ref: Ref of the cotangents of their times; None where not wanted.
        unit: Natural unit of the state; see `natural_unit`.
    """

    sweep: Sweep
    flags: Any
    rows_bar: Any
    is_moving: bool
    saveat_ref: Any
    unit: Array

    def fold(self, taken: TakenStep, rows: Array, time: Array, weight: MaybeArray) -> Folded:
        """Fold the rows that lie in a step.

        Args:
            taken: The step.
            rows: Rows still to be pulled back.
            time: Time of the next one.
            weight: Sum of squares of the cotangents so far; None if not wanted.
        """
        sign = self.sweep.mesh.sign

        def is_pending(f: Folded) -> Array:
            is_in_step = (sign * (f.time - taken.t) > 0) | taken.is_first
            return (f.rows > 0) & is_in_step

        def body(f: Folded) -> Folded:
            return self._add_row(taken, f)

        return lane_while(is_pending, body, self._empty(taken, rows, time, weight))

    @property
    def _theta_flags(self) -> tuple[bool, ...]:
        """Which theta a row depends on by itself: extra stages, or the field at its time."""
        uses_theta = self.sweep.spec.method.n_row_evaluations > 0 or self.is_moving
        return tuple(flag and uses_theta for flag in self.flags.theta)

    def _empty(self, taken: TakenStep, rows: Array, time: Array, weight: MaybeArray) -> Folded:
        zero = jnp.zeros_like(taken.y)
        no_time = jnp.zeros_like(taken.t) if self._moves_t else None
        theta = self.sweep.operands.theta
        return Folded(
            rows=rows,
            time=time,
            at_end=zero,
            y=zero,
            stages=(zero,) * len(taken.stages),
            t=no_time,
            h=jnp.zeros_like(taken.t) if self.flags.t0 else None,
            theta=tuple(
                jnp.zeros_like(value) if flag else None
                for value, flag in zip(theta, self._theta_flags, strict=True)
            ),
            weight2=weight,
            t_end=jnp.zeros_like(taken.t) if self._has_events else None,
        )

    @property
    def _has_events(self) -> bool:
        return self.sweep.spec.events is not None

    @property
    def _moves_t(self) -> bool:
        return bool(self.flags.t0) or self._has_events

    def _add_row(self, taken: TakenStep, f: Folded) -> Folded:
        mesh, operands = self.sweep.mesh, self.sweep.operands
        index = f.rows - 1
        bar = row_at(self.rows_bar, index)
        after = mesh.sign * (f.time - taken.t1)  # a row past the end was never reached
        end_bar = jnp.where(after == 0, bar, 0.0)
        value, bars = self._pull_inside(taken, f.time, jnp.where(after < 0, bar, 0.0))
        t_bar, y_bar, h_bar, *rest = bars
        stage_bars, theta_bars = rest[: len(taken.stages)], rest[len(taken.stages) :]
        at_end = taken.y1
        if self.is_moving:
            at_end, (end_bar, *more) = self._pull_end(taken.y1, f.time, end_bar)
            theta_bars = map(add, theta_bars, more)
        if self.saveat_ref is not None:
            # A row moves with its time along the vector field.
            slope = self.sweep.maps.slope(
                f.time, jnp.where(after < 0, value, at_end), *operands.theta
            )
            store_row(self.saveat_ref, index, jnp.where(after <= 0, jnp.sum(bar * slope), 0.0))
        weight = f.weight2
        if weight is not None:
            weight = weight + jnp.where(after <= 0, weight2(bar, taken.y, self.unit), 0.0)
        t_end = f.t_end
        if t_end is not None:
            slope = self.sweep.maps.slope(f.time, at_end, *operands.theta)
            t_end = t_end - jnp.sum(end_bar * slope)
        return Folded(
            rows=index,
            time=save_time(mesh, operands.saveat, index - 1),
            at_end=f.at_end + end_bar,
            y=f.y + y_bar,
            stages=tuple(map(add, f.stages, stage_bars)),
            t=add(f.t, t_bar),
            h=add(f.h, h_bar),
            theta=tuple(map(add, f.theta, theta_bars)),
            weight2=weight,
            t_end=t_end,
        )

    def _pull_inside(
        self, taken: TakenStep, time: Array, bar: Array
    ) -> tuple[Array, list[MaybeArray]]:
        """Return the row inside the step, and what its cotangent is to the step's parts."""
        maps, theta = taken.maps, self.sweep.operands.theta
        # A step of length zero has no inside, but dividing by it would still give NaN.
        h = jnp.where(taken.h == 0, 1.0, taken.h)
        n_stages, moves_h = len(taken.stages), bool(self.flags.t0)
        active = (False, self._moves_t, True, moves_h, *(True,) * n_stages, *self._theta_flags)
        primals = (time, taken.t, taken.y, h, *taken.stages, *theta)
        value, pull = pull_back(maps.row, primals, active)
        return value, pull(bar)[1:]

    def _pull_end(self, y1: Array, time: Array, bar: Array) -> tuple[Array, list[MaybeArray]]:
        """Return the row at the step's end as its time moves, and the way back to y1, theta."""
        maps, theta = self.sweep.maps, self.sweep.operands.theta
        active = (False, True, *self.flags.theta)
        value, pull = pull_back(maps.end_row, (time, y1, *theta), active)
        return value, pull(bar)[1:]


def weight2(bar: Array, y: Array, unit: Array) -> Array:
    """Return the square of a state's cotangent in natural units, `unit` at y = 0."""
    weighted = frozen(bar) * (jnp.abs(frozen(y)) + unit)
    return jnp.sum(weighted * weighted)


def add(a: MaybeArray, b: MaybeArray) -> MaybeArray:
    """Return the sum of two cotangents; None is zero."""
    if a is None or b is None:
        return a if b is None else b
    return a + b
