"""Diagonally implicit Runge-Kutta methods: one factorisation a step, Newton's iteration a stage."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp

from pullback.core.typing import Array, MaybeArray
from pullback.ode import tableaus
from pullback.ode.dirk_tableau import DirkTableau
from pullback.ode.method import Step, TableauMethod
from pullback.ode.newton import stage_value
from pullback.ode.slope import slope
from pullback.ode.stage_solve import StageMatrix, is_unstable, stage_matrix
from pullback.ode.step import interpolate

__all__ = [
    "TRBDF2",
    "DiagonallyImplicit",
    "ImplicitEuler",
    "Kvaerno3",
    "Kvaerno5",
    "Trapezoid",
    "add_slopes",
    "weighted",
]


@dataclasses.dataclass(frozen=True)
class DiagonallyImplicit(TableauMethod):
    """A diagonally implicit method; a subclass sets `tableau`."""

    tableau: ClassVar[DirkTableau]

    @property
    def is_fsal(self) -> bool:
        """Whether the last stage is the first one of the next step."""
        return self.tableau.is_first_explicit and self.tableau.is_stiffly_accurate

    @property
    def is_implicit(self) -> bool:
        """A step solves equations."""
        return True

    def step(self, system: Any, t: Array, y: Array, h: Array, k1: MaybeArray) -> Step:
        """Try a step of size h from (t, y)."""
        matrix = stage_matrix(system, t, y, h, self.tableau.gamma)
        y1, stages, failed = self._stages(matrix, t, y, h, k1)
        return Step(y1, self._error(matrix, h, stages), tuple(stages), failed)

    def advance(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return only the state at the end of a step."""
        matrix = stage_matrix(system, t, y, h, self.tableau.gamma)
        return self._stages(matrix, t, y, h, None)[0]

    def row(
        self, system: Any, t: Array, y: Array, h: Array, stages: Sequence[Array], time: Array
    ) -> Array:
        """Return the state at `time` inside a step."""
        total = interpolate(self.tableau.dense, stages, (time - t) / h)
        return y if total is None else y + h * total

    def _stages(
        self, matrix: StageMatrix, t: Array, y: Array, h: Array, k1: MaybeArray
    ) -> tuple[Array, list[Array], Array]:
        """Return the state at the end, the slopes of the stages, and whether one failed."""
        tableau, system = self.tableau, matrix.system
        failed = is_unstable(matrix)
        stages: list[Array] = []
        value = y
        for a, node, predictor in zip(tableau.a, tableau.c, tableau.predictor, strict=True):
            time = t + node * h if node else t
            if not a[-1]:
                stages.append(slope(system, time, y) if k1 is None else k1)
                continue
            base = add_slopes(y, h, a[:-1], stages)
            guess = add_slopes(y, h, predictor, stages)
            value, is_lost = stage_value(matrix, time, base, guess)
            # Not f(value): where f is stiff, it would magnify what the iteration left.
            stages.append(matrix.inverse * (value - base))
            failed = failed | is_lost
        y1 = value if tableau.is_stiffly_accurate else add_slopes(y, h, tableau.b, stages)
        return y1, stages, failed

    def _error(self, matrix: StageMatrix, h: Array, stages: Sequence[Array]) -> MaybeArray:
        """Return the error estimate, damped where the problem is stiff.

        References:
            [HW96] eq. (IV.8.20).
        """
        if self.tableau.b_err is None:
            return None
        err = h * weighted(self.tableau.b_err, stages)
        if not self.tableau.filters_error:
            return err
        return matrix.solve(matrix.inverse * matrix.system.mass_times(err))


def add_slopes(y: Array, h: Array, weights: Sequence[float], stages: Sequence[Array]) -> Array:
    """Return y + h sum_j weights[j] stages[j]."""
    return y + h * weighted(weights, stages) if any(weights) else y


def weighted(weights: Sequence[float], stages: Sequence[Array]) -> Array:
    """Return sum_j weights[j] stages[j]."""
    total: MaybeArray = None
    for w, k in zip(weights, stages, strict=True):
        if w:
            total = w * k if total is None else total + w * k
    return jnp.zeros_like(stages[0]) if total is None else total


@dataclasses.dataclass(frozen=True)
class ImplicitEuler(DiagonallyImplicit):
    """The implicit Euler method, order 1."""

    tableau: ClassVar[DirkTableau] = tableaus.IMPLICIT_EULER


@dataclasses.dataclass(frozen=True)
class Trapezoid(DiagonallyImplicit):
    """The trapezoidal rule, order 2: symmetric, A-stable but not L-stable."""

    tableau: ClassVar[DirkTableau] = tableaus.TRAPEZOID


@dataclasses.dataclass(frozen=True)
class TRBDF2(DiagonallyImplicit):
    """Trapezoidal rule and second backward difference in one step, order 2, L-stable."""

    tableau: ClassVar[DirkTableau] = tableaus.TRBDF2


@dataclasses.dataclass(frozen=True)
class Kvaerno3(DiagonallyImplicit):
    """Kvaerno's stiffly accurate 3(2) pair."""

    tableau: ClassVar[DirkTableau] = tableaus.KVAERNO3


@dataclasses.dataclass(frozen=True)
class Kvaerno5(DiagonallyImplicit):
    """Kvaerno's stiffly accurate 5(4) pair."""

    tableau: ClassVar[DirkTableau] = tableaus.KVAERNO5
