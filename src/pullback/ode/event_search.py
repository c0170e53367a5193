"""Where an event lies inside a step: a search on the dense output, then a root.

The condition is looked at in nine points of the step. A change of sign is a crossing; where three
neighbours are convex, the vertex of their parabola is looked at too, so that two crossings between
neighbours are found as well. The first crossing counts.

References:
    [SGB91] for the difficulty. Nine Chebyshev-Lobatto points with the vertex test miss no pair of
    crossings that lie further apart than a third of a per cent of a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp

from pullback.core.typing import Array
from pullback.lanes.loop import lane_while

__all__ = ["NODES", "Crossing", "find_crossing"]

NODES = tuple(0.5 * (1.0 - math.cos(math.pi * j / 8)) for j in range(9))
_MOST_TRIPS = 60
_NONE = 8

Height = Callable[[Array], Array]
"""`side * condition` as a function of where in the step, 0 to 1; positive where armed."""


class Crossing(NamedTuple):
    """A crossing inside a step.

    Attributes:
        found: Whether there is one.
        low: Fraction of the step before it.
        high: Fraction behind it.
        root: Fraction where the dense output crosses.
        armed: Whether the event is armed at the end of the step, if there is none.
        lost: Whether the step ended on the other side without a crossing that counts.
    """

    found: Array
    low: Array
    high: Array
    root: Array
    armed: Array
    lost: Array


class _Bracket(NamedTuple):
    found: Array
    low: Array
    high: Array
    at_low: Array
    at_high: Array


def find_crossing(
    height: Height,
    heights: list[Array],
    armed: Array,
    surface: Array,
    start_rate: Array,
    wanted: Array,
) -> Crossing:
    """Return the first crossing of a step.

    Args:
        height: See `Height`.
        heights: The height at `NODES`.
        armed: Whether the event is armed at the start.
        surface: Whether the height at the start is rounding noise.
        start_rate: Rate of change of the height at the start, by fraction of the step.
        wanted: Whether to look at all.
    """
    bracket, is_armed = _sign_change(heights, armed, surface)
    first = _from_surface(height, heights, armed & surface & wanted, start_rate)
    bracket = _earlier(first, bracket)
    bracket = _dip(height, heights, bracket, armed, surface, wanted)
    bracket = bracket._replace(found=bracket.found & wanted)
    lost = ~bracket.found & (heights[-1] < 0)
    root = _illinois(height, bracket)
    return Crossing(bracket.found, bracket.low, bracket.high, root, is_armed, lost)


def _sign_change(heights: list[Array], armed: Array, surface: Array) -> tuple[_Bracket, Array]:
    """Return the first interval in which the sign changes, and whether the event ends armed."""
    zero = jnp.zeros_like(heights[0])
    one = jnp.ones_like(zero)
    found = jnp.zeros((), bool)
    best = _Bracket(found, zero, one, one, -one)
    for j in range(8):
        left, right = heights[j], heights[j + 1]
        if j == 0:
            usable = armed & ~surface
        else:
            armed = armed | (left > 0)
            usable = armed
        here = usable & (right <= 0) & ~best.found
        low, high = NODES[j], NODES[j + 1]
        new = _Bracket(here, zero + low, zero + high, left, right)
        best = _Bracket(
            best.found | here,
            *(jnp.where(here, a, b) for a, b in zip(new[1:], best[1:], strict=True)),
        )
    armed = armed | (heights[-1] > 0)
    return best, armed


def _from_surface(
    height: Height, heights: list[Array], wanted: Array, start_rate: Array
) -> _Bracket:
    """Look for a crossing in the first interval of a step that starts on the surface.

    The height there is known by its rate of change only: it is highest near the vertex of the
    parabola through the start, with that rate, and the next point.
    """
    x, after = NODES[1], heights[1]
    bottom = start_rate * x - after
    vertex = 0.5 * start_rate * x * x / jnp.where(bottom == 0, 1.0, bottom)
    vertex = jnp.clip(vertex, 0.0, x)
    top = height(vertex)
    found = wanted & (after <= 0) & (start_rate > 0) & (top > 0)
    return _Bracket(found, vertex, jnp.full_like(vertex, x), top, after)


def _dip(
    height: Height,
    heights: list[Array],
    bracket: _Bracket,
    armed: Array,
    surface: Array,
    wanted: Array,
) -> _Bracket:
    """Look below the neighbours where three of them are convex, before the bracket so far."""
    limit = jnp.where(bracket.found, bracket.low, 2.0)
    vertices, is_candidate = [], []
    for i in range(1, 8):
        vertex, is_dip = _vertex(NODES[i - 1 : i + 2], heights[i - 1 : i + 2])
        if i == 1:
            is_dip = is_dip & armed & ~surface
        vertices.append(vertex)
        is_candidate.append(is_dip & (vertex < limit) & wanted)

    def next_one(index: Array) -> Array:
        found = jnp.asarray(_NONE, jnp.int32)
        for i in range(6, -1, -1):
            found = jnp.where(is_candidate[i] & (index <= i), jnp.int32(i), found)
        return found

    def pick(index: Array, items: Sequence[Array | float]) -> Array:
        chosen = jnp.asarray(items[-1], limit.dtype)
        for i in range(6):
            chosen = jnp.where(index == i, items[i], chosen)
        return chosen

    def body(state: tuple[Array, _Bracket]) -> tuple[Array, _Bracket]:
        index, best = state
        vertex = pick(index, vertices)
        low = height(vertex)
        is_below = low < 0
        new = _Bracket(is_below, pick(index, NODES[:7]), vertex, pick(index, heights[:7]), low)
        best = _Bracket(*(jnp.where(is_below, x, y) for x, y in zip(new, best, strict=True)))
        return jnp.where(is_below, jnp.int32(_NONE), next_one(index + 1)), best

    nothing = bracket._replace(found=jnp.zeros((), bool))
    start = (next_one(jnp.zeros((), jnp.int32)), nothing)
    _, dip = lane_while(lambda s: s[0] < _NONE, body, start)
    return _earlier(dip, bracket)


def _vertex(nodes: Sequence[float], heights: Sequence[Array]) -> tuple[Array, Array]:
    """Return where the parabola through three points has its vertex, and whether it may dip."""
    (x0, x1, x2), (h0, h1, h2) = nodes, heights
    d1, d2 = (h1 - h0) / (x1 - x0), (h2 - h1) / (x2 - x1)
    bend = (d2 - d1) / (x2 - x0)
    is_convex = bend > 0
    vertex = 0.5 * (x0 + x1) - 0.5 * d1 / jnp.where(is_convex, bend, 1.0)
    is_inside = is_convex & (vertex > x0) & (vertex < x2)
    are_above = (h0 > 0) & (h1 > 0) & (h2 > 0)
    return jnp.where(is_inside, vertex, x1), is_inside & are_above


def _earlier(a: _Bracket, b: _Bracket) -> _Bracket:
    """Return the bracket that begins first, of those that are found."""
    is_a = a.found & (~b.found | (a.low <= b.low))
    chosen = _Bracket(*(jnp.where(is_a, x, y) for x, y in zip(a, b, strict=True)))
    return chosen._replace(found=a.found | b.found)


class _Search(NamedTuple):
    low: Array
    high: Array
    at_low: Array
    at_high: Array
    kept: Array
    trips: Array


def _illinois(height: Height, bracket: _Bracket) -> Array:
    """Return the root in a bracket, as its upper end: false position, an end that stays is halved.

    Every third trip bisects.

    References:
        [DJ71].
    """
    eps = 4.0 * float(jnp.finfo(bracket.low.dtype).eps)

    def is_open(s: _Search) -> Array:
        is_wide = (s.high - s.low > eps) & (s.at_high != 0)
        return bracket.found & is_wide & (s.trips < _MOST_TRIPS)

    def body(s: _Search) -> _Search:
        gap = s.at_low - s.at_high
        linear = s.low + (s.high - s.low) * (s.at_low / jnp.where(gap == 0, 1.0, gap))
        middle = 0.5 * (s.low + s.high)
        bisects = (s.trips % 3 == 2) | (gap == 0)
        x = jnp.where(bisects, middle, jnp.clip(linear, s.low, s.high))
        value = height(x)
        above = value > 0
        kept = jnp.where(above, jnp.int32(1), jnp.int32(-1))
        half = jnp.where(kept == s.kept, 0.5, 1.0)
        return _Search(
            low=jnp.where(above, x, s.low),
            high=jnp.where(above, s.high, x),
            at_low=jnp.where(above, value, half * s.at_low),
            at_high=jnp.where(above, half * s.at_high, value),
            kept=kept,
            trips=s.trips + 1,
        )

    zero = jnp.zeros((), jnp.int32)
    return lane_while(is_open, body, _Search(*bracket[1:], zero, zero)).high
