"""One attempt of a sweep with a tangent where there are events: what it meets, and what follows.

The functions here belong to `Sweep`, which they are given.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_if
from pullback.ode.auto_switch import turn
from pullback.ode.event_maps import moved
from pullback.ode.event_root import Attempted
from pullback.ode.event_step import Met, after_event, meet
from pullback.ode.event_sweep import Arrival, arrive
from pullback.ode.mesh import MeshState, Stop, frozen, frozen_float
from pullback.ode.method import Step
from pullback.ode.partial_ad import push_forward
from pullback.ode.sweep_state import Attempt, SweepState

__all__ = ["choose", "meet_events"]


def meet_events(
    sweep: Any,
    s: SweepState,
    after: MeshState,
    attempt: Attempt,
    largest: MaybeArray,
    q2_state: Array,
    stop: Stop,
) -> tuple[SweepState, Attempt]:
    """Return the state after an attempt behind its events."""
    maps, events = sweep.event_maps(turn(s.switch)), s.events
    assert maps is not None and events is not None
    theta = tuple(map(frozen_float, sweep.operands.theta))
    made = Attempted(
        t=frozen(attempt.t),
        y=frozen(s.y),
        h=frozen(attempt.h),
        k1=None if s.k1 is None else frozen(s.k1),
        step=jax.tree.map(frozen, attempt.step),
        accept=attempt.accept,
        target=stop.time,
        aims=attempt.is_last,
        is_short=sweep.mesh.is_short(s.mesh, stop),
    )
    met = jax.tree.map(frozen_float, meet(maps, events, made, theta))
    after = after_event(maps, jax.tree.map(frozen_float, s.mesh), after, met)
    attempt = _retaken(sweep, s, attempt._replace(accept=attempt.accept & ~met.lost), met)
    arrival, k1, k1_dot = _behind(sweep, s, attempt, met, stop)
    accept = attempt.accept
    if largest is not None:
        reach = jnp.maximum(largest, jnp.abs(frozen(arrival.v)))
        largest = jnp.where(met.jumps, reach, largest)
    new = (arrival.y, k1, arrival.v, k1_dot, largest, arrival.t_dot)
    old = (s.y, s.k1, s.v, s.k1_dot, s.largest, s.t_dot)
    y, k1, v, k1_dot, largest, t_dot = map(functools.partial(choose, accept), new, old)
    control = sweep.keeps_control(s, after, accept, q2_state)
    # The time's own derivative goes with the state's, for second derivatives; the end has none.
    is_at_end = after.t == sweep.mesh.t1
    plain = frozen(after.t) + jnp.where(is_at_end, 0.0, moved(s.mesh.t))
    after = after._replace(t=jnp.where(met.kind > 0, arrival.t, plain))
    kind = jnp.where(accept, met.kind, s.last_kind)
    state = SweepState(after, y, k1, v, k1_dot, largest, control, t_dot, met.state, kind)
    return state, attempt._replace(met=met)


def _retaken(sweep: Any, s: SweepState, attempt: Attempt, met: Met) -> Attempt:
    """Take the step to a root event again: rows inside it are made of its stages."""
    fires = (met.kind > 0) & (met.kind <= len(sweep.spec.events.roots))
    size = jnp.where(met.h == 0, 1.0, met.h) if sweep.spec.method.is_implicit else met.h

    def again() -> tuple[Step, Any]:
        step, dot = sweep.step(s, attempt.t, size, attempt.t_dot, attempt.h_dot)
        if dot is not None:
            dot = dot._replace(err=attempt.dot.err)
        return step, dot

    step, dot = lane_if(fires, again, (attempt.step, attempt.dot))
    h = jnp.where(fires, met.h, attempt.h)
    return attempt._replace(step=step, dot=dot, h=h)


def _behind(
    sweep: Any, s: SweepState, attempt: Attempt, met: Met, stop: Stop
) -> tuple[Arrival, MaybeArray, MaybeArray]:
    """Return where the step comes to, and the first stage of the next one."""
    maps = sweep.event_maps(turn(s.switch))
    assert maps is not None and s.events is not None
    theta, dot = sweep.operands.theta, attempt.dot
    tangents = t1_dot = v1 = None
    if dot is not None:
        tangents = (attempt.t_dot, s.v, *sweep.seed.theta)
        t1_dot, v1 = attempt.t_dot, dot.y1
        if attempt.h_dot is not None and t1_dot is not None:
            t1_dot = t1_dot + attempt.h_dot
    plain = Arrival(attempt.t + attempt.h, attempt.step.y1, t1_dot, v1)
    start = (attempt.t, s.y)
    # The first step ends where it ends, and so does one that aims at the end.
    ends_fixed = (s.mesh.n_accepted == 0) | (attempt.is_last & (stop.time == sweep.mesh.t1))
    size = (frozen(attempt.h), ends_fixed)
    arrival = arrive(maps, met, s.events.cursor, start, size, tangents, theta, plain)
    arrival = _held(sweep, arrival)
    if not sweep.spec.method.is_fsal:
        return arrival, None, None
    last = (attempt.step.stages[-1], None if dot is None else dot.stages[-1])

    def slope() -> tuple[Array, MaybeArray]:
        primals = (arrival.t, arrival.y, *theta)
        if arrival.v is None:
            return sweep.maps.slope(*primals), None
        moving = (arrival.t_dot, arrival.v, *sweep.seed.theta)
        return push_forward(sweep.maps.slope, primals, moving)

    k1, k1_dot = lane_if(met.jumps, slope, last)
    if sweep.control is not None and sweep.control.is_all:
        k1_dot = frozen(k1_dot)
    return arrival, k1, k1_dot


def _held(sweep: Any, arrival: Arrival) -> Arrival:
    """Freeze tangents that are there for control only."""
    if sweep.control is None or not sweep.control.is_all:
        return arrival
    return arrival._replace(t_dot=frozen(arrival.t_dot), v=frozen(arrival.v))


def choose(accept: Array, new: MaybeArray, old: MaybeArray) -> MaybeArray:
    """Return `new` if the attempt counts; None stays None."""
    return None if old is None else jnp.where(accept, new, old)
