"""The events of a problem, traced like its vector field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array
from pullback.ensemble import event as user
from pullback.ensemble.leaf import Members
from pullback.ensemble.preset_event import PeriodicEvent, PresetTimes
from pullback.ensemble.step_event import SteadyState, StepEvent
from pullback.ensemble.traced_field import Field, example_params
from pullback.ensemble.tstops import Stops
from pullback.ode import (
    EventSpec,
    FlatFunction,
    ListedTimes,
    PeriodicTimes,
    PresetEvent,
    RootEvent,
    Steadiness,
    trace_function,
)
from pullback.ode import StepEvent as OdeStepEvent
from pullback.ode.flat_function import as_array, one_flag, one_number


class TracedEvents(NamedTuple):
    """Traced events.

    Attributes:
        spec: the events; None if there are none.
        hoisted: the arrays that their functions close over, and room for the times of preset ones.
        floating: which of those are floating.
        batched: which of those differ between trajectories.
    """

    spec: EventSpec | None
    hoisted: tuple[Any, ...]
    floating: tuple[bool, ...]
    batched: tuple[bool, ...]


def trace_events(
    events: tuple[user.AnyEvent, ...],
    stops: Stops | None,
    members: Members,
    field: Field,
    n_theta: int,
) -> TracedEvents:
    """Trace the functions of all events.

    Args:
        events: the events.
        stops: times at which a step must end; None without.
        members: trajectories whose leaves have been cast.
        field: the traced vector field.
        n_theta: length of theta so far.
    """
    if not events and stops is None:
        return TracedEvents(None, (), (), ())
    tracer = _Tracer(members, field, n_theta)
    roots = [tracer.root(e) for e in events if isinstance(e, user.Event)]
    presets = [tracer.preset(e) for e in events if isinstance(e, (PresetTimes, PeriodicEvent))]
    steps = [tracer.step(e) for e in events if isinstance(e, (StepEvent, SteadyState))]
    if stops is not None:
        presets.append(tracer.stops(stops))
    hoisted, batched = tuple(tracer.hoisted), tuple(tracer.batched)
    floating = tuple(jnp.issubdtype(x.dtype, np.floating) for x in hoisted)
    return TracedEvents(
        EventSpec(tuple(roots), tuple(presets), tuple(steps)), hoisted, floating, batched
    )


class _Tracer:
    def __init__(self, members: Members, field: Field, n_theta: int) -> None:
        self.members = members
        self.layout = field.layout
        self.n_theta = n_theta
        self.hoisted: list[Any] = []
        self.batched: list[bool] = []

    def root(self, event: user.Event) -> RootEvent:
        name = getattr(event.condition, "__name__", "condition")
        condition = self._trace(event.condition, lambda value: one_number(value, name))
        return RootEvent(condition, self._affect(event.affect), event.terminate, event.direction)

    def preset(self, event: PresetTimes | PeriodicEvent) -> PresetEvent:
        affect = self._affect(event.affect)
        if isinstance(event, PresetTimes):
            values = self._trace(self._of_params("times", event.times), _times)
            n = values.jaxpr.out_avals[0].shape[0]
            times: Any = ListedTimes(self._room(n), n, values)
        else:
            period = self._one_time("period", event.period)
            start = None if event.start is None else self._one_time("start", event.start)
            times = PeriodicTimes(self._room(2), period, start)
        return PresetEvent(times, affect, event.terminate)

    def stops(self, stops: Stops) -> PresetEvent:
        place = self._add([stops.times], batched=stops.batched)
        times = ListedTimes(place, stops.times.shape[-1], None)
        return PresetEvent(times, None, terminate=False, is_silent=True)

    def step(self, event: StepEvent | SteadyState) -> OdeStepEvent:
        if isinstance(event, SteadyState):
            return OdeStepEvent(Steadiness(event.rtol, event.atol), None, terminate=True)
        condition = self._trace(event.condition, _one_flag)
        return OdeStepEvent(condition, self._affect(event.affect), event.terminate)

    def _one_time(self, name: str, value: Any) -> FlatFunction:
        return self._trace(self._of_params(name, value), lambda time: _one_time(name, time))

    def _of_params(self, name: str, value: Any) -> Callable[[Any, Any, Any], Any]:
        dtype = self.layout.dtype

        def function(t: Any, y: Any, params: Any) -> Any:
            del t, y
            return value(params) if callable(value) else jnp.asarray(value, dtype)

        function.__name__ = name
        return function

    def _affect(self, affect: Any) -> FlatFunction | None:
        if affect is None:
            return None
        name = getattr(affect, "__name__", "affect")
        return self._trace(affect, lambda y: self.layout.ravel_derivative(y, name, "affect"))

    def _trace(self, function: Any, finish: Callable[[Any], Array]) -> FlatFunction:
        function, params = example_params(self.members, function)
        place = self.n_theta + len(self.hoisted)
        flat, hoisted = trace_function(function, self.layout, params, place, finish)
        self._add(hoisted)
        return flat

    def _room(self, n: int) -> int:
        """Make room in theta for the times of a preset event; return its place."""
        return self._add([np.zeros((n,), self.layout.dtype)])

    def _add(self, arrays: Any, *, batched: bool = False) -> int:
        place = self.n_theta + len(self.hoisted)
        self.hoisted += arrays
        self.batched += [batched] * len(arrays)
        return place


def _times(value: Any) -> Array:
    wanted = (
        "`times` of PresetTimes must return a 1-D floating array with at least one time, but it "
        "returned"
    )
    times = as_array(value, wanted)
    if times.ndim != 1 or not jnp.issubdtype(times.dtype, jnp.floating) or not times.size:
        raise ValueError(f"{wanted} {times.dtype} of shape {times.shape}.")
    return times


def _one_time(name: str, value: Any) -> Array:
    wanted = f"`{name}` of PeriodicEvent must return one floating number, but it returned"
    time = as_array(value, wanted)
    if time.shape != () or not jnp.issubdtype(time.dtype, jnp.floating):
        raise ValueError(f"{wanted} {time.dtype} of shape {time.shape}.")
    return time


def _one_flag(value: Any) -> Array:
    hint = "a number whose zero is the event belongs to pb.Event"
    return one_flag(value, "`condition` of StepEvent", hint)
