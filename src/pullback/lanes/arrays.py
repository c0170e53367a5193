"""Where arrays of a lane live: registers when small, memory and lazy views when large.

Operations whose operands and result are small go to :class:`RegisterArrays`; the others build
nodes of :mod:`pullback.lanes.memory`, which are evaluated in loops where somebody needs them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.lanes.contraction import contract
from pullback.lanes.memory import (
    Cut,
    Expression,
    Filled,
    Index,
    Joined,
    Node,
    Registers,
    Remapped,
    Strided,
    at_position,
    domain,
    nest,
    row_major,
)
from pullback.lanes.program_ir import Equation
from pullback.lanes.registers import RegisterArrays
from pullback.lanes.values import Value, object_array

# An array of so many elements or fewer is held in registers.
REGISTER_LIMIT = 32
# What is computed from memory goes back to registers only if it is this small: unrolling the work
# of a loop costs code and gains nothing.
RETURN_LIMIT = 8
_REDUCED_AXIS = 100

Combine = Callable[[Value, Value], Value]


class Arrays(RegisterArrays):
    """Arrays in registers or memory; `region` hands out memory of the thread."""

    def __init__(
        self,
        builder: Any,
        make_storage: Callable[[tuple[int, ...], np.dtype], Any],
        region: Callable[[int], tuple[str, Any]],
        limit: int = REGISTER_LIMIT,
    ) -> None:
        super().__init__(builder, make_storage)
        self.region = region
        self.limit = limit

    # -- forms -----------------------------------------------------------------------------------
    def fits(self, shape: Sequence[int]) -> bool:
        """Whether an array of this shape is held in registers."""
        return math.prod(shape) <= self.limit

    def node(self, x: Any) -> Node:
        """Return an array in the form that loops can read."""
        if isinstance(x, Node):
            return x
        items = x.ravel()
        same = items.size > 0 and all(v.text == items[0].text for v in items[1:])
        if same and (x.ndim == 0 or items[0].is_constant):
            return Filled(items[0], x.shape) if x.ndim else Registers(x, items[0].dtype)
        return Registers(x, items[0].dtype if items.size else np.dtype(float))

    def registers(self, walk: Any, x: Any) -> np.ndarray:
        """Return the values of all elements."""
        if isinstance(x, np.ndarray):
            return x
        items = [x.at([at_position(i) for i in where]) for where in np.ndindex(*x.shape)]
        return object_array(x.shape, items)

    def fresh(self, shape: Sequence[int], dtype: np.dtype) -> Strided:
        """Return memory of the thread for an array; it is free again when nothing refers to it."""
        size = max(int(np.prod(shape, dtype=np.int64)), 1)
        pointer, keep = self.region(size * np.dtype(dtype).itemsize * self.builder.width)
        return Strided(self.builder, pointer, shape, dtype, keep=keep)

    def in_memory(self, x: Any, target: Strided | None = None) -> Strided:
        """Return an array as memory, evaluating it there if it is not memory yet."""
        if isinstance(x, Strided) and target is None:
            return x
        source = self.node(x)
        place = self.fresh(source.shape, source.dtype) if target is None else target
        for box in domain(source, source.shape):
            nest(self.builder, box, lambda i: place.store(i, source.at(i)))
        return place

    def settle(self, x: Any, n_uses: int) -> Any:
        """Return the form in which a result is kept.

        A lazy array that computes something and is read more than once is evaluated now; many
        values that an unrolled operation left in registers go to memory, where loops can read them.
        """
        if isinstance(x, np.ndarray) and x.size > self.limit:
            return self._stored(x)
        if isinstance(x, Node) and not x.is_view and n_uses > 1:
            return self.in_memory(x)
        return x

    def _stored(self, x: np.ndarray) -> Strided:
        """Put values into memory, one by one."""
        values: list[Value] = list(x.ravel())
        target = self.fresh(x.shape, values[0].dtype)
        for where, value in zip(np.ndindex(*x.shape), values, strict=True):
            target.store([at_position(i) for i in where], value)
        return target

    def copied(self, x: Any) -> tuple[Any, Strided]:
        """Return a storage of the thread that begins as a copy of `x`, and its contents."""
        source = self.node(x)
        storage = self.make_storage(source.shape, source.dtype)
        contents = Strided(self.builder, storage.pointer, source.shape, source.dtype, keep=storage)
        self.in_memory(source, contents)
        return storage, contents

    def fixed(self, x: Any) -> Any:
        """Return an array that later changes of memory cannot touch and loops can reread."""
        if isinstance(x, Node) and not x.is_view:
            return self.in_memory(x)
        return x

    def filled(self, value: Value, shape: Sequence[int]) -> Any:
        """Return an array that holds one value everywhere."""
        if self.fits(shape):
            return object_array(tuple(shape), [value] * int(np.prod(shape, dtype=np.int64)))
        return Filled(value, shape)

    # -- operations ------------------------------------------------------------------------------
    def constant(self, array: np.ndarray) -> Any:
        """Return a closed-over array: literals, or a table that all lanes share."""
        if self.fits(array.shape):
            return super().constant(array)
        if np.all(array == array.ravel()[0]):
            return Filled(self.builder.constant(array.ravel()[0], array.dtype), array.shape)
        symbol = self.builder.table(array)
        return Strided(self.builder, symbol, array.shape, array.dtype, shared=True)

    def _small(self, shape: Sequence[int], *inputs: Any) -> bool:
        return self.fits(shape) and all(isinstance(x, np.ndarray) for x in inputs)

    def elementwise(
        self, walk: Any, equation: Equation, function: Callable[..., Value], inputs: Sequence[Any]
    ) -> Any:
        """Apply a function of scalars to each element."""
        out = equation.outputs[0]
        if self._small(out.shape, *inputs):
            return walk.map(function, *inputs)
        if out.size <= RETURN_LIMIT:
            return walk.map(function, *[self.registers(walk, x) for x in inputs])
        nodes = [self._stretched(self.node(x), out.shape) for x in inputs]
        return Expression(function, nodes, tuple(out.shape), np.dtype(out.dtype))

    def _stretched(self, x: Node, shape: Sequence[int]) -> Node:
        """Repeat along axes of length one, as elementwise operations of equal rank do."""
        if x.ndim == 0 or x.shape == tuple(shape):
            return x
        return self.node(self.broadcast(x, shape, range(len(shape))))

    def broadcast(self, x: Any, shape: Sequence[int], axes: Sequence[int]) -> Any:
        """Place the axes of `x` at `axes` of the result and repeat along the others."""
        if self._small(shape, x):
            return super().broadcast(x, shape, axes)
        source = self.node(x)
        if isinstance(source, Filled):
            return Filled(source.value, shape)
        if source.size == 1:
            zeros = [at_position(0)] * source.ndim
            return Filled(source.at(zeros), shape)
        if int(np.prod(shape, dtype=np.int64)) > source.size:
            source = self.fixed(source)  # or each repetition would compute it again

        def place(index: Sequence[Index]) -> list[Index]:
            return [
                at_position(0) if n == 1 else index[a]
                for a, n in zip(axes, source.shape, strict=True)
            ]

        return Remapped(source, shape, place)

    def reshape(self, walk: Any, x: Any, shape: tuple[int, ...]) -> Any:
        """Keep the row-major order of elements."""
        if isinstance(x, np.ndarray) and (self.fits(shape) or x.ndim == len(shape)):
            return x.reshape(shape)
        source = self.node(x)
        if isinstance(source, Filled):
            return Filled(source.value, shape)
        long_axes = [a for a, n in enumerate(source.shape) if n != 1]
        new_axes = [a for a, n in enumerate(shape) if n != 1]
        if [source.shape[a] for a in long_axes] == [shape[a] for a in new_axes]:
            return _relabelled(source, shape, long_axes, new_axes)
        memory = self.in_memory(source)
        if not memory.contiguous:
            memory = self.in_memory(
                Remapped(memory, memory.shape, list), self.fresh(memory.shape, memory.dtype)
            )
        return memory.view(shape, row_major(shape), memory.offset)

    def transpose(self, x: Any, permutation: Sequence[int]) -> Any:
        """Permute the axes."""
        if isinstance(x, np.ndarray):
            return super().transpose(x, permutation)
        shape = [x.shape[p] for p in permutation]
        if isinstance(x, Strided):
            return x.view(shape, [x.strides[p] for p in permutation], x.offset)
        inverse = np.argsort(permutation)
        return Remapped(x, shape, lambda index: [index[i] for i in inverse])

    def slice(
        self, x: Any, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int]
    ) -> Any:
        """Take a strided box."""
        if isinstance(x, np.ndarray):
            return super().slice(x, starts, limits, strides)
        shape = [max(-(-(e - s) // d), 0) for s, e, d in zip(starts, limits, strides, strict=True)]
        if any(d != 1 for d in strides) or isinstance(x, Strided):
            memory = self.in_memory(x)
            offset = memory.offset + sum(s * m for s, m in zip(starts, memory.strides, strict=True))
            steps = [d * m for d, m in zip(strides, memory.strides, strict=True)]
            result: Any = memory.view(shape, steps, offset)
        elif isinstance(x, Filled):
            result = Filled(x.value, shape)
        else:
            result = Remapped(
                x, shape, lambda index: [i.shifted(s) for i, s in zip(index, starts, strict=True)]
            )
        return self.settle_small(result)

    def settle_small(self, x: Any) -> Any:
        """Read a piece that fits into registers there, if it is only a view."""
        if isinstance(x, Node) and x.size <= RETURN_LIMIT and x.is_view:
            return self.registers(None, x)
        return x

    def reverse(self, x: Any, axes: Sequence[int]) -> Any:
        """Reverse the order along `axes`."""
        if isinstance(x, np.ndarray):
            return super().reverse(x, axes)
        memory = self.in_memory(x)
        strides, offset = list(memory.strides), memory.offset
        for a in axes:
            offset += (memory.shape[a] - 1) * strides[a]
            strides[a] = -strides[a]
        return memory.view(memory.shape, strides, offset)

    def concatenate(self, parts: Sequence[Any], axis: int) -> Any:
        """Join along an axis."""
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        if self._small(shape, *parts):
            return super().concatenate(parts, axis)
        return Joined([self.node(p) for p in parts], axis, shape)

    def pad(self, walk: Any, x: Any, value: Any, config: Sequence[tuple[int, int, int]]) -> Any:
        """Surround and interleave with `value`; negative padding cuts off."""
        shape = [
            low + high + n + max(n - 1, 0) * mid
            for n, (low, high, mid) in zip(x.shape, config, strict=True)
        ]
        if self._small(shape, x):
            return super().pad(walk, x, value, config)
        if any(mid for _, _, mid in config):
            x = self.registers(walk, x)
            return super().pad(walk, x, value, config)
        fill = value[()]
        if fill.is_constant and fill.constant == 0:
            fill = self.builder.constant(0, fill.dtype, structural=True)
        node = self.node(x)
        for axis, (low, high, _) in enumerate(config):
            n = node.shape[axis]
            start, stop = max(-low, 0), n - max(-high, 0)
            if start or stop != n:
                starts = [start if a == axis else 0 for a in range(node.ndim)]
                limits = [stop if a == axis else m for a, m in enumerate(node.shape)]
                node = self.node(self.slice(node, starts, limits, [1] * node.ndim))
            sides = [max(low, 0), max(high, 0)]
            pieces = [
                Filled(fill, [k if a == axis else m for a, m in enumerate(node.shape)])
                for k in sides
            ]
            if any(sides):
                whole = list(node.shape)
                whole[axis] += sum(sides)
                node = Joined([pieces[0], node, pieces[1]], axis, whole)
        return node

    def reduce(
        self, walk: Any, x: Any, axes: Sequence[int], combine: Combine, neutral: Value
    ) -> Any:
        """Combine along `axes` in index order."""
        if isinstance(x, np.ndarray):
            return super().reduce(walk, x, axes, combine, neutral)
        result = self.reduce_node(x, axes, combine, neutral)
        return self.registers(walk, result) if result.size <= RETURN_LIMIT else result

    def reduce_node(
        self, x: Node, axes: Sequence[int], combine: Combine, neutral: Value
    ) -> Strided:
        """Combine along `axes` of a lazy array, into memory."""
        kept = [a for a in range(x.ndim) if a not in axes]
        return reduced(self, x, list(axes), kept, combine, neutral)

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
        """Contract axes pairwise; batch axes come first in the result."""
        axes = (contract_x, contract_y, batch_x, batch_y)
        work = int(np.prod(equation.outputs[0].shape, dtype=np.int64))
        work *= int(np.prod([x.shape[a] for a in contract_x], dtype=np.int64))
        if work <= 2 * self.limit and self._small(equation.outputs[0].shape, x, y):
            return super().dot(walk, equation, x, y, *axes)
        result = contract(self, x, y, axes, np.dtype(equation.outputs[0].dtype))
        return self.registers(walk, result) if result.size <= RETURN_LIMIT else result

    def pick(self, walk: Any, x: Any, offset: Value, places: Sequence[int]) -> list[Value]:
        """Return the elements of `x` at ``offset + place`` (row-major positions)."""
        if isinstance(x, np.ndarray):
            return super().pick(walk, x, offset, places)
        return self.builder.gather_elements(self.packed(x), offset, places)

    def packed(self, x: Any) -> Strided:
        """Return an array as memory without gaps."""
        memory = self.in_memory(x)
        if memory.contiguous and memory.offset == 0:
            return memory
        return self.in_memory(
            Remapped(memory, memory.shape, list), self.fresh(memory.shape, memory.dtype)
        )

    def place(
        self,
        walk: Any,
        x: Any,
        offset: Value,
        places: Sequence[int],
        values: Sequence[Value],
        mask: Value | None,
    ) -> Any:
        """Return `x` with `values` at ``offset + place`` where `mask` holds."""
        if isinstance(x, np.ndarray):
            return super().place(walk, x, offset, places, values, mask)
        storage, contents = self.copied(x)
        storage.write(offset, list(places), list(values), mask)
        return contents


def _relabelled(
    x: Node, shape: Sequence[int], long_axes: Sequence[int], new_axes: Sequence[int]
) -> Node:
    """Only axes of length one come or go."""
    if isinstance(x, Strided):
        strides = [0] * len(shape)
        for a, n in zip(long_axes, new_axes, strict=True):
            strides[n] = x.strides[a]
        return x.view(shape, strides, x.offset)
    back = dict(zip(long_axes, new_axes, strict=True))

    def place(index: Sequence[Index]) -> list[Index]:
        return [index[back[a]] if a in back else at_position(0) for a in range(x.ndim)]

    return Remapped(x, shape, place)


def reduced(
    arrays: Arrays, x: Node, axes: list[int], kept: list[int], combine: Combine, neutral: Value
) -> Strided:
    """Evaluate a reduction into memory: loops over kept axes around loops over reduced ones."""
    b = arrays.builder

    def full(outer: Sequence[Index], inner: Sequence[Index]) -> list[Index]:
        index: list[Any] = [None] * x.ndim
        for a, i in zip(kept, outer, strict=True):
            index[a] = i
        for a, i in zip(axes, inner, strict=True):
            index[a] = i
        return index

    whole = [Index(_REDUCED_AXIS + k, None, 0, 0, x.shape[a]) for k, a in enumerate(axes)]
    shape = [x.shape[a] for a in kept]
    probe = Remapped(x, shape, lambda outer: full(outer, whole))
    try:
        boxes = list(domain(probe, shape))
    except (Cut, IndexError):
        x = arrays.in_memory(x)
        boxes = list(domain(Remapped(x, shape, lambda outer: full(outer, whole)), shape))
    target = arrays.fresh(shape, x.dtype)

    def element(outer: list[Index]) -> None:
        def run(k: int, inner: list[Index], total: Value) -> Value:
            if k == len(axes):
                return combine(total, x.at(full(outer, inner)))
            with b.accumulating(x.shape[axes[k]], [total]) as (counter, totals, results):
                here = Index(_REDUCED_AXIS + k, counter, 0, 0, x.shape[axes[k]])
                results.append(run(k + 1, [*inner, here], totals[0]))
            return results[0]

        target.store(outer, run(0, [], neutral))

    for box in boxes:
        nest(b, box, element)
    return target
