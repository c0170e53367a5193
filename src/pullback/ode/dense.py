"""The solution between its steps: each step is taken again and asked for the state at a time.

Nothing but the ends of the steps is kept, so the interpolant is that of the method, in plain JAX,
and has every derivative: by the time, by the states that the steps began with, and by theta.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from pullback.core.typing import Array, MaybeArray
from pullback.ode.auto_switch import AutoSwitch
from pullback.ode.event_start import with_event_times
from pullback.ode.event_times import time_slack
from pullback.ode.initial import consistent_start
from pullback.ode.maps import StepMaps
from pullback.ode.mesh import frozen, frozen_float
from pullback.ode.spec import SolveOperands, SolveSpec

__all__ = ["DENSE_SLACK", "StepEnds", "dense_slopes", "dense_states", "started"]

# Times are computed by users in ways that round: so many roundings outside the span are its end.
DENSE_SLACK = 8


class StepEnds(NamedTuple):
    """What is known of the steps of one trajectory.

    Attributes:
        t0: Start.
        y0: State with which the first step began, `(n,)`.
        t: Ends of the steps, `(n_saves,)`; the last one again behind it.
        y: States there, behind events, `(n_saves, n)`.
        n_saved: How many steps there are.
        rtol: Relative tolerance of equations inside a step.
        atol: Absolute tolerance, likewise.
        theta: Arrays of the vector field and of known times.
        event_times: Times of the recorded events, NaN behind the last; None without events.
        n_events: How many events there were; None without.
    """

    t0: Array
    y0: Array
    t: Array
    y: Array
    n_saved: Array
    rtol: Array
    atol: Array
    theta: tuple[Array, ...]
    event_times: MaybeArray
    n_events: MaybeArray


def started(spec: SolveSpec, operands: SolveOperands) -> SolveOperands:
    """Return the operands with which the first step is taken.

    That is the state behind events at t0, consistent with algebraic equations, and the times of
    events evaluated.
    """
    if spec.events is not None and spec.events.presets:
        operands = with_event_times(spec, operands)
    if spec.mass is not None and spec.mass.is_singular:
        return operands._replace(y0=consistent_start(spec, operands)[0])
    return operands


def dense_states(spec: SolveSpec, ends: StepEnds, times: Array) -> Array:
    """Return the states at `times`, `(time, n)`; NaN outside the steps.

    At the end of a step the state is the saved one, behind an event there.

    Args:
        spec: What was solved.
        ends: Its steps.
        times: Times, `(time,)`.

    Differentiation:
        By the times, and by all arrays of `ends`; step sizes are fixed, as everywhere.
    """
    return _each(spec, _interpolant(spec, ends), times)


def dense_slopes(spec: SolveSpec, ends: StepEnds, times: Array) -> Array:
    """Return the derivative of the interpolant by time, `(time, n)`; NaN outside the steps."""
    state = _interpolant(spec, ends)

    def slope(time: Array) -> Array:
        return jax.jvp(state, (time,), (jnp.ones_like(time),))[1]

    return _each(spec, slope, times)


def _each(spec: SolveSpec, function: Callable[[Array], Array], times: Array) -> Array:
    # A batched branch computes both sides, of which the explicit one may overflow.
    if isinstance(spec.method, AutoSwitch):
        return lax.map(function, times)
    return jax.vmap(function)(times)


def _interpolant(spec: SolveSpec, ends: StepEnds) -> Callable[[Array], Array]:
    """Return the state as a function of one time."""
    sign = jnp.where(frozen(ends.t[-1] - ends.t0) < 0, -1.0, 1.0).astype(spec.dtype)
    starts = _moving_starts(spec, ends, sign)
    states = jnp.concatenate([ends.y0[None], ends.y])
    last = ends.n_saved
    t_last, y_last = starts[last], states[last]
    knots = sign * frozen(ends.t)
    maps = StepMaps(spec, ends.rtol, ends.atol)
    slope = maps.slope(t_last, y_last, *ends.theta)
    slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
    size = jnp.maximum(jnp.abs(frozen(ends.t0)), jnp.abs(frozen(t_last)))
    slack = DENSE_SLACK * float(jnp.finfo(spec.dtype).eps) * size

    def state(time: Array) -> Array:
        place = jnp.searchsorted(knots, sign * frozen(time), side="right").astype(jnp.int32)
        is_end = place >= last
        index = jnp.where(is_end, jnp.maximum(last - 1, 0), place)
        inside = _inside_step(maps, ends, starts, states, index, time)
        value = jnp.where(is_end, y_last + (time - t_last) * slope, inside)
        is_known = sign * (time - ends.t0) >= -slack
        is_known &= sign * (time - t_last) <= slack
        return jnp.where(is_known, value, jnp.nan)

    return state


def _inside_step(
    maps: StepMaps, ends: StepEnds, starts: Array, states: Array, index: Array, time: Array
) -> Array:
    """Return the state at a time inside step number `index`."""
    t, y = starts[index], states[index]
    # The first step starts at t0 and ends where it ends; the size of the others is fixed.
    begin = jnp.where(index == 0, ends.t0, frozen(t))
    h = frozen(ends.t[index]) - begin
    h = jnp.where(h == 0, 1.0, h)
    maps = maps.at(index, _turn(maps, ends, index, t, y, h, states[index + 1]))
    _, stages = maps.arrive_with_stages(t, y, h, *ends.theta)
    return maps.row(time, t, y, h, *stages, *ends.theta)


def _turn(
    maps: StepMaps, ends: StepEnds, index: Array, t: Array, y: Array, h: Array, y1: Array
) -> MaybeArray:
    """Return which of two methods took a step: the one that arrives where it arrived."""
    if not isinstance(maps.spec.method, AutoSwitch):
        return None
    still = [frozen_float(x) for x in (t, y, h, *ends.theta)]
    gaps = []
    for is_stiff in (False, True):
        arrived = maps.at(index, jnp.asarray(is_stiff)).arrive(*still)
        gap = jnp.sum(jnp.abs(arrived - frozen(y1)))
        gaps.append(jnp.where(jnp.isnan(gap), jnp.inf, gap))
    return gaps[1] < gaps[0]


def _moving_starts(spec: SolveSpec, ends: StepEnds, sign: Array) -> Array:
    """Return where the steps begin, the end behind them: as events move them, otherwise fixed.

    Behind an event, or a known time at which a step had to end, all steps move with it. An event
    that was not recorded leaves the derivative unknown, which makes it NaN.
    """
    t = frozen(ends.t)
    if spec.events is None:
        return jnp.concatenate([ends.t0[None], t])
    by = jax.vmap(lambda time: _last_moved(spec, ends, time, sign))(t)
    return jnp.concatenate([ends.t0[None], t + by])


def _last_moved(spec: SolveSpec, ends: StepEnds, time: Array, sign: Array) -> Array:
    """Return zero, with the derivative of the last event up to a time."""
    assert spec.events is not None
    start = frozen(ends.t0)
    last, by, is_unknown = start, jnp.zeros_like(start), jnp.zeros((), bool)
    if ends.event_times is not None and ends.n_events is not None:
        times, n_recorded = ends.event_times, ends.event_times.shape[0]
        n_past = jnp.sum(sign * time >= sign * frozen(times), dtype=jnp.int32)
        event = jnp.where(n_past > 0, times[jnp.maximum(n_past - 1, 0)], start)
        last, by = frozen(event), event - frozen(event)
        is_unknown = (n_past == n_recorded) & (ends.n_events > n_recorded)
    zero = jnp.zeros_like(start)
    fixed = tuple(map(frozen_float, ends.theta))
    slack = time_slack(start, frozen(ends.t[-1]))
    for preset in spec.events.presets:
        n_past = preset.times.n_past(time, fixed, sign, zero)
        event = preset.times.at(jnp.maximum(n_past - 1, 0), ends.theta, sign)
        # What happened at the start is part of the state there.
        is_last = (n_past > 0) & (sign * (frozen(event) - start) > slack)
        is_last &= sign * (frozen(event) - last) >= 0
        last = jnp.where(is_last, frozen(event), last)
        by = jnp.where(is_last, event - frozen(event), by)
    # Zero, with a derivative that is not finite.
    unknown = jnp.sqrt(jnp.where(is_unknown, by, 1.0))
    return jnp.where(is_unknown, unknown, by)
