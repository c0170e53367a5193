"""The explicit Runge-Kutta methods a user names: each is its tableau and nothing else.

A method of one's own is a frozen dataclass deriving from `ExplicitRungeKutta` with a `tableau`.
The numbers are in `pullback.ode.tableaus`, the step in `pullback.ode.step`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from pullback.core.typing import Array, MaybeArray
from pullback.ode import tableaus
from pullback.ode.method import Step, TableauMethod
from pullback.ode.step import advance, dense_output, take_step
from pullback.ode.tableau import ButcherTableau

__all__ = [
    "RK4",
    "Bosh3",
    "Dopri5",
    "Dopri8",
    "Euler",
    "ExplicitRungeKutta",
    "Heun",
    "Midpoint",
    "Tsit5",
    "Vern7",
    "Vern9",
]


@dataclasses.dataclass(frozen=True)
class ExplicitRungeKutta(TableauMethod):
    """An explicit Runge-Kutta method; a subclass sets `tableau`."""

    tableau: ClassVar[ButcherTableau]

    @property
    def n_row_evaluations(self) -> int:
        """Number of extra stages that dense output needs."""
        return self.tableau.n_dense_stages

    @property
    def is_fsal(self) -> bool:
        """Whether the last stage is the first one of the next step."""
        return self.tableau.fsal

    def step(self, system: Any, t: Array, y: Array, h: Array, k1: MaybeArray) -> Step:
        """Try a step of size h from (t, y)."""
        return take_step(self.tableau, system, t, y, h, k1)

    def advance(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return only the state at the end of a step."""
        return advance(self.tableau, system, t, y, h)

    def row(
        self, system: Any, t: Array, y: Array, h: Array, stages: Sequence[Array], time: Array
    ) -> Array:
        """Return the state at `time` inside a step."""
        return dense_output(self.tableau, system, t, y, h, stages, time)


@dataclasses.dataclass(frozen=True)
class Euler(ExplicitRungeKutta):
    """Euler's method, order 1."""

    tableau: ClassVar[ButcherTableau] = tableaus.EULER


@dataclasses.dataclass(frozen=True)
class Heun(ExplicitRungeKutta):
    """Heun's method, order 2."""

    tableau: ClassVar[ButcherTableau] = tableaus.HEUN


@dataclasses.dataclass(frozen=True)
class Midpoint(ExplicitRungeKutta):
    """The explicit midpoint rule, order 2."""

    tableau: ClassVar[ButcherTableau] = tableaus.MIDPOINT


@dataclasses.dataclass(frozen=True)
class RK4(ExplicitRungeKutta):
    """The classical Runge-Kutta method, order 4, fixed step."""

    tableau: ClassVar[ButcherTableau] = tableaus.RK4


@dataclasses.dataclass(frozen=True)
class Bosh3(ExplicitRungeKutta):
    """Bogacki and Shampine's 3(2) pair."""

    tableau: ClassVar[ButcherTableau] = tableaus.BOSH3


@dataclasses.dataclass(frozen=True)
class Tsit5(ExplicitRungeKutta):
    """Tsitouras' 5(4) pair: the default for problems that are not stiff."""

    tableau: ClassVar[ButcherTableau] = tableaus.TSIT5


@dataclasses.dataclass(frozen=True)
class Dopri5(ExplicitRungeKutta):
    """Dormand and Prince's 5(4) pair."""

    tableau: ClassVar[ButcherTableau] = tableaus.DOPRI5


@dataclasses.dataclass(frozen=True)
class Vern7(ExplicitRungeKutta):
    """Verner's "most efficient" 7(6) pair, for tight tolerances."""

    tableau: ClassVar[ButcherTableau] = tableaus.VERN7


@dataclasses.dataclass(frozen=True)
class Dopri8(ExplicitRungeKutta):
    """Dormand and Prince's 8(5) pair, for tight tolerances."""

    tableau: ClassVar[ButcherTableau] = tableaus.DOPRI8


@dataclasses.dataclass(frozen=True)
class Vern9(ExplicitRungeKutta):
    """Verner's "most efficient" 9(8) pair, for the tightest tolerances of float64."""

    tableau: ClassVar[ButcherTableau] = tableaus.VERN9
