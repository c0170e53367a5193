"""The tape of accepted steps, bounded: a ring of rows, and snapshots to fill it again.

A row is what one reverse step needs, `(y, t, h[, ve][, kind, cursor, steps][, is_stiff])`. Runs
longer than the ring keep the loop's state at the start of every segment of `n_rows` accepted steps;
the reverse sweep then repeats a segment to fill the ring again. Runs that cannot be longer have no
snapshots, and no code for it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_while, store_row
from pullback.ode.auto_switch import Switch
from pullback.ode.events import EventSpec
from pullback.ode.mesh import frozen
from pullback.ode.sweep import Attempt, Sweep, SweepState

__all__ = ["Tape", "TapeCursor", "TapeRow", "make_tape"]


class TapeCursor(NamedTuple):
    """Where the tape stands.

    Attributes:
        slot: Rows of the ring in use.
        segment: Segment in the ring, -1 before the first; None for a tape without segments.
    """

    slot: Array
    segment: MaybeArray


class TapeRow(NamedTuple):
    """One accepted step.

    Attributes:
        y: State at its start.
        t: Time at its start.
        h: Its size.
        ve: The carried tangent's embedded error; None without control.
        kind: Which event it met, 0 if none; None without events.
        cursor: Next time of each preset event before it; None without events.
        steps: Which step events happened at its end; None without events.
        is_stiff: Whether the stiff one of two methods took it; None where there is one.
    """

    y: Array
    t: Array
    h: Array
    ve: MaybeArray
    kind: MaybeArray = None
    cursor: MaybeArray = None
    steps: MaybeArray = None
    is_stiff: MaybeArray = None


@dataclasses.dataclass(frozen=True, eq=False)
class Tape:
    """Rows of a sweep.

    Attributes:
        sweep: The sweep, to be repeated.
        rows: Ref, `(n_rows, width)`.
        snapshots: Ref, `(n_segments, width)`; None for a tape without segments.
        template: A state of the sweep, for the snapshots' layout.
    """

    sweep: Sweep
    rows: Any
    snapshots: Any
    template: SweepState

    @property
    def has_error(self) -> bool:
        """Whether rows hold the carried tangent's error."""
        return self.sweep.control is not None

    @property
    def n_rows(self) -> int:
        """Rows in the ring."""
        return self.rows.shape[0]

    def start(self) -> TapeCursor:
        """Return the cursor before the first step."""
        if self.snapshots is None:
            return TapeCursor(jnp.zeros((), jnp.int32), None)
        # As if a segment had just been filled: the first attempt then begins segment 0.
        return TapeCursor(jnp.asarray(self.n_rows, jnp.int32), jnp.asarray(-1, jnp.int32))

    def attempt(
        self, state: SweepState, cursor: TapeCursor
    ) -> tuple[SweepState, TapeCursor, Attempt]:
        """Try one step and record it; a rejected one is written over by the next."""
        cursor = self._turn_over(state, cursor)
        after, attempt = self.sweep.attempt(state)
        self._record(state, attempt, cursor.slot)
        slot = cursor.slot + attempt.accept.astype(jnp.int32)
        return after, cursor._replace(slot=slot), attempt

    def read(self, slot: Array) -> TapeRow:
        """Return the row of a slot."""
        row = self.rows[slot]
        n = self.sweep.spec.field.n
        stop = 2 * n + 2 if self.has_error else n + 2
        ve = row[n + 2 : stop] if self.has_error else None
        is_stiff = None if self.template.switch is None else row[-1] > 0
        if self.sweep.spec.events is None:
            return TapeRow(row[:n], row[n], row[n + 1], ve, is_stiff=is_stiff)
        n_presets, n_steps = _event_counts(self.sweep.spec.events)
        kind = row[stop].astype(jnp.int32)
        cursor = row[stop + 1 : stop + 1 + n_presets].astype(jnp.int32)
        begin = stop + 1 + n_presets
        steps = row[begin : begin + n_steps] > 0
        return TapeRow(row[:n], row[n], row[n + 1], ve, kind, cursor, steps, is_stiff)

    def refill(self, cursor: TapeCursor) -> TapeCursor:
        """Make the row before `slot` available, repeating the segment before if it must be."""
        if self.snapshots is None:
            return cursor

        def repeat(c: TapeCursor) -> TapeCursor:
            segment = c.segment - 1
            state = self._restore(segment)

            def is_pending(carry: tuple[SweepState, TapeCursor]) -> Array:
                return (carry[1].slot < self.n_rows) & ~carry[0].mesh.done

            def body(carry: tuple[SweepState, TapeCursor]) -> tuple[SweepState, TapeCursor]:
                state, at = carry
                after, attempt = self.sweep.attempt(state)
                self._record(state, attempt, at.slot)
                return after, at._replace(slot=at.slot + attempt.accept.astype(jnp.int32))

            start = TapeCursor(jnp.zeros((), jnp.int32), segment)
            filled = lane_while(is_pending, body, (state, start))[1]
            # At least one, or the loop around this would not end.
            return filled._replace(slot=jnp.maximum(filled.slot, 1))

        return lane_while(lambda c: c.slot == 0, repeat, cursor)

    def _record(self, state: SweepState, attempt: Attempt, slot: Array) -> None:
        # The step's own start and size, without what t0 adds to them for second derivatives.
        parts = [state.y, jnp.stack([state.mesh.t, frozen(attempt.h)])]
        if self.has_error:
            parts.append(frozen(attempt.dot.err))
        if attempt.met is not None and state.events is not None:
            met = attempt.met
            numbers = (met.kind[None], state.events.cursor, met.steps)
            parts += [x.astype(state.y.dtype) for x in numbers]
        if state.switch is not None:
            parts.append(state.switch.is_stiff[None].astype(state.y.dtype))
        store_row(self.rows, slot, jnp.concatenate(parts))

    def _turn_over(self, state: SweepState, cursor: TapeCursor) -> TapeCursor:
        """Begin a new segment where the ring is full."""
        if self.snapshots is None:
            return cursor

        def begin(c: TapeCursor) -> TapeCursor:
            segment = c.segment + 1
            store_row(self.snapshots, segment, _pack(state))
            return TapeCursor(jnp.zeros((), jnp.int32), segment)

        return lane_while(lambda c: c.slot == self.n_rows, begin, cursor)

    def _restore(self, segment: Array) -> SweepState:
        values = _unpack(self.snapshots[segment], _kept(self.template))
        t, h, memory, control, is_stiff, streak, y, k1, v, k1_dot, largest, t_dot, *rest = values
        n_accepted = segment * self.n_rows
        mesh = self.template.mesh._replace(
            t=t, h=h, memory=memory, n_accepted=n_accepted, done=jnp.zeros((), bool)
        )
        is_controlled = None if control is None else control > 0
        switch = None if is_stiff is None else Switch(is_stiff > 0, streak.astype(jnp.int32))
        state = SweepState(mesh, y, k1, v, k1_dot, largest, is_controlled, t_dot, switch=switch)
        if self.template.events is None:
            return state
        before = self.template.events
        events = [x.astype(like.dtype) for x, like in zip(rest, before, strict=True)]
        # Only its end matters, and that is not in a segment that is repeated.
        kind = jnp.zeros((), jnp.int32)
        return state._replace(events=type(before)(*events), last_kind=kind)


def make_tape(sweep: Sweep, start: SweepState, n_rows: int | None) -> Tape:
    """Return an empty tape for a sweep that begins with `start`, of at most `n_rows` rows."""
    limit = sweep.mesh.max_attempts
    if sweep.mesh.max_accepted is not None:
        limit = min(limit, sweep.mesh.max_accepted)
    dtype, n = start.y.dtype, start.y.shape[0]
    width = n + 2 if sweep.control is None else 2 * n + 2
    if sweep.spec.events is not None:
        width += 1 + sum(_event_counts(sweep.spec.events))
    if start.switch is not None:
        width += 1
    size = limit if n_rows is None else min(n_rows, limit)
    rows = jax.new_ref(lax.empty((size, width), dtype))
    snapshots = None
    if size < limit:
        n_kept = sum(math.prod(x.shape) for x in _kept(start) if x is not None)
        snapshots = jax.new_ref(lax.empty((-(-limit // size), n_kept), dtype))
    return Tape(sweep, rows, snapshots, start)


def _event_counts(events: EventSpec) -> tuple[int, int]:
    return len(events.presets), len(events.steps)


def _kept(state: SweepState) -> list[MaybeArray]:
    """Return the floating parts of a sweep's state, from which it can be resumed."""
    mesh, control = state.mesh, state.is_controlled
    if control is not None:
        control = control.astype(state.y.dtype)
    parts = [state.y, state.k1, state.v, state.k1_dot, state.largest, state.t_dot]
    if state.events is not None:
        parts += [x.astype(state.y.dtype) for x in state.events]
    turn: list[MaybeArray] = [None, None]
    if state.switch is not None:
        turn = [x.astype(state.y.dtype) for x in state.switch]
    return [mesh.t, mesh.h, mesh.memory, control, *turn, *parts]


def _pack(state: SweepState) -> Array:
    return jnp.concatenate([x.reshape(-1) for x in _kept(state) if x is not None])


def _unpack(packed: Array, like: list[MaybeArray]) -> list[MaybeArray]:
    parts: list[MaybeArray] = []
    start = 0
    for x in like:
        if x is None:
            parts.append(None)
            continue
        stop = start + math.prod(x.shape)
        parts.append(packed[start:stop].reshape(x.shape))
        start = stop
    return parts
