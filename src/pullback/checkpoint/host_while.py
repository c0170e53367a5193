"""A loop of unknown length followed by Python, one compiled call per block.

The rules about traced values are those of `host_scan`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback.checkpoint.compiled_scan import Gradients, with_nones
from pullback.checkpoint.compiled_while import (
    CompiledWhile,
    Consts,
    compiled_while,
    reverse_block,
    run_while,
)
from pullback.checkpoint.host_scan import (
    Handle,
    HostScan,
    Snapshots,
    is_traced,
    reverse_sweep,
)
from pullback.checkpoint.leaves import Leaves, floating
from pullback.checkpoint.schedules.online import Online, Placement
from pullback.checkpoint.schedules.reverse_sweep import binomial_sweep
from pullback.checkpoint.slots import slots_of
from pullback.checkpoint.storage import AbstractStorage
from pullback.core.typing import Array

__all__ = ["HostWhile", "host_while", "with_storage"]


@dataclass(frozen=True, eq=False)
class HostWhile:
    """What is fixed in one call.

    Attributes:
        loop: The loop, with snapshots in memory.
        storage: Keeps the snapshots.
    """

    loop: CompiledWhile
    storage: AbstractStorage

    def traced(self, consts: Consts, init: Leaves) -> Leaves:
        """Run the compiled loop where values are traced."""
        return compiled_while(with_storage(self.loop, self.storage), consts, init)


def with_storage(loop: CompiledWhile, storage: AbstractStorage) -> CompiledWhile:
    """Return a compiled loop that keeps its snapshots in a storage."""
    return loop._replace(slots=slots_of(storage, loop.slots.n_slots))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def host_while(host: HostWhile, consts: Consts, init: Leaves) -> Leaves:
    """Run a loop; its derivative follows the schedule in Python."""
    return compiled_while(host.loop, consts, init)


def _forward(host: HostWhile, consts: Consts, init: Leaves) -> tuple[Leaves, tuple[Any, ...]]:
    if is_traced(consts, init):
        out, pull = jax.vjp(host.traced, consts, init)
        return out, (pull,)
    run = _first_sweep(host, consts, init)
    return run.snapshots.end, (Handle(run), consts, init)


def _backward(host: HostWhile, residuals: tuple[Any, ...], cotangent: Leaves) -> tuple[Any, ...]:
    if len(residuals) == 1:
        return residuals[0](cotangent)
    handle, consts, init = residuals
    if is_traced(cotangent):
        return jax.vjp(host.traced, consts, init)[1](cotangent)
    run: _Run = handle.kept
    if run.snapshots.is_used:
        run = _first_sweep(host, consts, init)
    snapshots = run.snapshots
    snapshots.is_used = True
    zeros = tuple(map(jnp.zeros_like, floating(consts.step)))
    carry = tuple(jnp.array(value, copy=True) for value in floating(cotangent))
    grads = Gradients(zeros, carry, ())
    grads = _newest_block(host.loop, consts.step, run.count, snapshots.turning, grads)
    next(snapshots.actions)  # the U-turn that was just made
    blocks = HostScan(
        host.loop.step, run.n_blocks * host.loop.block, host.loop.block,
        Online(host.loop.n_snapshots), host.storage, _never_compiled, _never_compiled,
    )  # fmt: skip
    grads = reverse_sweep(blocks, snapshots, consts.step, (), (), grads)
    no_gradient = Consts(
        tuple(None for _ in consts.cond),  # pyright: ignore[reportArgumentType]
        with_nones(consts.step, grads.consts),
    )
    return no_gradient, with_nones(init, grads.carry)


host_while.defvjp(_forward, _backward)


@dataclass(frozen=True, eq=False)
class _Run:
    """A forward sweep.

    Attributes:
        snapshots: What it leaves; the state before the newest block is `turning`.
        n_blocks: Blocks that were begun.
        count: Steps of the newest block.
    """

    snapshots: Snapshots
    n_blocks: int
    count: Array


def _first_sweep(host: HostWhile, consts: Consts, init: Leaves) -> _Run:
    placement = Placement(host.loop.n_snapshots)
    snapshots = Snapshots(host.storage, iter(()))
    state, n_blocks = init, 0
    while True:
        start = state
        done = np.asarray(n_blocks * host.loop.block, np.int32)
        count, state, goes_on = _block(host.loop, consts, done, start)
        n_blocks += 1
        if not goes_on:
            break
        for action in placement.leave():
            snapshots.follow(action, start)
    snapshots.turning, snapshots.end = start, state
    snapshots.actions = binomial_sweep(
        placement.stack, placement.free_slots, n_blocks - 1, n_blocks
    )
    return _Run(snapshots, n_blocks, count)


@functools.partial(jax.jit, static_argnums=0)
def _block(
    loop: CompiledWhile, consts: Consts, done: Array, state: Leaves
) -> tuple[Array, Leaves, Array]:
    """Run a block; return its steps, the state, and whether another block follows."""
    count, state = run_while(loop, consts, loop.block, done, state)
    holds = loop.cond(consts.cond, state)[1][0] & (count == loop.block)
    if loop.max_steps is not None:
        holds &= done + count < loop.max_steps
    return count, state, holds


@functools.partial(jax.jit, static_argnums=0, donate_argnums=4)
def _newest_block(
    loop: CompiledWhile, consts: Leaves, count: Array, state: Leaves, grads: Gradients
) -> Gradients:
    return reverse_block(loop, consts, count, state, grads)


def _never_compiled(*_: Any) -> Any:
    raise AssertionError("the reverse sweep is followed in Python")
