"""Integer arithmetic on constants, done while a lane program is read.

`y[table]` traces to a handful of operations on the table (negative positions, types, an axis more)
before the gather. Done here, what reaches the gather is a constant, also inside loops: it then
reads at fixed places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from pullback.core.compat import scan_counts
from pullback.lanes.program_ir import Atom, Block, Constant, Equation, Var

_MOST_ELEMENTS = 1 << 16


def fold_integers(block: Block, known: Mapping[Var, np.ndarray] | None = None) -> None:
    """Replace, in place and in nested blocks, integers that depend on constants alone.

    Args:
        block: Changed in place; equations that nobody needs any more stay.
        known: Values of some of its arguments.
    """
    values: dict[Var, np.ndarray] = dict(known or {})
    replaced: dict[Atom, Constant] = {v: Constant(x, v.aval) for v, x in values.items()}

    def value(atom: Atom) -> np.ndarray | None:
        return _constant(atom) if isinstance(atom, Constant) else values.get(atom)

    for equation in block.equations:
        equation.inputs = [replaced.get(a, a) for a in equation.inputs]
        inputs = [value(a) for a in equation.inputs]
        for inner, given in _passed(equation, inputs):
            fold_integers(inner, given)
        result = _evaluate(equation, inputs)
        if result is None:
            continue
        (var,) = equation.outputs
        values[var] = result
        # One number everywhere is cheaper as it stands.
        if equation.primitive != "broadcast_in_dim" or equation.inputs[0].aval.shape:
            replaced[var] = Constant(result, var.aval)
    block.outputs = [replaced.get(a, a) for a in block.outputs]


def _is_integer(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "iub"


def _constant(atom: Constant) -> np.ndarray | None:
    return np.asarray(atom.value, atom.aval.dtype) if _is_integer(atom.aval) else None


def _passed(
    equation: Equation, inputs: list[np.ndarray | None]
) -> Iterator[tuple[Block, dict[Var, np.ndarray]]]:
    """Yield the bodies of an equation with the values of arguments that never change."""
    p, blocks = equation.params, equation.blocks
    if equation.primitive == "while":
        n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
        fixed = [inputs[:n_cond], inputs[n_cond : n_cond + n_body]]
    elif equation.primitive == "scan":
        fixed = [inputs[: scan_counts(p)[0]]]
    else:
        fixed = [inputs[1:]] * len(blocks)
    for block, values in zip(blocks, fixed, strict=True):
        arguments = block.inputs[: len(values)]
        yield block, {v: x for v, x in zip(arguments, values, strict=True) if x is not None}


def _evaluate(equation: Equation, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    """Return the result of an equation, None unless it is integers that are known."""
    function = _FUNCTIONS.get(equation.primitive)
    if function is None or len(equation.outputs) != 1:
        return None
    (out,) = equation.outputs
    if not _is_integer(out.aval) or out.size > _MOST_ELEMENTS or any(x is None for x in inputs):
        return None
    with np.errstate(all="ignore"):
        result = function(equation.params, *inputs)
    return np.asarray(result).astype(out.aval.dtype).reshape(out.shape)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *x: function(*x)


def _select(_: Any, which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    stacked = np.stack(np.broadcast_arrays(*cases))
    row = np.broadcast_to(which.astype(np.intp), stacked.shape[1:])
    return np.take_along_axis(stacked, row[None], 0)[0]


def _broadcast(p: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    placed = [1] * len(p["shape"])
    for axis, size in zip(p["broadcast_dimensions"], x.shape, strict=True):
        placed[axis] = size
    return np.broadcast_to(x.reshape(placed), p["shape"])


def _iota(p: Mapping[str, Any]) -> np.ndarray:
    return np.indices(p["shape"])[p["dimension"]]


def _slice(p: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    strides = p["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _plain(np.multiply),
    "max": _plain(np.maximum),
    "min": _plain(np.minimum),
    "and": _plain(np.bitwise_and),
    "or": _plain(np.bitwise_or),
    "lt": _plain(np.less),
    "le": _plain(np.less_equal),
    "gt": _plain(np.greater),
    "ge": _plain(np.greater_equal),
    "eq": _plain(np.equal),
    "ne": _plain(np.not_equal),
    "select_n": _select,
    "clamp": _plain(lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "convert_element_type": _plain(lambda x: x),
    "broadcast_in_dim": _broadcast,
    "reshape": _plain(lambda x: x),
    "squeeze": _plain(lambda x: x),
    "expand_dims": _plain(lambda x: x),
    "iota": _iota,
    "slice": _slice,
    "transpose": lambda p, x: np.transpose(x, p["permutation"]),
    "rev": lambda p, x: np.flip(x, p["dimensions"]),
    "concatenate": lambda p, *x: np.concatenate(x, p["dimension"]),
}
