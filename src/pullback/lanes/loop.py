"""Loops and row stores for lane programs.

A lane program uses `lane_while` and `store_row` where plain JAX would use `lax.while_loop` and
`ref[i] = row`. For a single trajectory, and for the kernel compilers, they are exactly those.
When many trajectories advance in lock step (`lock_step`), one loop runs until the last of them
is done: its condition is reduced over the trajectories, finished ones keep their carry, and
their stores write back what is there. `jax.vmap` of a plain loop would instead copy every Ref,
whole, in every iteration.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["LANE_AXIS", "lane_if", "lane_while", "lock_step", "store_row"]

State = TypeVar("State")

LANE_AXIS = "pullback_lanes"

_in_lock_step: contextvars.ContextVar[bool] = contextvars.ContextVar("lock_step", default=False)
_live: contextvars.ContextVar[Any] = contextvars.ContextVar("live", default=None)


@contextlib.contextmanager
def lock_step(enabled: bool = True) -> Iterator[None]:
    """Trace lane programs for `jax.vmap` with axis name `LANE_AXIS`; or, disabled, for one."""
    tokens = _in_lock_step.set(enabled), _live.set(None)
    try:
        yield
    finally:
        _in_lock_step.reset(tokens[0])
        _live.reset(tokens[1])


def lane_while(
    is_pending: Callable[[State], Any], body: Callable[[State], State], init: State
) -> State:
    """Run `body` while `is_pending`; as `lax.while_loop`, for one trajectory of a lane program.

    In lock step `body` also runs for finished trajectories: what it returns for them is dropped,
    and it must change Refs through `store_row` only.
    """
    if not _in_lock_step.get():
        return lax.while_loop(is_pending, body, init)
    outer = _live.get()

    def live_mask(state: State) -> Any:
        pending = is_pending(state)
        return pending if outer is None else pending & outer

    def any_pending(state: State) -> Any:
        return lax.pmax(jnp.asarray(live_mask(state), jnp.int32), LANE_AXIS) > 0

    def masked_body(state: State) -> State:
        live = live_mask(state)
        token = _live.set(live)
        try:
            new = body(state)
        finally:
            _live.reset(token)
        return jax.tree.map(lambda a, b: jnp.where(live, a, b), new, state)

    return lax.while_loop(any_pending, masked_body, init)


def lane_if(happens: Any, then: Callable[[], Any], default: Any) -> Any:
    """Return `then()` where something happens, else `default`; skipped where no lane needs it."""

    def body(s: Any) -> Any:
        del s
        return then(), jnp.zeros((), bool)

    return lane_while(lambda s: s[1], body, (default, happens))[0]


def store_row(ref: Any, index: Any, row: Any) -> None:
    """Store `row` as `ref[index]`; finished trajectories in lock step leave the Ref as it is."""
    live = _live.get()
    if live is not None:
        row = jnp.where(live, row, ref[index])
    ref[index] = row
