"""Rosenbrock methods: linearly implicit, one factorisation and a solve for each stage.

A step is an explicit function of the Jacobian, so nothing inside it iterates or fails to converge.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp

from pullback.core.typing import Array, MaybeArray
from pullback.ode import tableaus
from pullback.ode.method import Step, TableauMethod
from pullback.ode.rosenbrock_tableau import RosenbrockTableau
from pullback.ode.stage_solve import StageMatrix, is_unstable, stage_matrix
from pullback.ode.step import interpolate

__all__ = ["Rodas4", "Rodas5P", "Rosenbrock", "Rosenbrock23"]


@dataclasses.dataclass(frozen=True)
class Rosenbrock(TableauMethod):
    """A Rosenbrock method; a subclass sets `tableau`."""

    tableau: ClassVar[RosenbrockTableau]

    @property
    def is_implicit(self) -> bool:
        """A step solves linear equations."""
        return True

    def step(self, system: Any, t: Array, y: Array, h: Array, k1: MaybeArray) -> Step:
        """Try a step of size h from (t, y)."""
        del k1
        matrix = stage_matrix(system, t, y, h, self.tableau.gamma)
        stages = self._stages(system, matrix, t, y, h)
        err = _sum(self.tableau.e, stages)
        return Step(self._end(y, stages), err, tuple(stages), is_unstable(matrix))

    def advance(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return only the state at the end of a step."""
        matrix = stage_matrix(system, t, y, h, self.tableau.gamma)
        return self._end(y, self._stages(system, matrix, t, y, h))

    def row(
        self, system: Any, t: Array, y: Array, h: Array, stages: Sequence[Array], time: Array
    ) -> Array:
        """Return the state at `time` inside a step.

        References:
            [HW96] eq. (IV.7.30).
        """
        inside = interpolate(self.tableau.dense, stages, (time - t) / h)
        return y if inside is None else y + inside

    def _stages(
        self, system: Any, matrix: StageMatrix, t: Array, y: Array, h: Array
    ) -> list[Array]:
        """Return the increments u of [HW96] eq. (IV.7.25)."""
        tableau, per_step = self.tableau, 1.0 / h
        drift = None if system.is_autonomous else system.time_derivative(t, y)
        stages: list[Array] = []
        rows = zip(tableau.a, tableau.c, tableau.alpha, tableau.gamma_sums, strict=True)
        for a, c, node, gamma_sum in rows:
            y_stage = y + _sum(a, stages) if any(a) else y
            right = system(t + node * h if node else t, y_stage)
            if any(c):
                right = right + per_step * system.mass_times(_sum(c, stages))
            if drift is not None and gamma_sum:
                right = right + (gamma_sum * h) * drift
            stages.append(matrix.solve(right))
        return stages

    def _end(self, y: Array, stages: Sequence[Array]) -> Array:
        return y + _sum(self.tableau.m, stages)


def _sum(weights: Sequence[float], stages: Sequence[Array]) -> Array:
    """Return sum_j weights[j] stages[j], the newest stage last."""
    total: MaybeArray = None
    for w, u in zip(weights, stages, strict=True):
        if w:
            term = u if w == 1.0 else w * u
            total = term if total is None else total + term
    return jnp.zeros_like(stages[0]) if total is None else total


@dataclasses.dataclass(frozen=True)
class Rosenbrock23(Rosenbrock):
    """Shampine and Reichelt's pair of order 2(3), for loose tolerances."""

    tableau: ClassVar[RosenbrockTableau] = tableaus.ROSENBROCK23


@dataclasses.dataclass(frozen=True)
class Rodas4(Rosenbrock):
    """Hairer and Wanner's stiffly accurate pair of order 4(3)."""

    tableau: ClassVar[RosenbrockTableau] = tableaus.RODAS4


@dataclasses.dataclass(frozen=True)
class Rodas5P(Rosenbrock):
    """Steinebach's stiffly accurate pair of order 5(4): the default for stiff problems."""

    tableau: ClassVar[RosenbrockTableau] = tableaus.RODAS5P
