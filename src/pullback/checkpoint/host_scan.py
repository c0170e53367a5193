"""A schedule followed by Python, one compiled call per action: for storages outside the device.

It needs concrete values. Where it meets traced ones (under `jit`, `vmap` or another derivative)
the compiled loop takes over. The cotangent alone may be traced (`jacrev`): then the compiled loop
is run again from the initial state.

Derivatives may be pulled back more than once. The first time uses the snapshots of the forward
sweep up; each further time repeats the sweep.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from pullback.checkpoint.body import Body
from pullback.checkpoint.compiled_scan import Gradients, advance, blank_ys, u_turn, with_nones
from pullback.checkpoint.leaves import Leaves, floating
from pullback.checkpoint.look_ahead import look_ahead
from pullback.checkpoint.schedules import (
    AbstractScheme,
    Action,
    Advance,
    Free,
    Restore,
    Store,
    UTurn,
)
from pullback.checkpoint.storage import AbstractStorage

__all__ = [
    "Handle",
    "HostScan",
    "Snapshots",
    "host_scan",
    "is_traced",
    "reverse_sweep",
]

_Result: TypeAlias = tuple[Leaves, Leaves]


@dataclass(frozen=True, eq=False)
class HostScan:
    """What is fixed in one call.

    Attributes:
        body: The step.
        n_steps: Number of steps.
        unit: Steps of the loop that are one step of the schedule.
        scheme: Yields the schedule.
        storage: Keeps the snapshots.
        compiled: The same loop, compiled, with snapshots in memory: takes (consts, init, xs).
        traced: The same loop where values are traced.
    """

    body: Body
    n_steps: int
    unit: int
    scheme: AbstractScheme
    storage: AbstractStorage
    compiled: Callable[[Leaves, Leaves, Leaves], _Result]
    traced: Callable[[Leaves, Leaves, Leaves], _Result]

    @property
    def n_units(self) -> int:
        """Number of steps of the schedule."""
        return self.n_steps // self.unit

    def index(self, unit: int) -> np.ndarray:
        """Return the first step of a unit, in a form that costs no conversion."""
        wide = np.int32 if self.n_steps < np.iinfo(np.int32).max else np.int64
        return np.asarray(unit * self.unit, wide)


def is_traced(*trees: Any) -> bool:
    """Whether any leaf is a tracer."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


class Snapshots:
    """The slots that one loop holds; they are released with it.

    Attributes:
        actions: The rest of the schedule.
        turning: The state at the first U-turn.
        turn: The first U-turn.
        end: The state after the last step of the schedule.
        is_used: Whether a reverse sweep has begun.
    """

    def __init__(self, storage: AbstractStorage, actions: Iterator[Action]) -> None:
        self.storage = storage
        self.actions = actions
        self.slots: dict[int, int] = {}
        self.turning: Leaves = ()
        self.end: Leaves = ()
        self.turn: UTurn | None = None
        self.is_used = False
        weakref.finalize(self, _release_all, storage, self.slots)

    def follow(self, action: Store | Restore | Free, state: Leaves) -> Leaves:
        """Carry out an action of the storage; return the state in hand."""
        match action:
            case Store(slot, _, tier):
                self.slots[slot] = self.storage.reserve()
                self.storage.put_in_tier(tier, self.slots[slot], state)
            case Restore(slot):
                return tuple(self.storage.get(self.slots[slot]))
            case Free(slot):
                self.storage.release(self.slots.pop(slot))
        return state

    def prefetch(self, slot: int) -> None:
        """Pass on which of the schedule's slots is restored next."""
        self.storage.prefetch(self.slots[slot])


def _release_all(storage: AbstractStorage, slots: dict[int, int]) -> None:
    for slot in slots.values():
        storage.release(slot)


@functools.partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["kept"])
@dataclass(frozen=True, eq=False)
class Handle:
    """Residuals without arrays: what is kept as long as the derivative."""

    kept: Any


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def host_scan(loop: HostScan, consts: Leaves, init: Leaves, xs: Leaves) -> _Result:
    """Run a loop; its derivative follows the schedule in Python."""
    return loop.compiled(consts, init, xs)


def _forward(
    loop: HostScan, consts: Leaves, init: Leaves, xs: Leaves
) -> tuple[_Result, tuple[Any, ...]]:
    if is_traced(consts, init, xs):
        out, pull = jax.vjp(loop.traced, consts, init, xs)
        return out, (pull,)
    ys = tuple(jnp.array(y) for y in _blank_ys(loop.body, loop.n_steps, consts, init, xs))
    snapshots, ys = _first_sweep(loop, consts, init, xs, ys)
    tail = loop.index(loop.n_units)
    out, ys = run(loop.body, consts, xs, tail, np.asarray(loop.n_steps, tail.dtype),
                   snapshots.end, ys)  # fmt: skip
    return (out, ys), (Handle(snapshots), consts, init, xs)


def _backward(loop: HostScan, residuals: tuple[Any, ...], cotangent: _Result) -> tuple[Any, ...]:
    if len(residuals) == 1:
        return residuals[0](cotangent)
    handle, consts, init, xs = residuals
    if is_traced(cotangent):
        return jax.vjp(loop.traced, consts, init, xs)[1](cotangent)
    snapshots: Snapshots = handle.kept
    if snapshots.is_used:
        snapshots, _ = _first_sweep(loop, consts, init, xs, ())
    snapshots.is_used = True
    # Copies: the sweep donates them, and the cotangent belongs to the caller.
    zeros = [tuple(map(jnp.zeros_like, floating(values))) for values in (consts, xs)]
    carry = tuple(jnp.array(value, copy=True) for value in floating(cotangent[0]))
    grads = Gradients(zeros[0], carry, zeros[1])
    ys_bar = floating(cotangent[1])
    n_tail = loop.n_steps % loop.unit
    if n_tail:
        start = loop.index(loop.n_units)
        grads = _turn(loop.body, n_tail, consts, xs, start, snapshots.end, ys_bar, grads)
    grads = reverse_sweep(loop, snapshots, consts, xs, ys_bar, grads)
    return (
        with_nones(consts, grads.consts),
        with_nones(init, grads.carry),
        with_nones(xs, grads.xs),
    )


host_scan.defvjp(_forward, _backward)


def _first_sweep(
    loop: HostScan, consts: Leaves, init: Leaves, xs: Leaves, ys: Leaves
) -> tuple[Snapshots, Leaves]:
    """Follow the schedule to its first U-turn, then run on to the end."""
    snapshots = Snapshots(loop.storage, loop.scheme.actions(loop.n_units))
    state, reached = init, 0
    for action in snapshots.actions:
        match action:
            case Advance(start, stop):
                is_new = start == reached
                bounds = loop.index(start), loop.index(stop)
                state, written = run(loop.body, consts, xs, *bounds, state, ys if is_new else ())
                if is_new:
                    ys, reached = written, stop
                    snapshots.end = state
            case UTurn(start):
                snapshots.turning, snapshots.turn = state, action
                if reached < loop.n_units:
                    bounds = loop.index(start), loop.index(loop.n_units)
                    snapshots.end, ys = run(loop.body, consts, xs, *bounds, state, ys)
                break
            case _:
                state = snapshots.follow(action, state)
    return snapshots, ys


def reverse_sweep(
    loop: HostScan,
    snapshots: Snapshots,
    consts: Leaves,
    xs: Leaves,
    ys_bar: Leaves,
    grads: Gradients,
) -> Gradients:
    """Follow the rest of the schedule, from the first U-turn on."""
    state = snapshots.turning
    turn = snapshots.turn
    first: Iterable[Action] = () if turn is None else (turn,)
    for action in look_ahead(chain(first, snapshots.actions), snapshots.prefetch):
        match action:
            case Advance(start, stop):
                bounds = loop.index(start), loop.index(stop)
                state, _ = run(loop.body, consts, xs, *bounds, state, ())
            case UTurn(start, stop):
                count, at = (stop - start) * loop.unit, loop.index(start)
                grads = _turn(loop.body, count, consts, xs, at, state, ys_bar, grads)
            case _:
                state = snapshots.follow(action, state)
    return grads


@functools.partial(jax.jit, static_argnums=(0, 1))
def _blank_ys(body: Body, n_steps: int, consts: Leaves, init: Leaves, xs: Leaves) -> Leaves:
    return blank_ys(body, n_steps, consts, init, xs)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=6)
def run(
    body: Body, consts: Leaves, xs: Leaves, lower: Any, upper: Any, state: Leaves, ys: Leaves
) -> _Result:
    return advance(body, consts, xs, lower, upper, state, ys)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=7)
def _turn(
    body: Body,
    n_steps: int,
    consts: Leaves,
    xs: Leaves,
    start: Any,
    state: Leaves,
    ys_bar: Leaves,
    grads: Gradients,
) -> Gradients:
    return u_turn(body, n_steps, consts, xs, start, state, ys_bar, grads)
