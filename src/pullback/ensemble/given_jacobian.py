"""Whether a Jacobian that a user gave is the derivative of the vector field.

A wrong one costs a Rosenbrock method its order and Newton's iteration its convergence, which looks
like a difficult problem. So the two are compared, once for each pair of functions: at the initial
state and near it, where zeros of the initial state hide nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.keys import without_keys
from pullback.core.typing import Array
from pullback.ensemble.kept import Kept
from pullback.ensemble.leaf import Leaf, Members, is_array, is_traced
from pullback.ode import FlatField, FlatFunction

# How far the second point is from the initial state, relative to it and to its largest component.
_AWAY = 0.1, 0.01
_compared: Kept[bool] = Kept()


def check_jacobian(
    members: Members, field: FlatField, jac: FlatFunction, hoisted: tuple[Any, ...]
) -> None:
    """Raise if `jac` is not the Jacobian of `field`, as far as the numbers are known now.

    Args:
        members: trajectories whose leaves have been cast; the first one is looked at.
        field: the vector field.
        jac: what the user says is its Jacobian.
        hoisted: the arrays that both close over.

    Raises:
        ValueError: an entry differs by more than half of the digits of its row.
    """
    key = (field.key, jac.key)
    if members.n_traj == 0 or not field.has_forward_mode or _compared.get(key):
        return
    leaves = (*members.y0, *(x for x in members.params if is_array(x.value)), members.t_span[0])
    if any(is_traced(x.value) for x in leaves) or any(map(is_traced, hoisted)):
        return
    first = [_first(x) for x in leaves]
    n_leaves = len(members.y0)
    dtype = members.dtype
    start = np.concatenate([np.ravel(x).astype(dtype) for x in first[:n_leaves]])
    for y in (start, _near(start)):
        # Inside `jax.jit` what is known would be traced nevertheless.
        with jax.ensure_compile_time_eval():
            theta = (*map(jnp.asarray, first[n_leaves:-1]), *hoisted)
            time, state = jnp.asarray(first[-1], dtype), jnp.asarray(y)
            given = np.asarray(jac(time, state, theta))
            derived = np.asarray(_derived(field, time, state, theta))
        if np.isfinite(given).all() and np.isfinite(derived).all():
            _compare(jac.name, given, derived)
    _compared.put(key, True)


def _derived(field: FlatField, time: Array, y: Array, theta: tuple[Any, ...]) -> Array:
    return jax.jacfwd(lambda x: field(time, x, theta))(y)


def _first(leaf: Leaf) -> Any:
    return without_keys(leaf.value[0] if leaf.batched else leaf.value)


def _near(y: np.ndarray) -> np.ndarray:
    """Return a state close to y of the same signs, none of whose components is zero."""
    steps = 0.3 + 0.7 * np.modf(np.arange(1, y.size + 1) * 0.6180339887)[0]
    size = np.abs(y).max() or 1.0
    signs = np.where(y < 0, -1.0, 1.0)
    return (y * (1.0 + _AWAY[0] * steps) + _AWAY[1] * size * signs * steps).astype(y.dtype)


def _compare(name: str, given: np.ndarray, derived: np.ndarray) -> None:
    tolerance = np.sqrt(np.finfo(derived.dtype).eps)
    scale = np.maximum(np.abs(derived), np.abs(given)).max(axis=1, keepdims=True)
    excess = np.abs(given - derived) - tolerance * scale
    if not (excess > 0).any():
        return
    i, j = np.unravel_index(np.argmax(excess / np.where(scale > 0, scale, 1.0)), excess.shape)
    raise ValueError(
        f"`jac` {name} is not the Jacobian of the vector field: the derivative of component {i} by "
        f"component {j} of the ravelled state is {derived[i, j]:.6g} at or near `y0`, but "
        f"{given[i, j]:.6g} arrived; correct it, or leave `jac` out to have it derived."
    )
