"""Rules of linear systems: which body a factorisation gets, chosen while the kernel is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.lanes.dense_lu import DenseFactors
from pullback.lanes.elimination import plan_elimination
from pullback.lanes.factors import ExchangedFactors, StaticFactors, WalkFactors
from pullback.lanes.program_ir import Equation
from pullback.lanes.values import scalar
from pullback.lanes.walk import Walk, rule

# Exchanges by selects cost 4 % of a step with 3 unknowns, and 20 to 90 % with 8.
EXCHANGED_SIZE = 3
# Multiply-adds of a factorisation with its solves: so many unrolled ones take about as long as the
# loops of a dense factorisation (measured for dense matrices of 16), and compile as fast.
UNROLLED_COST = 6_000
# Beyond this, unrolled code takes too long to compile even for who asks for it.
STATIC_COST = 4 * UNROLLED_COST


@rule("lane_lu")
def factorise(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Eliminate; all results but the growth are one object that only solves understand."""
    if len(equation.outputs[0].shape) > 1:
        raise NotImplementedError("`vmap` over matrices inside a lane")
    dtype = np.dtype(equation.outputs[0].dtype)
    factors = _factors(walk, inputs, equation.params["pivot"], dtype)
    return [*[factors] * (len(inputs) + 1), scalar(factors.growth)]


def _factors(walk: Walk, columns: Sequence[Any], pivot: str, dtype: np.dtype) -> WalkFactors:
    n, builder = len(columns), walk.builder
    if pivot != "static" and n <= EXCHANGED_SIZE:
        return ExchangedFactors(builder, _in_registers(walk, columns))
    most = {"pivoted": 0, "auto": UNROLLED_COST, "static": STATIC_COST}[pivot]
    if most and walk.arrays.fits((n,)):
        plan = plan_elimination(np.stack([_pattern(column) for column in columns], axis=1))
        if plan is not None and plan.cost <= most:
            walk.unrolled_matrix = max(walk.unrolled_matrix, n)
            return StaticFactors(builder, _in_registers(walk, columns), plan)
    return DenseFactors(walk, columns, dtype)


def _in_registers(walk: Walk, columns: Sequence[Any]) -> np.ndarray:
    return np.stack([walk.arrays.registers(walk, column) for column in columns], axis=1)


def _pattern(column: Any) -> np.ndarray:
    """Tell which elements may be non-zero: in memory, nothing is known."""
    if not isinstance(column, np.ndarray):
        return np.ones(column.shape, bool)
    return np.array([not value.structural for value in column])


@rule("lane_lsolve")
def solve(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Solve with the factors, whichever body made them."""
    factors, b = inputs[0], inputs[-1]
    if not isinstance(factors, WalkFactors):
        raise NotImplementedError("factors that no `factorise` of the same program made")
    return factors.solve(walk, b, trans=equation.params["trans"])
