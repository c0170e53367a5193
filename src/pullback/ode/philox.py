"""Philox4x32-10: four random words from a counter and a key, without any state.

Written in ordinary uint32 operations, so that every executor computes the same words.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array

__all__ = ["philox"]

# [SMDS11] section 3.3 and table 2: multipliers, and what the key grows by in every round.
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(key: Sequence[Array], counter: Sequence[Array]) -> tuple[Array, Array, Array, Array]:
    """Encrypt a counter of four uint32 words under a key of two.

    Args:
        key: Two words, of any shape that broadcasts with the counter's.
        counter: Four words, likewise.

    Returns:
        Four words that look random and independent for different counters or keys.

    References:
        [SMDS11] section 3.3, Philox-4x32 with 10 rounds.
    """
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for i in range(_ROUNDS):
        if i:
            k0, k1 = k0 + _word(_WEYL[0]), k1 + _word(_WEYL[1])
        high0, low0 = _product(_MULTIPLIERS[0], c0)
        high1, low1 = _product(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
    return c0, c1, c2, c3


def _product(factor: int, x: Array) -> tuple[Array, Array]:
    """Return the upper and the lower word of `factor` x."""
    # Locally also where 64-bit types are switched off: it is an inner step, and half words would
    # take twice the time.
    with jax.enable_x64(True):
        wide = x.astype(np.uint64) * jnp.asarray(np.uint64(factor))
        upper = (wide >> jnp.asarray(np.uint64(32))).astype(np.uint32)
    # Not the lower half of `wide`: this is the cheaper instruction.
    return upper, _word(factor) * x


def _word(value: int) -> Array:
    return jnp.asarray(np.uint32(value))
