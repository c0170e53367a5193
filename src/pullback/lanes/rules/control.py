"""Rules of control flow inside a lane: loops run while any lane needs them, under a mask.

A lane that has finished keeps its carry by a select and its Refs by the mask; a branch is skipped
when no lane takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.core.compat import scan_counts
from pullback.lanes.carries import add_edge, lane_form, make_carries
from pullback.lanes.memory import Expression, Strided
from pullback.lanes.program_ir import Block, Equation
from pullback.lanes.values import BOOL, INT32, INT64, Value, object_array, scalar
from pullback.lanes.walk import Walk, rule


@rule("while")
def while_(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Run the body until the condition fails in every lane."""
    condition, body = equation.blocks
    n_cond, n_body = equation.params["cond_nconsts"], equation.params["body_nconsts"]
    cond_consts = [walk.arrays.fixed(x) for x in inputs[:n_cond]]
    body_consts = [walk.arrays.fixed(x) for x in inputs[n_cond : n_cond + n_body]]
    carries = make_carries(walk, [lane_form(v) for v in equation.outputs])
    begin = [c.initial(x) for c, x in zip(carries, inputs[n_cond + n_body :], strict=True)]
    b, f = walk.builder, walk.builder.function
    head, inside, leave = f.label("while"), f.label("body"), f.label("leave")
    source = f.block
    b.branch(head)
    f.open(head)
    placed = [c.place() for c in carries]
    state, phis = [s for s, _ in placed], [p for _, p in placed]
    add_edge(phis, begin, source)
    with b.scope():
        (go,) = walk.block(condition, [*cond_consts, *state])
        go = walk.arrays.fixed(go)
        active = walk.under(_any_element(walk, go))
        b.branch_if(b.any_lane(active), inside, leave)
        f.open(inside)
        with walk.masked(active):
            results = walk.block(body, [*body_consts, *state])
        if go.ndim:
            results = [_where(walk, go, r, s) for r, s in zip(results, state, strict=True)]
        following = [
            c.successor(s, r, active) for c, s, r in zip(carries, state, results, strict=True)
        ]
        add_edge(phis, following, f.block)
        b.branch(head)
    f.open(leave)
    return state


def _any_element(walk: Walk, go: Any) -> Value:
    """Whether any element goes on: `vmap` inside a lane makes one predicate for each."""
    if go.ndim == 0:
        return go[()]
    b = walk.builder
    axes, neutral = range(go.ndim), b.constant(False, BOOL)
    return walk.arrays.reduce(walk, go, axes, lambda x, y: b.integer("or", x, y), neutral)[()]


def _where(walk: Walk, go: Any, new: Any, old: Any) -> Any:
    """Return `new` where the element goes on and `old` elsewhere; `go` has the leading axes."""
    arrays, select = walk.arrays, walk.builder.select
    chosen = arrays.broadcast(go, new.shape, range(go.ndim))
    parts = [chosen, new, old]
    if all(isinstance(x, np.ndarray) for x in parts):
        return walk.map(select, *parts)
    nodes = [arrays.node(x) for x in parts]
    return Expression(select, nodes, tuple(old.shape), old.dtype)


@rule("cond")
def cond(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Run each branch that some lane takes and merge by its mask."""
    which, operands = inputs[0][()], [walk.arrays.fixed(x) for x in inputs[1:]]
    branches = equation.blocks
    if which.is_constant:
        index = min(max(int(which.constant), 0), len(branches) - 1)
        return walk.block(branches[index], operands)
    forms = [lane_form(v) for v in equation.outputs]
    merged: list[Any] = [
        None if walk.arrays.fits(shape) else walk.arrays.fresh(shape, dtype)
        for shape, dtype in forms
    ]
    for i, branch in enumerate(branches):
        taken = _takes(walk, which, i, len(branches))
        merged = _branch(walk, branch, operands, taken, merged)
    return merged


def _branch(
    walk: Walk, branch: Block, operands: Sequence[Any], taken: Value, merged: Sequence[Any]
) -> list[Any]:
    """Evaluate one branch if any lane takes it; lanes that do not keep what was merged."""
    b, f = walk.builder, walk.builder.function
    run, join = f.label("branch"), f.label("merge")
    mask = walk.under(taken)
    b.branch_if(b.any_lane(mask), run, join)
    before = f.block
    f.open(run)
    with b.scope(), walk.masked(mask):
        results = walk.block(branch, operands)
        new = [_blend(walk, taken, r, old) for r, old in zip(results, merged, strict=True)]
        texts = [
            [b.operand(v) for v in x.ravel()] if isinstance(x, np.ndarray) else [] for x in new
        ]
    after = f.block
    b.branch(join)
    f.open(join)
    out = []
    for x, old, items in zip(new, merged, texts, strict=True):
        if not isinstance(x, np.ndarray):
            out.append(x)
            continue
        kept = [None] * x.size if old is None else old.ravel()
        values = []
        for v, k, text in zip(x.ravel(), kept, items, strict=True):
            value, phi = b.phi(v.dtype)
            phi.add("zeroinitializer" if k is None else k.text, before)
            phi.add(text, after)
            values.append(value)
        out.append(object_array(x.shape, values))
    return out


def _blend(walk: Walk, taken: Value, result: Any, old: Any) -> Any:
    """Return the branch's result in lanes that take it, over what earlier branches gave."""
    b = walk.builder
    if isinstance(old, Strided):
        blended = Expression(
            lambda new, kept: b.select(taken, new, kept),
            [walk.arrays.node(result), old],
            old.shape,
            old.dtype,
        )
        return walk.arrays.in_memory(blended, old)
    values = walk.arrays.registers(walk, result)
    if old is None:
        return values
    return walk.map(lambda new, kept: b.select(taken, new, kept), values, old)


def _takes(walk: Walk, which: Value, i: int, n: int) -> Value:
    b = walk.builder
    if which.dtype == BOOL:
        return which if i == 1 else b.integer("xor", which, b.constant(True, BOOL))
    number = b.constant(i, which.dtype)
    order = "le" if i == 0 else ("ge" if i == n - 1 else "eq")
    return b.compare(order, which, number)


@rule("scan")
def scan(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Run a loop of known length; short ones are unrolled."""
    p = equation.params
    (n_consts, n_carry), length = scan_counts(p), p["length"]
    consts, carry = inputs[:n_consts], inputs[n_consts : n_consts + n_carry]
    xs = inputs[n_consts + n_carry :]
    (body,) = equation.blocks
    order = range(length - 1, -1, -1) if p["reverse"] else range(length)
    if length * _cost(body) <= UNROLL_LIMIT:
        return _unrolled(walk, body, consts, carry, xs, order)
    return _rolled(walk, equation, consts, carry, xs)


UNROLL_LIMIT = 400


def _cost(block: Block) -> int:
    """Estimate the instructions of a block from the sizes of its results."""
    total = 0
    for equation in block.equations:
        total += sum(max(v.size, 1) for v in equation.outputs if not v.is_ref)
        total += sum(_cost(inner) for inner in equation.blocks)
    return max(total, 1)


def _unrolled(
    walk: Walk, body: Block, consts: list[Any], carry: list[Any], xs: list[Any], order: range
) -> list[Any]:
    rows: list[dict[int, Any]] = [{} for _ in body.outputs[len(carry) :]]
    for i in order:
        items = [_static_row(walk, x, i) for x in xs]
        results = walk.block(body, [*consts, *carry, *items])
        carry = results[: len(carry)]
        for kept, y in zip(rows, results[len(carry) :], strict=True):
            kept[i] = y
    stacked = []
    for row, out in zip(rows, body.outputs[len(carry) :], strict=True):
        shape, _ = lane_form(out)
        parts = [walk.arrays.reshape(walk, row[i], (1, *shape)) for i in sorted(row)]
        stacked.append(
            walk.arrays.concatenate(parts, 0) if parts else np.empty((0, *shape), object)
        )
    return [*carry, *stacked]


def _static_row(walk: Walk, x: Any, i: int) -> Any:
    starts, limits = [i] + [0] * (x.ndim - 1), [i + 1, *x.shape[1:]]
    piece = walk.arrays.slice(x, starts, limits, [1] * x.ndim)
    return walk.arrays.reshape(walk, piece, tuple(x.shape[1:]))


def _rolled(
    walk: Walk, equation: Equation, consts: list[Any], carry: list[Any], xs: list[Any]
) -> list[Any]:
    """A counted loop; inputs and outputs per trip live in memory of the thread."""
    p, (body,) = equation.params, equation.blocks
    b, f, arrays = walk.builder, walk.builder.function, walk.arrays
    length, n_carry = p["length"], len(carry)
    consts = [arrays.fixed(x) for x in consts]
    sources = [arrays.packed(x) for x in xs]
    forms = [lane_form(v) for v in equation.outputs]
    targets = [arrays.fresh(*form) for form in forms[n_carry:]]
    carries = make_carries(walk, forms[:n_carry])
    begin = [c.initial(x) for c, x in zip(carries, carry, strict=True)]
    head, inside, leave = f.label("scan"), f.label("trip"), f.label("end")
    source = f.block
    b.branch(head)
    f.open(head)
    trip, trip_phi = b.phi(INT64, uniform=True)
    trip_phi.add("0", source)
    placed = [c.place() for c in carries]
    state, phis = [s for s, _ in placed], [q for _, q in placed]
    add_edge(phis, begin, source)
    b.branch_if(f.define(f"icmp slt i64 {trip.text}, {length}"), inside, leave)
    f.open(inside)
    with b.scope():
        row = b.subtract(b.constant(length - 1, INT64), trip) if p["reverse"] else trip
        items = [arrays.settle_small(_row(walk, s, row)) for s in sources]
        results = walk.block(body, [*consts, *state, *items])
        for target, y in zip(targets, results[n_carry:], strict=True):
            arrays.in_memory(y, _row(walk, target, row))
        following = [
            c.successor(s, r, None)
            for c, s, r in zip(carries, state, results[:n_carry], strict=True)
        ]
        add_edge(phis, following, f.block)
        trip_phi.add(b.add(trip, b.constant(1, INT64)).text, f.block)
        b.branch(head)
    f.open(leave)
    return [*state, *[arrays.settle_small(t) for t in targets]]


def _row(walk: Walk, array: Strided, row: Value) -> Strided:
    """Return ``array[row]`` of memory without gaps."""
    b, shape = walk.builder, array.shape[1:]
    count = int(np.prod(shape, dtype=np.int64))
    moving = b.integer("mul", row, b.constant(count, INT64))
    pointer = b.element_pointer(array.pointer, array.dtype, moving, 0, shared=array.shared)
    return Strided(b, pointer, shape, array.dtype, shared=array.shared, keep=array)


@rule("platform_index")
def platform_index(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Choose the branch written for CPUs."""
    platforms = equation.params["platforms"]
    chosen = next((i for i, p in enumerate(platforms) if p is None or "cpu" in p), 0)
    return scalar(walk.builder.constant(chosen, INT32))


@rule(
    "copy",
    "copy_p",
    "device_put",
    "optimization_barrier",
    "pvary",
    "reshard",
    "sharding_constraint",
    "stop_gradient",
)
def unchanged(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Values stay as they are."""
    return list(inputs)
