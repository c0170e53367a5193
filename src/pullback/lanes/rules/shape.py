"""Rules that only rearrange elements: no instruction is emitted for small arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.lanes.program_ir import Equation
from pullback.lanes.walk import Walk, rule


@rule("broadcast_in_dim")
def broadcast_in_dim(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Place the axes of the operand and repeat along the others."""
    return walk.arrays.broadcast(
        inputs[0], equation.outputs[0].shape, equation.params["broadcast_dimensions"]
    )


@rule("reshape")
def reshape(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Keep the row-major order of elements."""
    if equation.params.get("dimensions") is not None:
        raise NotImplementedError("reshape with permuted dimensions")
    return walk.arrays.reshape(walk, inputs[0], equation.outputs[0].shape)


@rule("squeeze", "expand_dims")
def squeeze(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Drop or add axes of length one."""
    return walk.arrays.reshape(walk, inputs[0], equation.outputs[0].shape)


@rule("transpose")
def transpose(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Permute the axes."""
    return walk.arrays.transpose(inputs[0], equation.params["permutation"])


@rule("slice")
def slice_(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Take a strided box at a static place."""
    p = equation.params
    starts = p["start_indices"]
    strides = p["strides"] or (1,) * len(starts)
    return walk.arrays.slice(inputs[0], starts, p["limit_indices"], strides)


@rule("rev")
def rev(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Reverse the order along some axes."""
    return walk.arrays.reverse(inputs[0], equation.params["dimensions"])


@rule("concatenate")
def concatenate(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Join along an axis."""
    return walk.arrays.concatenate(inputs, equation.params["dimension"])


@rule("stack")
def stack(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Join along a new axis."""
    axis = equation.params["axis"]
    shape = list(equation.outputs[0].shape)
    shape[axis] = 1
    parts = [walk.arrays.reshape(walk, x, tuple(shape)) for x in inputs]
    return walk.arrays.concatenate(parts, axis)


@rule("unstack")
def unstack(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Split along an axis and drop it."""
    axis, x = equation.params["axis"], inputs[0]
    return [_piece(walk, x, axis, i, 1, out.shape) for i, out in enumerate(equation.outputs)]


@rule("split")
def split(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Cut along an axis into parts of given sizes."""
    axis, x, start, parts = equation.params["axis"], inputs[0], 0, []
    for out, size in zip(equation.outputs, equation.params["sizes"], strict=True):
        parts.append(_piece(walk, x, axis, start, size, out.shape))
        start += size
    return parts


def _piece(walk: Walk, x: Any, axis: int, start: int, size: int, shape: tuple[int, ...]) -> Any:
    starts, limits = [0] * len(x.shape), list(x.shape)
    starts[axis], limits[axis] = start, start + size
    part = walk.arrays.slice(x, starts, limits, (1,) * len(starts))
    return walk.arrays.reshape(walk, part, shape)


@rule("pad")
def pad(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Surround and interleave with a value; literal zeros become structural."""
    return walk.arrays.pad(walk, inputs[0], inputs[1], equation.params["padding_config"])


@rule("iota")
def iota(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Count along an axis."""
    out = equation.outputs[0]
    axis = equation.params["dimension"]
    line = np.arange(out.shape[axis]).reshape(
        [-1 if a == axis else 1 for a in range(len(out.shape))]
    )
    return walk.constant(np.broadcast_to(line, out.shape).astype(out.dtype))


@rule("empty", "empty2")
def empty(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Contents are undefined: any constant will do."""
    out = equation.outputs[0]
    return walk.arrays.filled(walk.builder.constant(0, np.dtype(out.dtype)), out.shape)


@rule("tile")
def tile(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Repeat the whole array along each axis."""
    x, reps = inputs[0], equation.params["reps"]
    spread = [n for pair in zip(reps, x.shape, strict=True) for n in pair]
    axes = range(1, 2 * len(reps), 2)
    wide = walk.arrays.broadcast(x, tuple(spread), tuple(axes))
    return walk.arrays.reshape(walk, wide, equation.outputs[0].shape)
