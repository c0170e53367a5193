"""A loop of unknown length inside compiled code: placement while it runs, then binomial sweeps.

The forward sweep stores the state before every block, in the slot that the placement gives, the
newest in one slot more than the scheme has. The reverse sweep fills the gaps between the
snapshots that are left with the free slots, that one too: at most the steps that are predicted.

Differentiation: reverse mode only, exact; it can be differentiated again in forward mode. The
condition has no derivative: the number of steps is held fixed.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.checkpoint.body import Body
from pullback.checkpoint.compiled_scan import Gradients, advance, u_turn, with_nones
from pullback.checkpoint.leaves import Leaves, blank_like, floating, read_slot, write_slot
from pullback.checkpoint.placement import (
    Entries,
    no_entries,
    place,
    remaining,
    split,
    split_table,
)
from pullback.checkpoint.slots import Slots
from pullback.core.typing import Array

__all__ = ["CompiledWhile", "Consts", "compiled_while", "reverse_block", "run_while"]

_Counted: TypeAlias = tuple[Array, Leaves]

_MOST_STEPS = np.iinfo(np.int32).max


class CompiledWhile(NamedTuple):
    """What is fixed when a loop is compiled.

    Attributes:
        cond: The condition; its one result counts as `y`.
        step: The step, without `x` and `y`.
        block: Steps of a block.
        slots: Where snapshots are kept; one is for the newest.
        max_steps: Most steps, or None.
    """

    cond: Body
    step: Body
    block: int
    slots: Slots
    max_steps: int | None

    @property
    def n_snapshots(self) -> int:
        """Number of snapshots, besides the newest."""
        return self.slots.n_slots - 1


class Consts(NamedTuple):
    """What the condition and the step close over."""

    cond: Leaves
    step: Leaves


@functools.partial(jax.jit, static_argnums=0)
def compiled_while(loop: CompiledWhile, consts: Consts, init: Leaves) -> Leaves:
    """Run a loop while its condition holds."""
    return _differentiable(loop, consts, init)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(loop: CompiledWhile, consts: Consts, init: Leaves) -> Leaves:
    return run_while(loop, consts, None, jnp.int32(0), init)[1]


def run_while(
    loop: CompiledWhile, consts: Consts, at_most: int | None, done: Array, state: Leaves
) -> _Counted:
    """Run while the condition holds, `at_most` steps; return how many were run, and the state.

    Args:
        loop: The loop.
        consts: What it closes over.
        at_most: Most steps of this call, or None.
        done: Steps before this call, which `max_steps` counts too.
        state: The state to start from.
    """
    if loop.step.kernels is not None:
        most = jnp.int32(_MOST_STEPS if at_most is None else at_most)
        if loop.max_steps is not None:
            most = jnp.minimum(most, min(loop.max_steps, _MOST_STEPS) - done)
        ran = loop.step.kernels.run_while(loop.cond, consts.cond, consts.step, most, state)
        if ran is not None:
            return ran

    def goes_on(carry: _Counted) -> Array:
        count, state = carry
        holds = loop.cond(consts.cond, state)[1][0]
        if at_most is not None:
            holds &= count < at_most
        return holds if loop.max_steps is None else holds & (done + count < loop.max_steps)

    def step(carry: _Counted) -> _Counted:
        return carry[0] + 1, loop.step(consts.step, carry[1])[0]

    return lax.while_loop(goes_on, step, (jnp.int32(0), state))


class _Sweep(NamedTuple):
    """The forward sweep between two blocks.

    Attributes:
        n_blocks: Blocks that were begun.
        n_newest: Steps of the newest block.
        state: The state after it.
        buffer: Snapshots, and a spare row.
        entries: Which they are.
    """

    n_blocks: Array
    n_newest: Array
    state: Leaves
    buffer: Leaves
    entries: Entries


def _forward(loop: CompiledWhile, consts: Consts, init: Leaves) -> tuple[Leaves, tuple[Any, ...]]:
    sweep = _first_sweep(loop, consts, init, loop.slots.start(init))
    return sweep.state, (consts, init, sweep.n_blocks, sweep.n_newest, sweep.buffer, sweep.entries)


def _first_sweep(loop: CompiledWhile, consts: Consts, init: Leaves, buffer: Leaves) -> _Sweep:
    buffer = loop.slots.put(buffer, 0, init)

    def block(n_blocks: Array, state: Leaves) -> _Counted:
        return run_while(loop, consts, loop.block, (n_blocks - 1) * loop.block, state)

    def goes_on(sweep: _Sweep) -> Array:
        holds = loop.cond(consts.cond, sweep.state)[1][0]
        if loop.max_steps is not None:
            holds &= sweep.n_blocks * loop.block < loop.max_steps
        return holds & (sweep.n_newest == loop.block)

    def next_block(sweep: _Sweep) -> _Sweep:
        slot, entries = place(sweep.entries, sweep.n_blocks)
        buffer = loop.slots.put(sweep.buffer, slot, sweep.state)
        n_blocks = sweep.n_blocks + 1
        return _Sweep(n_blocks, *block(n_blocks, sweep.state), buffer, entries)

    one = jnp.int32(1)
    first = _Sweep(one, *block(one, init), buffer, no_entries(loop.slots.n_slots))
    return lax.while_loop(goes_on, next_block, first)


class _Reverse(NamedTuple):
    """The reverse sweep between two U-turns.

    Attributes:
        end: One after the last block that is not reversed yet.
        top: The newest snapshot's place in the stack.
        step: Steps of the snapshots in the stack, and a spare place.
        buffer: The snapshots.
        grads: Cotangents so far.
    """

    end: Array
    top: Array
    step: Array
    buffer: Leaves
    grads: Gradients


def _backward(
    loop: CompiledWhile, residuals: tuple[Any, ...], cotangent: Leaves
) -> tuple[Any, ...]:
    consts, init, n_blocks, count, buffer, entries = residuals
    buffer = loop.slots.for_reverse(
        buffer, lambda empty: _first_sweep(loop, consts, init, empty).buffer
    )
    stack = remaining(entries)
    zeros = tuple(map(jnp.zeros_like, floating(consts.step)))
    grads = Gradients(zeros, floating(cotangent), ())
    is_last = stack.n == 1
    newest, buffer = loop.slots.get(buffer, stack.slot[stack.n - 1], init, is_last=is_last)
    grads = reverse_block(loop, consts.step, count, newest, grads)
    turn = functools.partial(_turn, loop, consts.step, stack.slot, init)
    steps = jnp.append(stack.step, np.int32(0))
    start = _Reverse(n_blocks - 1, stack.n - 2, steps, buffer, grads)
    grads = lax.while_loop(lambda sweep: sweep.end > 0, turn, start).grads
    no_gradient = Consts(
        tuple(None for _ in consts.cond),  # pyright: ignore[reportArgumentType]
        with_nones(consts.step, grads.consts),
    )
    return no_gradient, with_nones(newest, grads.carry)


_differentiable.defvjp(_forward, _backward)


def reverse_block(
    loop: CompiledWhile, consts: Leaves, count: Array, state: Leaves, grads: Gradients
) -> Gradients:
    """Reverse the newest block, of `count` steps: a number that only the running loop knows."""
    tape = tuple(blank_like(value, loop.block) for value in state)

    def record(i: Array, carry: tuple[Leaves, Leaves]) -> tuple[Leaves, Leaves]:
        tape, state = carry
        return write_slot(tape, i, state), loop.step(consts, state)[0]

    tape, _ = lax.fori_loop(jnp.int32(0), count, record, (tape, state))

    def reverse(i: Array, grads: Gradients) -> Gradients:
        return u_turn(loop.step, 1, consts, (), 0, read_slot(tape, count - 1 - i), (), grads)

    return lax.fori_loop(jnp.int32(0), count, reverse, grads)


def _turn(
    loop: CompiledWhile, consts: Leaves, slots: Array, like: Leaves, sweep: _Reverse
) -> _Reverse:
    """Go from the newest snapshot to the last block, store on the way, and reverse the block."""
    end, spare = sweep.end, loop.n_snapshots + 1
    table = jnp.asarray(split_table(loop.n_snapshots + 1))

    def forward(carry: Any) -> Any:
        position, top, step, buffer, state = carry
        n_free = loop.n_snapshots - top
        ahead = jnp.where(n_free > 0, split(table, end - position, n_free + 1), end - position - 1)
        lower, upper = jnp.int32(0), ahead * loop.block
        state, _ = advance(loop.step, consts, (), lower, upper, state, ())
        position = position + ahead
        stores = (n_free > 0) & (end - position > 1)
        top = jnp.where(stores, top + 1, top)
        step = step.at[jnp.where(stores, top, spare)].set(position)
        buffer = loop.slots.put(buffer, jnp.where(stores, slots[top], spare), state)
        return position, top, step, buffer, state

    # The bottom of the stack is state 0. Once it stands before the last block, it goes.
    is_last = (sweep.top == 0) & (end == 1)
    state, buffer = loop.slots.get(sweep.buffer, slots[sweep.top], like, is_last=is_last)
    position, top, step, buffer, state = lax.while_loop(
        lambda carry: end - carry[0] > 1,
        forward,
        (sweep.step[sweep.top], sweep.top, sweep.step, buffer, state),
    )
    grads = u_turn(loop.step, loop.block, consts, (), 0, state, (), sweep.grads)
    top = jnp.where(step[top] == position, top - 1, top)
    return _Reverse(position, top, step, buffer, grads)
