"""Forward mode: the tangent of a solve as a lane program of its own.

Its body is `jax.jvp` of one step, with the tangent's error in the step control, on a mesh of
its own. It is linear in its tangents, and its transpose is the adjoint program.

Conventions (the mesh is frozen, the ends absorb): the first step starts at t0 and ends where it
ends, the last step ends at t1; a saved row moves with its time along the vector field.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from pullback.core.compat import Zero
from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_while
from pullback.lanes.program import JvpProgram, LaneCall, LaneProgram
from pullback.ode.adjoint_program import transpose_tangent
from pullback.ode.auto_switch import turn
from pullback.ode.event_record import Record
from pullback.ode.mesh import frozen
from pullback.ode.operands import NO_TIMES, MovingTimes, moving_times, unflatten_operands
from pullback.ode.partial_ad import push_forward
from pullback.ode.rows import StepRows, TimeRows, row_at
from pullback.ode.spec import SolveOperands, SolveSpec
from pullback.ode.sweep import Attempt, Seed, Sweep, SweepState, make_sweep
from pullback.ode.sweep_state import ends_with_event

__all__ = ["TangentProgram"]


class _LastStep(NamedTuple):
    """The step that arrives at t1, kept where t1 moves."""

    t: Array
    y: Array
    h: Array
    v: MaybeArray
    t_dot: MaybeArray
    is_stiff: MaybeArray
    steps: MaybeArray


class _State(NamedTuple):
    sweep: SweepState
    cursor: Any
    last: _LastStep | None


@dataclasses.dataclass(frozen=True)
class TangentProgram(LaneProgram):
    """Tangents of `y_end`, of `y_rows` where rows are saved, and of the times of events.

    Operands are those of the solve, then one tangent for each active one.

    Attributes:
        spec: What is solved.
        active: Which operands of the solve have a tangent.
        moving: By which times the program itself is to be differentiated.
    """

    spec: SolveSpec
    active: tuple[bool, ...]
    moving: MovingTimes = NO_TIMES

    def __call__(self, *flat: Array) -> tuple[Array, ...]:
        """Return the tangents of one trajectory."""
        n = len(self.active)
        operands = unflatten_operands(flat[:n])
        given = iter(flat[n:])
        tangents = unflatten_operands([next(given) if a else None for a in self.active])
        seed = Seed(tangents.y0, tangents.t0, tangents.theta)
        t0_shift = operands.t0 - frozen(operands.t0) if self.moving.t0 else None
        sweep, start = make_sweep(
            self.spec, operands, seed, 1.0 if self.spec.may_refine else None, t0_shift=t0_shift
        )
        run = _TangentSweep(sweep, tangents, self.moving)
        end, rows, event_times = run.run(start)
        y_end = run.end_tangent(end)
        found = [y_end] if rows is None else [y_end, rows]
        if event_times is not None:
            found += [run.end_time_tangent(end), event_times]
        return tuple(found)

    def jvp(
        self, call: LaneCall, primals: Sequence[Array], tangents: Sequence[Any]
    ) -> tuple[list[Array], list[Any]]:
        """Return the tangent, and its own: `jax.jvp` of the whole program, mesh frozen."""
        outs = call.bind(self, primals, call.batched, call.reduced)
        moves = tuple(type(t) is not Zero for t in tangents)
        program = dataclasses.replace(self, moving=moving_times(moves[: len(self.active)]))
        return outs, self._tangent_outs(call, JvpProgram(program, moves), primals, tangents, outs)

    def transpose(
        self, call: LaneCall, cotangents: Sequence[Any], operands: Sequence[Any]
    ) -> list[Any]:
        """Return the tangents' cotangents, by the adjoint program."""
        return transpose_tangent(self.spec, self.active, call, cotangents, operands)


@dataclasses.dataclass(frozen=True, eq=False)
class _TangentSweep:
    sweep: Sweep
    tangents: SolveOperands
    moving: MovingTimes

    def run(self, start: SweepState) -> tuple[_State, MaybeArray, MaybeArray]:
        """Sweep from start to end; return the last state, the rows and the events' times."""
        rows = self._make_rows()
        events = self.sweep.spec.events
        record = None
        if events is not None and events.tells:
            record = Record.empty(events, start.y.dtype)

        def body(s: _State) -> _State:
            after, attempt = self.sweep.attempt(s.sweep)
            cursor = s.cursor
            if record is not None and attempt.met is not None and s.sweep.events is not None:
                t_dot = jnp.zeros_like(start.mesh.t) if after.t_dot is None else after.t_dot
                record.add(attempt.met._replace(t1=t_dot), s.sweep.events)
            if isinstance(rows, TimeRows):
                row_of = self._row_of(s.sweep, after, attempt)
                cursor = rows.save(s.cursor, after.mesh, row_of)
            elif rows is not None:
                still = jnp.zeros_like(after.y)
                v = still if after.v is None else after.v
                rows.save(s.sweep.mesh, after.mesh, (v,), (still,))
            return _State(after, cursor, self._last_step(s, attempt))

        cursor = rows.start() if isinstance(rows, TimeRows) else None
        init = _State(start, cursor, self._no_last_step(start))
        end = lane_while(lambda s: ~s.sweep.mesh.done, body, init)
        times = None
        if record is not None:
            times = record.times()
            times = jnp.where(jnp.isnan(times), 0.0, times)
        if rows is None:
            return end, None, times
        ref = rows.ref if isinstance(rows, TimeRows) else rows.refs[0]
        return end, jax.freeze(ref), times

    def end_tangent(self, end: _State) -> Array:
        """Return the tangent of `y_end`."""
        sweep = self.sweep
        v = jnp.zeros_like(end.sweep.y) if end.sweep.v is None else end.sweep.v
        if end.last is not None:
            reached = sweep.mesh.has_reached_end(end.sweep.mesh)
            if end.sweep.events is not None:
                reached = reached & (end.sweep.last_kind == 0)
            index = jnp.maximum(end.sweep.mesh.n_accepted - 1, 0)
            v = jnp.where(reached, self._through_last_step(end.last, index), v)
        return v

    def end_time_tangent(self, end: _State) -> Array:
        """Return the tangent of the time of the event with which the trajectory ended."""
        zero = jnp.zeros_like(end.sweep.mesh.t)
        is_event, is_t1 = ends_with_event(self.sweep.mesh, end.sweep)
        dot = zero if end.sweep.t_dot is None else end.sweep.t_dot
        dot = jnp.where(is_event, dot, 0.0)
        return dot if self.tangents.t1 is None else jnp.where(is_t1, self.tangents.t1, dot)

    def _make_rows(self) -> TimeRows | StepRows | None:
        spec = self.sweep.spec
        if spec.save == "final":
            return None
        ref = jax.new_ref(lax.empty((spec.n_saves, spec.field.n), spec.dtype))
        if spec.save == "times":
            return TimeRows(self.sweep.mesh, self.sweep.operands.saveat, ref)
        return StepRows((ref,))

    def _row_of(self, before: SweepState, after: SweepState, attempt: Attempt) -> Any:
        sweep, saveat_dot = self.sweep, self.tangents.saveat

        def moved(time: Array, index: Array, y: Array, v: MaybeArray) -> Array:
            if saveat_dot is not None:
                slope = sweep.maps.slope(time, y, *sweep.operands.theta)
                shift = slope * row_at(saveat_dot, index)
                v = shift if v is None else v + shift
            return jnp.zeros_like(y) if v is None else v

        def row_of(time: Array, index: Array) -> tuple[Array, Array, Array]:
            inside = moved(time, index, *self._inside(before, attempt, time))
            end = moved(time, index, *self._at_end(after, time))
            if attempt.met is not None and after.t_dot is not None:
                # The end moves, the row's time does not.
                t_dot = after.t_dot
                end = end - sweep.maps.slope(time, after.y, *sweep.operands.theta) * t_dot
            return inside, end, jnp.zeros_like(inside)

        return row_of

    def _inside(
        self, before: SweepState, attempt: Attempt, time: Array
    ) -> tuple[Array, MaybeArray]:
        """Return the state at a time inside a step, and its tangent at fixed time."""
        sweep, step = self.sweep, attempt.step
        primals = (time, attempt.t, before.y, attempt.h, *step.stages, *sweep.operands.theta)
        row = sweep.maps.at(None, turn(before.switch)).row
        if attempt.dot is None:
            return row(*primals), None
        h_dot = attempt.h_dot
        tangents = (None, attempt.t_dot, before.v, h_dot, *attempt.dot.stages, *sweep.seed.theta)
        return push_forward(row, primals, tangents)

    def _at_end(self, after: SweepState, time: Array) -> tuple[Array, MaybeArray]:
        """Return the state at a step's end, as its time moves, and its tangent at fixed time."""
        if not self.moving.saveat or after.v is None:
            return after.y, after.v
        tangents = (None, after.v, *self.sweep.seed.theta)
        primals = (time, after.y, *self.sweep.operands.theta)
        return push_forward(self.sweep.maps.end_row, primals, tangents)

    def _no_last_step(self, start: SweepState) -> _LastStep | None:
        has_events = self.sweep.spec.events is not None
        if self.tangents.t1 is None and not self.moving.t1 and not has_events:
            return None
        zero = jnp.zeros((), start.y.dtype)
        has_time = self.sweep.seed.t0 is not None or start.t_dot is not None
        t_dot = zero if has_time else None
        steps = None
        if self.sweep.spec.events is not None:
            steps = jnp.zeros((len(self.sweep.spec.events.steps),), bool)
        return _LastStep(start.mesh.t, start.y, zero, start.v, t_dot, turn(start.switch), steps)

    def _last_step(self, s: _State, attempt: Attempt) -> _LastStep | None:
        if s.last is None:
            return None
        before = s.sweep
        stiff, steps = turn(before.switch), None if attempt.met is None else attempt.met.steps
        new = _LastStep(attempt.t, before.y, attempt.h, before.v, attempt.t_dot, stiff, steps)
        return jax.tree.map(lambda a, b: jnp.where(attempt.accept, a, b), new, s.last)

    def _through_last_step(self, last: _LastStep, index: Array) -> Array:
        """Take the last step again, with its end at t1 as t1 moves."""
        operands, seed = self.sweep.operands, self.sweep.seed
        h = last.h + (operands.t1 - frozen(operands.t1)) if self.moving.t1 else last.h
        if self.sweep.spec.events is not None:
            h = h - (last.t - frozen(last.t))  # the end stays
        h_dot = self.tangents.t1
        if last.t_dot is not None:
            h_dot = -last.t_dot if h_dot is None else h_dot - last.t_dot
        tangents = (last.t_dot, last.v, h_dot, *seed.theta)
        if all(tangent is None for tangent in tangents):
            return jnp.zeros_like(last.y)
        primals = (last.t, last.y, h, *operands.theta)
        arrive: Any = self.sweep.maps.at(index, last.is_stiff).arrive
        maps = self.sweep.event_maps(last.is_stiff)
        if maps is not None and maps.events.jumps_at_steps:
            arrive = functools.partial(maps.arrive_at_end, last.steps)
        return push_forward(arrive, primals, tangents)[1]
