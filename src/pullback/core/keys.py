"""Arrays of random keys among other arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["is_key", "without_keys"]


def is_key(value: Any) -> bool:
    """Whether a value, which may be anything, is an array of random keys."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def without_keys(value: Any) -> Any:
    """Return the numbers behind random keys, and anything else as it is."""
    return jax.random.key_data(value) if is_key(value) else value
