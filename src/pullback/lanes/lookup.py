"""Arrays read at positions that are not a box: known positions, and positions of the lane.

`at_table` is for positions that are known while the kernel is built: views where they are regular
(rolls, flips, slices), else reads through a table. `Picked` is for positions that lanes compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.lanes.arrays import RETURN_LIMIT
from pullback.lanes.memory import Index, Joined, Node, Strided, at_position
from pullback.lanes.values import INT64, Value, object_array

# A roll or a reflected boundary has few pieces; more pieces are more loops than one with a table.
_MOST_PIECES = 3
# So many reads from registers, known in advance, cost nothing, whatever they are made into.
_MOST_NAMES = 128


def at_table(arrays: Any, x: Any, table: np.ndarray) -> Any:
    """Return the elements of `x` at row-major positions, in the shape of `table`."""
    if isinstance(x, np.ndarray) and table.size <= _MOST_NAMES:
        return object_array(table.shape, list(x.ravel()[table.ravel()]))
    source = arrays.node(x)
    if table.size <= RETURN_LIMIT:
        items = [
            source.at([at_position(int(i)) for i in np.unravel_index(position, source.shape)])
            for position in table.ravel()
        ]
        return object_array(table.shape, items)
    memory = arrays.in_memory(source)
    places = (
        np.stack(np.unravel_index(table, memory.shape), -1) if memory.ndim else table[..., None]
    )
    return _view(arrays, memory, places @ np.asarray(memory.strides or [0], np.int64))


def _view(arrays: Any, memory: Strided, offsets: np.ndarray) -> Node:
    """Return the elements of `memory` at offsets as views, or through a table."""
    whole = _regular(memory, offsets)
    if whole is not None:
        return whole
    for axis in range(offsets.ndim):
        line = np.moveaxis(offsets, axis, 0).reshape(offsets.shape[axis], -1)[:, 0]
        steps = np.diff(line)
        cuts = np.flatnonzero(steps != _usual(steps)) if steps.size else steps
        if not 0 < len(cuts) < _MOST_PIECES:
            continue
        parts = [_regular(memory, part) for part in np.split(offsets, cuts + 1, axis)]
        if all(part is not None for part in parts):
            return Joined([p for p in parts if p is not None], axis, offsets.shape)
    return Lookup(arrays, memory, offsets)


def _usual(steps: np.ndarray) -> int:
    numbers, counts = np.unique(steps, return_counts=True)
    return int(numbers[np.argmax(counts)])


def _regular(memory: Strided, offsets: np.ndarray) -> Strided | None:
    """Return a strided view at the offsets, None if they are not regular."""
    start = int(offsets.flat[0])
    strides = [
        int(np.take(offsets, 1, axis).flat[0]) - start if n > 1 else 0
        for axis, n in enumerate(offsets.shape)
    ]
    grid = np.indices(offsets.shape, np.int64, sparse=True)
    expected = start + sum((g * s for g, s in zip(grid, strides, strict=True)), np.int64(0))
    if not np.array_equal(np.broadcast_to(expected, offsets.shape), offsets):
        return None
    return memory.view(offsets.shape, strides, memory.offset + start)


class Lookup(Node):
    """Elements of memory at offsets that a table holds."""

    def __init__(self, arrays: Any, memory: Strided, offsets: np.ndarray) -> None:
        self.builder = arrays.builder
        self.memory = memory
        self.shape = offsets.shape
        self.dtype = memory.dtype
        self.offsets = offsets
        symbol = self.builder.table(offsets.astype(np.int64))
        self.table = Strided(self.builder, symbol, offsets.shape, INT64, shared=True)

    def check(self, index: Sequence[Index]) -> None:
        """Any range can be read."""

    def at(self, index: Sequence[Index]) -> Value:
        """Load the element whose offset the table gives."""
        b, memory = self.builder, self.memory
        if all(i.value is None for i in index):
            offset = b.constant(self.offsets[tuple(i.offset for i in index)], INT64)
        else:
            offset = self.table.at(index)
        shared = memory.shared
        at = b.element_pointer(memory.pointer, memory.dtype, offset, memory.offset, shared=shared)
        return b.load(at, memory.dtype, shared=shared)


class Picked(Node):
    """Elements of memory at positions that each lane computes, evaluated where they are read.

    `locate` gives the row-major position of an element and whether it exists (None: it does), from
    memory only, so that it can be asked in any loop.
    """

    is_view = False

    def __init__(
        self,
        source: Strided,
        shape: Sequence[int],
        locate: Callable[[Sequence[Index]], tuple[Value, Value | None]],
        fill: Value,
    ) -> None:
        self.source = source
        self.shape = tuple(shape)
        self.dtype = source.dtype
        self.locate = locate
        self.fill = fill

    def check(self, index: Sequence[Index]) -> None:
        """Any range can be read."""

    def at(self, index: Sequence[Index]) -> Value:
        """Load the element, a scalar of each lane."""
        b = self.source.builder
        position, exists = self.locate(index)
        (value,) = b.gather_elements(self.source, position, [0])
        return value if exists is None else b.select(exists, value, self.fill)


def position_of(b: Any, index: Index) -> Value:
    """Return a position along an axis as a value."""
    if index.value is None:
        return b.constant(index.offset, INT64)
    return b.integer("add", index.value, b.constant(index.offset, INT64))


def linear(b: Any, index: Sequence[Index], strides: Sequence[int]) -> Value:
    """Return the element offset of an index."""
    total = b.constant(0, INT64)
    for i, stride in zip(index, strides, strict=True):
        moved = b.integer("mul", position_of(b, i), b.constant(stride, INT64))
        total = b.integer("add", total, moved)
    return total
