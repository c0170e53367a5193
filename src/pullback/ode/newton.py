"""Simplified Newton iteration for one implicit stage, and the derivative of what it finds.

The equation is M (z - base) / (gamma h) = f(t, z, theta); every trip solves with the factors of
W = M / (gamma h) - J that belong to the start of the step. The derivative comes from the implicit
function theorem, not from the trips: its own linear system, with J at z, is solved by a few more
sweeps with the same factors.

References:
    [HW96] section IV.8, "Simplified Newton iterations" and "Stopping criterion".
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pullback.core.typing import Array, MaybeArray
from pullback.lanes.linalg import Factors, solve
from pullback.lanes.loop import lane_while
from pullback.ode.mesh import frozen, frozen_float
from pullback.ode.norm import mean_square
from pullback.ode.partial_ad import push_forward
from pullback.ode.stage_solve import StageMatrix, Static, known

__all__ = ["stage_value"]

# The iteration's error may be this part of the step's tolerance.
_KAPPA = 1e-2
_MOST_TRIPS = 10
# A correction of so many roundings of the state is as good as none.
_ROUNDINGS = 8.0
# The error of the derivative falls with each sweep like that of the iteration with each trip:
# four leave less than the tolerance where the iteration converges in three or four.
_SWEEPS = 4


class _Trip(NamedTuple):
    """State of the iteration; norms are squared and in units of the tolerance."""

    z: Array
    norm2: Array
    n_trips: Array
    converged: Array
    diverged: Array


def stage_value(matrix: StageMatrix, t: Array, base: Array, guess: Array) -> tuple[Array, Array]:
    """Return the stage value z, and whether the iteration failed.

    Args:
        matrix: W of the step.
        t: Time of the stage.
        base: What z would be without its own slope.
        guess: Where the iteration begins.

    Differentiation:
        By the implicit function theorem at z, in both modes.
    """
    found = _iterate(matrix, frozen(t), frozen(base), frozen(guess))
    system = matrix.system
    z = _value(Static.of(system), matrix.factors, matrix.inverse, t, base, system.theta, found.z)
    return z, ~found.converged


def _iterate(matrix: StageMatrix, t: Array, base: Array, guess: Array) -> _Trip:
    system, factors = matrix.system, jax.tree.map(frozen, matrix.factors)
    inverse, theta = frozen(matrix.inverse), jax.tree.map(frozen_float, system.theta)
    size = jnp.abs(frozen(matrix.y))
    eps = float(jnp.finfo(size.dtype).eps)
    weight = 1.0 / (frozen(system.rtol) * size + jnp.maximum(frozen(system.atol), _tiny(size)))

    def body(s: _Trip) -> _Trip:
        residual = inverse * system.mass_times(base - s.z) + system.field(t, s.z, theta)
        correction = solve(factors, residual)
        z = s.z + correction
        norm2 = mean_square(correction * weight)
        rate2 = norm2 / s.norm2
        # With the rate r the error left is at most |correction| r / (1 - r).
        is_known = s.n_trips > 0
        room = 1.0 - jnp.sqrt(jnp.minimum(rate2, 1.0))
        left2 = jnp.where(is_known, norm2 * rate2, norm2)
        limit = jnp.where(is_known, _KAPPA * room, _KAPPA * _KAPPA)
        floor2 = mean_square(_ROUNDINGS * eps * jnp.abs(z) * weight)
        converged = (left2 <= limit * limit) | (norm2 <= floor2)
        diverged = (is_known & (rate2 >= 1.0)) | ~(norm2 < jnp.inf)
        return _Trip(z, norm2, s.n_trips + 1, converged, diverged & ~converged)

    def is_open(s: _Trip) -> Array:
        return ~(s.converged | s.diverged) & (s.n_trips < _MOST_TRIPS)

    one, no = jnp.ones((), guess.dtype), jnp.zeros((), bool)
    return lane_while(is_open, body, _Trip(guess, one, jnp.zeros((), jnp.int32), no, no))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _value(
    static: Static,
    factors: Factors,
    inverse: Array,
    t: Array,
    base: Array,
    theta: tuple[Array, ...],
    z: Array,
) -> Array:
    del static, factors, inverse, t, base, theta
    return z


@functools.partial(_value.defjvp, symbolic_zeros=True)
def _value_jvp(static: Static, primals: Any, tangents: Any) -> tuple[Array, Array]:
    factors, inverse, t, base, theta, found = primals
    inverse_dot, t_dot, base_dot = map(known, tangents[1:4])
    theta_dot = tuple(map(known, tangents[4]))
    z = _value(static, factors, inverse, t, base, theta, found)
    total: MaybeArray = None
    if any(dot is not None for dot in (t_dot, *theta_dot)):

        def slope(t: Array, *theta: Array) -> Array:
            return static.field(t, z, theta)

        total = push_forward(slope, (t, *theta), (t_dot, *theta_dot))[1]
    if base_dot is not None:
        total = _plus(total, inverse * static.mass_times(base_dot))
    if inverse_dot is not None:
        total = _plus(total, inverse_dot * static.mass_times(base - z))
    if total is None:
        return z, jnp.zeros_like(z)
    z_dot = solve(factors, total)
    for _ in range(_SWEEPS - 1):
        moved = jax.jvp(lambda v: static.field(t, v, theta), (z,), (z_dot,))[1]
        left = total - (inverse * static.mass_times(z_dot) - moved)
        z_dot = z_dot + solve(factors, left)
    return z, z_dot


def _plus(a: MaybeArray, b: Array) -> Array:
    return b if a is None else a + b


def _tiny(x: Array) -> float:
    return float(jnp.finfo(x.dtype).tiny)
