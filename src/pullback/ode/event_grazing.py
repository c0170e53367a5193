"""Events whose crossing is nearly tangential: their time is as uncertain as its derivative is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from pullback.core.typing import Array
from pullback.ode.event_maps import EventMaps
from pullback.ode.event_search import NODES

__all__ = ["is_grazing"]

# The relative error that the state's own error may leave in the rate of the crossing, about.
_MOST = 0.1


def is_grazing(
    maps: EventMaps,
    heights: list[list[Array]],
    which: Array,
    fraction: Array,
    rate: Array,
    end: tuple[Array, Array],
    theta: tuple[Array, ...],
) -> Array:
    """Return whether the crossing of a root event is nearly tangential.

    With g the condition, the time of the event is uncertain by w / |g'|, where w is what the
    tolerance allows as an error of g; the rate g' by |g''| as much. It grazes if that is more
    than a tenth of g' itself.

    Args:
        maps: Maps of the events.
        heights: Each condition at `NODES` of the step, up to its sign.
        which: The event.
        fraction: Where in the step it lies.
        rate: Rate of change of its condition there, by fraction of the step.
        end: Time and state there, before the event.
        theta: Arrays of all functions.
    """
    t, y = end
    values: list[Any] = [jnp.zeros_like(rate)] * len(NODES)
    slope_y = jnp.zeros_like(y)
    for i, found in enumerate(heights):
        values = [jnp.where(which == i, a, b) for a, b in zip(found, values, strict=True)]
        by_state = jax.grad(lambda y, i=i: maps.condition(i, t, y, *theta))(y)
        slope_y = jnp.where(which == i, by_state, slope_y)
    allowed = maps.maps.rtol * jnp.abs(y) + maps.maps.atol
    width = jnp.sum(jnp.abs(slope_y) * allowed)
    return _curvature(values, fraction) * width > _MOST * rate * rate


def _curvature(values: list[Array], fraction: Array) -> Array:
    """Return |g''| of the parabola through the three nodes nearest to a place."""
    bend = jnp.zeros_like(fraction)
    for i in range(1, len(NODES) - 1):
        (x0, x1, x2), (g0, g1, g2) = NODES[i - 1 : i + 2], values[i - 1 : i + 2]
        here = ((g2 - g1) / (x2 - x1) - (g1 - g0) / (x1 - x0)) * (2.0 / (x2 - x0))
        is_nearer = fraction > 0.5 * (x0 + x1)
        bend = here if i == 1 else jnp.where(is_nearer, here, bend)
    return jnp.abs(bend)
