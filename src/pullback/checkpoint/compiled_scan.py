"""A schedule of one-block U-turns inside compiled code: two nested loops around a table.

The forward sweep runs the rows before the first U-turn; each turn of the reverse sweep restores a
snapshot, runs its rows, and reverses one block with `jax.vjp` of a scan, which keeps the
residuals of that block only. Steps that do not fill a block are a shorter block at the end.

Differentiation: reverse mode only, exact; it can be differentiated again in forward mode.
Cotangents of closed-over values are summed block by block, those of `xs` written block by block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.checkpoint.body import Body
from pullback.checkpoint.leaves import (
    Leaves,
    batched_first,
    blank_like,
    floating,
    merged,
    read_slot,
    write_slot,
)
from pullback.checkpoint.slots import Slots
from pullback.checkpoint.table import Table
from pullback.core.typing import Array

__all__ = [
    "CompiledScan",
    "Gradients",
    "advance",
    "blank_ys",
    "compiled_scan",
    "plain_scan",
    "u_turn",
    "with_nones",
]

_Result: TypeAlias = tuple[Leaves, Leaves]


class CompiledScan(NamedTuple):
    """What is fixed when a loop is compiled.

    Attributes:
        body: The step.
        n_steps: Number of steps.
        block: Steps of a block.
        slots: Where snapshots are kept.
    """

    body: Body
    n_steps: int
    block: int
    slots: Slots

    @property
    def n_blocks(self) -> int:
        """Number of whole blocks."""
        return self.n_steps // self.block

    @property
    def n_tail(self) -> int:
        """Number of steps after the last whole block."""
        return self.n_steps % self.block

    def first_step(self, block: Any) -> Any:
        """Return the first step of a block, in a type that can hold it."""
        wide = np.int32 if self.n_steps < np.iinfo(np.int32).max else np.int64
        return jnp.asarray(block, wide) * self.block


class Gradients(NamedTuple):
    """Cotangents that a reverse sweep carries: of the differentiable leaves only.

    Attributes:
        consts: Summed so far.
        carry: Of the state at the place that the sweep has reached.
        xs: Written so far; full length.
    """

    consts: Leaves
    carry: Leaves
    xs: Leaves


def plain_scan(body: Body, n_steps: int, consts: Leaves, init: Leaves, xs: Leaves) -> _Result:
    """Run the steps with `jax.lax.scan`, which has derivatives of every kind."""
    return lax.scan(lambda carry, x: body(consts, carry, x), init, xs, length=n_steps)


@functools.partial(jax.jit, static_argnums=0)
def compiled_scan(
    loop: CompiledScan, table: Table, consts: Leaves, init: Leaves, xs: Leaves
) -> _Result:
    """Run a loop; its derivative follows `table`."""
    return _differentiable(loop, table, consts, init, xs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(
    loop: CompiledScan, table: Table, consts: Leaves, init: Leaves, xs: Leaves
) -> _Result:
    if loop.body.kernels is None:
        out, ys = plain_scan(loop.body, loop.n_steps, consts, init, xs)
    else:
        ys = blank_ys(loop.body, loop.n_steps, consts, init, xs)
        lower, upper = loop.first_step(0), loop.first_step(0) + loop.n_steps
        out, ys = advance(loop.body, consts, xs, lower, upper, init, ys)
    return out, tuple(map(batched_first, ys))


def _forward(
    loop: CompiledScan, table: Table, consts: Leaves, init: Leaves, xs: Leaves
) -> tuple[_Result, tuple[Any, ...]]:
    ys = blank_ys(loop.body, loop.n_steps, consts, init, xs)
    start = (init, loop.slots.start(init), ys)
    turning, buffer, ys = _sweep(loop, table, consts, xs, 0, start)
    last = loop.first_step(loop.n_blocks - 1)
    end, ys = advance(loop.body, consts, xs, last, last + loop.block, turning, ys)
    tail = loop.first_step(loop.n_blocks)
    out, ys = advance(loop.body, consts, xs, tail, tail + loop.n_tail, end, ys)
    return (out, ys), (table, consts, init, xs, turning, end, buffer)


def _backward(loop: CompiledScan, residuals: tuple[Any, ...], cotangent: _Result) -> tuple:
    table, consts, init, xs, turning, end, buffer = residuals
    buffer = loop.slots.for_reverse(
        buffer, lambda empty: _sweep(loop, table, consts, xs, 0, (init, empty, ()))[1]
    )
    out_bar, ys_bar = floating(cotangent[0]), floating(cotangent[1])
    zeros = (tuple(map(jnp.zeros_like, floating(values))) for values in (consts, xs))
    grads = Gradients(next(zeros), out_bar, next(zeros))
    if loop.n_tail:
        start = loop.first_step(loop.n_blocks)
        grads = u_turn(loop.body, loop.n_tail, consts, xs, start, end, ys_bar, grads)
    start = loop.first_step(loop.n_blocks - 1)
    grads = u_turn(loop.body, loop.block, consts, xs, start, turning, ys_bar, grads)

    def turn(u: Array, carry: tuple[Leaves, Gradients]) -> tuple[Leaves, Gradients]:
        buffer, grads = carry
        restored, is_last = jnp.asarray(table.restored), u == loop.n_blocks - 1
        following = restored[jnp.minimum(u + 1, loop.n_blocks - 1)]
        state, buffer = loop.slots.get(buffer, restored[u], turning, following, is_last)
        state, buffer, _ = _sweep(loop, table, consts, xs, u, (state, buffer, ()))
        start = loop.first_step(loop.n_blocks - 1 - u)
        return buffer, u_turn(loop.body, loop.block, consts, xs, start, state, ys_bar, grads)

    _, grads = lax.fori_loop(1, loop.n_blocks, turn, (buffer, grads))
    return (
        None,
        with_nones(consts, grads.consts),
        with_nones(turning, grads.carry),
        with_nones(xs, grads.xs),
    )


_differentiable.defvjp(_forward, _backward)


def _sweep(
    loop: CompiledScan,
    table: Table,
    consts: Leaves,
    xs: Leaves,
    u: Any,
    start: tuple[Leaves, Leaves, Leaves],
) -> tuple[Leaves, Leaves, Leaves]:
    """Run the rows before U-turn `u` from `(state, buffer, ys)`; empty `ys` are not written."""
    first_row, rows = jnp.asarray(table.first_row), jnp.asarray(table.rows)

    def run(carry: tuple[Array, Leaves, Leaves, Leaves]) -> tuple[Array, Leaves, Leaves, Leaves]:
        row, state, buffer, ys = carry
        first, count, slot, tier = (rows[row, i] for i in range(4))
        lower, upper = loop.first_step(first), loop.first_step(first + count)
        state, ys = advance(loop.body, consts, xs, lower, upper, state, ys)
        return row + 1, state, loop.slots.put(buffer, slot, state, tier), ys

    begin, stop = first_row[u], first_row[u + 1]
    return lax.while_loop(lambda carry: carry[0] < stop, run, (begin, *start))[1:]


def advance(
    body: Body,
    consts: Leaves,
    xs: Leaves,
    lower: Any,
    upper: Any,
    state: Leaves,
    ys: Leaves,
) -> _Result:
    """Run steps `lower, ..., upper - 1`; write their `y` unless `ys` is empty."""
    if body.kernels is not None:
        return body.kernels.advance(consts, xs, lower, upper, state, ys)

    def step(i: Array, carry: _Result) -> _Result:
        state, ys = carry
        state, y = body(consts, state, read_slot(xs, i))
        return state, write_slot(ys, i, y) if ys else ys

    return lax.fori_loop(lower, upper, step, (state, ys))


def blank_ys(body: Body, n_steps: int, consts: Leaves, init: Leaves, xs: Leaves) -> Leaves:
    """Return arrays for the `y` of all steps."""
    if not body.has_y:
        return ()
    # Only its shape, dtype and mesh axes are used, so that compiled code does not run the step.
    like = body(consts, init, read_slot(xs, 0))[1]
    return tuple(blank_like(value, n_steps) for value in like)


def u_turn(
    body: Body,
    n_steps: int,
    consts: Leaves,
    xs: Leaves,
    start: Any,
    state: Leaves,
    ys_bar: Leaves,
    grads: Gradients,
    run: Callable[..., _Result] = plain_scan,
) -> Gradients:
    """Tape `n_steps` steps from `state`, the state before step `start`, and reverse them.

    `run` takes what `plain_scan` takes and decides what is taped.
    """
    if body.kernels is not None:
        return body.kernels.u_turn(n_steps, consts, xs, start, state, ys_bar, grads)

    def rows(arrays: Leaves) -> Leaves:
        return tuple(lax.dynamic_slice_in_dim(a, start, n_steps) for a in arrays)

    block = rows(xs)

    def forward(consts_f: Leaves, state_f: Leaves, block_f: Leaves) -> _Result:
        operands = (
            merged(v, f) for v, f in ((consts, consts_f), (state, state_f), (block, block_f))
        )
        out, ys = run(body, n_steps, *operands)
        return floating(out), floating(ys)

    _, pull = jax.vjp(forward, floating(consts), floating(state), floating(block))
    consts_bar, state_bar, block_bar = pull((grads.carry, rows(ys_bar)))
    return Gradients(
        tuple(a + b for a, b in zip(grads.consts, consts_bar, strict=True)),
        state_bar,
        tuple(
            lax.dynamic_update_slice_in_dim(whole, part, start, 0)
            for whole, part in zip(grads.xs, block_bar, strict=True)
        ),
    )


def with_nones(values: Leaves, cotangents: Leaves) -> tuple[Any, ...]:
    """Return one cotangent per value: None where it cannot be differentiated."""
    places = merged(values, cotangents)
    return tuple(
        new if new is not old else None for new, old in zip(places, values, strict=True)
    )  # fmt: skip
