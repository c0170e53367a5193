"""Where the first root event of an attempt lies, and the step to it.

A crossing is found on the dense output; the size of the step to it is then refined until the state
after a step of that size is on the surface.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_if, lane_while
from pullback.ode.event_maps import EventMaps
from pullback.ode.event_search import NODES, Crossing, find_crossing
from pullback.ode.events import EventState
from pullback.ode.method import Step

__all__ = ["Attempted", "Root", "crossings", "first_root", "is_sliver", "refined", "taken"]

_REFINEMENTS = 3
# Root events at times that differ by so many roundings are simultaneous,
_TIE = 4.0
# and so are a root event and preset ones: a preset time is not reached by steps without rounding.
_LANDING = 64.0
# What a condition is so few roundings behind its surface is noise.
_SLIVER = 256.0


class Attempted(NamedTuple):
    """An attempt as it was made.

    Attributes:
        t: Start.
        y: State there.
        h: Size.
        k1: First stage; None unless known.
        step: What the method returned.
        accept: Whether it counts.
        target: The time at which the next step must end at the latest.
        aims: Whether the attempt ends there.
        is_short: Whether it would have been longer without it.
    """

    t: Array
    y: Array
    h: Array
    k1: MaybeArray
    step: Step
    accept: Array
    target: Array
    aims: Array
    is_short: Array


class Root(NamedTuple):
    """The first crossing of an attempt.

    Attributes:
        fired: Whether there is one.
        which: Its event.
        fraction: Where it is, in parts of the step.
        low: A part before it.
        high: A part behind it.
    """

    fired: Array
    which: Array
    fraction: Array
    low: Array
    high: Array


def crossings(
    maps: EventMaps,
    state: EventState,
    made: Attempted,
    lands: Array,
    theta: tuple[Array, ...],
) -> tuple[list[list[Array]], list[Crossing]]:
    """Return each condition at the nodes of the step, and where it vanishes first.

    Args:
        maps: Maps of the events.
        state: What is carried along.
        made: The attempt.
        lands: Whether it ends at preset events, before which simultaneous root events happen.
        theta: Arrays of all functions.
    """

    def row(x: Array) -> Array:
        time = made.t + x * made.h
        return maps.maps.row(time, made.t, made.y, made.h, *made.step.stages, *theta)

    if not maps.events.roots:
        return [], []
    inner = [row(jnp.asarray(x, made.t.dtype)) for x in NODES[1:-1]]
    states = [made.y, *inner, made.step.y1]
    sliver = is_sliver(made.t, made.h)
    every, found = [], []
    for i in range(len(maps.events.roots)):
        side = state.side[i]

        def height(x: Array, y: MaybeArray = None, i: int = i, side: Array = side) -> Array:
            y = row(x) if y is None else y
            return side * maps.condition(i, made.t + x * made.h, y, *theta)

        heights = [
            height(jnp.asarray(x, made.t.dtype), y) for x, y in zip(NODES, states, strict=True)
        ]
        armed, surface = state.armed[i], state.surface[i]
        heights[-1] = _reached(heights, lands & armed & ~surface, made)
        every.append(heights)
        # So short a step from the surface does not leave it: all heights are rounding noise.
        stays = surface & sliver
        wanted = made.accept & ~stays
        c = find_crossing(height, heights, armed, surface, state.rate[i] * made.h, wanted)
        found.append(c._replace(armed=jnp.where(stays, armed, c.armed), lost=c.lost & ~stays))
    return every, found


def is_sliver(t: Array, h: Array) -> Array:
    """Whether a step is so short that a condition hardly changes in it."""
    return jnp.abs(h) <= _roundings(_SLIVER, t, h)


def _roundings(count: float, t: Array, h: Array) -> Array:
    """Return so many roundings of time in a step."""
    eps = float(jnp.finfo(t.dtype).eps)
    return count * eps * jnp.maximum(jnp.abs(t), jnp.abs(t + h))


def _part(time: Array, h: Array) -> Array:
    """Return a time as a fraction of a step."""
    return time / jnp.where(h == 0, 1.0, jnp.abs(h))


def _reached(heights: list[Array], wanted: Array, made: Attempted) -> Array:
    """Return the height at the end of the step; zero where the surface is a few roundings on."""
    slope = (heights[-2] - heights[-1]) / (NODES[-1] - NODES[-2])
    nearly = _part(_roundings(_LANDING, made.t, made.h), made.h) * slope
    is_there = wanted & (heights[-1] > 0) & (heights[-1] <= nearly)
    return jnp.where(is_there, 0.0, heights[-1])


def first_root(crossings: list[Crossing], made: Attempted) -> Root:
    """Return the earliest crossing; of simultaneous ones, the first in the list."""
    zero = jnp.zeros_like(made.t)
    best = Root(jnp.zeros((), bool), jnp.zeros((), jnp.int32), zero + 2.0, zero, zero)
    tie = _part(_roundings(_TIE, made.t, made.h), made.h)
    for i, c in enumerate(crossings):
        is_earlier = c.found & (c.root < best.fraction - tie)
        new = Root(c.found, jnp.asarray(i, jnp.int32), c.root, c.low, c.high)
        best = Root(*(jnp.where(is_earlier, x, y) for x, y in zip(new, best, strict=True)))
    return best


def refined(
    maps: EventMaps, root: Root, made: Attempted, theta: tuple[Array, ...]
) -> tuple[Array, Array]:
    """Return the size of the step to a root event, where the state after the step is on it.

    And the rate of change of its condition with that size.
    """

    def gap(h: Array) -> Array:
        y = maps.leave(made.t, made.y, h, *theta)
        value = jnp.zeros_like(h)
        for i in range(len(maps.events.roots)):
            here = maps.condition(i, made.t + h, y, *theta)
            value = jnp.where(root.which == i, here, value)
        return value

    low, high = root.low * made.h, root.high * made.h
    least, most = jnp.minimum(low, high), jnp.maximum(low, high)

    def body(s: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        h, _, count = s
        value, rate = jax.jvp(gap, (h,), (jnp.ones_like(h),))
        better = h - value / jnp.where(rate == 0, 1.0, rate)
        is_inside = (better >= least) & (better <= most) & (rate != 0)
        return jnp.where(is_inside, better, h), rate, count + 1

    begin = jnp.where(root.fired, root.fraction * made.h, made.h)
    start = (begin, jnp.zeros_like(begin), jnp.zeros((), jnp.int32))
    if not maps.events.roots:
        return begin, start[1]
    h, rate, _ = lane_while(lambda s: root.fired & (s[2] < _REFINEMENTS), body, start)
    return h, rate


def taken(
    maps: EventMaps, root: Root, h: Array, made: Attempted, theta: tuple[Array, ...]
) -> tuple[Array, tuple[Array, ...]]:
    """Return the end and the stages of the step to the event, or of the attempt without one."""
    plain = (made.step.y1, made.step.stages)
    if not maps.events.roots:
        return plain

    def again() -> Any:
        is_empty = h == 0
        size = jnp.where(is_empty, 1.0, h) if maps.maps.spec.method.is_implicit else h
        step = maps.maps.step(made.t, made.y, size, made.k1, *theta)
        y1 = jnp.where(is_empty, made.y, step.y1)
        return y1, step.stages

    return lane_if(root.fired, again, plain)
