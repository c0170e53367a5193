"""Rules of mutable arrays: new_ref, get, swap, addupdate, freeze."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np

from pullback.core.compat import RefSlice
from pullback.lanes.program_ir import Equation
from pullback.lanes.values import INT64, Value, object_array
from pullback.lanes.walk import Walk, rule


@rule("new_ref", "mutable_array")
def new_ref(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Give every lane an array of its own in the thread's memory."""
    out = equation.outputs[0]
    storage = walk.arrays.allocate(walk, out.shape, np.dtype(out.dtype))
    storage.fill(walk, walk.arrays.registers(walk, inputs[0]))
    return storage


@rule("empty_ref")
def empty_ref(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Like `new_ref`, with contents left as they are."""
    out = equation.outputs[0]
    return walk.arrays.allocate(walk, out.shape, np.dtype(out.dtype))


@rule("freeze", "free_ref")
def freeze(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Read everything a last time."""
    return inputs[0].load(walk) if equation.outputs else []


@rule("get")
def get(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Read elements."""
    ref, (offset, places, shape) = inputs[0], _address(walk, equation, inputs[0], inputs[1:])
    if not walk.arrays.fits(shape) and _is_run(places):
        return ref.read_block(walk, offset, places[0], shape)
    return object_array(shape, ref.read(offset, places))


@rule("swap")
def swap(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Write elements; what was there is read only if somebody wants it."""
    ref, new = inputs[0], inputs[1]
    offset, places, shape = _address(walk, equation, ref, inputs[2:])
    wanted = equation.params["result_used"]
    if not walk.arrays.fits(shape) and _is_run(places) and not wanted:
        ref.write_block(walk, offset, places[0], walk.arrays.node(new), walk.mask)
        return object_array((), [walk.builder.constant(0, ref.dtype)])
    old = (
        ref.read(offset, places) if wanted else [walk.builder.constant(0, ref.dtype)] * len(places)
    )
    values = list(np.broadcast_to(walk.arrays.registers(walk, new), shape).ravel())
    ref.write(offset, places, values, walk.mask)
    return object_array(shape, old)


@rule("addupdate")
def addupdate(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Add to elements."""
    ref, new = inputs[0], walk.arrays.registers(walk, inputs[1])
    offset, places, shape = _address(walk, equation, ref, inputs[2:])
    values = list(np.broadcast_to(new, shape).ravel())
    old = ref.read(offset, places)
    total = [walk.builder.add(x, y) for x, y in zip(old, values, strict=True)]
    ref.write(offset, places, total, walk.mask)
    return []


def _is_run(places: list[int]) -> bool:
    return places[-1] - places[0] == len(places) - 1


def _address(
    walk: Walk, equation: Equation, ref: Any, leaves: list[Any]
) -> tuple[Value | None, list[int], tuple[int, ...]]:
    """Split an index into a dynamic element offset and the static places beyond it."""
    transforms = jax.tree.unflatten(equation.params["tree"], leaves)
    if not transforms:
        return None, ref.places, ref.shape
    if len(transforms) > 1:
        raise NotImplementedError("a Ref that was sliced or reshaped before it was indexed")
    offset: Value | None = None
    axes: list[range] = []
    shape: list[int] = []
    for axis, index in enumerate(transforms[0].indices):
        extent, stride = ref.shape[axis], ref.strides[axis]
        if isinstance(index, RefSlice):
            start, size, step = index.start, int(index.size), int(index.stride)
            room = extent - (size - 1) * step - 1
            shape.append(size)
            spread = range(0, size * step * stride, step * stride) if size else range(0)
        else:
            start, room, spread = index, extent - 1, range(0, 1)
        if isinstance(start, (int, np.integer)):
            first = min(max(int(start) + (extent if start < 0 else 0), 0), max(room, 0))
            axes.append(
                range(spread.start + first * stride, spread.stop + first * stride, spread.step)
            )
        else:
            axes.append(spread)
            moved = _scaled(walk, start, room, stride)
            offset = moved if offset is None else walk.builder.integer("add", offset, moved)
    places = [sum(p) for p in itertools.product(*axes)]
    return offset, places, tuple(shape)


def _scaled(walk: Walk, index: Any, room: int, stride: int) -> Value:
    """Clamp an index to what the array has and turn it into elements."""
    b = walk.builder
    value = walk.arrays.registers(walk, index)
    if value.shape != ():
        raise NotImplementedError("indexing a Ref with an array of positions")
    position = b.convert(value[()], INT64)
    zero, top = b.constant(0, INT64), b.constant(max(room, 0), INT64)
    inside = b.minimum(b.maximum(position, zero), top)
    return b.integer("mul", inside, b.constant(stride, INT64))
