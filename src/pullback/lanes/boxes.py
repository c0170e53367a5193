"""Where the boxes of a gather or scatter lie: what JAX's dimension numbers mean, for both alike."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.lanes.lookup import position_of
from pullback.lanes.memory import Index, at_position, row_major
from pullback.lanes.program_ir import Equation
from pullback.lanes.values import BOOL, INT64, Value


@dataclass(frozen=True)
class Boxes:
    """Boxes of one size in an array, one for each entry of a list of corners.

    Attributes:
        shape: shape of the array.
        sizes: size of a box along each axis of the array.
        indexed: axes of the array that the components of a corner belong to.
        batching: pairs of an axis of the array and the axis of the list that runs along it.
        list_axes: axes of the result (gather) or the updates (scatter) that run over the list.
        box_axes: the others, which run over a box.
        window: axes of the array that `box_axes` run along.
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    indexed: tuple[int, ...]
    batching: tuple[tuple[int, int], ...]
    list_axes: tuple[int, ...]
    box_axes: tuple[int, ...]
    window: tuple[int, ...]

    @functools.cached_property
    def strides(self) -> tuple[int, ...]:
        """Row-major strides of the array."""
        return row_major(self.shape)

    @functools.cached_property
    def order(self) -> np.ndarray:
        """Axes of the result or updates, the list's before a box's."""
        return np.array([*self.list_axes, *self.box_axes], np.int64)

    def table(self, corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where elements lie whose corners are known, and whether they exist.

        Args:
            corners: `(*list, component)`.

        Returns:
            Row-major positions and booleans, of the shape `(*list, *box)`.
        """
        lead = corners.shape[:-1]
        start, exists = np.zeros(lead, np.int64), np.ones(lead, bool)
        for k, axis in enumerate(self.indexed):
            room, at = self.shape[axis] - self.sizes[axis], corners[..., k].astype(np.int64)
            exists &= (at >= 0) & (at <= room)
            start += np.clip(at, 0, room) * self.strides[axis]
        for axis, along in self.batching:
            line = np.arange(lead[along]).reshape(
                [-1 if a == along else 1 for a in range(len(lead))]
            )
            start = start + line * self.strides[axis]
        box = tuple(self.sizes[a] for a in self.window)
        inside = np.zeros(box, np.int64)
        for axis, grid in zip(self.window, np.indices(box, sparse=True), strict=True):
            inside = inside + grid * self.strides[axis]
        start, exists = (x.reshape((*lead, *[1] * len(box))) for x in (start, exists))
        return start + inside, np.broadcast_to(exists, (*lead, *box))

    def split(self, index: Sequence[Index]) -> tuple[list[Index], list[Index]]:
        """Return the part of a position in the result or updates along the list and the box."""
        return [index[a] for a in self.list_axes], [index[a] for a in self.box_axes]

    def locate(self, b: Any, corners: Any, index: Sequence[Index]) -> tuple[Value, Value]:
        """Return where the element at `index` lies, clamped, and whether it exists.

        Args:
            b: The builder.
            corners: The node `(*list, component)`.
            index: Position in the result or the updates.
        """
        entry, inside = self.split(index)
        total, exists = b.constant(0, INT64), b.constant(True, BOOL)
        for k, axis in enumerate(self.indexed):
            room = b.constant(max(self.shape[axis] - self.sizes[axis], 0), INT64)
            at, zero = b.convert(corners.at([*entry, at_position(k)]), INT64), b.constant(0, INT64)
            fits = b.integer("and", b.compare("ge", at, zero), b.compare("le", at, room))
            exists = b.integer("and", exists, fits)
            clamped = b.minimum(b.maximum(at, zero), room)
            total = _further(b, total, clamped, self.strides[axis])
        for axis, along in self.batching:
            total = _further(b, total, position_of(b, entry[along]), self.strides[axis])
        for axis, i in zip(self.window, inside, strict=True):
            total = _further(b, total, position_of(b, i), self.strides[axis])
        return total, exists


def _further(b: Any, total: Value, position: Value, stride: int) -> Value:
    return b.integer("add", total, b.integer("mul", position, b.constant(stride, INT64)))


def gathered(equation: Equation, shape: tuple[int, ...]) -> Boxes:
    """Return the boxes that a gather takes out of an array of `shape`."""
    dims = equation.params["dimension_numbers"]
    rank = len(equation.outputs[0].shape)
    return Boxes(
        shape,
        tuple(equation.params["slice_sizes"]),
        tuple(dims.start_index_map),
        tuple(zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True)),
        tuple(a for a in range(rank) if a not in dims.offset_dims),
        tuple(dims.offset_dims),
        _others(len(shape), dims.collapsed_slice_dims, dims.operand_batching_dims),
    )


def scattered(equation: Equation, shape: tuple[int, ...], updates: tuple[int, ...]) -> Boxes:
    """Return the boxes of an array of `shape` that a scatter changes."""
    dims = equation.params["dimension_numbers"]
    window = _others(len(shape), dims.inserted_window_dims, dims.operand_batching_dims)
    sizes = [1] * len(shape)
    for axis, along in zip(window, dims.update_window_dims, strict=True):
        sizes[axis] = updates[along]
    return Boxes(
        shape,
        tuple(sizes),
        tuple(dims.scatter_dims_to_operand_dims),
        tuple(zip(dims.operand_batching_dims, dims.scatter_indices_batching_dims, strict=True)),
        tuple(a for a in range(len(updates)) if a not in dims.update_window_dims),
        tuple(dims.update_window_dims),
        window,
    )


def _others(rank: int, *excluded: Sequence[int]) -> tuple[int, ...]:
    return tuple(a for a in range(rank) if not any(a in axes for axes in excluded))
