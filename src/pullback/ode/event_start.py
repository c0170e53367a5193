"""Around the lane program: when preset events happen, and those that happen at t0 or t1 itself.

References:
    [HNW93] eq. (II.1.4) for the midpoint rule, here over a time that is zero but has a derivative.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from pullback.core.typing import Array
from pullback.ode.event_maps import moved
from pullback.ode.event_times import time_slack
from pullback.ode.events import PresetEvent
from pullback.ode.maps import StepMaps
from pullback.ode.mesh import frozen, frozen_float
from pullback.ode.spec import SolveOperands, SolveSpec

__all__ = ["behind_last_event", "with_event_times"]


def with_event_times(spec: SolveSpec, operands: SolveOperands) -> SolveOperands:
    """Return the operands with the times of preset events, and the state behind those at t0.

    Differentiation:
        An event at t0 itself counts as one just behind it: its time, t0 and the state before it
        move the state behind it as they do for any later event.
    """
    assert spec.events is not None
    t0, t1 = operands.t0, operands.t1
    sign = frozen(jnp.where(t1 < t0, -1.0, 1.0).astype(spec.dtype))
    given, theta = operands.theta, list(operands.theta)
    for event in spec.events.presets:
        theta[event.times.place] = event.times.prepared(given, t0, sign, operands.y0)
    operands = operands._replace(theta=tuple(theta))
    for event in spec.events.presets:
        # What makes no sense is the status `invalid_input`.
        is_valid = event.times.is_valid(operands.theta)
        operands = operands._replace(t1=jnp.where(is_valid, operands.t1, jnp.nan))
    for event in spec.events.presets:
        if event.affect is not None:
            operands = operands._replace(y0=_behind(spec, operands, event, sign))
    return operands


def behind_last_event(
    spec: SolveSpec, operands: SolveOperands, time: Array, y: Array, happens: Array
) -> Array:
    """Return the state at t1, where a preset event lies.

    Differentiation:
        The event counts as one just before t1: by its time and by t1.

    Args:
        spec: What is solved.
        operands: Its arrays.
        time: Time of the event.
        y: State behind it.
        happens: Whether there is such an event.
    """
    by = jnp.where(happens, moved(operands.t1) - moved(time), 0.0)
    return _drift(spec, time, y, by, operands.rtol, operands.atol, operands.theta)


def _behind(spec: SolveSpec, operands: SolveOperands, event: PresetEvent, sign: Array) -> Array:
    """Return the state at t0 behind an event, if it happens there."""
    y, t0, theta = operands.y0, operands.t0, operands.theta
    assert event.affect is not None
    start, slack = frozen(t0), time_slack(frozen(t0), frozen(operands.t1))
    n_past = event.times.n_past(start, tuple(map(frozen_float, theta)), sign, slack)
    time = event.times.at(jnp.maximum(n_past - 1, 0), theta, sign)
    is_now = (n_past > 0) & (jnp.abs(frozen(time) - start) <= slack)
    if spec.mass is not None and spec.mass.is_singular:
        # The state is not consistent yet, so that nothing says how it moves.
        return event.affect.where(is_now, t0, y, theta)
    by = jnp.where(is_now, moved(time) - moved(t0), 0.0)
    rest = (operands.rtol, operands.atol, theta)
    y_event = _drift(spec, t0, y, by, *rest)
    behind = event.affect.where(is_now, t0 + by, y_event, theta)
    return jnp.where(is_now, _drift(spec, t0 + by, behind, -by, *rest), y)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _drift(
    spec: SolveSpec,
    t: Array,
    y: Array,
    by: Array,
    rtol: Array,
    atol: Array,
    theta: tuple[Array, ...],
) -> Array:
    """Return the state after a time that is zero but has a derivative, for which alone it moves."""
    del spec
    # Under `vmap` the value must be mapped wherever its derivative is, or `jax.custom_jvp` fails:
    # what is compared here is not needed, and gone when it is compiled.
    leaves = [jnp.ravel(x) for x in (t, by, rtol, atol, *theta) if x.size]
    same = functools.reduce(jnp.logical_and, [x[0] == x[0] for x in leaves])
    return jnp.where(same, y, y)


@_drift.defjvp
def _drift_jvp(
    spec: SolveSpec, primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[Array, Array]:
    def drift(
        t: Array, y: Array, by: Array, rtol: Array, atol: Array, theta: tuple[Array, ...]
    ) -> Array:
        maps = StepMaps(spec, rtol, atol)
        middle = y + 0.5 * by * maps.slope(t, y, *theta)
        return y + by * maps.slope(t + 0.5 * by, middle, *theta)

    return _drift(spec, *primals), jax.jvp(drift, primals, tangents)[1]
