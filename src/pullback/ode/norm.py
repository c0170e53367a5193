"""Error norms, squared: step control compares them with one and needs no square root."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array
from pullback.ode.method import Step
from pullback.ode.spec import SolveSpec

__all__ = ["attempt_norm", "error_norm", "mean_square", "outside_norm", "tangent_norm"]


def mean_square(x: Array) -> Array:
    """Return the mean of the squares; a multiplication, for division by n has a long latency."""
    return jnp.sum(x * x) * (1.0 / x.size)


def error_norm(err: Array, y: Array, y1: Array, rtol: Array, atol: Array) -> Array:
    """Return the squared error of a step in units of the tolerance; one or less is accepted.

    References:
        [HNW93] eq. (II.4.10), (II.4.11).
    """
    before, after = jnp.abs(y), jnp.abs(y1)
    # One instruction where `maximum` also looks for NaN, which the error has where y1 has it.
    scale = atol + rtol * jnp.where(after > before, after, before)
    return mean_square(err * (1.0 / scale))


def tangent_norm(err: Array, largest: Array, rtol: Array, floor: Array) -> Array:
    """Return the squared error of a tangent's step in units of its tolerance.

    The weight grows with the largest value the component has had so far and with the size of the
    seed, so that a tangent is controlled the same whatever its scale.

    Args:
        err: The embedded error's tangent.
        largest: Running maximum of the tangent's absolute value, by component.
        rtol: Relative tolerance.
        floor: Absolute tolerance of the tangent: the state's, times the seed's natural size.
    """
    weight = rtol * largest + floor
    return mean_square(err * (1.0 / weight))


def attempt_norm(spec: SolveSpec, y: Array, step: Step, rtol: Array, atol: Array) -> Array:
    """Return the squared error norm of an attempt; with fixed steps, whether it is finite.

    A method that solves equations gives infinity where it could not, and NaN where a number is
    not finite. A step to a state that is not valid gives the largest finite number.
    """
    if spec.adaptive:
        q2 = error_norm(step.err, y, step.y1, rtol, atol)
    else:
        q2 = jnp.sum(jnp.abs(step.y1))
    if step.failed is not None:
        q2 = jnp.where(step.failed, np.inf, jnp.where(q2 < np.inf, q2, np.nan))
    if step.outside is None:
        return q2
    # Numbers that are not finite are told as such, for every comparison with them is false.
    return jnp.where(step.outside & (q2 < np.inf), outside_norm(q2.dtype), q2)


def outside_norm(dtype: np.dtype) -> float:
    """Return the squared error norm that says: not a valid state."""
    return float(jnp.finfo(dtype).max)
