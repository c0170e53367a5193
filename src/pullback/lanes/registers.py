"""Small arrays: one value per element, in registers.

A NumPy object array of values, on which shape operations cost nothing at all and every other
operation is unrolled over the elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.lanes.program_ir import Equation
from pullback.lanes.values import Value, object_array

# A dynamic index into so few elements is a chain of selects, beyond it a load per lane.
SELECT_LIMIT = 16


class RegisterArrays:
    """Arrays as object arrays of values; every operation is unrolled over the elements."""

    def __init__(
        self, builder: Any, make_storage: Callable[[tuple[int, ...], np.dtype], Any]
    ) -> None:
        self.builder = builder
        self.make_storage = make_storage

    def constant(self, array: np.ndarray) -> Any:
        """Return literal values for the elements of a constant."""
        items = [self.builder.constant(x, array.dtype) for x in array.ravel()]
        return object_array(array.shape, items)

    def registers(self, walk: Any, x: Any) -> np.ndarray:
        """Return the values of all elements."""
        return x

    def elementwise(
        self, walk: Any, equation: Equation, function: Callable[..., Value], inputs: Sequence[Any]
    ) -> Any:
        """Apply a function of scalars to each element."""
        return walk.map(function, *inputs)

    def broadcast(self, x: Any, shape: Sequence[int], axes: Sequence[int]) -> Any:
        """Place the axes of `x` at `axes` of the result and repeat along the others."""
        placed = [1] * len(shape)
        for axis, size in zip(axes, x.shape, strict=True):
            placed[axis] = size
        return np.broadcast_to(x.reshape(placed), shape)

    def reshape(self, walk: Any, x: Any, shape: tuple[int, ...]) -> Any:
        """Keep the row-major order of elements."""
        return x.reshape(shape)

    def transpose(self, x: Any, permutation: Sequence[int]) -> Any:
        """Permute the axes."""
        return np.transpose(x, permutation)

    def slice(
        self, x: Any, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int]
    ) -> Any:
        """Take a strided box."""
        return x[tuple(map(slice, starts, limits, strides))]

    def reverse(self, x: Any, axes: Sequence[int]) -> Any:
        """Reverse the order along `axes`."""
        return np.flip(x, tuple(axes))

    def concatenate(self, parts: Sequence[Any], axis: int) -> Any:
        """Join along an axis."""
        return np.concatenate(parts, axis)

    def pad(self, walk: Any, x: Any, value: Any, config: Sequence[tuple[int, int, int]]) -> Any:
        """Surround and interleave with `value`; negative padding cuts off."""
        fill = value[()]
        if fill.is_constant and fill.constant == 0:
            fill = self.builder.constant(0, fill.dtype, structural=True)
        for axis, (low, high, interior) in enumerate(config):
            n = x.shape[axis]
            spread = n + (n - 1) * interior if n else 0
            shape = list(x.shape)
            shape[axis] = spread + max(low, 0) + max(high, 0)
            out = object_array(tuple(shape), [fill] * int(np.prod(shape, dtype=np.int64)))
            where = [slice(None)] * x.ndim
            where[axis] = slice(max(low, 0), max(low, 0) + spread, interior + 1)
            if n:
                out[tuple(where)] = x
            where[axis] = slice(max(-low, 0), shape[axis] - max(-high, 0))
            x = out[tuple(where)]
        return x

    def reduce(
        self,
        walk: Any,
        x: Any,
        axes: Sequence[int],
        combine: Callable[[Value, Value], Value],
        neutral: Value,
    ) -> Any:
        """Combine along `axes` in index order."""
        kept = [a for a in range(x.ndim) if a not in axes]
        shape = tuple(x.shape[a] for a in kept)
        rows = np.transpose(x, [*kept, *axes]).reshape(*shape, -1)
        out = np.empty(shape, object)
        for where in np.ndindex(shape):
            items = list(rows[where])
            total = items[0] if items else neutral
            for item in items[1:]:
                total = combine(total, item)
            out[where] = total
        return out

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
        b, dtype = self.builder, np.dtype(equation.outputs[0].dtype)
        free_x = [a for a in range(x.ndim) if a not in (*contract_x, *batch_x)]
        free_y = [a for a in range(y.ndim) if a not in (*contract_y, *batch_y)]
        left = np.transpose(x, [*batch_x, *free_x, *contract_x])
        right = np.transpose(y, [*batch_y, *free_y, *contract_y])
        n_batch, split = len(batch_x), len(batch_x) + len(free_x)
        out = np.empty(tuple(equation.outputs[0].shape), object)
        inner = list(itertools.product(*[range(x.shape[a]) for a in contract_x]))
        for where in np.ndindex(out.shape):
            batch, i, j = where[:n_batch], where[n_batch:split], where[split:]
            total = b.constant(0, dtype)
            for k in inner:
                p, q = left[(*batch, *i, *k)], right[(*batch, *j, *k)]
                total = b.add(total, b.multiply(b.convert(p, dtype), b.convert(q, dtype)))
            out[where] = total
        return out

    def pick(self, walk: Any, x: Any, offset: Value, places: Sequence[int]) -> list[Value]:
        """Return the elements of `x` at ``offset + place`` (row-major positions)."""
        flat = self.registers(walk, x).ravel()
        if offset.is_constant:
            return [flat[int(offset.constant) + p] for p in places]
        if flat.size * len(places) <= SELECT_LIMIT:
            return [self._choose(flat, offset, p, places) for p in places]
        return self.local(walk, x).read(offset, list(places))

    def _choose(self, flat: np.ndarray, offset: Value, place: int, places: Sequence[int]) -> Value:
        b = self.builder
        last = flat.size - 1 - max(places)
        result = flat[last + place]
        for i in range(last - 1, -1, -1):
            here = b.compare("eq", offset, b.constant(i, offset.dtype))
            result = b.select(here, flat[i + place], result)
        return result

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
        b = self.builder
        out = self.registers(walk, x).ravel().copy()
        for i in range(out.size - max(places)):
            here = b.compare("eq", offset, b.constant(i, offset.dtype))
            here = here if mask is None else b.integer("and", here, mask)
            for p, value in zip(places, values, strict=True):
                out[i + p] = b.select(here, value, out[i + p])
        return out.reshape(x.shape)

    def local(self, walk: Any, x: Any) -> Any:
        """Return a storage of the thread that holds `x`."""
        values = self.registers(walk, x)
        storage = self.allocate(walk, values.shape, values.ravel()[0].dtype)
        outer, walk.mask = walk.mask, None
        storage.fill(walk, values)
        walk.mask = outer
        return storage

    def allocate(self, walk: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Return a new storage of the thread, contents undefined."""
        return self.make_storage(shape, dtype)
