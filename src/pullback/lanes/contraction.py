"""Contractions of large arrays: a register block of results, or products inside a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.lanes.memory import Expression, Index, Node, Remapped, Strided
from pullback.lanes.values import INT64, Value

_VECTOR_REGISTERS_FOR_SUMS = 8

Axes = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]


def contract(arrays: Any, x: Any, y: Any, axes: Axes, dtype: np.dtype) -> Any:
    """Return the contraction of two arrays as memory or, without contracted axes, lazily."""
    contract_x, contract_y, batch_x, _ = axes
    left, right = arrays.node(x), arrays.node(y)
    if not contract_x:
        return _product(arrays, left, right, axes, dtype)[0]
    if len(contract_x) == 1 and not batch_x:
        for matrix, vector, axis in (
            (left, right, contract_x[0]),
            (right, left, contract_y[0]),
        ):
            shared = isinstance(matrix, Strided) and matrix.shared
            if shared and matrix.ndim == 2 and vector.ndim == 1 and matrix.dtype == dtype:
                return _matrix_vector(arrays, matrix, axis, vector)
    product, n_contracted = _product(arrays, left, right, axes, dtype)
    b = arrays.builder
    summed = list(range(product.ndim - n_contracted, product.ndim))
    return arrays.reduce_node(product, summed, b.add, b.constant(0, dtype))


def _product(arrays: Any, x: Node, y: Node, axes: Axes, dtype: np.dtype) -> tuple[Expression, int]:
    """Return the products over (batch, free of x, free of y, contracted)."""
    contract_x, contract_y, batch_x, batch_y = axes
    b = arrays.builder
    x, y = arrays.fixed(x), arrays.fixed(y)
    free_x = [a for a in range(x.ndim) if a not in (*contract_x, *batch_x)]
    free_y = [a for a in range(y.ndim) if a not in (*contract_y, *batch_y)]
    n_batch, n_x, n_y = len(batch_x), len(free_x), len(free_y)
    shape = (
        *[x.shape[a] for a in batch_x],
        *[x.shape[a] for a in free_x],
        *[y.shape[a] for a in free_y],
        *[x.shape[a] for a in contract_x],
    )

    def placer(order: Sequence[int], positions: Sequence[int], ndim: int) -> Any:
        def place(index: Sequence[Index]) -> list[Index]:
            out: list[Any] = [None] * ndim
            for axis, position in zip(order, positions, strict=True):
                out[axis] = index[position]
            return out

        return place

    head = list(range(n_batch))
    tail = list(range(n_batch + n_x + n_y, len(shape)))
    from_x = [*head, *range(n_batch, n_batch + n_x), *tail]
    from_y = [*head, *range(n_batch + n_x, n_batch + n_x + n_y), *tail]
    wide_x = Remapped(x, shape, placer([*batch_x, *free_x, *contract_x], from_x, x.ndim))
    wide_y = Remapped(y, shape, placer([*batch_y, *free_y, *contract_y], from_y, y.ndim))

    def multiply(p: Value, q: Value) -> Value:
        return b.multiply(b.convert(p, dtype), b.convert(q, dtype))

    return Expression(multiply, [wide_x, wide_y], shape, dtype), len(contract_x)


def _matrix_vector(arrays: Any, matrix: Strided, contracted: int, vector: Any) -> Strided:
    """Multiply a matrix that all lanes share with a vector of each lane.

    Stages of a method multiply with the same matrix again and again: the loops are a function of
    their own, emitted once for each form.
    """
    b = arrays.builder
    x = arrays.in_memory(vector)
    n_out = matrix.shape[1 - contracted]
    target = arrays.fresh((n_out,), matrix.dtype)

    def at(array: Strided) -> str:
        return b.element_pointer(
            array.pointer, array.dtype, b.constant(0, INT64), array.offset, shared=array.shared
        )

    def emit(pointers: Sequence[str]) -> None:
        whole = (
            _view(b, pointers[0], target),
            _view(b, pointers[1], matrix),
            _view(b, pointers[2], x),
        )
        _emit_matrix_vector(b, *whole, contracted)

    form = [matrix.dtype.str[1:], x.dtype.str[1:], *matrix.shape, *matrix.strides, *x.strides]
    form += [contracted, int(x.shared)]
    name = "matrix_vector_" + "_".join(str(item).replace("-", "m") for item in form)
    b.procedure(name, emit, [at(target), at(matrix), at(x)])
    return target


def _view(b: Any, pointer: str, like: Strided) -> Strided:
    """Return the array that begins at a pointer and lies as another does."""
    return Strided(b, pointer, like.shape, like.dtype, strides=like.strides, shared=like.shared)


def _emit_matrix_vector(
    b: Any, target: Strided, matrix: Strided, x: Strided, contracted: int
) -> None:
    """Emit the loops of a matrix-vector product.

    A block of results stays in registers while the contracted axis is run through once; each step
    loads one vector and spreads one scalar of the matrix per result of the block.
    """
    n_out, n_in = matrix.shape[1 - contracted], matrix.shape[contracted]
    registers = max(1, b.width * matrix.dtype.itemsize // b.register_bytes)
    block = max(1, _VECTOR_REGISTERS_FOR_SUMS // registers)

    def rows(start: Value | None, first: int, count: int) -> None:
        zero = b.constant(0, matrix.dtype)
        with b.accumulating(n_in, [zero] * count) as (k, totals, results):
            inner = Index(0, k, 0, 0, n_in)
            item = x.at([inner])
            for q, total in enumerate(totals):
                outer = Index(1, start, first + q, 0, n_out)
                index = [outer, inner] if contracted == 1 else [inner, outer]
                results.append(b.fma(matrix.at(index), item, total))
        for q, total in enumerate(results):
            target.store([Index(1, start, first + q, 0, n_out)], total)

    whole = n_out // block * block
    if whole:
        with b.counted(0, whole, block) as start:
            rows(start, 0, block)
    if n_out - whole:
        rows(None, whole, n_out - whole)
