"""Loops within loops as nested `jax.checkpoint`: for schemes that tape whole chunks.

Differentiation: everything that `jax.lax.scan` has, forward mode and reverse over reverse included.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from pullback.checkpoint.body import Body
from pullback.checkpoint.compiled_scan import plain_scan
from pullback.checkpoint.leaves import Leaves

__all__ = ["ChunkedScan", "chunked_scan"]

_Run: TypeAlias = Callable[[Leaves, Leaves], tuple[Leaves, Leaves]]


class ChunkedScan(NamedTuple):
    """What is fixed when a loop is compiled.

    Attributes:
        body: The step.
        n_steps: Number of steps.
        chunk_sizes: Lengths of the chunks, outermost first.
    """

    body: Body
    n_steps: int
    chunk_sizes: tuple[int, ...]


@functools.partial(jax.jit, static_argnums=0)
def chunked_scan(
    loop: ChunkedScan, consts: Leaves, init: Leaves, xs: Leaves
) -> tuple[Leaves, Leaves]:
    """Run a loop of nested chunks, each recomputed when it is reversed."""
    return _chunks(loop.body, loop.n_steps, loop.chunk_sizes, consts)(init, xs)


def _chunks(body: Body, n_steps: int, sizes: tuple[int, ...], consts: Leaves) -> _Run:
    if not sizes:
        return lambda init, xs: plain_scan(body, n_steps, consts, init, xs)
    size, inner = sizes[0], sizes[1:]
    n_chunks, n_rest = divmod(n_steps, size)
    # Inside a scan nothing can be merged with its recomputation.
    chunk = jax.checkpoint(_chunks(body, size, inner, consts), prevent_cse=False)

    def run(init: Leaves, xs: Leaves) -> tuple[Leaves, Leaves]:
        whole = n_chunks * size
        first = tuple(x[:whole].reshape(n_chunks, size, *x.shape[1:]) for x in xs)
        carry, ys = lax.scan(lambda c, x: chunk(c, x), init, first, length=n_chunks)
        ys = tuple(y.reshape(whole, *y.shape[2:]) for y in ys)
        if not n_rest:
            return carry, ys
        rest = tuple(x[whole:] for x in xs)
        carry, last = _chunks(body, n_rest, inner, consts)(carry, rest)
        return carry, tuple(jnp.concatenate(pair) for pair in zip(ys, last, strict=True))

    return run
