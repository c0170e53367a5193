"""Sums over trajectories, and their transposes: the same bits on any number of threads."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from pullback.core.typing import Array

__all__ = ["spread_over_trajectories", "sum_over_trajectories"]

_FEW, _N_BLOCKS = 256, 64


def sum_over_trajectories(x: Array) -> Array:
    """Return the sum over the first axis.

    XLA's own reduction cuts that axis by the number of threads. Here blocks of rows are added in
    order, then blocks of their sum, elementwise, so that it does not matter who does it.

    Args:
        x: Shape (trajectories, ...).
    """
    while (n := x.shape[0]) > 1:
        n_blocks = n if n <= _FEW else _N_BLOCKS
        rows = -(-n // n_blocks)
        widths = [(0, n_blocks * rows - n)] + [(0, 0)] * (x.ndim - 1)
        blocks = jnp.pad(x, widths).reshape(n_blocks, rows, *x.shape[1:])
        x = lax.scan(_add, jnp.zeros_like(blocks[0]), blocks)[0]
    return x[0] if x.shape[0] else jnp.zeros(x.shape[1:], x.dtype)


def spread_over_trajectories(value: Array, n: int) -> Array:
    """Return `n` copies along a new first axis; the derivative sums as above.

    Args:
        value: A floating array.
        n: Number of copies.
    """
    many = jax.ShapeDtypeStruct((n, *value.shape), value.dtype)
    return jax.linear_transpose(sum_over_trajectories, many)(value)[0]


def _add(total: Array, block: Array) -> tuple[Array, None]:
    return total + block, None
