"""Rules of reductions and contractions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.lanes.program_ir import Equation
from pullback.lanes.values import Value
from pullback.lanes.walk import Walk, rule

Combine = Callable[[Value, Value], Value]


def combiner(b: Any, name: str) -> Combine:
    """Return the function of two values that a reduction repeats."""
    return {
        "sum": b.add,
        "prod": b.multiply,
        "max": b.maximum,
        "min": b.minimum,
        "and": lambda x, y: b.integer("and", x, y),
        "or": lambda x, y: b.integer("or", x, y),
        "xor": lambda x, y: b.integer("xor", x, y),
    }[name]


def neutral(name: str, dtype: np.dtype) -> Any:
    """Return the number that a reduction begins with."""
    if name == "max":
        return (
            -np.inf if dtype.kind == "f" else (False if dtype.kind == "b" else np.iinfo(dtype).min)
        )
    if name == "min":
        return np.inf if dtype.kind == "f" else (True if dtype.kind == "b" else np.iinfo(dtype).max)
    return {"sum": 0, "prod": 1, "or": 0, "xor": 0}.get(name, np.array(-1).astype(dtype))


@rule(
    "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor"
)
def reduce(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Combine along axes, in index order."""
    name = equation.primitive.removeprefix("reduce_")
    dtype = np.dtype(equation.outputs[0].dtype)
    return walk.arrays.reduce(
        walk,
        inputs[0],
        equation.params["axes"],
        combiner(walk.builder, name),
        walk.builder.constant(neutral(name, dtype), dtype),
    )


@rule("dot_general")
def dot_general(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Contract axes of two arrays, accumulating in index order with fused multiply-adds."""
    ((contract_x, contract_y), (batch_x, batch_y)) = equation.params["dimension_numbers"]
    return walk.arrays.dot(
        walk, equation, inputs[0], inputs[1], contract_x, contract_y, batch_x, batch_y
    )
