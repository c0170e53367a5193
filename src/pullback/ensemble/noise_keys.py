"""The random keys of trajectories: what the noise of each is made from."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.keys import is_key
from pullback.core.typing import Array
from pullback.ensemble.members import checked_key


def noise_keys(key: Any, n_traj: int | None, sim_ids: Any = None) -> Array:
    """Return the two uint32 words that a trajectory's noise is made from.

    Trajectory i of an ensemble has the noise of a single problem solved with
    `jax.random.fold_in(key, i)`, so an ensemble may be split in any way. Within an ensemble no two
    trajectories have the same words, because threefry is a permutation.

    Args:
        key: one random key.
        n_traj: number of trajectories; None for a single problem.
        sim_ids: which trajectories, `(n_traj,)`; None for the first ones.

    Returns:
        `(2,)`, for an ensemble `(n_traj, 2)`.

    Raises:
        ValueError: there is no key.
        TypeError: it is not one random key.
    """
    key = checked_key(key)
    if key is None:
        raise ValueError(
            "`key` is missing: the noise of an SDEProblem is made from a random key; pass "
            "key=jax.random.key(0), or any other random key."
        )
    if n_traj is None:
        return _words(key)
    return _all_words(key, np.arange(n_traj, dtype=np.int32) if sim_ids is None else sim_ids)


@jax.jit
def _all_words(key: Array, sim_ids: Any) -> Array:
    return jax.vmap(lambda i: _words(jax.random.fold_in(key, i)))(sim_ids)


def _words(key: Any) -> Array:
    if is_key(key):
        data = jax.random.key_data(key)
        # Keys of another kind have other data: two words are drawn from them.
        return data if data.shape == (2,) else jax.random.bits(key, (2,), np.uint32)
    return jnp.asarray(key)
