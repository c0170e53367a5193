"""Rules of dynamic indexing on arrays: slices, gather and scatter at positions of the lane."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from pullback.lanes.program_ir import Equation
from pullback.lanes.values import INT64, Value, object_array
from pullback.lanes.walk import Walk, rule


def clamped(walk: Walk, index: Value, room: int) -> Value:
    """Return the index as int64 inside ``0 .. room``."""
    b = walk.builder
    wide = b.convert(index, INT64)
    return b.minimum(b.maximum(wide, b.constant(0, INT64)), b.constant(max(room, 0), INT64))


@rule("dynamic_slice")
def dynamic_slice(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Take a box whose corner the lane computes; the corner is clamped to fit."""
    x, sizes = inputs[0], equation.params["slice_sizes"]
    corner = [s[()] for s in inputs[1:]]
    offset = _offset(walk, x.shape, corner, sizes)
    places = _places(x.shape, sizes)
    return object_array(tuple(sizes), walk.arrays.pick(walk, x, offset, places))


@rule("dynamic_update_slice")
def dynamic_update_slice(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Replace a box whose corner the lane computes."""
    x, update = inputs[0], walk.arrays.registers(walk, inputs[1])
    corner = [s[()] for s in inputs[2:]]
    offset = _offset(walk, x.shape, corner, update.shape)
    places = _places(x.shape, update.shape)
    values = list(update.ravel())
    return walk.arrays.place(walk, x, offset, places, values, None)


def _offset(
    walk: Walk, shape: tuple[int, ...], corner: list[Value], sizes: tuple[int, ...]
) -> Value:
    b = walk.builder
    total = b.constant(0, INT64)
    for axis, (start, size) in enumerate(zip(corner, sizes, strict=True)):
        stride = int(np.prod(shape[axis + 1 :], dtype=np.int64))
        inside = clamped(walk, start, shape[axis] - size)
        total = b.integer("add", total, b.integer("mul", inside, b.constant(stride, INT64)))
    return total


def _places(shape: tuple[int, ...], sizes: tuple[int, ...]) -> list[int]:
    strides = [int(np.prod(shape[a + 1 :], dtype=np.int64)) for a in range(len(shape))]
    ranges = [
        range(0, size * s, s) if s * size else range(size)
        for size, s in zip(sizes, strides, strict=True)
    ]
    return [sum(p) for p in itertools.product(*ranges)]


@rule("gather")
def gather(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Take boxes at a list of corners (every mode of JAX)."""
    x, indices = inputs[0], walk.arrays.registers(walk, inputs[1])
    p = equation.params
    dims, sizes = p["dimension_numbers"], p["slice_sizes"]
    mode = p["mode"].name
    out_shape = equation.outputs[0].shape
    window = [
        a
        for a in range(len(x.shape))
        if a not in dims.collapsed_slice_dims and a not in dims.operand_batching_dims
    ]
    batch_axes = [a for a in range(len(out_shape)) if a not in dims.offset_dims]
    window_sizes = tuple(sizes[a] for a in window)
    b, dtype = walk.builder, np.dtype(equation.outputs[0].dtype)
    fill = _fill_value(p.get("fill_value"), dtype)
    out = np.empty(out_shape, object)
    for where in np.ndindex(tuple(out_shape[a] for a in batch_axes)):
        corner, valid = _corner(walk, x.shape, indices[where], where, dims, sizes, scatter=False)
        values = walk.arrays.pick(walk, x, corner, _places(x.shape, sizes))
        if mode == "FILL_OR_DROP":
            values = [b.select(valid, v, b.constant(fill, dtype)) for v in values]
        target: list[Any] = [slice(None)] * len(out_shape)
        for axis, i in zip(batch_axes, where, strict=True):
            target[axis] = i
        out[tuple(target)] = object_array(window_sizes, values) if window_sizes else values[0]
    return out


def _fill_value(fill: Any, dtype: np.dtype) -> Any:
    if fill is not None:
        return fill
    if dtype.kind == "f":
        return np.nan
    if dtype.kind == "i":
        return np.iinfo(dtype).min
    return True if dtype.kind == "b" else np.iinfo(dtype).max


def _corner(
    walk: Walk,
    shape: tuple[int, ...],
    index: np.ndarray,
    where: tuple[int, ...],
    dims: Any,
    sizes: tuple[int, ...],
    *,
    scatter: bool,
) -> tuple[Value, Value]:
    """Return the element offset of one box and whether it lies inside the array."""
    b = walk.builder
    to_operand = dims.scatter_dims_to_operand_dims if scatter else dims.start_index_map
    batching = dims.scatter_indices_batching_dims if scatter else dims.start_indices_batching_dims
    total, valid = b.constant(0, INT64), b.constant(True, np.dtype(bool))
    for component, axis in enumerate(to_operand):
        room = shape[axis] - sizes[axis]
        position = b.convert(index[component], INT64)
        stride = int(np.prod(shape[axis + 1 :], dtype=np.int64))
        low = b.compare("ge", position, b.constant(0, INT64))
        high = b.compare("le", position, b.constant(room, INT64))
        valid = b.integer("and", valid, b.integer("and", low, high))
        inside = clamped(walk, position, room)
        total = b.integer("add", total, b.integer("mul", inside, b.constant(stride, INT64)))
    for axis, position in zip(dims.operand_batching_dims, batching, strict=True):
        stride = int(np.prod(shape[axis + 1 :], dtype=np.int64))
        total = b.integer("add", total, b.constant(where[position] * stride, INT64))
    return total, valid


@rule(
    "scatter",
    "scatter-add",
    "scatter_add",
    "scatter-mul",
    "scatter_mul",
    "scatter-min",
    "scatter_min",
    "scatter-max",
    "scatter_max",
)
def scatter(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Put or combine boxes at a list of corners, in index order; boxes outside are dropped."""
    x, p = inputs[0], equation.params
    indices = walk.arrays.registers(walk, inputs[1])
    updates = walk.arrays.registers(walk, inputs[2])
    dims, clip = p["dimension_numbers"], p["mode"].name == "CLIP"
    window = [
        a
        for a in range(len(x.shape))
        if a not in dims.inserted_window_dims and a not in dims.operand_batching_dims
    ]
    sizes = [1] * len(x.shape)
    for axis, update_axis in zip(window, dims.update_window_dims, strict=True):
        sizes[axis] = updates.shape[update_axis]
    batch_axes = [a for a in range(updates.ndim) if a not in dims.update_window_dims]
    combine = _combine(walk, equation.primitive)
    storage: Any = None
    contents: Any = None
    if not isinstance(x, np.ndarray):
        storage, contents = walk.arrays.copied(x)
    for where in np.ndindex(tuple(updates.shape[a] for a in batch_axes)):
        corner, valid = _corner(
            walk, x.shape, indices[where], where, dims, tuple(sizes), scatter=True
        )
        source: list[Any] = [slice(None)] * updates.ndim
        for axis, i in zip(batch_axes, where, strict=True):
            source[axis] = i
        piece = updates[tuple(source)]
        values = list(np.asarray(piece, object).ravel())
        places = _places(x.shape, tuple(sizes))
        mask = None if clip else valid
        if combine is not None:
            read = storage.read if contents is not None else functools.partial(_pick, walk, x)
            old = read(corner, places)
            values = [combine(o, v) for o, v in zip(old, values, strict=True)]
        if contents is not None:
            storage.write(corner, places, values, mask)
        else:
            x = walk.arrays.place(walk, x, corner, places, values, mask)
    return x if contents is None else contents


def _pick(walk: Walk, x: Any, offset: Value, places: list[int]) -> list[Value]:
    return walk.arrays.pick(walk, x, offset, places)


def _combine(walk: Walk, primitive: str) -> Any:
    b = walk.builder
    kind = primitive.replace("-", "_").removeprefix("scatter").removeprefix("_")
    return {"": None, "add": b.add, "mul": b.multiply, "min": b.minimum, "max": b.maximum}[kind]
