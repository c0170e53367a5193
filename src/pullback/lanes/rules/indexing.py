"""Rules of dynamic indexing on arrays: slices, gather and scatter.

Positions that are constants become fixed reads and writes or a table. Positions of the lane are
resolved element by element where there are few, and in loops over memory where there are many.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.lanes.arrays import RETURN_LIMIT
from pullback.lanes.boxes import Boxes, gathered, scattered
from pullback.lanes.lookup import Picked, at_table, linear
from pullback.lanes.memory import Expression, Filled, Index, Strided, at_position, domain, nest
from pullback.lanes.program_ir import Atom, Constant, Equation
from pullback.lanes.registers import SELECT_LIMIT
from pullback.lanes.values import INT64, Value, object_array
from pullback.lanes.walk import Walk, rule

# Reads and writes at positions that differ from lane to lane are long: beyond so many, loops.
_FEW = 3
# Reads at a position that lanes share are short.
_FEW_SHARED = 32
# So many pairs of an element and an access at a position of the lane are made into selects.
_MOST_SELECTS = 32
# Accesses at known positions: so many are written out.
_FEW_KNOWN = 128

Combine = Callable[[Value, Value], Value]


def clamped(walk: Walk, index: Value, room: int) -> Value:
    """Return the index as int64 inside ``0 .. room``."""
    b = walk.builder
    wide = b.convert(index, INT64)
    return b.minimum(b.maximum(wide, b.constant(0, INT64)), b.constant(max(room, 0), INT64))


def known(atom: Atom, x: Any) -> np.ndarray | None:
    """Return an array of integers that is known while the kernel is built, else None."""
    if isinstance(atom, Constant):
        return np.asarray(atom.value, atom.aval.dtype)
    if isinstance(x, Filled) and x.value.is_constant:
        return np.full(x.shape, x.value.constant)
    if isinstance(x, np.ndarray) and all(v.is_constant for v in x.ravel()):
        return np.array([v.constant for v in x.ravel()], np.int64).reshape(x.shape)
    return None


# -- slices --------------------------------------------------------------------------------------
@rule("dynamic_slice")
def dynamic_slice(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Take a box whose corner the lane computes; the corner is clamped to fit."""
    x, sizes = inputs[0], tuple(equation.params["slice_sizes"])
    arrays, b = walk.arrays, walk.builder
    offset = _offset(walk, x.shape, [s[()] for s in inputs[1:]], sizes)
    size = int(np.prod(sizes, dtype=np.int64))
    if size <= _FEW or (isinstance(x, np.ndarray) and offset.is_constant):
        return object_array(sizes, arrays.pick(walk, x, offset, _places(x.shape, sizes)))
    memory = arrays.packed(x)
    if offset.uniform:
        at = b.element_pointer(memory.pointer, memory.dtype, offset, 0, shared=memory.shared)
        return Strided(
            b,
            at,
            sizes,
            memory.dtype,
            strides=memory.strides,
            shared=memory.shared,
            keep=memory,
        )

    def locate(index: Sequence[Index]) -> tuple[Value, None]:
        return b.integer("add", offset, linear(b, index, memory.strides)), None

    return Picked(memory, sizes, locate, b.constant(0, memory.dtype))


@rule("dynamic_update_slice")
def dynamic_update_slice(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Replace a box whose corner the lane computes."""
    x, update = inputs[0], inputs[1]
    arrays, b = walk.arrays, walk.builder
    offset = _offset(walk, x.shape, [s[()] for s in inputs[2:]], update.shape)
    if update.size <= _FEW or (isinstance(x, np.ndarray) and offset.is_constant):
        places = _places(x.shape, update.shape)
        values = list(arrays.registers(walk, update).ravel())
        return arrays.place(walk, x, offset, places, values, None)
    source = arrays.node(update)
    storage, contents = arrays.copied(x)
    strides = contents.strides

    def store(index: Sequence[Index]) -> None:
        at = b.integer("add", offset, linear(b, index, strides))
        storage.write(at, [0], [source.at(index)], None)

    for box in domain(source, source.shape):
        nest(b, box, store)
    return contents


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


# -- gather --------------------------------------------------------------------------------------
@rule("gather")
def gather(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Take boxes at a list of corners (every mode of JAX)."""
    x, b = inputs[0], walk.builder
    dtype = np.dtype(equation.outputs[0].dtype)
    boxes = gathered(equation, tuple(x.shape))
    fill = b.constant(_fill_value(equation.params.get("fill_value"), dtype), dtype)
    fills = equation.params["mode"].name == "FILL_OR_DROP"
    corners = known(equation.inputs[1], inputs[1])
    if corners is None:
        return _gather_lanes(walk, equation, inputs, boxes, fill if fills else None)
    places, exists = boxes.table(corners)
    order = np.argsort(boxes.order)
    places, exists = np.transpose(places, order), np.transpose(exists, order)
    taken = at_table(walk.arrays, x, places)
    if not fills or exists.all():
        return taken
    if isinstance(taken, np.ndarray):
        items = [v if ok else fill for v, ok in zip(taken.ravel(), exists.ravel(), strict=True)]
        return object_array(taken.shape, items)
    mask = walk.arrays.node(walk.arrays.constant(exists))
    nodes = [mask, taken, Filled(fill, taken.shape)]
    return Expression(b.select, nodes, taken.shape, dtype)


def _gather_lanes(
    walk: Walk, equation: Equation, inputs: list[Any], boxes: Boxes, fill: Value | None
) -> Any:
    """Gather at corners that lanes compute."""
    arrays, b, (x, corners) = walk.arrays, walk.builder, inputs
    shape = tuple(equation.outputs[0].shape)
    size = int(np.prod(shape, dtype=np.int64))
    few = _written_out(corners, size)
    corners = arrays.node(corners) if few else arrays.in_memory(corners)
    if few and isinstance(x, np.ndarray) and _is_select(x, size):

        def read(position: Value) -> Value:
            return arrays.pick(walk, x, position, [0])[0]
    else:
        memory = arrays.packed(x)
        if not few:
            no_fill = b.constant(0, memory.dtype)

            def locate(index: Sequence[Index]) -> tuple[Value, Value | None]:
                position, exists = boxes.locate(b, corners, index)
                return position, (None if fill is None else exists)

            missing = no_fill if fill is None else fill
            return Picked(memory, shape, locate, missing)

        def read(position: Value) -> Value:
            return b.gather_elements(memory, position, [0])[0]

    items = []
    for where in np.ndindex(shape):
        position, exists = boxes.locate(b, corners, [at_position(i) for i in where])
        value = read(position)
        items.append(value if fill is None else b.select(exists, value, fill))
    return object_array(shape, items)


def _is_select(x: np.ndarray, n_accesses: int) -> bool:
    """Whether accesses to registers at positions of the lane are made into selects."""
    return x.size <= SELECT_LIMIT and x.size * n_accesses <= _MOST_SELECTS


def _written_out(corners: Any, size: int) -> bool:
    """Whether so many accesses at these corners are emitted one by one."""
    is_shared = (isinstance(corners, Strided) and corners.shared) or (
        isinstance(corners, np.ndarray) and all(v.uniform for v in corners.ravel())
    )
    return size <= (_FEW_SHARED if is_shared else _FEW)


def _fill_value(fill: Any, dtype: np.dtype) -> Any:
    if fill is not None:
        return fill
    if dtype.kind == "f":
        return np.nan
    if dtype.kind == "i":
        return np.iinfo(dtype).min
    return True if dtype.kind == "b" else np.iinfo(dtype).max


# -- scatter -------------------------------------------------------------------------------------
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
    x, corners, updates = inputs
    boxes = scattered(equation, tuple(x.shape), tuple(updates.shape))
    clips = equation.params["mode"].name == "CLIP"
    combine = _combine(walk, equation.primitive)
    ordered = walk.arrays.transpose(updates, [int(a) for a in boxes.order])
    places = known(equation.inputs[1], corners)
    if places is None:
        return _scatter_lanes(walk, inputs, boxes, clips, combine)
    table, exists = boxes.table(places)
    kept = np.flatnonzero(exists) if not clips else np.arange(table.size)
    targets = table.ravel()[kept]
    if isinstance(x, np.ndarray) and targets.size <= _FEW_KNOWN:
        return _scatter_registers(walk, x, targets, ordered, kept, combine)
    replaces = combine is None or (
        equation.primitive.endswith("add")
        and isinstance(x, Filled)
        and x.value.is_constant
        and x.value.constant == 0
    )
    if replaces and _is_permutation(targets, x.shape):
        return at_table(walk.arrays, ordered, kept[np.argsort(targets)].reshape(x.shape))
    return _scatter_memory(walk, x, targets, ordered, kept, combine)


def _is_permutation(targets: np.ndarray, shape: tuple[int, ...]) -> bool:
    size = int(np.prod(shape, dtype=np.int64))
    return targets.size == size and np.unique(targets).size == size


def _scatter_registers(
    walk: Walk,
    x: np.ndarray,
    targets: np.ndarray,
    updates: Any,
    kept: np.ndarray,
    combine: Combine | None,
) -> np.ndarray:
    """Put updates `kept` (row-major positions) at known places of an array in registers."""
    node = walk.arrays.node(updates)
    out: list[Any] = list(x.ravel())
    for place, position in zip(targets, kept, strict=True):
        where = np.unravel_index(position, node.shape)
        value = node.at([at_position(int(i)) for i in where])
        out[place] = value if combine is None else combine(out[place], value)
    return object_array(x.shape, out)


def _scatter_memory(
    walk: Walk,
    x: Any,
    targets: np.ndarray,
    updates: Any,
    kept: np.ndarray,
    combine: Combine | None,
) -> Strided:
    """Put updates `kept` at known places of memory, one by one or by a table."""
    arrays, b = walk.arrays, walk.builder
    source = arrays.node(updates)
    if kept.size > RETURN_LIMIT:
        source = arrays.in_memory(source)
    _, contents = arrays.copied(x)
    flat = contents.view((contents.size,), (1,), 0)

    def put(index: list[Index], value: Value) -> None:
        flat.store(index, value if combine is None else combine(flat.at(index), value))

    if kept.size <= RETURN_LIMIT:
        for place, position in zip(targets, kept, strict=True):
            where = np.unravel_index(position, source.shape)
            put([at_position(int(place))], source.at([at_position(int(i)) for i in where]))
        return contents
    offsets = np.stack(np.unravel_index(kept, source.shape), -1) @ np.array(source.strides)
    rows = np.stack([targets, offsets + source.offset], -1).astype(np.int64)
    table = Strided(b, b.table(rows), rows.shape, INT64, shared=True)
    line = Strided(b, source.pointer, (1,), source.dtype, shared=source.shared, keep=source)
    with b.counted(0, kept.size) as k:
        row = Index(0, k, 0, 0, kept.size)
        place, position = (table.at([row, at_position(i)]) for i in (0, 1))
        value = line.at([Index(0, position, 0, 0, 1)])
        put([Index(0, place, 0, 0, contents.size)], value)
    return contents


def _scatter_lanes(
    walk: Walk, inputs: list[Any], boxes: Boxes, clips: bool, combine: Combine | None
) -> Any:
    """Scatter to corners that lanes compute, in index order."""
    arrays, b, (x, corners, updates) = walk.arrays, walk.builder, inputs
    few = _written_out(corners, updates.size)
    corners = arrays.node(corners) if few else arrays.in_memory(corners)
    source = arrays.node(updates) if few else arrays.in_memory(updates)
    if few and isinstance(x, np.ndarray) and x.size * updates.size <= _MOST_SELECTS:
        return _scatter_selects(walk, x, corners, source, boxes, clips, combine)
    storage, contents = arrays.copied(x)

    def put(index: Sequence[Index]) -> None:
        index = [index[i] for i in np.argsort(boxes.order)]
        position, exists = boxes.locate(b, corners, index)
        value = source.at(index)
        if combine is not None:
            value = combine(storage.read(position, [0])[0], value)
        storage.write(position, [0], [value], None if clips else exists)

    shape = [updates.shape[a] for a in boxes.order]
    if few:
        for where in np.ndindex(*shape):
            put([at_position(i) for i in where])
    else:
        nest(b, [(0, n) for n in shape], put)
    return contents


def _scatter_selects(
    walk: Walk,
    x: Any,
    corners: Any,
    source: Any,
    boxes: Boxes,
    clips: bool,
    combine: Combine | None,
) -> Any:
    """Scatter a few updates into a few registers."""
    b, out, back = walk.builder, list(x.ravel()), np.argsort(boxes.order)
    for where in np.ndindex(*[source.shape[a] for a in boxes.order]):
        index = [at_position(where[i]) for i in back]
        position, exists = boxes.locate(b, corners, index)
        value = source.at(index)
        values = out if combine is None else [combine(old, value) for old in out]
        for i, old in enumerate(out):
            here = b.compare("eq", position, b.constant(i, INT64))
            here = here if clips else b.integer("and", here, exists)
            out[i] = b.select(here, value if combine is None else values[i], old)
    return object_array(x.shape, out)


def _combine(walk: Walk, primitive: str) -> Combine | None:
    b = walk.builder
    kind = primitive.replace("-", "_").removeprefix("scatter").removeprefix("_")
    return {"": None, "add": b.add, "mul": b.multiply, "min": b.minimum, "max": b.maximum}[kind]
