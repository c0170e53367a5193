"""The events of a problem, traced like its vector field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array
from pullback.ensemble.event import Event, PresetTimes
from pullback.ensemble.leaf import Members
from pullback.ensemble.traced_field import Field, example_params
from pullback.ode import EventSpec, FlatFunction, PresetEvent, RootEvent, trace_function
from pullback.ode.flat_function import one_number


class TracedEvents(NamedTuple):
    """Traced events.

    Attributes:
        spec: the events; None if there are none.
        hoisted: the arrays that their functions close over.
        floating: which of those are floating.
    """

    spec: EventSpec | None
    hoisted: tuple[Array, ...]
    floating: tuple[bool, ...]


def trace_events(
    events: tuple[Event | PresetTimes, ...], members: Members, field: Field, n_theta: int
) -> TracedEvents:
    """Trace the functions of all events.

    Args:
        events: the events.
        members: trajectories whose leaves have been cast.
        field: the traced vector field.
        n_theta: length of theta so far.
    """
    if not events:
        return TracedEvents(None, (), ())
    tracer = _Tracer(members, field, n_theta)
    roots = [tracer.root(e) for e in events if isinstance(e, Event)]
    presets = [tracer.preset(e) for e in events if isinstance(e, PresetTimes)]
    hoisted = tuple(tracer.hoisted)
    floating = tuple(jnp.issubdtype(x.dtype, np.floating) for x in hoisted)
    return TracedEvents(EventSpec(tuple(roots), tuple(presets)), hoisted, floating)


class _Tracer:
    def __init__(self, members: Members, field: Field, n_theta: int) -> None:
        self.members = members
        self.layout = field.layout
        self.n_theta = n_theta
        self.hoisted: list[Array] = []

    def root(self, event: Event) -> RootEvent:
        name = getattr(event.condition, "__name__", "condition")
        condition = self._trace(event.condition, lambda value: one_number(value, name))
        return RootEvent(condition, self._affect(event.affect), event.terminate, event.direction)

    def preset(self, event: PresetTimes) -> PresetEvent:
        times, dtype = event.times, self.layout.dtype

        def function(t: Any, y: Any, params: Any) -> Any:
            del t, y
            return times(params) if callable(times) else jnp.asarray(times, dtype)

        return PresetEvent(
            self._trace(function, _times), self._affect(event.affect), event.terminate
        )

    def _affect(self, affect: Any) -> FlatFunction | None:
        if affect is None:
            return None
        name = getattr(affect, "__name__", "affect")
        return self._trace(affect, lambda y: self.layout.ravel_derivative(y, name, "affect"))

    def _trace(self, function: Any, finish: Callable[[Any], Array]) -> FlatFunction:
        function, params = example_params(self.members, function)
        place = self.n_theta + len(self.hoisted)
        flat, hoisted = trace_function(function, self.layout, params, place, finish)
        self.hoisted += hoisted
        return flat


def _times(value: Any) -> Array:
    times = jnp.asarray(value)
    if times.ndim != 1 or not jnp.issubdtype(times.dtype, jnp.floating) or not times.size:
        raise ValueError(
            "`times` of PresetTimes must give a 1-D floating array with at least one time, but it "
            f"gave {times.dtype} of shape {times.shape}."
        )
    return times
