"""A loop that is one block for step kernels: the forward sweep records what the reverse needs.

Nothing is run twice. Differentiation: as of `compiled_scan`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from pullback.checkpoint.body import Body
from pullback.checkpoint.compiled_scan import Gradients, advance, blank_ys, with_nones
from pullback.checkpoint.leaves import Leaves, batched_first, floating

__all__ = ["RecordedScan", "recorded_scan"]

_Result: TypeAlias = tuple[Leaves, Leaves]


class RecordedScan(NamedTuple):
    """What is fixed when a loop is compiled.

    Attributes:
        body: The step; it has kernels.
        n_steps: Number of steps, at least one.
    """

    body: Body
    n_steps: int


@functools.partial(jax.jit, static_argnums=0)
def recorded_scan(loop: RecordedScan, consts: Leaves, init: Leaves, xs: Leaves) -> _Result:
    """Run a loop; its derivative uses what its forward sweep has recorded."""
    return _differentiable(loop, consts, init, xs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(loop: RecordedScan, consts: Leaves, init: Leaves, xs: Leaves) -> _Result:
    ys = blank_ys(loop.body, loop.n_steps, consts, init, xs)
    out, ys = advance(loop.body, consts, xs, jnp.int32(0), jnp.int32(loop.n_steps), init, ys)
    return out, tuple(map(batched_first, ys))


def _forward(
    loop: RecordedScan, consts: Leaves, init: Leaves, xs: Leaves
) -> tuple[_Result, tuple[Any, ...]]:
    assert loop.body.kernels is not None
    ys = blank_ys(loop.body, loop.n_steps, consts, init, xs)
    out, ys, tape = loop.body.kernels.record(loop.n_steps, consts, xs, init, ys)
    return (out, ys), (consts, init, xs, tape)


def _backward(loop: RecordedScan, residuals: tuple[Any, ...], cotangent: _Result) -> tuple:
    assert loop.body.kernels is not None
    consts, init, xs, tape = residuals
    zeros = (tuple(map(jnp.zeros_like, floating(values))) for values in (consts, xs))
    grads = Gradients(next(zeros), floating(cotangent[0]), next(zeros))
    grads = loop.body.kernels.u_turn(
        loop.n_steps, consts, xs, jnp.int32(0), init, floating(cotangent[1]), grads, tape
    )
    return (
        with_nones(consts, grads.consts),
        with_nones(init, grads.carry),
        with_nones(xs, grads.xs),
    )


_differentiable.defvjp(_forward, _backward)
