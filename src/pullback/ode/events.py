"""Events of one trajectory: what they are, and what a solve carries along to find them.

A root event is armed on one side of its surface, where `side * condition` is positive, and fires
where that becomes zero. A preset event fires at times that are known (`event_times`), at which a
step ends exactly. A step event is looked at where a step has ended anyway (`step_events`).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array
from pullback.ode.event_times import EventTimes, time_slack
from pullback.ode.flat_function import FlatFunction
from pullback.ode.step_events import StepEvent

__all__ = ["EventSpec", "EventState", "PresetEvent", "RootEvent", "arm", "start_events"]

# A root this near, as a part of the time span, is where the state is: what the condition says there
# is rounding.
_NEAR = {8: 1e-9, 4: 1e-6}


@dataclasses.dataclass(frozen=True)
class RootEvent:
    """An event where a function of the state vanishes.

    Attributes:
        condition: Real function of (t, y).
        affect: The state after the event; None leaves it as it is.
        terminate: Whether the trajectory ends.
        direction: 1 for upward crossings only, -1 for downward ones, 0 for both.
    """

    condition: FlatFunction
    affect: FlatFunction | None
    terminate: bool
    direction: int


@dataclasses.dataclass(frozen=True)
class PresetEvent:
    """An event at known times.

    Attributes:
        times: When it happens.
        affect: The state after the event.
        terminate: Whether the trajectory ends at the first of them.
        is_silent: Whether it only makes a step end there: it is neither counted nor recorded.
    """

    times: EventTimes
    affect: FlatFunction | None
    terminate: bool
    is_silent: bool = False


@dataclasses.dataclass(frozen=True)
class EventSpec:
    """All events of a solve, in the order in which simultaneous ones fire.

    Attributes:
        roots: Root events.
        presets: Preset events, silent ones last; at one time they fire after root events.
        steps: Step events; they are looked at behind the others.
        max_recorded: How many are recorded for each trajectory.
        max_quick: How many root events may follow each other without progress before the
            trajectory counts as chattering.
    """

    roots: tuple[RootEvent, ...]
    presets: tuple[PresetEvent, ...] = ()
    steps: tuple[StepEvent, ...] = ()
    max_recorded: int = 16
    max_quick: int = 1000

    @property
    def n_told(self) -> int:
        """How many preset events are counted and recorded."""
        return sum(not event.is_silent for event in self.presets)

    @property
    def tells(self) -> bool:
        """Whether there is anything to count and record."""
        return bool(self.roots or self.n_told or self.steps)

    @property
    def preset_kind(self) -> int:
        """What says that a step ended at preset events; root event i is 1 + i."""
        return len(self.roots) + 1

    @property
    def changes_state(self) -> bool:
        """Whether any event changes the state."""
        return any(event.affect is not None for event in (*self.roots, *self.presets, *self.steps))

    @property
    def jumps_at_steps(self) -> bool:
        """Whether step events change the state."""
        return any(event.affect is not None for event in self.steps)


class EventState(NamedTuple):
    """What a solve carries along, `(root,)` or `(preset,)` or scalar.

    Attributes:
        side: 1 or -1: where each root event is armed.
        armed: Whether it is.
        surface: Whether the state has just left its surface, so that the condition at the start
            of the step is rounding noise.
        rate: Rate of change of `side * condition` with time there.
        cursor: Number of the next occurrence of each preset event.
        n_events: Events so far.
        cuts: How many of them ended a step early.
        last: The root event that fired last, -1 before the first.
        streak: How often it fired in a row without progress in time.
        quick: How many root events came in a row with next to no time between them.
        time: When the last event was; the start before the first.
        gap: Time between the last two.
        shrinks: How often in a row that became shorter by a steady factor.
        verdict: Status code that ends the trajectory; 0 while there is none.
    """

    side: Array
    armed: Array
    surface: Array
    rate: Array
    cursor: Array
    n_events: Array
    cuts: Array
    last: Array
    streak: Array
    quick: Array
    time: Array
    gap: Array
    shrinks: Array
    verdict: Array


def arm(
    event: RootEvent,
    t: Array,
    y: Array,
    slope: Array,
    theta: tuple[Array, ...],
    signed_span: Array,
) -> tuple[Array, Array, Array, Array]:
    """Return side, armed, surface and rate of an event for a start at (t, y).

    Args:
        event: The event.
        t: Time.
        y: State.
        slope: y' there.
        theta: Arrays of the functions.
        signed_span: Length of the whole time span, negative where time runs backward.
    """

    def along(s: Array) -> Array:
        return event.condition(t + s, y + s * slope, theta)

    zero, one = jnp.zeros((), t.dtype), jnp.ones((), t.dtype)
    value, rate = jax.jvp(along, (zero,), (one,))
    near = _NEAR[t.dtype.itemsize] * jnp.abs(signed_span)
    surface = jnp.abs(value) <= near * jnp.abs(rate)
    towards = jnp.where(surface, jnp.where(signed_span < 0, -rate, rate), value)
    if event.direction == 0:
        side = jnp.where(towards < 0, -one, one)
        armed = jnp.ones((), bool)
    else:
        side = one if event.direction < 0 else -one
        armed = side * towards > 0
    return side, armed, surface, side * rate


def start_events(
    events: EventSpec,
    t: Array,
    y: Array,
    slope: Array,
    theta: tuple[Array, ...],
    signed_span: Array,
) -> EventState:
    """Return the state before the first step, at (t, y)."""
    sign = jnp.where(signed_span < 0, -1.0, 1.0).astype(t.dtype)
    armed = [arm(event, t, y, slope, theta, signed_span) for event in events.roots]
    parts = [jnp.stack(x) for x in zip(*armed, strict=True)] if armed else _nothing(t.dtype)
    side, is_armed, surface, rate = parts
    zero = jnp.zeros((), jnp.int32)
    # Those at the start itself have happened before it.
    slack = time_slack(t, t + signed_span)
    cursors = [event.times.n_past(t, theta, sign, slack) for event in events.presets]
    return EventState(
        side=side,
        armed=is_armed,
        surface=surface,
        rate=rate,
        cursor=jnp.stack(cursors) if cursors else jnp.zeros((0,), jnp.int32),
        n_events=zero,
        cuts=zero,
        last=zero - 1,
        streak=zero,
        quick=zero,
        time=t,
        gap=jnp.asarray(np.inf, t.dtype),
        shrinks=zero,
        verdict=zero,
    )


def _nothing(dtype: np.dtype) -> list[Array]:
    nothing, no = jnp.zeros((0,), dtype), jnp.zeros((0,), bool)
    return [nothing, no, no, nothing]
