"""Coefficients of additive (implicit-explicit) Runge-Kutta methods, as checked and immutable data.

The implicit half is a diagonally implicit tableau; what is added is the matrix of the explicit
half. Both have the same weights and nodes. The conditions that prove the order of the pair are
those of `pullback.ode.coupled_conditions`. No step is taken here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction

from pullback.ode.dirk_tableau import DirkTableau
from pullback.ode.tableau import Number

__all__ = ["AdditiveTableau", "make_additive_tableau"]

_ROUNDING = 1e-14


@dataclasses.dataclass(frozen=True)
class AdditiveTableau:
    """Hold two Runge-Kutta methods that take one step together.

    Stage i is `Y[i] = y + dt sum_{j < i} explicit[i][j] kE[j] + dt sum_{j <= i} a[i][j] kI[j]`
    with the slopes kE and kI of the two parts at (t + c[i] dt, Y[i]), where a, c and all weights
    are those of `implicit`; the step, its error estimate and its dense output are those of
    `implicit` for the slopes kE + kI.

    Args:
        implicit: The implicit half; its first stage is explicit.
        explicit: Strictly lower rows of the explicit half: row i has i entries.

    Raises:
        ValueError: Rows have a wrong length, or their sums are not the nodes of `implicit`.
    """

    implicit: DirkTableau
    explicit: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        lengths = tuple(map(len, self.explicit))
        if lengths != tuple(range(self.n_stages)) or not self.implicit.is_first_explicit:
            raise ValueError(
                f"tableau {self.name}: `explicit` must have rows of length "
                f"{tuple(range(self.n_stages))} to go with an explicit first stage, got {lengths}."
            )
        for i, (row, node) in enumerate(zip(self.explicit, self.implicit.c, strict=True)):
            if abs(math.fsum(row) - node) > _ROUNDING * max(1.0, math.fsum(map(abs, row))):
                raise ValueError(
                    f"tableau {self.name}: row {i} of `explicit` must sum to the node {node!r} of "
                    f"the implicit half, got {math.fsum(row)!r}."
                )

    @property
    def name(self) -> str:
        """Name of the method."""
        return self.implicit.name

    @property
    def order(self) -> int:
        """Order of the step."""
        return self.implicit.order

    @property
    def embedded_order(self) -> int | None:
        """Order of the embedded weights."""
        return self.implicit.embedded_order

    @property
    def dense_order(self) -> int:
        """Order of the dense output, for every theta."""
        return self.implicit.dense_order

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return self.implicit.n_stages

    @property
    def reference(self) -> str:
        """Bib key in brackets and where to look."""
        return self.implicit.reference


def make_additive_tableau(
    implicit: DirkTableau, explicit: Sequence[Sequence[Number]]
) -> AdditiveTableau:
    """Build a tableau from exact numbers: every float is one rounded once."""
    rows = tuple(tuple(float(Fraction(x)) for x in row) for row in explicit)
    return AdditiveTableau(implicit, rows)
