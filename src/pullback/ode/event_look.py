"""Looking at step events: which of them happen at the end of a step, behind its other events."""

from __future__ import annotations

import jax.numpy as jnp

from pullback.core.typing import Array
from pullback.lanes.loop import lane_if
from pullback.ode.event_maps import EventMaps
from pullback.ode.step_events import Steadiness

__all__ = ["look"]


def look(
    maps: EventMaps,
    wanted: Array,
    t: Array,
    y: Array,
    stages: tuple[Array, ...],
    theta: tuple[Array, ...],
) -> tuple[Array, Array, Array]:
    """Return which step events happen at (t, y), `(step,)`, and the state behind them.

    And the status that says why there is no such state; 0 if there is one. They happen in their
    order, and each looks at the state behind those before it.

    Args:
        maps: Maps of the events.
        wanted: Whether to look at all.
        t: End of the step.
        y: State there, behind root and preset events.
        stages: Stages of the step.
        theta: Arrays of all functions.
    """
    happen = []
    for event in maps.events.steps:
        if isinstance(event.condition, Steadiness):
            field = _field(maps, wanted, t, y, stages, theta)
            holds = wanted & event.condition.holds(y, field)
        else:
            holds = wanted & event.condition(t, y, theta)
        happen.append(holds)
        if event.affect is not None:
            y = jnp.where(holds, event.affect(t, y, theta), y)
    steps = jnp.stack(happen) if happen else jnp.zeros((0,), bool)
    y, failure = maps.found_consistent(maps.jumps(steps), t, y, theta)
    return steps, y, failure


def _field(
    maps: EventMaps,
    wanted: Array,
    t: Array,
    y: Array,
    stages: tuple[Array, ...],
    theta: tuple[Array, ...],
) -> Array:
    """Return the vector field at the end of a step, which the step may have evaluated there."""
    spec, events = maps.maps.spec, maps.events
    nothing_jumps = not events.roots and not events.presets and not events.jumps_at_steps
    if spec.method.is_fsal and spec.mass is None and nothing_jumps:
        return stages[-1]
    return lane_if(wanted, lambda: spec.field(t, y, theta), jnp.zeros_like(y))
