"""Stochastic Runge-Kutta methods of strong order 1.5, each a table of coefficients.

There are two families of stages, the supporting values H0 of the drift and H1 of the diffusion:

    H0_i = y + sum_j a0_ij f(H0_j) h + sum_j b0_ij g(H1_j) I10/h
    H1_i = y + sum_j a1_ij f(H0_j) h + sum_j b1_ij g(H1_j) |h|^(1/2)
    y1   = y + sum_i alpha_i f(H0_i) h
             + sum_i (beta1_i I1 + beta2_i I11/|h|^(1/2) + beta3_i I10/h + beta4_i I111/h) g(H1_i)

with the iterated integrals I1 = dW, I11, I111 (polynomials of dW) and I10 = h (dW + dZ/3^(1/2))/2.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp

from pullback.core.typing import Array, MaybeArray
from pullback.ode.noise import NOISE_KINDS, NoiseKind
from pullback.ode.stochastic import StochasticMethod

__all__ = ["SRA1", "SRIW1", "StochasticTableau"]

Rows = tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True)
class StochasticTableau:
    """Coefficients, named as in the module's formula; rows hold what comes before the diagonal.

    `a1` and `b1` are empty for additive noise, whose diffusion depends on time only.
    """

    alpha: tuple[float, ...]
    c0: tuple[float, ...]
    c1: tuple[float, ...]
    a0: Rows
    b0: Rows
    a1: Rows
    b1: Rows
    betas: Rows


_SRIW1 = StochasticTableau(
    alpha=(1 / 3, 2 / 3, 0.0, 0.0),
    c0=(0.0, 3 / 4, 0.0, 0.0),
    c1=(0.0, 1 / 4, 1.0, 1 / 4),
    a0=((), (3 / 4,), (0.0, 0.0), (0.0, 0.0, 0.0)),
    b0=((), (3 / 2,), (0.0, 0.0), (0.0, 0.0, 0.0)),
    # The source has the third drift in the last row, which is the first one over again.
    a1=((), (1 / 4,), (1.0, 0.0), (1 / 4, 0.0, 0.0)),
    b1=((), (1 / 2,), (-1.0, 0.0), (-5.0, 3.0, 1 / 2)),
    betas=(
        (-1.0, 4 / 3, 2 / 3, 0.0),
        (-1.0, 4 / 3, -1 / 3, 0.0),
        (2.0, -4 / 3, -2 / 3, 0.0),
        (-2.0, 5 / 3, -2 / 3, 1.0),
    ),
)
_SRA1 = StochasticTableau(
    alpha=(1 / 3, 2 / 3),
    c0=(0.0, 3 / 4),
    c1=(1.0, 0.0),
    a0=((), (3 / 4,)),
    b0=((), (3 / 2,)),
    a1=(),
    b1=(),
    betas=((1.0, 0.0), (0.0, 0.0), (-1.0, 1.0), (0.0, 0.0)),
)


@dataclasses.dataclass(frozen=True)
class StochasticRungeKutta(StochasticMethod):
    """A method of the module's form; a subclass sets `tableau`."""

    tableau: ClassVar[StochasticTableau]

    def increment(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return by how much the state changes in a step.

        References:
            [Roe10] section 6, for diagonal, scalar and additive noise.
        """
        tableau = self.tableau
        size, dw, dz = system.increments(h, with_dz=True)
        root = jnp.sqrt(size)
        mixed = 0.5 * dw + (0.5 / math.sqrt(3.0)) * dz  # I10 / h
        drifts: list[MaybeArray] = []
        diffusions: list[Array] = []
        for i in range(len(tableau.alpha)):
            is_used = tableau.alpha[i] != 0 or _is_used(tableau.a0, i) or _is_used(tableau.a1, i)
            drift = None
            if is_used:
                pushed = _sum(tableau.b0[i], diffusions)
                y0 = _add(y, _scaled(h, _sum(tableau.a0[i], drifts)))
                y0 = y0 if pushed is None else y0 + system.spread(pushed, mixed)
                drift = system(_later(t, tableau.c0[i], h), y0)
            y1 = y
            if tableau.a1:
                y1 = _add(y1, _scaled(h, _sum(tableau.a1[i], drifts)))
                y1 = _add(y1, _scaled(root, _sum(tableau.b1[i], diffusions)))
            drifts.append(drift)
            diffusions.append(system.diffusion(_later(t, tableau.c1[i], h), y1))
        total = h * _needed(_sum(tableau.alpha, drifts))
        for beta, integral in zip(tableau.betas, _integrals(h, size, dw, mixed), strict=True):
            weighted = _sum(beta, diffusions)
            if weighted is not None:
                total = total + system.spread(weighted, integral)
        return total


def _integrals(h: Array, size: Array, dw: Array, mixed: Array) -> tuple[Array, ...]:
    """Return I1, I11 / |h|^(1/2), I10 / h, I111 / h."""
    square = dw * dw
    inverse = 1.0 / size
    is_empty = h == 0
    double = jnp.where(is_empty, 0.0, (0.5 * jnp.sqrt(inverse)) * (square - size))
    triple = dw * ((square * inverse) * (1.0 / 6.0) - 0.5)
    return dw, double, mixed, triple


def _is_used(rows: Rows, i: int) -> bool:
    return any(len(row) > i and row[i] != 0 for row in rows)


def _sum(weights: Sequence[float], values: Sequence[MaybeArray]) -> MaybeArray:
    """Return sum_j weights[j] values[j]; None if all weights are zero."""
    total: MaybeArray = None
    for w, value in zip(weights, values, strict=True):
        if w and value is not None:
            total = _add(value if w == 1.0 else w * value, total)
    return total


def _add(a: Array, b: MaybeArray) -> Array:
    return a if b is None else a + b


def _scaled(factor: Array, x: MaybeArray) -> MaybeArray:
    return None if x is None else factor * x


def _needed(x: MaybeArray) -> Array:
    assert x is not None
    return x


def _later(t: Array, c: float, h: Array) -> Array:
    return t + c * h if c else t


@dataclasses.dataclass(frozen=True)
class SRIW1(StochasticRungeKutta):
    """Roessler's SRIW1: strong order 1.5, weak order 2, for diagonal or scalar noise.

    With diagonal noise, component i of the diffusion must depend on no other component of the
    state than i.
    """

    tableau: ClassVar[StochasticTableau] = _SRIW1
    noise_kinds: ClassVar[tuple[NoiseKind, ...]] = ("diagonal", "scalar")
    strong_order: ClassVar[float] = 1.5
    weak_order: ClassVar[float] = 2.0
    n_drifts: ClassVar[int] = 2
    reference: ClassVar[str] = "[Roe10] section 6, SRIW1"


@dataclasses.dataclass(frozen=True)
class SRA1(StochasticRungeKutta):
    """Roessler's SRA1: strong order 1.5, weak order 2, for additive noise of any kind."""

    tableau: ClassVar[StochasticTableau] = _SRA1
    noise_kinds: ClassVar[tuple[NoiseKind, ...]] = NOISE_KINDS
    is_additive_only: ClassVar[bool] = True
    strong_order: ClassVar[float] = 1.5
    weak_order: ClassVar[float] = 2.0
    n_drifts: ClassVar[int] = 2
    reference: ClassVar[str] = "[Roe10] section 6, SRA1"
