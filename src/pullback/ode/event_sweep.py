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
    tangents: Sequence[MaybeArray] | None,
    theta: tuple[Array, ...],
    plain: Arrival,
) -> Arrival:
    """Return where the step comes to, behind the event that it met.

    Args:
        maps: Maps of the events.
        met: What it met.
        cursor: Next time of each preset event before the step.
        start: Time and state at the start of the step.
        tangents: Theirs and theta's; None without a tangent.
        theta: Arrays of all functions.
        plain: Where it comes to without an event.
    """
    n_roots = len(maps.events.roots)
    arrival = plain

    def through(function: Callable[..., Any]) -> Callable[[], Arrival]:
        def then() -> Arrival:
            primals = (*start, *theta)
            if tangents is None:
                t, y = function(*primals)
                return Arrival(t, y, None, None)
            (t, y), (t_dot, v) = push_forward(function, primals, tangents)
            return Arrival(t, y, t_dot, v)

        return then

    for i in range(n_roots):

        def at_root(t: Array, y: Array, *theta: Array, i: int = i) -> tuple[Array, Array]:
            return maps.arrive_at_root(i, t, y, met.h, *theta)

        arrival = lane_if(met.kind == i + 1, through(at_root), arrival)
    if maps.events.presets:

        def at_preset(t: Array, y: Array, *theta: Array) -> tuple[Array, Array]:
            end = maps.hit_time(met.hits, cursor, theta)
            return end, maps.arrive_at_preset(met.hits, t, y, end, *theta)

        arrival = lane_if(met.kind == n_roots + 1, through(at_preset), arrival)
    return arrival
