"""Rules of reductions, scans over an axis, sorting and contractions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.lanes.program_ir import Equation
from pullback.lanes.rules.elementwise import sortable
from pullback.lanes.values import BOOL, Value, object_array
from pullback.lanes.walk import Walk, rule

Combine = Callable[[Value, Value], Value]


def _combiner(b: Any, name: str) -> Combine:
    return {
        "sum": b.add,
        "prod": b.multiply,
        "max": b.maximum,
        "min": b.minimum,
        "and": lambda x, y: b.integer("and", x, y),
        "or": lambda x, y: b.integer("or", x, y),
        "xor": lambda x, y: b.integer("xor", x, y),
        "logsumexp": lambda x, y: _log_add_exp(b, x, y),
    }[name]


def _log_add_exp(b: Any, x: Value, y: Value) -> Value:
    raise NotImplementedError("cumlogsumexp")


def _neutral(name: str, dtype: np.dtype) -> Any:
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
        _combiner(walk.builder, name),
        walk.builder.constant(_neutral(name, dtype), dtype),
    )


@rule("argmax", "argmin")
def argmax(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Index of the first extremum; a NaN counts as one."""
    b, (axis,) = walk.builder, equation.params["axes"]
    dtype = np.dtype(equation.params["index_dtype"])
    order = "gt" if equation.primitive == "argmax" else "lt"
    rows = np.moveaxis(walk.arrays.registers(walk, inputs[0]), axis, -1)

    def first(row: np.ndarray) -> Value:
        best, index = row[0], b.constant(0, dtype)
        for i, x in enumerate(row[1:], 1):
            better = b.compare(order, x, best)
            if x.dtype.kind == "f":
                nan_now = b.integer("and", b.compare("ne", x, x), b.compare("eq", best, best))
                not_after_nan = b.compare("eq", best, best)
                better = b.integer("or", b.integer("and", better, not_after_nan), nan_now)
            best, index = b.select(better, x, best), b.select(better, b.constant(i, dtype), index)
        return index

    flat = rows.reshape(-1, rows.shape[-1])
    return object_array(rows.shape[:-1], [first(row) for row in flat])


@rule("cumsum", "cumprod", "cummax", "cummin")
def cumulative(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Combine with all that comes before along an axis."""
    combine = _combiner(walk.builder, equation.primitive.removeprefix("cum"))
    axis, x = equation.params["axis"], walk.arrays.registers(walk, inputs[0])
    rows = np.moveaxis(x, axis, 0)
    rows = rows[::-1] if equation.params["reverse"] else rows
    out = rows.copy()
    for i in range(1, rows.shape[0]):
        out[i : i + 1] = walk.map(combine, out[i - 1 : i], rows[i : i + 1])
    return np.moveaxis(out[::-1] if equation.params["reverse"] else out, 0, axis)


@rule("sort")
def sort(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Sort by compare-and-exchange of neighbours, which is stable; for small arrays."""
    b, axis, n_keys = walk.builder, equation.params["dimension"], equation.params["num_keys"]
    arrays = [np.moveaxis(walk.arrays.registers(walk, x), axis, -1).copy() for x in inputs]
    n = arrays[0].shape[-1]
    for where in np.ndindex(arrays[0].shape[:-1]):
        rows = [a[where] for a in arrays]
        for end in range(n - 1, 0, -1):
            for i in range(end):
                swap = _greater(b, [r[i] for r in rows[:n_keys]], [r[i + 1] for r in rows[:n_keys]])
                for r in rows:
                    low, high = r[i], r[i + 1]
                    r[i], r[i + 1] = b.select(swap, high, low), b.select(swap, low, high)
    return [np.moveaxis(a, -1, axis) for a in arrays]


def _greater(b: Any, left: list[Value], right: list[Value]) -> Value:
    """Lexicographic order of the keys."""
    result = b.constant(False, BOOL)
    for x, y in zip(reversed(left), reversed(right), strict=True):
        p, q = sortable(b, x), sortable(b, y)
        result = b.select(b.compare("eq", p, q), result, b.compare("gt", p, q))
    return result


@rule("dot_general")
def dot_general(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Contract axes of two arrays, accumulating in index order with fused multiply-adds."""
    ((contract_x, contract_y), (batch_x, batch_y)) = equation.params["dimension_numbers"]
    return walk.arrays.dot(
        walk, equation, inputs[0], inputs[1], contract_x, contract_y, batch_x, batch_y
    )
