"""Rules of sorting: a network of exchanges, written out when short, else a loop over a table.

Keys become integers that sort like them, once. Ties are broken by the position from where an
element came, so every network is stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.lanes.memory import Expression, Index, Strided, at_position, nest
from pullback.lanes.program_ir import Atom, Constant, Equation
from pullback.lanes.rules.elementwise import sortable
from pullback.lanes.values import BOOL, INT32, INT64, Value, object_array
from pullback.lanes.walk import Walk, rule

# So many exchanges of two elements are written out.
_FEW_EXCHANGES = 32
_LONGEST_UNROLLED = 8


@rule("sort")
def sort(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Sort along an axis by the first operands, stably; the other operands follow."""
    axis, n_keys = equation.params["dimension"], equation.params["num_keys"]
    keys = [
        _elementwise(walk, _key, x, _key_dtype(atom))
        for x, atom in zip(inputs[:n_keys], equation.inputs, strict=False)
    ]
    return _sorted(walk, keys, inputs, equation.inputs, axis)


@rule("top_k")
def top_k(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Return the largest elements along an axis and their positions, the first of equals first."""
    (x,), (_, out) = inputs, equation.outputs
    axis, k = equation.params.get("axis", x.ndim - 1), out.shape[equation.params.get("axis", -1)]
    positions = np.indices(x.shape)[axis].astype(out.dtype)
    keys = [_elementwise(walk, _falling_key, x, _key_dtype(equation.inputs[0]))]
    atoms = [equation.inputs[0], Constant(positions, out.aval)]
    both = _sorted(walk, keys, [x, walk.constant(positions)], atoms, axis)
    limits = [k if a == axis else n for a, n in enumerate(x.shape)]
    return [walk.arrays.slice(y, [0] * x.ndim, limits, [1] * x.ndim) for y in both]


def _key(b: Any, x: Value) -> Value:
    """Return an integer that sorts like `x`: zeros are equal, and so are NaNs, which come last."""
    if x.dtype.kind != "f":
        return x
    zero, nan = b.constant(0, x.dtype), b.constant(np.nan, x.dtype)
    plain = b.select(b.compare("eq", x, zero), zero, x)
    return sortable(b, b.select(b.compare("ne", x, x), nan, plain))


def _falling_key(b: Any, x: Value) -> Value:
    """Return an integer that sorts against `x`, in IEEE's total order."""
    key = sortable(b, x)
    ones = b.constant(True if key.dtype == BOOL else np.array(-1).astype(key.dtype), key.dtype)
    return b.integer("xor", key, ones)


def _key_dtype(atom: Atom) -> np.dtype:
    dtype = np.dtype(atom.aval.dtype)
    if dtype.kind != "f":
        return dtype
    return INT64 if dtype.itemsize == 8 else INT32


def _elementwise(walk: Walk, function: Any, x: Any, dtype: np.dtype) -> Any:
    b = walk.builder
    if isinstance(x, np.ndarray):
        return walk.map(lambda v: function(b, v), x)
    return Expression(lambda v: function(b, v), [x], x.shape, dtype)


def _sorted(
    walk: Walk, keys: list[Any], operands: list[Any], atoms: Sequence[Atom], axis: int
) -> list[Any]:
    n, size = operands[0].shape[axis], operands[0].size
    if n < 2:
        return list(operands)
    is_small = all(isinstance(x, np.ndarray) for x in operands) and n <= _LONGEST_UNROLLED
    if is_small and size // n * (n * (n - 1) // 2) * len(operands) <= _FEW_EXCHANGES:
        return _sort_registers(walk, keys, operands, axis)
    return _sort_memory(walk, keys, operands, atoms, axis)


# -- registers -----------------------------------------------------------------------------------
def _sort_registers(walk: Walk, keys: list[Any], operands: list[Any], axis: int) -> list[Any]:
    """Exchange neighbours, which is stable without knowing where elements came from."""
    b = walk.builder
    moved = [object_array(x.shape, list(x.ravel())) for x in (*keys, *operands)]
    lines = [np.moveaxis(x, axis, -1) for x in moved]
    n = lines[0].shape[-1]
    for where in np.ndindex(lines[0].shape[:-1]):
        rows: list[Any] = [x[where] for x in lines]
        for end in range(n - 1, 0, -1):
            for i in range(end):
                left, right = ([r[j] for r in rows[: len(keys)]] for j in (i, i + 1))
                swap = _after(b, left, right, b.constant(False, BOOL))
                for r in rows:
                    low, high = r[i], r[i + 1]
                    r[i], r[i + 1] = b.select(swap, high, low), b.select(swap, low, high)
    return moved[len(keys) :]


def _after(b: Any, left: list[Value], right: list[Value], if_equal: Value) -> Value:
    """Return whether `left` comes after `right` in the lexicographic order of the keys."""
    result = if_equal
    for x, y in zip(reversed(left), reversed(right), strict=True):
        greater = b.compare("gt", x, y)
        if result.is_constant and not result.constant:
            result = greater
        else:
            ties = b.integer("and", b.compare("eq", x, y), result)
            result = b.integer("or", greater, ties)
    return result


# -- memory --------------------------------------------------------------------------------------
def _sort_memory(
    walk: Walk, keys: list[Any], operands: list[Any], atoms: Sequence[Atom], axis: int
) -> list[Any]:
    """Sort keys and the positions they came from in place, then fetch the operands."""
    arrays = walk.arrays
    rank = operands[0].ndim
    to_last = [*[a for a in range(rank) if a != axis], axis]
    back = [int(a) for a in np.argsort(to_last)]
    lines = [_own_copy(walk, arrays.transpose(k, to_last)) for k in keys]
    only_key = len(operands) == 1 and lines[0].dtype == atoms[0].aval.dtype
    if not only_key:
        lines.append(_positions(walk, lines[0]))
    _exchange(walk, lines, breaks_ties=not only_key)
    if only_key:
        return [arrays.transpose(lines[0], back)]
    positions, results = lines[-1], []
    for x, atom in zip(operands, atoms, strict=True):
        if _is_positions(atom, axis):
            dtype = np.dtype(atom.aval.dtype)
            found = _elementwise(walk, _converted(dtype), positions, dtype)
        else:
            rows = arrays.packed(arrays.transpose(arrays.node(x), to_last))
            found = _fetch(walk, rows, positions)
        results.append(arrays.transpose(found, back))
    return results


def _converted(dtype: np.dtype) -> Any:
    return lambda b, v: b.convert(v, dtype)


def _own_copy(walk: Walk, x: Any) -> Strided:
    node = walk.arrays.node(x)
    return walk.arrays.in_memory(node, walk.arrays.fresh(node.shape, node.dtype))


def _positions(walk: Walk, keys: Strided) -> Strided:
    """Return the positions along the last axis, in integers as wide as the keys."""
    b = walk.builder
    dtype = INT64 if keys.dtype.itemsize == 8 else INT32
    target = walk.arrays.fresh(keys.shape, dtype)

    def store(index: list[Index]) -> None:
        last = index[-1]
        number = b.constant(last.offset, INT64) if last.value is None else last.value
        target.store(index, b.convert(number, dtype))

    nest(b, [(0, n) for n in keys.shape], store)
    return target


def _is_positions(atom: Atom, axis: int) -> bool:
    """Whether an operand counts along the axis: `argsort` sorts such a one."""
    if not isinstance(atom, Constant) or np.ndim(atom.value) == 0:
        return False
    value = np.asarray(atom.value)
    return value.dtype.kind in "iu" and bool(np.all(value == np.indices(value.shape)[axis]))


def _exchange(walk: Walk, lines: list[Strided], *, breaks_ties: bool) -> None:
    """Run a sorting network over the last axis of arrays in memory, in place."""
    b, shape = walk.builder, lines[0].shape
    pairs = np.array(merge_exchange(shape[-1]), np.int64)
    table = Strided(b, b.table(pairs), pairs.shape, INT64, shared=True)

    def run(outer: list[Index]) -> None:
        with b.counted(0, len(pairs)) as k:
            row = Index(-2, k, 0, 0, len(pairs))
            places = [
                [*outer, Index(-3, table.at([row, at_position(i)]), 0, 0, shape[-1])]
                for i in (0, 1)
            ]
            low, high = ([line.at(place) for line in lines] for place in places)
            n_keys = len(lines) - breaks_ties
            later = b.compare("gt", low[-1], high[-1]) if breaks_ties else b.constant(False, BOOL)
            swap = _after(b, low[:n_keys], high[:n_keys], later)
            for line, x, y in zip(lines, low, high, strict=True):
                line.store(places[0], b.select(swap, y, x))
                line.store(places[1], b.select(swap, x, y))

    nest(b, [(0, n) for n in shape[:-1]], run)


def merge_exchange(n: int) -> list[tuple[int, int]]:
    """Return Batcher's sorting network of `n` elements: pairs to exchange, in order.

    The merge exchange of Knuth's *Sorting and Searching*, section 5.2.2, algorithm M.
    """
    pairs = []
    top = 1 << max((n - 1).bit_length() - 1, 0)
    p = top
    while p > 0:
        q, r, d = top, 0, p
        while True:
            pairs += [(i, i + d) for i in range(n - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
    return pairs


def _fetch(walk: Walk, source: Strided, positions: Strided) -> Strided:
    """Return elements of each line of `source` at the positions of that line."""
    b = walk.builder
    target = walk.arrays.fresh(source.shape, source.dtype)

    def store(index: list[Index]) -> None:
        offset = b.constant(0, INT64)
        for i, stride in zip(index[:-1], source.strides[:-1], strict=True):
            number = b.constant(i.offset, INT64) if i.value is None else i.value
            offset = b.integer("add", offset, b.integer("mul", number, b.constant(stride, INT64)))
        place = b.integer("add", offset, b.convert(positions.at(index), INT64))
        (value,) = b.gather_elements(source, place, [0])
        target.store(index, value)

    nest(b, [(0, m) for m in source.shape], store)
    return target
