"""Piecewise polynomials through given points: coefficients, in plain JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from pullback.core.typing import Array

__all__ = ["cubic_pieces", "linear_pieces"]


def linear_pieces(t: Array, values: Array) -> Array:
    """Return the straight lines between points.

    Args:
        t: Increasing times, `(n,)`.
        values: Values there, `(n, ...)`.

    Returns:
        Coefficients of powers 0 and 1 of the distance from the piece's start, `(n - 1, 2, ...)`.
    """
    return jnp.stack([values[:-1], _slopes(t, values)], axis=1)


def cubic_pieces(t: Array, values: Array) -> Array:
    """Return the cubic spline through points, with "not-a-knot" ends.

    Its third derivative is continuous at the second point and at the last but one, so that the
    first two pieces are one polynomial, and the last two. Three points give the parabola through
    them, two the line.

    Args:
        t: Increasing times, `(n,)`.
        values: Values there, `(n, ...)`.

    Returns:
        Coefficients of powers 0 to 3 of the distance from the piece's start, `(n - 1, 4, ...)`.

    Differentiation:
        By times and values, exactly: through a tridiagonal system of equations.

    References:
        [Boo01] chapter IV.
    """
    slopes = _slopes(t, values)
    first = _first_derivatives(t, slopes)
    h = _column(jnp.diff(t), values)
    bend = (first[:-1] + first[1:] - 2.0 * slopes) / h
    quadratic = (slopes - first[:-1]) / h - bend
    return jnp.stack([values[:-1], first[:-1], quadratic, bend / h], axis=1)


def _slopes(t: Array, values: Array) -> Array:
    return jnp.diff(values, axis=0) / _column(jnp.diff(t), values)


def _column(x: Array, like: Array) -> Array:
    return x.reshape((-1,) + (1,) * (like.ndim - 1))


def _first_derivatives(t: Array, slopes: Array) -> Array:
    """Return the derivatives of the spline at its points, `(n, ...)`."""
    n, rest = t.shape[0], slopes.shape[1:]
    h, s = jnp.diff(t), slopes.reshape(n - 1, -1)
    if n == 2:
        return jnp.concatenate([slopes, slopes])
    if n == 3:
        part = (s[1] - s[0]) / (h[0] + h[1])
        rows = jnp.stack([s[0] - h[0] * part, s[0] + h[0] * part, s[1] + h[1] * part])
        return rows.reshape(n, *rest)
    column = h[:, None]
    inner = 3.0 * (column[1:] * s[:-1] + column[:-1] * s[1:])
    right = jnp.concatenate(
        [_end(h[0], h[1], s[0], s[1])[None], inner, _end(h[-1], h[-2], s[-1], s[-2])[None]]
    )
    zero = jnp.zeros((1,), t.dtype)
    diagonal = jnp.concatenate([h[1:2], 2.0 * (h[:-1] + h[1:]), h[-2:-1]])
    upper = jnp.concatenate([h[:1] + h[1:2], h[:-1], zero])
    lower = jnp.concatenate([zero, h[1:], h[-1:] + h[-2:-1]])
    first = jax.lax.linalg.tridiagonal_solve(lower, diagonal, upper, right)
    return first.reshape(n, *rest)


def _end(near: Array, far: Array, slope: Array, next_slope: Array) -> Array:
    """Return the right side of the condition at an end, of its interval and the next one."""
    both = near + far
    return ((near + 2.0 * both) * far * slope + near * near * next_slope) / both
