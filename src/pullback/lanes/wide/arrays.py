"""Operations on arrays whose elements are places in vectors: one instruction for a whole array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.lanes import elementary
from pullback.lanes.memory import Node, Registers
from pullback.lanes.program_ir import Equation
from pullback.lanes.registers import RegisterArrays
from pullback.lanes.values import Value, object_array
from pullback.lanes.wide.builder import WideBuilder
from pullback.lanes.wide.elements import assemble, scalar_of, spread_out

__all__ = ["LEAST_VECTOR", "WideArrays"]

# Smaller arrays are scalars: moving them in and out of a vector costs more than it saves.
LEAST_VECTOR = 4


class WideArrays(RegisterArrays):
    """Arrays as object arrays of elements; see `elements`."""

    builder: WideBuilder

    def __init__(self, builder: WideBuilder) -> None:
        super().__init__(builder, _no_storage)

    def settle(self, x: Any, n_uses: int) -> Any:
        """Return the array as it is: nothing here is evaluated late."""
        del n_uses
        return x

    def node(self, x: Any) -> Node:
        """Return the array as the indexing rules want it."""
        return Registers(x, x.ravel()[0].dtype)

    def in_memory(self, x: Any) -> Any:
        """Refuse: arrays are in registers only."""
        raise NotImplementedError("an index that is computed in the step")

    packed = in_memory
    copied = in_memory

    def elementwise(
        self, walk: Any, equation: Equation, function: Callable[..., Value], inputs: Sequence[Any]
    ) -> Any:
        """Apply a function of scalars to whole arrays."""
        shape = tuple(equation.outputs[0].shape)
        inputs = [np.broadcast_to(x, shape) for x in inputs]
        if equation.primitive in ("add", "add_any"):
            merged = _disjoint_sum(*inputs)
            if merged is not None:
                return merged
        least = 1 if equation.primitive in elementary.FUNCTIONS else LEAST_VECTOR
        return self.apply(function, *inputs, least=least)

    def apply(
        self, function: Callable[..., Value], *inputs: np.ndarray, least: int = LEAST_VECTOR
    ) -> np.ndarray:
        """Apply a function of scalars to arrays of one shape, as vectors from `least` elements."""
        b, shape, n = self.builder, inputs[0].shape, inputs[0].size
        flat = [x.ravel().tolist() for x in inputs]
        dtype = flat[0][0].dtype
        if n < LEAST_VECTOR <= least:
            items = [function(*[scalar_of(b, x) for x in row]) for row in zip(*flat, strict=True)]
            b.cost += n
            return object_array(shape, items)
        values = [assemble(b, x) for x in flat]
        if not all(v.uniform for v in values):
            with b.at_width(n, dtype):
                return spread_out(b, function(*values), shape)
        with b.at_width(1, dtype):
            if least < LEAST_VECTOR:
                # Branches of the elementary functions are written for vectors.
                values = [v if v.is_constant else Value(b.operand(v), v.dtype) for v in values]
            result = function(*values)
            if not result.uniform:
                result = Value(b.extract(result, 0), result.dtype, uniform=True)
        return spread_out(b, result, shape)

    def reduce(
        self,
        walk: Any,
        x: Any,
        axes: Sequence[int],
        combine: Callable[[Value, Value], Value],
        neutral: Value,
    ) -> Any:
        """Combine along `axes`, halving each time: the order depends on the shape only."""
        kept = [a for a in range(x.ndim) if a not in axes]
        shape = tuple(x.shape[a] for a in kept)
        rows = np.transpose(x, [*kept, *axes]).reshape(*shape, -1)
        while rows.shape[-1] > 1:
            half = rows.shape[-1] // 2
            sums = self.apply(combine, rows[..., :half], rows[..., half : 2 * half])
            rows = np.concatenate([sums, rows[..., 2 * half :]], -1)
        return rows[..., 0] if shape else object_array((), [rows[0]])

    def dot(
        self,
        walk: Any,
        equation: Equation,
        x: Any,
        y: Any,
        contract_x: Sequence[int],
        contract_y: Sequence[int],
        batch_x: Sequence[int],
        batch_y: Sequence[int],
    ) -> Any:
        """Contract axes pairwise: fused multiply-adds of whole results, or a sum of products."""
        b, out = self.builder, equation.outputs[0]
        dtype, shape = np.dtype(out.dtype), tuple(out.shape)
        if any(np.dtype(a.aval.dtype) != dtype for a in equation.inputs):
            raise NotImplementedError("a product of two types of numbers")
        free_x = [a for a in range(x.ndim) if a not in (*contract_x, *batch_x)]
        free_y = [a for a in range(y.ndim) if a not in (*contract_y, *batch_y)]
        n_batch, n_x = len(batch_x), len(free_x)
        left = np.transpose(x, [*batch_x, *free_x, *contract_x])
        left = left.reshape(*shape[: n_batch + n_x], *([1] * len(free_y)), -1)
        right = np.transpose(y, [*batch_y, *free_y, *contract_y])
        right = right.reshape(*shape[:n_batch], *([1] * n_x), *shape[n_batch + n_x :], -1)
        n_terms = left.shape[-1]
        left, right = (np.broadcast_to(v, (*shape, n_terms)) for v in (left, right))
        if int(np.prod(shape, dtype=np.int64)) < LEAST_VECTOR <= n_terms:
            products = self.apply(b.multiply, left, right)
            return self.reduce(walk, products, [len(shape)], b.add, b.constant(0, dtype))

        def fused(p: Value, q: Value, r: Value) -> Value:
            return b.add(r, b.multiply(p, q))

        total = self.filled(b.constant(0, dtype), shape)
        for k in range(n_terms):
            terms = left[..., k], right[..., k]
            total = self.apply(fused, *map(_whole, terms), total)
        return total

    def filled(self, value: Value, shape: tuple[int, ...]) -> np.ndarray:
        """Return an array whose elements are all `value`."""
        return spread_out(self.builder, value, shape)


def _whole(x: Any) -> np.ndarray:
    return x if isinstance(x, np.ndarray) else object_array((), [x])


def _no_storage(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    raise NotImplementedError("an index that is computed in the step, into more than 16 numbers")


def _disjoint_sum(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Return x + y if at every place one of the two is padding, so that nothing is computed."""
    out = []
    for p, q in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True):
        if not (p.structural or q.structural):
            return None
        out.append(q if p.structural else p)
    return object_array(x.shape, out)
