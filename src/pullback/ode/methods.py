"""The explicit Runge-Kutta methods a user names: each is its tableau and nothing else.

A method of one's own is a frozen dataclass deriving from `ExplicitRungeKutta` with a `tableau`.
The numbers are in `pullback.ode.tableaus`, the step in `pullback.ode.step`.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from pullback.ode import tableaus
from pullback.ode.tableau import ButcherTableau

__all__ = [
    "RK4",
    "Bosh3",
    "Dopri5",
    "Euler",
    "ExplicitRungeKutta",
    "Heun",
    "Midpoint",
    "Tsit5",
    "Vern7",
]


@dataclasses.dataclass(frozen=True)
class ExplicitRungeKutta:
    """An explicit Runge-Kutta method; a subclass sets `tableau`."""

    tableau: ClassVar[ButcherTableau]

    @property
    def order(self) -> int:
        """Order of the step."""
        return self.tableau.order

    @property
    def has_error_estimate(self) -> bool:
        """Whether the method can choose its own step size."""
        return self.tableau.b_err is not None

    @property
    def error_order(self) -> int:
        """Exponent k of the local error estimate, err = O(h^k)."""
        tableau = self.tableau
        embedded = tableau.order if tableau.embedded_order is None else tableau.embedded_order
        return min(tableau.order, embedded) + 1


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
