"""The backward sweep of the adjoint: cotangents pulled back through the taped steps.

Each step is one `jax.vjp` of `(t, y, h, theta) -> (y1, stages)`. Cotangents of the rows saved in
a step are folded into cotangents of its stages first, however many rows there are.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_while
from pullback.ode.event_backward import EventBars, pull_event
from pullback.ode.maps import StepMaps
from pullback.ode.mesh import frozen
from pullback.ode.operands import MovingTimes
from pullback.ode.partial_ad import pull_back
from pullback.ode.probe_tangent import Estimate
from pullback.ode.row_fold import RowFold, TakenStep, add, weight2
from pullback.ode.rows import row_at, save_time
from pullback.ode.spec import SolveOperands, SolveSpec
from pullback.ode.sweep import SweepState
from pullback.ode.sweep_state import ends_with_event
from pullback.ode.tape import Tape, TapeCursor, TapeRow

__all__ = ["BackwardSweep", "Bars"]


class Bars(NamedTuple):
    """Cotangents of a solve's inputs; None where not wanted."""

    y0: Array
    t0: MaybeArray
    t1: MaybeArray
    saveat: MaybeArray
    theta: tuple[MaybeArray, ...]

    def without(self, is_bad: Array) -> Bars:
        """Return zero in every place where `is_bad`."""
        return jax.tree.map(lambda bar: jnp.where(is_bad, 0.0, bar), self)

    def poisoned(self, is_bad: Array) -> Bars:
        """Return NaN in every place where `is_bad`."""
        factor = jnp.where(is_bad, np.nan, 1.0)  # a product: derivatives are NaN as well
        return jax.tree.map(lambda bar: bar * factor.astype(bar.dtype), self)


class _State(NamedTuple):
    """What the backward sweep carries.

    Attributes:
        n_left: Steps still to be pulled back.
        cursor: Where the tape stands.
        lam: Cotangent of the state at the end of the next step.
        pending: What is added to it after one more step; None unless the end is split off.
        t0: Cotangent of t0; None where not wanted.
        theta: Cotangents of theta; None where not wanted.
        t_next: End of the next step.
        y_next: State there, behind events; None without events or rows.
        rows: Saved rows still to be pulled back.
        time: Time of the next one.
        error: Sum of `lam . ve`; None without an estimate.
        weight2: Sum of squares of the cotangents that came in, in natural units; None likewise.
        t: Cotangent of the time at the end of the next step; None without events.
        pending_t: What is added to it after one more step; None unless the end is split off.
        n_events: Events still to be pulled back; None without events.
    """

    n_left: Array
    cursor: TapeCursor
    lam: Array
    pending: MaybeArray
    t0: MaybeArray
    theta: tuple[MaybeArray, ...]
    t_next: Array
    y_next: MaybeArray
    rows: MaybeArray
    time: MaybeArray
    error: MaybeArray
    weight2: MaybeArray
    t: MaybeArray = None
    pending_t: MaybeArray = None
    n_events: MaybeArray = None


@dataclasses.dataclass(frozen=True, eq=False)
class BackwardSweep:
    """The backward sweep of one trajectory.

    Attributes:
        tape: The steps.
        flags: Which inputs want a cotangent.
        rows_bar: Cotangents of the saved rows, `(n_saves, n)`; None without.
        moving: By which times the sweep itself is to be differentiated.
        splits_end: Whether the end's cotangent takes its own way through the last step, because
            the end moves with t1 and saved rows do not.
        unit: Natural unit of the state; see `natural_unit`.
        t_end_bar: Cotangent of the time at which an event ended the trajectory; None without.
        event_times_bar: Cotangents of the recorded events' times; None without.
    """

    tape: Tape
    flags: Any
    rows_bar: MaybeArray
    moving: MovingTimes
    splits_end: bool
    unit: Array
    t_end_bar: MaybeArray = None
    event_times_bar: MaybeArray = None

    def run(
        self, end: SweepState, cursor: TapeCursor, end_bar: Array, is_live: Array
    ) -> tuple[Bars, Estimate | None]:
        """Pull the cotangents back to the inputs."""
        saveat_ref = None
        if self.flags.saveat and self.spec.save == "times":
            saveat_ref = jax.new_ref(jnp.zeros_like(self.operands.saveat))
        rows = RowFold(
            sweep=self.tape.sweep,
            flags=self.flags,
            rows_bar=self.rows_bar,
            is_moving=bool(self.moving.saveat),
            saveat_ref=saveat_ref,
            unit=self.unit,
        )
        start, t1_bar = self._start(end, cursor, end_bar, is_live)

        def body(s: _State) -> _State:
            return self._step(s, rows)

        last = lane_while(lambda s: s.n_left > 0, body, start)
        saveat_bar = None
        if self.flags.saveat:
            zeros = jnp.zeros_like(self.operands.saveat)
            saveat_bar = zeros if saveat_ref is None else jax.freeze(saveat_ref)
        bars = Bars(last.lam, last.t0, t1_bar, saveat_bar, last.theta)
        return bars, self._estimate(last, bars)

    @property
    def spec(self) -> SolveSpec:
        """What is solved."""
        return self.tape.sweep.spec

    @property
    def maps(self) -> StepMaps:
        """The maps that are differentiated."""
        return self.tape.sweep.maps

    @property
    def operands(self) -> SolveOperands:
        """Its arrays."""
        return self.tape.sweep.operands

    def _start(
        self, end: SweepState, cursor: TapeCursor, end_bar: Array, is_live: Array
    ) -> tuple[_State, MaybeArray]:
        n_left = jnp.where(is_live, end.mesh.n_accepted, 0)
        zero = jnp.zeros((), self.spec.dtype)
        has_times = self.rows_bar is not None and self.spec.save == "times"
        rows: MaybeArray = jnp.asarray(self.spec.n_saves, jnp.int32) if has_times else None
        has_error = self.tape.has_error
        state = _State(
            n_left=n_left,
            cursor=cursor,
            lam=end_bar,
            pending=None,
            t0=zero if self.flags.t0 else None,
            theta=tuple(
                jnp.zeros_like(value) if flag else None
                for value, flag in zip(self.operands.theta, self.flags.theta, strict=True)
            ),
            t_next=end.mesh.t,
            y_next=end.y if has_times and end.events is not None else None,
            rows=rows,
            time=save_time(self.tape.sweep.mesh, self.operands.saveat, rows - 1)
            if has_times
            else None,
            error=zero if has_error else None,
            weight2=weight2(end_bar, end.y, self.unit) if has_error else None,
        )
        if end.events is not None:
            t_bar = zero if self.t_end_bar is None else self.t_end_bar
            is_event, is_t1 = ends_with_event(self.tape.sweep.mesh, end)
            end_time_bar, t_bar = jnp.where(is_t1, t_bar, 0.0), jnp.where(is_event, t_bar, 0.0)
            state = state._replace(t=t_bar, pending_t=zero, n_events=end.events.n_events)
        else:
            end_time_bar = zero
        t1_bar = zero
        if self.splits_end:
            state, t1_bar = self._split_end(state, end, end_bar)
        return state, t1_bar + end_time_bar if self.flags.t1 else None

    def _split_end(self, state: _State, end: SweepState, end_bar: Array) -> tuple[_State, Array]:
        """Pull the end's cotangent through the last step, whose end is t1 as t1 moves."""
        row = self.tape.read(jnp.maximum(state.cursor.slot - 1, 0))
        has_step, is_only = state.n_left > 0, state.n_left == 1
        reached = self.tape.sweep.mesh.has_reached_end(end.mesh)
        t, h = self.tape.sweep.shifted(row.t, row.h, is_only)
        if self.moving.t1:
            t1 = self.operands.t1
            h = h + jnp.where(reached, t1 - frozen(t1), 0.0)
        if end.events is not None:
            h = h - jnp.where(reached, row.t - frozen(row.t), 0.0)  # the end stays
        has_events = end.events is not None
        moves_t = self.flags.t0 or has_events
        moves_h = bool(self.flags.t0 or self.flags.t1 or has_events)
        active = (moves_t, True, moves_h, *self.flags.theta)
        maps = self.maps.at(jnp.maximum(state.n_left - 1, 0), row.is_stiff)
        arrive: Any = maps.arrive
        event_maps = self.tape.sweep.event_maps(row.is_stiff)
        if event_maps is not None and event_maps.events.jumps_at_steps:
            arrive = functools.partial(event_maps.arrive_at_end, row.steps)
        _, pull = pull_back(arrive, (t, row.y, h, *self.operands.theta), active)
        t_bar, y_bar, h_bar, *theta = pull(end_bar)

        if end.events is not None:
            # A step that ends at an event is pulled back as such.
            has_step = has_step & (end.last_kind == 0)

        def if_step(bar: Array) -> Array:
            return jnp.where(has_step, bar, 0.0)

        t1_bar = jnp.zeros((), self.spec.dtype)
        if self.flags.t1:
            t1_bar = jnp.where(has_step & reached, h_bar, 0.0)
        if has_events:
            from_start = t_bar - jnp.where(reached, h_bar, 0.0)
            state = state._replace(pending_t=if_step(jnp.where(is_only, 0.0, from_start)))
        state = state._replace(
            lam=jnp.where(has_step, 0.0, end_bar),
            pending=if_step(y_bar),
            theta=tuple(None if bar is None else if_step(bar) for bar in theta),
        )
        if self.flags.t0:
            state = state._replace(t0=if_step(jnp.where(is_only, t_bar - h_bar, 0.0)))
        if state.error is not None:
            state = state._replace(error=if_step(jnp.sum(row.ve * frozen(end_bar))))
        return state, t1_bar

    def _step(self, s: _State, rows: RowFold) -> _State:
        """Pull back through one step."""
        cursor = self.tape.refill(s.cursor)
        row = self.tape.read(cursor.slot - 1)
        is_first = s.n_left == 1
        t, h = self.tape.sweep.shifted(row.t, row.h, is_first)
        if row.kind is not None and self.spec.method.is_implicit:
            h = jnp.where(h == 0, 1.0, h)  # of an event at the start of the step
        primals = (t, row.y, h, *self.operands.theta)
        maps = self.maps.at(s.n_left - 1, row.is_stiff)
        moves_t = self.flags.t0 or row.kind is not None
        active = (moves_t, True, self.flags.t0, *self.flags.theta)
        lam, weight, fold = s.lam, s.weight2, None
        at_event: EventBars | None = None
        if s.rows is not None:
            (y1, stages), pull = pull_back(maps.arrive_with_stages, primals, active)
            at_end = y1 if s.y_next is None else s.y_next
            taken = TakenStep(maps, t, row.y, h, at_end, stages, s.t_next, is_first)
            fold = rows.fold(taken, s.rows, s.time, weight)
            lam, weight = lam + fold.at_end, fold.weight2
            lam, at_event = self._split_event(s, row, t, lam, fold.t_end)
            t_bar, y_bar, h_bar, *theta_bar = pull((lam, fold.stages))
            y_bar = y_bar + fold.y
            t_bar, h_bar = add(t_bar, fold.t), add(h_bar, fold.h)
            theta_bar = [add(a, b) for a, b in zip(theta_bar, fold.theta, strict=True)]
        else:
            if self.rows_bar is not None:
                bar = row_at(self.rows_bar, s.n_left - 1)
                lam = lam + bar
                if weight is not None:
                    weight = weight + weight2(bar, row.y, self.unit)
            lam, at_event = self._split_event(s, row, t, lam, None)
            _, pull = pull_back(maps.arrive, primals, active)
            t_bar, y_bar, h_bar, *theta_bar = pull(lam)
        error = s.error
        if error is not None:
            met = lam if fold is None else lam + fold.y
            error = error + jnp.sum(frozen(met) * row.ve)
        t0, lam_t, pending_t, n_events = s.t0, s.t, s.pending_t, s.n_events
        if t0 is not None:
            first = t_bar - h_bar if at_event is None else t_bar - h_bar + at_event.t_first
            t0 = t0 + jnp.where(is_first, first, 0.0)
        if at_event is not None:
            y_bar = y_bar + at_event.y
            theta_bar = [add(a, b) for a, b in zip(theta_bar, at_event.theta, strict=True)]
            lam_t = t_bar + at_event.t + pending_t
            pending_t, n_events = jnp.zeros_like(pending_t), n_events - at_event.n_events
        pending = s.pending
        if pending is not None:
            y_bar, pending = y_bar + pending, jnp.zeros_like(pending)
        return _State(
            n_left=s.n_left - 1,
            cursor=cursor._replace(slot=cursor.slot - 1),
            lam=y_bar,
            pending=pending,
            t0=t0,
            theta=tuple(add(a, b) for a, b in zip(s.theta, theta_bar, strict=True)),
            t_next=row.t,
            y_next=None if s.y_next is None else row.y,
            rows=None if fold is None else fold.rows,
            time=None if fold is None else fold.time,
            error=error,
            weight2=weight,
            t=lam_t,
            pending_t=pending_t,
            n_events=n_events,
        )

    def _split_event(
        self, s: _State, row: TapeRow, t: Array, lam: Array, row_bar: MaybeArray
    ) -> tuple[Array, EventBars | None]:
        """Pull the cotangents behind an event through it; what is left goes the ordinary way."""
        maps = self.tape.sweep.event_maps(row.is_stiff)
        if maps is None or row.kind is None:
            return lam, None
        t_bar = s.t if row_bar is None else s.t + row_bar
        # The first step ends where it ends, and so does one that ends at the end.
        ends_fixed = (s.n_left == 1) | (s.t_next == self.tape.sweep.mesh.t1)
        bars = pull_event(
            maps,
            row,
            t,
            ends_fixed,
            (t_bar, lam),
            s.n_events,
            self.event_times_bar,
            self.operands.theta,
            self.flags.theta,
        )
        return jnp.where(bars.happens, 0.0, lam), bars

    def _estimate(self, last: _State, bars: Bars) -> Estimate | None:
        """Compare the estimated error with the gradient, in natural units."""
        if last.error is None or last.weight2 is None:
            return None
        seed = self.tape.sweep.seed
        along = size2 = jnp.zeros((), self.spec.dtype)
        pairs = zip((bars.y0, *bars.theta), (seed.y0, *seed.theta), strict=True)
        for bar, dot in pairs:
            if dot is not None and bar is not None:
                scaled = (frozen(bar) * frozen(dot)).astype(self.spec.dtype)
                along = along + jnp.sum(scaled)
                size2 = size2 + jnp.sum(scaled * scaled)
        scale2 = jnp.maximum(jnp.maximum(along * along, size2), last.weight2)
        return Estimate(last.error * last.error, scale2)
