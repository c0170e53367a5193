"""Events: things that happen when the state, or the clock, gets somewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pullback.core.typing import Array
from pullback.core.user_function import require_function
from pullback.ensemble.event_checks import Function, check_parts
from pullback.ensemble.preset_event import PeriodicEvent, PresetTimes
from pullback.ensemble.step_event import SteadyState, StepEvent

__all__ = ["AnyEvent", "Event", "Events", "PresetTimes", "checked_events"]


@dataclass(frozen=True)
class Event:
    """An event where a function of the state vanishes.

    A crossing is looked for inside every accepted step, on the dense output, also two of them; the
    step is then taken again, to the crossing. Of several events in a step the first in time
    happens, of simultaneous ones the first in the list. An event that has happened is armed again
    on the side to which the state leaves.

    Args:
        condition: `condition(t, y, params)` returns one real number; its zero is the event.
        affect: `affect(t, y, params)` returns the state behind the event, with the structure of
            `y`; None leaves it as it is. What jumps must be part of the state.
        terminate: whether the trajectory ends, with the status `terminated`.
        direction: 1 counts upward crossings only, -1 downward ones, 0 both.

    Differentiation:
        `sol.t_end`, `sol.events.t` and everything behind the event have the derivative of the
        event's time, by the implicit function theorem, and of the jump: the saltation matrix.

    Example:
        >>> import jax.numpy as jnp, pullback as pb
        >>> ground = pb.Event(lambda t, y, p: y[0], lambda t, y, p: jnp.stack([0.0, -0.8 * y[1]]))
        >>> ball = pb.ODEProblem(
        ...     lambda t, y, p: jnp.stack([y[1], -9.81]),
        ...     jnp.array([1.0, 0.0]),
        ...     (0.0, 1.0),
        ...     events=[ground],
        ... )
        >>> int(pb.solve(ball, pb.Tsit5(), pb.EnsembleArray()).events.count)
        1
    """

    condition: Function
    affect: Function | None = None
    terminate: bool = False
    direction: int = 0

    def __post_init__(self) -> None:
        require_function("condition", self.condition)
        check_parts(self.affect, self.terminate)
        is_integer = hasattr(self.direction, "__index__") and np.ndim(self.direction) == 0
        if not is_integer or isinstance(self.direction, bool) or self.direction not in (-1, 0, 1):
            raise ValueError(
                "`direction` must be 1 (upward crossings), -1 (downward) or 0 (both), but "
                f"{self.direction!r} arrived."
            )


AnyEvent = Event | PresetTimes | PeriodicEvent | StepEvent | SteadyState
_KINDS = (Event, PresetTimes, PeriodicEvent, StepEvent, SteadyState)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Events:
    """The recorded events of a solution.

    Attributes:
        t: their times, `(trajectory, recorded)`; NaN behind the last.
        index: which they were: first the `pb.Event`s are counted, then `pb.PresetTimes` and
            `pb.PeriodicEvent`s, then `pb.StepEvent`s and `pb.SteadyState`s, those of one kind in
            the order of the problem's list, then of the one given to `solve`; -1 behind the last.
        count: how many there were, recorded or not, `(trajectory,)`.
        grazing: whether a `pb.Event` was nearly tangential, so that its time and the derivative of
            it are not to be relied on at this tolerance, `(trajectory,)`.
    """

    t: Array
    index: Array
    count: Array
    grazing: Array


def checked_events(events: Any) -> tuple[AnyEvent, ...]:
    """Return `events` as a tuple.

    Raises:
        TypeError: one of them is not an event.
    """
    if not isinstance(events, Iterable):
        events = (events,)
    for event in events:
        if not isinstance(event, _KINDS):
            raise TypeError(
                "`events` must hold pb.Event, pb.PresetTimes, pb.PeriodicEvent, pb.StepEvent and "
                f"pb.SteadyState objects, but a {type(event).__name__} arrived; write "
                "events=[pb.Event(condition, affect)]."
            )
    return tuple(events)
