"""How far explicit Runge-Kutta methods are stable, and how near a step comes to that.

An explicit method on a stiff problem steps as far as stability allows, whatever the tolerance. The
real part of its stability region is known from its coefficients; the spectral radius of the
Jacobian is estimated from two stages at the same time, or by a power iteration.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_while
from pullback.ode.mesh import frozen
from pullback.ode.tableau import ButcherTableau

__all__ = ["decay_reach", "stability_length", "stage_pair", "step_stiffness"]

# The interval is searched up to here; every method with s stages is unstable beyond 2 s**2.
_GRID = 4000
_MOST_TRIPS = 30


@functools.lru_cache(maxsize=64)
def stability_length(tableau: ButcherTableau) -> float:
    """Return the largest x with |R(z)| <= 1 for all z in (-x, 0), R the stability function.

    References:
        [HW96] section IV.2, eq. (2.9): R(z) = 1 + z b (I - z A)**-1 1.
    """
    s = tableau.n_stages
    a = np.zeros((s, s))
    for i, row in enumerate(tableau.a):
        a[i, : len(row)] = row
    powers, vector = [1.0], np.ones(s)
    for _ in range(s):
        powers.append(float(np.asarray(tableau.b, float) @ vector))
        vector = a @ vector
    polynomial = np.polynomial.Polynomial(powers)

    def is_stable(x: float | np.ndarray) -> np.ndarray:
        return np.abs(polynomial(-np.asarray(x))) <= 1.0 + 1e-9

    grid = np.linspace(0.0, 2.0 * s**2 + 1.0, _GRID)
    first = int(np.argmin(is_stable(grid)))
    low, high = grid[first - 1], grid[first]
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_stable(middle) else (low, middle)
    return float(low)


def stage_pair(tableau: ButcherTableau) -> tuple[int, int] | None:
    """Return the last two stages at the same time; None if all times differ."""
    pairs = [
        (i, j)
        for j in range(tableau.n_stages)
        for i in range(j)
        if tableau.c[i] == tableau.c[j] and tableau.c[j] > 0
    ]
    return pairs[-1] if pairs else None


def step_stiffness(tableau: ButcherTableau, stages: Sequence[Array]) -> Array:
    """Return how much of the stability interval a step uses; one is all of it.

    References:
        [HW96] section IV.2, "Automatic stiffness detection", eq. (2.26).
    """
    pair = stage_pair(tableau)
    assert pair is not None
    i, j = pair
    rows = [np.zeros(tableau.n_stages) for _ in pair]
    for row, stage in zip(rows, pair, strict=True):
        row[: len(tableau.a[stage])] = tableau.a[stage]
    distance: MaybeArray = None
    for weight, k in zip(rows[1] - rows[0], stages, strict=True):
        if weight:
            term = float(weight) * k
            distance = term if distance is None else distance + term
    assert distance is not None  # equal stages are one stage
    change = frozen(stages[j] - stages[i])
    # The two states differ by h times this, so that the ratio is h times an eigenvalue.
    below = jnp.sum(frozen(distance) ** 2)
    ratio2 = jnp.sum(change * change) / jnp.where(below > 0, below, 1.0)
    return jnp.sqrt(jnp.where(below > 0, ratio2, 0.0)) * (1.0 / stability_length(tableau))


def decay_reach(
    slope: Callable[[Array], Array], y: Array, h: Array, unit: Array, is_wanted: Array
) -> Array:
    """Return h times the fastest rate of decay at a state, 0 unless wanted.

    A power iteration on differences of the vector field finds the eigenvector of the largest
    eigenvalue; its Rayleigh quotient is negative for decay, and small for an oscillation.

    Args:
        slope: The vector field at a fixed time.
        y: The state.
        h: Step size, negative backward in time.
        unit: How large a component's change is, `(n,)`.
        is_wanted: Whether to look at all.
    """
    size = float(np.sqrt(jnp.finfo(y.dtype).eps))
    unit = unit + size * jnp.abs(y)
    base = slope(y)

    def body(s: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        direction, _, trips = s
        image = (slope(y + direction * unit) - base) / unit
        length = jnp.sqrt(jnp.sum(image * image))
        ahead = image / jnp.where(length > 0, length, 1.0)
        return ahead, jnp.sum(direction * image), trips + 1

    n = y.shape[0]
    signs = jnp.where(lax.iota(jnp.int32, n) % 2 == 0, 1.0, -1.0).astype(y.dtype)
    start = (signs * float(1.0 / np.sqrt(n)), jnp.zeros_like(h), jnp.zeros((), jnp.int32))

    def reach() -> Array:
        _, rate, _ = lane_while(lambda s: is_wanted & (s[2] < _MOST_TRIPS), body, start)
        return jnp.maximum(-rate * h, 0.0)

    # Inside a branch the loop is no main loop of the kernel, for which lanes would be refilled.
    return lax.cond(is_wanted, reach, lambda: jnp.zeros_like(h))
