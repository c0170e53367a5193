"""Factors of a dense matrix in memory: loops in functions of their own, rows exchanged per lane.

Crout's elimination: every element is one running sum over finished ones, in the order of the index,
so results do not depend on the block of rows that is summed at a time. Two functions for each size
and dtype, emitted once in the module: inlined at each solve, LLVM would optimise each copy anew.

Memory, elements of all lanes interleaved:
    matrix       rows at an odd stride (a power of two would put a column into one cache set), with
                 rows and columns to spare so that blocks may run over the edge; the spare rows are
                 zero and so never become pivots, the spare columns are read by nobody
    permutation  row of the matrix that became row i, and the inverse of that map
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.lanes.factors import WalkFactors, exchanged
from pullback.lanes.memory import Filled, Index, Strided
from pullback.lanes.values import INT64, Value

# Running sums that fit into the vector registers next to what they are made of.
_SUMS = 8


class DenseFactors(WalkFactors):
    """Triangular factors in memory of the thread."""

    def __init__(self, walk: Any, columns: Sequence[Any], dtype: np.dtype) -> None:
        self.n = len(columns)
        self.builder = walk.builder
        b, arrays = walk.builder, walk.arrays
        self.block = max(1, _SUMS // max(1, b.width * dtype.itemsize // b.register_bytes))
        side = self.n + self.block - 1
        self.matrix = arrays.fresh((side, side | 1), dtype)
        self.permutation = arrays.fresh((2, self.n), INT64)
        self.growth = b.constant(1, dtype)
        self._fill(walk, columns)
        pointers = [self.matrix.pointer, self.permutation.pointer]
        b.procedure(f"dense_lu_{self._name}", self._emit_factorise, pointers)

    @property
    def _name(self) -> str:
        return f"{self.n}_{self.matrix.dtype.str[1:]}"

    def _fill(self, walk: Any, columns: Sequence[Any]) -> None:
        """Clear the matrix, then store what is not known to be zero."""
        arrays, matrix = walk.arrays, self.matrix
        size, zero = matrix.size, self.builder.constant(0, matrix.dtype)

        def clear(pointers: Sequence[str]) -> None:
            flat = Strided(self.builder, pointers[0], (size,), matrix.dtype)
            arrays.in_memory(Filled(zero, (size,)), flat)

        self.builder.procedure(f"dense_clear_{self._name}", clear, [matrix.pointer])
        stride = matrix.strides[0]
        for j, column in enumerate(columns):
            if not isinstance(column, np.ndarray):
                arrays.in_memory(column, matrix.view((self.n,), (stride,), j))
                continue
            for i, value in enumerate(column):
                if not value.structural:
                    matrix.store([_fixed(i), _fixed(j)], value)

    def solve(self, walk: Any, b: Any, *, trans: bool) -> Any:
        """Call the function that substitutes forwards and backwards."""
        arrays, dtype = walk.arrays, self.matrix.dtype
        right, x = (arrays.fresh((self.n,), dtype) for _ in range(2))
        arrays.in_memory(b, right)

        def emit(pointers: Sequence[str]) -> None:
            self._emit_solve(pointers, trans=trans)

        name = f"dense_solve_{'transposed_' if trans else ''}{self._name}"
        pointers = [s.pointer for s in (self.matrix, self.permutation, right, x)]
        self.builder.procedure(name, emit, pointers)
        return arrays.registers(walk, x) if arrays.fits(x.shape) else x

    def _emit_factorise(self, pointers: Sequence[str]) -> None:
        matrix, permutation, inverse = self._views(pointers)[:3]
        Elimination(self.builder, matrix, permutation, self.n, self.block).emit()
        with self.builder.counted(0, self.n) as i:
            row = permutation.at([_moving(i)])
            self.builder.scatter_element(inverse, row, i)

    def _emit_solve(self, pointers: Sequence[str], *, trans: bool) -> None:
        matrix, permutation, inverse, right, x = self._views(pointers)
        if not trans:
            _permute(self.builder, right, permutation, x)
        # The right-hand side is a copy, so that the transposed solve may work in its place.
        work = right if trans else x
        sweep = Substitution(self.builder, matrix, work, self.block, trans=trans)
        sweep.forwards(with_diagonal=trans)
        sweep.backwards(with_diagonal=not trans)
        if trans:
            _permute(self.builder, right, inverse, x)

    def _views(self, pointers: Sequence[str]) -> list[Strided]:
        """Return matrix, permutation, its inverse, right-hand side and solution as arguments."""
        b, n, dtype = self.builder, self.n, self.matrix.dtype
        matrix = Strided(b, pointers[0], self.matrix.shape, dtype)
        inverse = b.element_pointer(pointers[1], INT64, b.constant(0, INT64), n, shared=False)
        permutations = [Strided(b, p, (n,), INT64) for p in (pointers[1], inverse)]
        return [matrix, *permutations, *[Strided(b, p, (n,), dtype) for p in pointers[2:]]]


class Elimination:
    """Emits the body of the factorisation."""

    def __init__(self, b: Any, matrix: Strided, permutation: Strided, n: int, block: int) -> None:
        self.b = b
        self.matrix = matrix
        self.permutation = permutation
        self.block = block
        self.n = n
        self.end = b.constant(n, INT64)

    def emit(self) -> None:
        """Emit the loop over pivots."""
        b = self.b
        with b.counted(0, self.n) as i:
            self.permutation.store([_moving(i)], i)
        with b.counted(0, self.n) as k:
            pivot = self._column(k)
            with b.if_any(b.compare("ne", pivot, k)):
                self._exchange(k, pivot)
            self._scale(k)
            self._row(k)

    def _column(self, k: Value) -> Value:
        """Finish column `k` below the diagonal and return each lane's row of the largest."""
        b, matrix, zero = self.b, self.matrix, self.b.constant(0, INT64)
        begin = [b.constant(-1, matrix.dtype), k]
        with b.between(k, self.end, begin, step=self.block) as (i, (best, pivot), best_after):
            rows = [_moving(i, r) for r in range(self.block)]
            sums = [matrix.at([row, _moving(k)]) for row in rows]
            with b.between(zero, k, sums) as (q, running, after):
                minus = b.negate(matrix.at([_moving(q), _moving(k)]))
                for row, total in zip(rows, running, strict=True):
                    after.append(b.fma(matrix.at([row, _moving(q)]), minus, total))
            for r, (row, total) in enumerate(zip(rows, after, strict=True)):
                matrix.store([row, _moving(k)], total)
                size = b.intrinsic("fabs", total)
                larger = b.compare("gt", size, best)
                best = b.select(larger, size, best)
                pivot = b.select(larger, b.add(i, b.constant(r, INT64)), pivot)
            best_after += [best, pivot]
        return best_after[1]

    def _exchange(self, k: Value, pivot: Value) -> None:
        """Exchange row `k` with each lane's pivot, one row at a time for all lanes that want it.

        Lanes of an ensemble mostly agree. Moving single lanes would let the vector loads that
        follow wait for the scalar stores.
        """
        b, one = self.b, self.b.constant(1, INT64)
        with b.between(b.add(k, one), self.end) as (p, _, _):
            wanted = b.compare("eq", pivot, p)
            with b.if_any(wanted):
                self._swap(self.permutation, [_moving(k)], [_moving(p)], wanted)
                with b.counted(0, self.n) as j:
                    here, there = [_moving(k), _moving(j)], [_moving(p), _moving(j)]
                    self._swap(self.matrix, here, there, wanted)

    def _swap(
        self, array: Strided, here: Sequence[Index], there: Sequence[Index], mask: Value
    ) -> None:
        x, y = exchanged(self.b, mask, array.at(here), array.at(there))
        array.store(here, x)
        array.store(there, y)

    def _scale(self, k: Value) -> None:
        """Turn column `k` into multipliers and the pivot into its reciprocal."""
        b, matrix, one = self.b, self.matrix, self.b.constant(1, INT64)
        diagonal = [_moving(k), _moving(k)]
        reciprocal = b.divide(b.constant(1, matrix.dtype), matrix.at(diagonal))
        matrix.store(diagonal, reciprocal)
        with b.between(b.add(k, one), self.end) as (i, _, _):
            here = [_moving(i), _moving(k)]
            matrix.store(here, b.multiply(matrix.at(here), reciprocal))

    def _row(self, k: Value) -> None:
        """Finish row `k` right of the diagonal."""
        b, matrix, zero = self.b, self.matrix, self.b.constant(0, INT64)
        first = b.add(k, b.constant(1, INT64))
        with b.between(first, self.end, step=self.block) as (j, _, _):
            columns = [_moving(j, c) for c in range(self.block)]
            sums = [matrix.at([_moving(k), column]) for column in columns]
            with b.between(zero, k, sums) as (q, running, after):
                minus = b.negate(matrix.at([_moving(k), _moving(q)]))
                for column, total in zip(columns, running, strict=True):
                    after.append(b.fma(minus, matrix.at([_moving(q), column]), total))
            for column, total in zip(columns, after, strict=True):
                matrix.store([_moving(k), column], total)


def _permute(b: Any, source: Strided, order: Strided, target: Strided) -> None:
    (n,) = target.shape
    with b.counted(0, n) as i:
        (value,) = b.gather_elements(source, order.at([_moving(i)]), [0])
        target.store([_moving(i)], value)


class Substitution:
    """Emits triangular solves in place, a block of unknowns at a time."""

    def __init__(self, b: Any, matrix: Strided, x: Strided, block: int, *, trans: bool) -> None:
        self.b = b
        self.matrix = matrix
        self.x = x
        self.block = block
        self.trans = trans
        (self.n,) = x.shape
        self.whole = self.n // block * block

    def _element(self, i: Index, j: Index) -> Value:
        return self.matrix.at([j, i] if self.trans else [i, j])

    def forwards(self, *, with_diagonal: bool) -> None:
        """Solve with the lower triangle."""
        b, zero = self.b, self.b.constant(0, INT64)

        def solve(start: Value, count: int) -> None:
            unknowns = [_moving(start, r) for r in range(count)]
            self._block(unknowns, list(range(count)), (zero, start), with_diagonal, up=False)

        if self.whole:
            with b.counted(0, self.whole, self.block) as start:
                solve(start, self.block)
        if self.n > self.whole:
            solve(b.constant(self.whole, INT64), self.n - self.whole)

    def backwards(self, *, with_diagonal: bool) -> None:
        """Solve with the upper triangle."""
        b, end = self.b, self.b.constant(self.n, INT64)

        def solve(start: Value, count: int) -> None:
            unknowns = [_moving(start, r) for r in range(count)]
            order = list(range(count - 1, -1, -1))
            finished = (b.add(start, b.constant(count, INT64)), end)
            self._block(unknowns, order, finished, with_diagonal, up=True)

        if self.n > self.whole:
            solve(b.constant(self.whole, INT64), self.n - self.whole)
        if self.whole:
            last = b.constant(self.whole - self.block, INT64)
            with b.counted(0, self.whole, self.block) as done:
                solve(b.subtract(last, done), self.block)

    def _block(
        self,
        unknowns: list[Index],
        order: list[int],
        finished: tuple[Value, Value],
        with_diagonal: bool,
        *,
        up: bool,
    ) -> None:
        """Subtract what finished unknowns contribute, nearest last, then solve the small triangle.

        The order of the sums is that of single unknowns, whatever the size of the block.
        """
        b, x, (low, high) = self.b, self.x, finished
        sums = [x.at([i]) for i in unknowns]
        with b.between(low, high, sums) as (count, running, after):
            # Backwards from the last unknown: j = high - 1 - (count - low).
            j = b.subtract(b.add(low, b.constant(self.n - 1, INT64)), count) if up else count
            minus = b.negate(x.at([_moving(j)]))
            for i, total in zip(unknowns, running, strict=True):
                after.append(b.fma(self._element(i, _moving(j)), minus, total))
        for step, r in enumerate(order):
            total = after[r]
            for s in order[:step]:
                minus = b.negate(after[s])
                total = b.fma(self._element(unknowns[r], unknowns[s]), minus, total)
            if with_diagonal:
                total = b.multiply(total, self._element(unknowns[r], unknowns[r]))
            after[r] = total
            x.store([unknowns[r]], total)


def _fixed(i: int) -> Index:
    return Index(-1, None, i, i, i + 1)


def _moving(value: Value, offset: int = 0) -> Index:
    if value.is_constant:
        return _fixed(int(value.constant) + offset)
    return Index(0, value, offset, 0, 0)
