"""Coefficients of symplectic methods for x'' = a(t, x), as checked and immutable data.

A step alternates kicks `v += dt kick[i] a(t, x)` and drifts `x += dt drift[i] v`, and the time at
which a is taken moves with the drifts. No step is taken here; the conditions that prove the orders
are those of `pullback.ode.coupled_conditions`, for the tables that `partitioned` writes.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

from pullback.ode.tableau import Number

__all__ = ["SymplecticTableau", "make_symplectic_tableau", "partitioned"]

_ROUNDING = 1e-14


@dataclasses.dataclass(frozen=True)
class SymplecticTableau:
    """Hold a method that begins and ends with a kick.

    Args:
        name: Name of the method.
        kicks: Weights of the accelerations; the last one is taken at the end of the step, where
            the next one begins.
        drifts: Weights of the velocities, one fewer.
        order: Order of the step.
        dense_order: Order of the cubic through both ends and their slopes.
        reference: Bib key in brackets and where to look.

    Raises:
        ValueError: The lengths do not belong together, the weights do not add up to one, or the
            step is not the same backward.
    """

    name: str
    kicks: tuple[float, ...]
    drifts: tuple[float, ...]
    order: int
    dense_order: int
    reference: str

    def __post_init__(self) -> None:
        if len(self.kicks) != len(self.drifts) + 1:
            raise ValueError(
                f"tableau {self.name}: `kicks` must be one more than `drifts`, got "
                f"{len(self.kicks)} and {len(self.drifts)}."
            )
        for field in ("kicks", "drifts"):
            weights = getattr(self, field)
            if abs(math.fsum(weights) - 1.0) > _ROUNDING * math.fsum(map(abs, weights)):
                raise ValueError(
                    f"tableau {self.name}: `{field}` must add up to 1, got {math.fsum(weights)!r}."
                )
            if weights != weights[::-1]:
                raise ValueError(
                    f"tableau {self.name}: `{field}` must read the same from both ends, so that a "
                    f"step can be taken back, got {weights}."
                )

    @property
    def nodes(self) -> tuple[float, ...]:
        """Where in the step each kick is taken: the first at 0, the last at 1."""
        inner = itertools.accumulate(self.drifts[:-1])
        return (0.0, *inner, 1.0)

    @property
    def n_stages(self) -> int:
        """Number of accelerations in a step, that of the step before included."""
        return len(self.kicks)


def make_symplectic_tableau(
    *,
    name: str,
    kicks: Sequence[Number],
    drifts: Sequence[Number],
    order: int,
    dense_order: int,
    reference: str,
) -> SymplecticTableau:
    """Build a tableau from exact numbers: every float is one rounded once."""
    return SymplecticTableau(
        name=name,
        kicks=tuple(float(Fraction(x)) for x in kicks),
        drifts=tuple(float(Fraction(x)) for x in drifts),
        order=order,
        dense_order=dense_order,
        reference=reference,
    )


def partitioned(
    kicks: Sequence[Fraction], drifts: Sequence[Fraction]
) -> tuple[tuple[list[list[Fraction]], ...], tuple[list[Fraction], ...]]:
    """Return the method as a partitioned Runge-Kutta method of x' = v and v' = a(x).

    Stage i has the position after i drifts and the velocity after i + 1 kicks.

    Returns:
        Rows of the matrix of the first and of the second equation, and their weights.
    """
    n = len(kicks)
    of_positions = [[*drifts[:i], *[Fraction(0)] * (n - i)] for i in range(n)]
    of_velocities = [[*kicks[: i + 1], *[Fraction(0)] * (n - i - 1)] for i in range(n)]
    return (of_positions, of_velocities), ([*drifts, Fraction(0)], list(kicks))
