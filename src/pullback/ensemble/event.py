"""Events: things that happen when the state, or the clock, gets somewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from pullback.core.typing import Array

Function = Callable[[Any, Any, Any], Any]


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
        _check_function("condition", self.condition)
        if self.affect is not None:
            _check_function("affect", self.affect)
        if not isinstance(self.terminate, bool):
            raise TypeError(f"`terminate` must be True or False, but {self.terminate!r} arrived.")
        if self.direction not in (-1, 0, 1):
            raise ValueError(
                "`direction` must be 1 (upward crossings), -1 (downward) or 0 (both), but "
                f"{self.direction!r} arrived."
            )


@dataclass(frozen=True)
class PresetTimes:
    """An event at given times, at which a step ends exactly: doses, switches.

    Times before the start are past; one at the start happens there, one at the end happens there.
    A row saved at such a time holds the state behind the event.

    Args:
        times: the times, in the order of integration; or a function `times(params)` that returns
            them, so that they may differ between trajectories.
        affect: `affect(t, y, params)` returns the state behind the event.
        terminate: whether the trajectory ends at the first of them.

    Differentiation:
        By the times too, where they are traced or come from `params`.
    """

    times: Any
    affect: Function | None = None
    terminate: bool = False

    def __post_init__(self) -> None:
        if self.affect is not None:
            _check_function("affect", self.affect)
        if not isinstance(self.terminate, bool):
            raise TypeError(f"`terminate` must be True or False, but {self.terminate!r} arrived.")
        if callable(self.times) or isinstance(self.times, Tracer):
            return
        numbers = np.atleast_1d(np.asarray(self.times))
        if numbers.ndim != 1 or numbers.dtype.kind not in "fiu" or not np.isfinite(numbers).all():
            raise ValueError(
                "`times` must be a 1-D array of finite times or a function of `params`, but "
                f"{self.times!r} arrived."
            )
        # As numbers, so that equal events compare equal.
        object.__setattr__(self, "times", tuple(map(float, numbers)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Events:
    """The recorded events of a solution.

    Attributes:
        t: their times, `(trajectory, recorded)`; NaN behind the last.
        index: which they were, counted in the order of the problem's root events, then its preset
            ones, then those given to `solve`; -1 behind the last.
        count: how many there were, recorded or not, `(trajectory,)`.
    """

    t: Array
    index: Array
    count: Array


def checked_events(events: Any) -> tuple[Event | PresetTimes, ...]:
    """Return `events` as a tuple.

    Raises:
        TypeError: one of them is not an event.
    """
    if isinstance(events, (Event, PresetTimes)):
        events = (events,)
    for event in events:
        if not isinstance(event, (Event, PresetTimes)):
            raise TypeError(
                "`events` must hold pb.Event and pb.PresetTimes objects, but a "
                f"{type(event).__name__} arrived; write events=[pb.Event(condition, affect)]."
            )
    return tuple(events)


def _check_function(name: str, function: Any) -> None:
    if not callable(function):
        raise TypeError(
            f"`{name}` must be a function of (t, y, params), but a {type(function).__name__} "
            "arrived."
        )
