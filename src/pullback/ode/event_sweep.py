"""Events in a sweep that carries a tangent: arrival at an event, with its derivative.

The search runs on frozen numbers and only says which event a step meets and how large the step to
it is. State and time behind the event, and their tangents, come from the maps of `event_maps`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_if
from pullback.ode.event_maps import EventMaps
from pullback.ode.event_step import Met
from pullback.ode.partial_ad import push_forward

__all__ = ["Arrival", "arrive"]


class Arrival(NamedTuple):
    """Where a step has come to, behind its events.

    Attributes:
        t: Time.
        y: State.
        t_dot: Tangent of t; None without a tangent.
        v: Tangent of y; None without a tangent.
    """

    t: Array
    y: Array
    t_dot: MaybeArray
    v: MaybeArray


def arrive(
    maps: EventMaps,
    met: Met,
    cursor: Array,
    start: Sequence[MaybeArray],
    size: tuple[Array, Array],
    tangents: Sequence[MaybeArray] | None,
    theta: tuple[Array, ...],
    plain: Arrival,
) -> Arrival:
    """Return where the step comes to, behind the events that it met.

    Args:
        maps: Maps of the events.
        met: What it met.
        cursor: Number of each preset event's next occurrence before the step.
        start: Time and state at the start of the step.
        size: Size of the step, and whether it ends where it ends if it meets no event.
        tangents: Those of the start and of theta; None without a tangent.
        theta: Arrays of all functions.
        plain: Where it comes to without an event.
    """
    events, arrival = maps.events, plain
    h, ends_fixed = size

    def through(function: Callable[..., Any]) -> Callable[[], Arrival]:
        def then() -> Arrival:
            primals = (*start, *theta)
            if tangents is None:
                t, y = function(*primals)
                return Arrival(t, y, None, None)
            (t, y), (t_dot, v) = push_forward(function, primals, tangents)
            return Arrival(t, y, t_dot, v)

        return then

    for i in range(len(events.roots)):

        def at_root(t: Array, y: Array, *theta: Array, i: int = i) -> tuple[Array, Array]:
            return maps.arrive_at_root(i, met.steps, t, y, h, *theta)

        arrival = lane_if(met.kind == i + 1, through(at_root), arrival)
    if events.presets:

        def at_preset(t: Array, y: Array, *theta: Array) -> tuple[Array, Array]:
            return maps.arrive_at_preset(met.hits, met.steps, cursor, t, y, h, *theta)

        arrival = lane_if(met.kind == events.preset_kind, through(at_preset), arrival)
    if events.jumps_at_steps:

        def by_itself(t: Array, y: Array, *theta: Array) -> tuple[Array, Array]:
            return maps.arrive_by_itself(met.steps, ends_fixed, t, y, h, *theta)

        arrival = lane_if((met.kind == 0) & met.jumps, through(by_itself), arrival)
    return arrival
