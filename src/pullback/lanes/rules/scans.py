"""Rules that go along an axis and remember: cumulative operations and the place of an extremum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.lanes import elementary
from pullback.lanes.float_view import FloatView
from pullback.lanes.memory import Cut, Index, Node, at_position, nest
from pullback.lanes.program_ir import Equation
from pullback.lanes.rules.reduce import combiner, neutral
from pullback.lanes.values import Value, object_array
from pullback.lanes.walk import Walk, rule

_ALONG = 100
# A step of a cumulative logarithm of sums is long: beyond so many, a loop.
_FEW_LONG_STEPS = 4


def _along(arrays: Any, x: Any, axis: int) -> Node:
    """Return `x`, with `axis` last, in a form that loops can run along."""
    node = arrays.node(arrays.transpose(x, [*[a for a in range(x.ndim) if a != axis], axis]))
    try:
        node.check([Index(k, None, 0, 0, n) for k, n in enumerate(node.shape)])
    except Cut:
        return arrays.in_memory(node)
    return node


# -- the place of an extremum --------------------------------------------------------------------
@rule("argmax", "argmin")
def argmax(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Index of the first extremum; a NaN counts as one."""
    b, (axis,) = walk.builder, equation.params["axes"]
    dtype = np.dtype(equation.params["index_dtype"])
    order = "gt" if equation.primitive == "argmax" else "lt"
    if isinstance(inputs[0], np.ndarray):
        rows = np.moveaxis(inputs[0], axis, -1)
        flat = rows.reshape(-1, rows.shape[-1])
        return object_array(rows.shape[:-1], [_first(b, row, order, dtype) for row in flat])
    x = _along(walk.arrays, inputs[0], axis)
    target = walk.arrays.fresh(x.shape[:-1], dtype)

    def find(outer: list[Index]) -> None:
        begin = [x.at([*outer, at_position(0)]), b.constant(0, dtype)]
        with b.accumulating(x.shape[-1], begin) as (k, (best, index), results):
            value = x.at([*outer, Index(_ALONG, k, 0, 0, x.shape[-1])])
            better = _is_better(b, order, value, best)
            results += [
                b.select(better, value, best),
                b.select(better, b.convert(k, dtype), index),
            ]
        target.store(outer, results[1])

    nest(b, [(0, n) for n in x.shape[:-1]], find)
    return walk.arrays.settle_small(target)


def _first(b: Any, row: np.ndarray, order: str, dtype: np.dtype) -> Value:
    best, index = row[0], b.constant(0, dtype)
    for i, x in enumerate(row[1:], 1):
        better = _is_better(b, order, x, best)
        best, index = b.select(better, x, best), b.select(better, b.constant(i, dtype), index)
    return index


def _is_better(b: Any, order: str, x: Value, best: Value) -> Value:
    better = b.compare(order, x, best)
    if x.dtype.kind != "f":
        return better
    not_after_nan = b.compare("eq", best, best)
    is_first_nan = b.integer("and", b.compare("ne", x, x), not_after_nan)
    return b.integer("or", b.integer("and", better, not_after_nan), is_first_nan)


# -- cumulative operations -----------------------------------------------------------------------
@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def cumulative(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Combine with all that comes before along an axis."""
    name, x = equation.primitive.removeprefix("cum"), inputs[0]
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    is_long, dtype = name == "logsumexp", np.dtype(equation.inputs[0].aval.dtype)
    combine = _log_add_exp(walk.builder, dtype) if is_long else combiner(walk.builder, name)
    if isinstance(x, np.ndarray) and not (is_long and x.size > _FEW_LONG_STEPS):
        return _written_out(walk, x, axis, reverse, combine)
    return _looped(walk, x, axis, reverse, combine, name)


def _written_out(
    walk: Walk, x: np.ndarray, axis: int, reverse: bool, combine: Callable[..., Value]
) -> np.ndarray:
    rows = np.moveaxis(x, axis, 0)
    rows = rows[::-1] if reverse else rows
    out = rows.copy()
    for i in range(1, rows.shape[0]):
        out[i : i + 1] = walk.map(combine, out[i - 1 : i], rows[i : i + 1])
    return np.moveaxis(out[::-1] if reverse else out, 0, axis)


def _looped(
    walk: Walk, x: Any, axis: int, reverse: bool, combine: Callable[..., Value], name: str
) -> Any:
    b, arrays = walk.builder, walk.arrays
    if reverse:
        x = arrays.reverse(x, [axis])
    source = _along(arrays, x, axis)
    target = arrays.fresh(source.shape, source.dtype)
    n = source.shape[-1]
    begin = b.constant(_beginning(name, np.dtype(source.dtype)), source.dtype)

    def run(outer: Sequence[Index]) -> None:
        with b.accumulating(n, [begin]) as (k, (total,), results):
            index = [*outer, Index(_ALONG, k, 0, 0, n)]
            results.append(combine(total, source.at(index)))
            target.store(index, results[0])

    nest(b, [(0, m) for m in source.shape[:-1]], run)
    order = [*range(axis), source.ndim - 1, *range(axis, source.ndim - 1)]
    result = arrays.transpose(target, order)
    return arrays.reverse(result, [axis]) if reverse else result


def _beginning(name: str, dtype: np.dtype) -> Any:
    """Return what leaves every first element as it is, bit for bit."""
    if name == "logsumexp":
        return -np.inf
    return -0.0 if name == "sum" and dtype.kind == "f" else neutral(name, dtype)


def _log_add_exp(b: Any, dtype: np.dtype) -> Callable[[Value, Value], Value]:
    view = FloatView(b, dtype)
    (exp, _), (log1p, _) = elementary.FUNCTIONS["exp"], elementary.FUNCTIONS["log1p"]

    def combine(x: Value, y: Value) -> Value:
        gap = b.subtract(x, y)
        rest = log1p(view, exp(view, b.negate(b.intrinsic("fabs", gap))))
        total = b.add(b.maximum(x, y), rest)
        # Infinities of one sign, or NaN.
        return b.select(b.compare("ne", gap, gap), b.plain("fadd", x, y), total)

    return combine
