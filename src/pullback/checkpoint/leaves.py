"""Lists of arrays, some of which can be differentiated: the rest are integers, booleans, keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
from jax import lax

from pullback.core.typing import Array

__all__ = [
    "Leaves",
    "batched_first",
    "blank_like",
    "floating",
    "is_floating",
    "is_weak",
    "merged",
    "read_slot",
    "strong",
    "write_slot",
]

Leaves: TypeAlias = tuple[Array, ...]


def is_floating(value: Any) -> bool:
    """Whether an array or abstract value is real or complex, hence differentiable."""
    return jnp.issubdtype(value.dtype, jnp.inexact)


def floating(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the differentiable ones; cotangents of the others (`float0`) drop out too."""
    return tuple(value for value in values if is_floating(value))


def is_weak(value: Any) -> bool:
    """Whether an array came from a plain number, so that its dtype may change; keys never do."""
    return getattr(value, "weak_type", False)


def strong(value: Any) -> Array:
    """Return an array whose dtype is its own, also for a plain number."""
    array = jnp.asarray(value)
    return array.astype(array.dtype) if is_weak(array) else array


def merged(values: Sequence[Any], replaced: Sequence[Any]) -> tuple[Any, ...]:
    """Return `values` with the differentiable ones replaced, in order."""
    new = iter(replaced)
    return tuple(next(new) if is_floating(value) else value for value in values)


def blank_like(value: Array, *leading: int) -> Array:
    """Return an array like `value` with further leading axes; its content is never used.

    Under `shard_map` it varies over the same mesh axes as `value`.
    """
    return jnp.zeros_like(jnp.broadcast_to(value, (*leading, *value.shape)))


def batched_first(value: Array) -> Array:
    """Return `value` unchanged, but with the axis of a `vmap` first.

    Under `vmap` of `jit` JAX takes for granted that a `custom_vjp` function and its forward rule
    put that axis in the same place. A scan puts it after the axis of the steps.
    """
    # Reshaping is what moves the axis to the front.
    return lax.squeeze(lax.reshape(value, (1, *value.shape)), (0,))


def write_slot(buffer: Leaves, slot: Any, values: Leaves) -> Leaves:
    """Write `values` to row `slot` of each array."""
    return tuple(
        lax.dynamic_update_index_in_dim(b, v, slot, 0)
        for b, v in zip(buffer, values, strict=True)
    )  # fmt: skip


def read_slot(buffer: Leaves, slot: Any) -> Leaves:
    """Read row `slot` of each array."""
    return tuple(lax.dynamic_index_in_dim(b, slot, 0, keepdims=False) for b in buffer)
