"""What is carried on behind an attempt: which events are armed, how many there were, a verdict."""

from __future__ import annotations

import jax.numpy as jnp

from pullback.core.status import Status
from pullback.core.typing import Array
from pullback.ode.event_maps import EventMaps
from pullback.ode.event_root import is_sliver
from pullback.ode.event_search import Crossing
from pullback.ode.events import EventState, arm

__all__ = ["counted", "ends_at", "rearmed"]

_MOST_EMPTY = 3
_MOST_SHRINKS = 8
_ACCUMULATION = 1e-6
# Root events this close, as a part of the time span, make no progress.
_QUICK = 1e-6


def rearmed(
    maps: EventMaps,
    state: EventState,
    crossings: list[Crossing],
    fired: Array,
    which: Array,
    accept: Array,
    start: Array,
    end: tuple[Array, Array, Array, Array],
    theta: tuple[Array, ...],
) -> EventState:
    """Arm the event that fired anew; the others keep their side, and know what they have seen.

    Args:
        maps: Maps of the events.
        state: What was carried along.
        crossings: What was found in the step, for each root event.
        fired: Whether one of them fired.
        which: Which one.
        accept: Whether the attempt counts.
        start: Time at the start of the step.
        end: Time at its end, the state before and behind the event, and y' behind it.
        theta: Arrays of all functions.
    """
    t1, before, y1, slope = end
    span = maps.mesh.t1 - maps.mesh.t0
    rows: list[tuple[Array, ...]] = []
    for i, (event, c) in enumerate(zip(maps.events.roots, crossings, strict=True)):
        side, armed = state.side[i], state.armed[i]
        fires = fired & (which == i)
        seen = armed | (side * maps.condition(i, t1, before, *theta) > 0)
        kept_armed = jnp.where(fired, seen, jnp.where(accept, c.armed, armed))
        flips = accept & ~fired & c.lost & (event.direction == 0)
        kept_surface = state.surface[i] & ~(accept & ~is_sliver(start, t1 - start))
        kept = (jnp.where(flips, -side, side), kept_armed, kept_surface, state.rate[i])
        new = arm(event, t1, y1, slope, theta, span)
        rows.append(tuple(jnp.where(fires, a, b) for a, b in zip(new, kept, strict=True)))
    if not rows:
        return state
    side, armed, surface, rate = (jnp.stack(x) for x in zip(*rows, strict=True))
    return state._replace(side=side, armed=armed, surface=surface, rate=rate)


def ends_at(maps: EventMaps, fired: Array, which: Array, hits: Array) -> Array:
    """Return whether a root event or a preset one ends the trajectory."""
    ends = jnp.zeros((), bool)
    for i, event in enumerate(maps.events.roots):
        if event.terminate:
            ends = ends | (fired & (which == i))
    for j, preset in enumerate(maps.events.presets):
        if preset.terminate:
            ends = ends | hits[j]
    return ends


def counted(
    maps: EventMaps,
    state: EventState,
    fired: Array,
    which: Array,
    hits: Array,
    steps: Array,
    ends: Array,
    t1: Array,
    is_empty: Array,
    is_cut: Array,
) -> EventState:
    """Count the events and judge the trajectory.

    Args:
        maps: Maps of the events.
        state: What is carried along.
        fired: Whether a root event fired.
        which: Which one.
        hits: Which preset events happened.
        steps: Which step events happened.
        ends: Whether a root event or a preset one ends the trajectory.
        t1: Time of the events.
        is_empty: Whether the step had no length.
        is_cut: Whether it ended before it would have without events.
    """
    events, span = maps.events, jnp.abs(maps.mesh.t1 - maps.mesh.t0)
    count = state.n_events + fired.astype(jnp.int32)
    for happens in (hits[: events.n_told], steps):
        if happens.size:
            count = count + jnp.sum(happens, dtype=jnp.int32)
    for k, event in enumerate(events.steps):
        if event.terminate:
            ends = ends | steps[k]
    state = state._replace(
        cursor=state.cursor + hits.astype(jnp.int32),
        n_events=count,
        cuts=state.cuts + is_cut.astype(jnp.int32),
    )
    verdict = jnp.zeros((), jnp.int32)
    if events.roots:
        is_again = fired & is_empty & (which == state.last)
        streak = jnp.where(fired, jnp.where(is_again, state.streak + 1, 0), state.streak)
        gap = jnp.abs(t1 - state.time)
        quick = jnp.where(gap <= _QUICK * span, state.quick + 1, 0)
        ratio = gap / jnp.where(state.gap > 0, state.gap, 1.0)
        shrinks = jnp.where(ratio < 1.0, state.shrinks + 1, 0)
        left = gap * ratio / jnp.maximum(1.0 - ratio, 1e-3)
        is_zeno = (shrinks >= _MOST_SHRINKS) & (left < _ACCUMULATION * span)
        chatters = (quick > events.max_quick) | (streak >= _MOST_EMPTY)
        verdict = jnp.where(fired & is_zeno, _code(Status.zeno), verdict)
        verdict = jnp.where(fired & chatters, _code(Status.event_chatter), verdict)
        state = state._replace(
            last=jnp.where(fired, which, state.last),
            streak=streak,
            quick=jnp.where(fired, quick, state.quick),
            time=jnp.where(fired, t1, state.time),
            gap=jnp.where(fired, gap, state.gap),
            shrinks=jnp.where(fired, shrinks, state.shrinks),
        )
    verdict = jnp.where(ends, _code(Status.terminated), verdict)
    return state._replace(verdict=verdict.astype(jnp.int32))


def _code(status: Status) -> Array:
    return jnp.asarray(status.value, jnp.int32)
