"""One explicit Runge-Kutta step, its embedded error, and its dense output.

Sums are written for a short chain of dependent operations behind the newest stage: everything
older is added up first, so that one multiply-add follows each evaluation of the vector field.
Zero coefficients cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp

from pullback.core.typing import Array, MaybeArray
from pullback.ode.method import Step
from pullback.ode.tableau import ButcherTableau

__all__ = ["advance", "dense_output", "interpolate", "take_step"]

Field = Callable[[Array, Array], Array]


def take_step(
    tableau: ButcherTableau, field: Field, t: Array, y: Array, h: Array, k1: MaybeArray = None
) -> Step:
    """Try a step of size h from (t, y).

    Args:
        tableau: The method.
        field: The vector field of (t, y).
        t: Time.
        y: State.
        h: Step size; negative backward in time.
        k1: The first stage, where it is known.

    References:
        [HNW93] eq. (II.1.8), (II.4.1).
    """
    stages = [field(t, y) if k1 is None else k1]
    y_stage = y
    for row, node in zip(tableau.a[1:], tableau.c[1:], strict=True):
        y_stage = _plus(y, h, row, stages)
        stages.append(field(_at(t, h, node), y_stage))
    # With the FSAL property the last stage was evaluated at the new point.
    y1 = y_stage if tableau.fsal else _plus(y, h, tableau.b, stages)
    err = None if tableau.b_err is None else _times(h, tableau.b_err, stages)
    return Step(y1, err, tuple(stages))


def advance(tableau: ButcherTableau, field: Field, t: Array, y: Array, h: Array) -> Array:
    """Return only the state after a step, without the stage that FSAL methods evaluate there."""
    stages = [field(t, y)]
    for row, node in zip(tableau.a[1:], tableau.c[1:], strict=True):
        if tableau.fsal and len(stages) == tableau.n_stages - 1:
            break
        stages.append(field(_at(t, h, node), _plus(y, h, row, stages)))
    return _plus(y, h, tableau.b[: len(stages)], stages)


def dense_output(
    tableau: ButcherTableau,
    field: Field,
    t: Array,
    y: Array,
    h: Array,
    stages: Sequence[Array],
    time: Array,
) -> Array:
    """Return the state at `time` inside a step by the method's interpolant.

    Methods with extra stages evaluate them here.

    References:
        [HNW93] eq. (II.6.1).
    """
    stages = list(stages)
    for row, node in zip(tableau.dense_a, tableau.dense_c, strict=True):
        stages.append(field(_at(t, h, node), _plus(y, h, row, stages)))
    total = interpolate(tableau.dense, stages, (time - t) / h)
    return y if total is None else y + h * total


def interpolate(
    dense: Sequence[Sequence[float]], stages: Sequence[Array], fraction: Array
) -> MaybeArray:
    """Return sum_i b_i(fraction) stages[i]; None if every b_i is zero.

    Args:
        dense: Coefficients of the polynomials b_i, powers 1, 2, ...
        stages: One array for each.
        fraction: Where in the step, 0 to 1.
    """
    total = None
    for coefficients, k in zip(dense, stages, strict=True):
        if any(coefficients):
            term = _polynomial(coefficients, fraction) * k
            total = term if total is None else total + term
    return total


def _at(t: Array, h: Array, node: float) -> Array:
    if node == 0.0:
        return t
    return t + h if node == 1.0 else t + node * h


def _polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """Return sum_j coefficients[j] x**(j + 1)."""
    degree = max(j for j, c in enumerate(coefficients) if c) + 1
    value = coefficients[degree - 1] * x
    for c in reversed(coefficients[: degree - 1]):
        value = (value + c) * x if c else value * x
    return value


def _plus(y: Array, h: Array, weights: Sequence[float], stages: Sequence[Array]) -> Array:
    """Return y + h sum_j weights[j] stages[j], the newest stage last."""
    old, newest = _split(weights, stages)
    if newest is None:
        return y
    if old is not None:
        y = y + h * old
    return y + (h * newest[0]) * newest[1]


def _times(h: Array, weights: Sequence[float], stages: Sequence[Array]) -> Array:
    """Return h sum_j weights[j] stages[j], the newest stage last."""
    old, newest = _split(weights, stages)
    if newest is None:
        return jnp.zeros_like(stages[0])
    last = (h * newest[0]) * newest[1]
    return last if old is None else h * old + last


def _split(
    weights: Sequence[float], stages: Sequence[Array]
) -> tuple[MaybeArray, tuple[float, Array] | None]:
    terms = [(w, k) for w, k in zip(weights, stages, strict=True) if w]
    if not terms:
        return None, None
    old = None
    for w, k in terms[:-1]:
        old = w * k if old is None else old + w * k
    return old, terms[-1]
