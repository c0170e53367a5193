"""Additive Runge-Kutta methods: one part of the vector field implicit, the other one explicit.

Stages are those of a diagonally implicit method for the stiff part, with what the other part has
done so far added to their base. A problem that is not split is all stiff part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from pullback.core.typing import Array, MaybeArray
from pullback.ode import tableaus
from pullback.ode.additive_tableau import AdditiveTableau
from pullback.ode.dirk import add_slopes, weighted
from pullback.ode.method import Step, TableauMethod
from pullback.ode.newton import stage_value
from pullback.ode.slope import slope
from pullback.ode.stage_solve import StageMatrix, is_unstable, stage_matrix
from pullback.ode.step import interpolate

__all__ = ["AdditiveRungeKutta", "KenCarp3", "KenCarp4"]


@dataclasses.dataclass(frozen=True)
class AdditiveRungeKutta(TableauMethod):
    """An additive method; a subclass sets `tableau`."""

    tableau: ClassVar[AdditiveTableau]

    @property
    def is_implicit(self) -> bool:
        """A step solves equations."""
        return True

    def step(self, system: Any, t: Array, y: Array, h: Array, k1: MaybeArray) -> Step:
        """Try a step of size h from (t, y)."""
        del k1
        implicit = self.tableau.implicit
        slopes, failed = self._slopes(system, t, y, h)
        err = None if implicit.b_err is None else h * weighted(implicit.b_err, slopes)
        return Step(add_slopes(y, h, implicit.b, slopes), err, tuple(slopes), failed)

    def advance(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return only the state at the end of a step."""
        return add_slopes(y, h, self.tableau.implicit.b, self._slopes(system, t, y, h)[0])

    def row(
        self, system: Any, t: Array, y: Array, h: Array, stages: Sequence[Array], time: Array
    ) -> Array:
        """Return the state at `time` inside a step."""
        total = interpolate(self.tableau.implicit.dense, stages, (time - t) / h)
        return y if total is None else y + h * total

    def _slopes(self, system: Any, t: Array, y: Array, h: Array) -> tuple[list[Array], Array]:
        """Return the slopes of all stages, both parts together, and whether one failed."""
        tableau, stiff = self.tableau.implicit, system.stiff_part
        matrix = stage_matrix(stiff, t, y, h, tableau.gamma)
        failed = is_unstable(matrix)
        slow: list[Array] = []
        fast: list[Array] = []
        for i, (a, node) in enumerate(zip(tableau.a, tableau.c, strict=True)):
            time = t + node * h if node else t
            if i == 0:
                value = y
                fast.append(slope(stiff, time, y))
            else:
                base = add_slopes(y, h, a[:-1], fast)
                if slow:
                    base = add_slopes(base, h, self.tableau.explicit[i], slow)
                value, is_lost = self._stage(matrix, i, time, h, base, fast)
                # Not f(value): where f is stiff, it would magnify what the iteration left.
                fast.append(matrix.inverse * (value - base))
                failed = failed | is_lost
            other = system.other_part(time, value)
            if other is not None:
                slow.append(other)
        if not slow:
            return fast, failed
        return [a + b for a, b in zip(slow, fast, strict=True)], failed

    def _stage(
        self, matrix: StageMatrix, i: int, time: Array, h: Array, base: Array, fast: list[Array]
    ) -> tuple[Array, Array]:
        tableau = self.tableau.implicit
        # What the predictor adds to the slopes so far is the slope that it expects here.
        expected = [p - a for p, a in zip(tableau.predictor[i], tableau.a[i], strict=False)]
        return stage_value(matrix, time, base, add_slopes(base, h, expected, fast))


@dataclasses.dataclass(frozen=True)
class KenCarp3(AdditiveRungeKutta):
    """Kennedy and Carpenter's 3(2) pair, for loose tolerances."""

    tableau: ClassVar[AdditiveTableau] = tableaus.KENCARP3


@dataclasses.dataclass(frozen=True)
class KenCarp4(AdditiveRungeKutta):
    """Kennedy and Carpenter's 4(3) pair."""

    tableau: ClassVar[AdditiveTableau] = tableaus.KENCARP4
