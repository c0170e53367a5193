"""Factors of a matrix in registers: unrolled elimination that leaves structural zeros out.

Two bodies: `ExchangedFactors` compares candidates for each pivot and exchanges rows by selects
(for tiny matrices), `StaticFactors` follows a plan made from the pattern. Both keep the reciprocals
of the diagonal, so that solves do not divide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.core.errors import UnsupportedPrimitive
from pullback.lanes.elimination import Plan
from pullback.lanes.values import Value, object_array


class WalkFactors:
    """What stands for a factorisation in the walk, in place of every result of `lane_lu`.

    Not an array: it may be read where it is visible, also inside loops, but no loop can carry it.
    """

    growth: Value

    def solve(self, walk: Any, b: Any, *, trans: bool) -> Any:
        """Return the solution for one right-hand side."""
        raise NotImplementedError

    @property
    def shape(self) -> Any:
        """Whoever asks wants to carry, return or compute with the numbers."""
        raise UnsupportedPrimitive(
            "`EnsembleKernel` cannot carry the factors of a matrix through a loop, return them, or "
            "solve under `vmap` with them: call `factorise` where they are used, and `solve` for "
            "one right-hand side"
        )

    ravel = shape


class UnrolledFactors(WalkFactors):
    """Triangular factors as values: L below the diagonal of ones, U above, 1/U_kk on it."""

    def __init__(self, lu: np.ndarray, growth: Value) -> None:
        self.lu = lu
        self.growth = growth

    def solve(self, walk: Any, b: Any, *, trans: bool) -> Any:
        """Substitute forwards and backwards; zeros of the factors and of `b` cost nothing."""
        x = list(walk.arrays.registers(walk, b))
        builder, n = walk.builder, len(x)
        x = self.begun(builder, x, trans=trans)
        matrix = self.lu.T if trans else self.lu
        for i in range(n):
            for j in range(i):
                x[i] = minus_product(builder, x[i], matrix[i, j], x[j])
            if trans:
                x[i] = scaled(builder, x[i], matrix[i, i])
        for i in range(n - 1, -1, -1):
            for j in range(n - 1, i, -1):
                x[i] = minus_product(builder, x[i], matrix[i, j], x[j])
            if not trans:
                x[i] = scaled(builder, x[i], matrix[i, i])
        return object_array((n,), self.ended(builder, x, trans=trans))

    def begun(self, builder: Any, b: list[Value], *, trans: bool) -> list[Value]:
        """Return the right-hand side in the order of elimination."""
        raise NotImplementedError

    def ended(self, builder: Any, x: list[Value], *, trans: bool) -> list[Value]:
        """Return the solution in the order of the matrix."""
        raise NotImplementedError


class StaticFactors(UnrolledFactors):
    """Eliminated in an order chosen beforehand, without exchanges."""

    def __init__(self, builder: Any, matrix: np.ndarray, plan: Plan) -> None:
        self.plan = plan
        lu = matrix[np.ix_(plan.rows, plan.columns)].copy()
        growth = builder.constant(1, lu[0, 0].dtype)
        for k in range(len(lu)):
            for multiplier in eliminate(builder, lu, k):
                size = builder.intrinsic("fabs", multiplier)
                # A NaN is passed over: it is in the solution, where it is looked for anyway.
                growth = builder.select(builder.compare("gt", size, growth), size, growth)
        super().__init__(lu, growth)

    def begun(self, builder: Any, b: list[Value], *, trans: bool) -> list[Value]:
        """Take the rows of the matrix; the columns, if transposed."""
        return [b[i] for i in (self.plan.columns if trans else self.plan.rows)]

    def ended(self, builder: Any, x: list[Value], *, trans: bool) -> list[Value]:
        """Put back what belongs to the columns; the rows, if transposed."""
        placed = dict(zip(self.plan.rows if trans else self.plan.columns, x, strict=True))
        return [placed[i] for i in range(len(x))]


class ExchangedFactors(UnrolledFactors):
    """Eliminated with exchanges of rows in each lane, by selects."""

    def __init__(self, builder: Any, matrix: np.ndarray) -> None:
        lu = matrix.copy()
        self.exchanges: list[tuple[int, int, Value]] = []
        for k in range(len(lu)):
            for i in range(k + 1, len(lu)):
                self._exchange(builder, lu, k, i)
            eliminate(builder, lu, k)
        super().__init__(lu, builder.constant(1, lu[0, 0].dtype))

    def _exchange(self, builder: Any, lu: np.ndarray, k: int, i: int) -> None:
        """Let row `i` be row `k` in lanes where it has the larger pivot."""
        here, other = lu[k, k], lu[i, k]
        if other.structural:
            return
        if here.structural:
            swap = builder.constant(True, np.dtype(np.bool_))
        else:
            size, other_size = (builder.intrinsic("fabs", v) for v in (here, other))
            swap = builder.compare("gt", other_size, size)
        self.exchanges.append((k, i, swap))
        rows = [exchanged(builder, swap, p, q) for p, q in zip(lu[k], lu[i], strict=True)]
        lu[k], lu[i] = (object_array((len(lu),), list(row)) for row in zip(*rows, strict=True))

    def begun(self, builder: Any, b: list[Value], *, trans: bool) -> list[Value]:
        """Exchange as the rows were; nothing if transposed."""
        return b if trans else self._swapped(builder, b, self.exchanges)

    def ended(self, builder: Any, x: list[Value], *, trans: bool) -> list[Value]:
        """Exchange back, if transposed."""
        return self._swapped(builder, x, self.exchanges[::-1]) if trans else x

    @staticmethod
    def _swapped(
        builder: Any, x: list[Value], exchanges: Sequence[tuple[int, int, Value]]
    ) -> list[Value]:
        x = list(x)
        for k, i, swap in exchanges:
            x[k], x[i] = exchanged(builder, swap, x[k], x[i])
        return x


def eliminate(builder: Any, lu: np.ndarray, k: int) -> list[Value]:
    """Eliminate column `k` below the diagonal, in place, and return the multipliers."""
    reciprocal = builder.divide(builder.constant(1, lu[k, k].dtype), lu[k, k])
    lu[k, k] = reciprocal
    multipliers = []
    for i in range(k + 1, len(lu)):
        if lu[i, k].structural:
            continue
        lu[i, k] = builder.multiply(lu[i, k], reciprocal)
        multipliers.append(lu[i, k])
        for j in range(k + 1, len(lu)):
            lu[i, j] = minus_product(builder, lu[i, j], lu[i, k], lu[k, j])
    return multipliers


def exchanged(builder: Any, swap: Value, x: Value, y: Value) -> tuple[Value, Value]:
    """Return both values, in the other order where `swap` holds."""
    return builder.select(swap, y, x), builder.select(swap, x, y)


def scaled(builder: Any, x: Value, factor: Value) -> Value:
    """Return ``x * factor`` as a number of its own, which no later addition takes apart."""
    if x.structural or (factor.is_constant and factor.constant == 1):
        return x
    return builder.plain("fmul", x, factor)


def minus_product(builder: Any, z: Value, x: Value, y: Value) -> Value:
    """Return ``z - x*y`` with one rounding; structural zeros cost nothing."""
    if x.structural or y.structural:
        return z
    if z.structural:
        return builder.multiply(builder.negate(x), y)
    return builder.fma(builder.negate(x), y, z)
