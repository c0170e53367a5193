"""Pulling cotangents back through the events at the end of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_if
from pullback.ode.event_maps import EventMaps
from pullback.ode.mesh import frozen
from pullback.ode.partial_ad import pull_back
from pullback.ode.tape import TapeRow

__all__ = ["EventBars", "pull_event"]


class EventBars(NamedTuple):
    """Cotangents of the start of a step, from what lies behind the events at its end.

    Attributes:
        happens: Whether events changed anything there.
        t: Of its time; of a step without an event, what its end hands on.
        t_first: The same, but nothing without an event: the first step ends where it ends.
        y: Of its state.
        theta: Of theta; None where not wanted.
        n_events: How many events these were.
    """

    happens: Array
    t: Array
    t_first: Array
    y: Array
    theta: tuple[MaybeArray, ...]
    n_events: Array


def pull_event(
    maps: EventMaps,
    row: TapeRow,
    t: Array,
    ends_fixed: Array,
    bars: tuple[Array, Array],
    n_events: Array,
    times_bar: MaybeArray,
    theta: tuple[Array, ...],
    wanted: Sequence[bool],
) -> EventBars:
    """Pull back through the events of a step, if it met one.

    Args:
        maps: Maps of the events.
        row: The step.
        t: Its start.
        ends_fixed: Whether it ends where it ends if it met no event.
        bars: Cotangents of time and state behind them.
        n_events: Events of the trajectory up to its end.
        times_bar: Cotangents of the recorded events' times; None without.
        theta: Arrays of all functions.
        wanted: Which of them want a cotangent.
    """
    assert row.kind is not None and row.cursor is not None and row.steps is not None
    events, t_bar, steps = maps.events, bars[0], row.steps
    is_root = (row.kind > 0) & (row.kind <= len(events.roots))
    hits = _hits(maps, row, t, theta)
    count = is_root.astype(jnp.int32)
    for happen in (hits[: events.n_told], steps):
        if happen.size:
            count = count + jnp.sum(happen, dtype=jnp.int32)
    if times_bar is not None:
        place = jnp.arange(times_bar.shape[0])
        is_here = (place >= n_events - count) & (place < n_events)
        t_bar = t_bar + jnp.sum(jnp.where(is_here, times_bar, 0.0))
    active = (True, True, *wanted)
    zero = jnp.zeros_like(t)
    nothing = (
        zero,
        jnp.zeros_like(row.y),
        *(jnp.zeros_like(x) if w else None for x, w in zip(theta, wanted, strict=True)),
    )
    found: Any = nothing

    def through(function: Callable[..., Any]) -> Callable[[], Any]:
        def then() -> Any:
            _, pull = pull_back(function, (t, row.y, *theta), active)
            return tuple(pull((t_bar, bars[1])))

        return then

    for i in range(len(events.roots)):

        def at_root(t: Array, y: Array, *theta: Array, i: int = i) -> tuple[Array, Array]:
            return maps.arrive_at_root(i, steps, t, y, row.h, *theta)

        found = lane_if(row.kind == i + 1, through(at_root), found)
    if events.presets:

        def at_preset(t: Array, y: Array, *theta: Array) -> tuple[Array, Array]:
            return maps.arrive_at_preset(hits, steps, row.cursor, t, y, row.h, *theta)

        found = lane_if(row.kind == events.preset_kind, through(at_preset), found)
    happens = row.kind > 0
    if events.jumps_at_steps:

        def by_itself(t: Array, y: Array, *theta: Array) -> tuple[Array, Array]:
            return maps.arrive_by_itself(steps, ends_fixed, t, y, row.h, *theta)

        jumps = maps.jumps(steps)
        found = lane_if(~happens & jumps, through(by_itself), found)
        happens = happens | jumps
    t_event, y_bar, *theta_bar = found
    return EventBars(
        happens=happens,
        t=jnp.where(happens, t_event, t_bar),
        t_first=t_event,
        y=y_bar,
        theta=tuple(theta_bar),
        n_events=count,
    )


def _hits(maps: EventMaps, row: TapeRow, t: Array, theta: tuple[Array, ...]) -> Array:
    """Return which preset events happened at the end of a step: those at the next time of all."""
    assert row.kind is not None and row.cursor is not None
    if not maps.events.presets:
        return jnp.zeros((0,), bool)
    is_preset = row.kind == maps.events.preset_kind
    times = [frozen(time) for time in maps.next_times(row.cursor, theta)]
    nearest, sign = times[0], maps.mesh.sign
    for time in times[1:]:
        nearest = jnp.where(sign * (time - nearest) < 0, time, nearest)
    return jnp.stack([is_preset & (time == nearest) for time in times])
