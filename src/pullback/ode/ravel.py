"""The user's state as one vector, and back.

The state vector has the widest floating dtype among the state's leaves; scalars without a dtype
of their own follow the others.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array, PyTree

__all__ = ["StateLayout", "refuse_silent_narrowing", "state_layout"]


@dataclasses.dataclass(frozen=True)
class StateLayout:
    """How a state vector and a pytree belong together.

    Attributes:
        tree: Structure of the state.
        shapes: Shape of each leaf.
        dtype: Dtype of the state vector and of every leaf given to the user's function.
    """

    tree: Any
    shapes: tuple[tuple[int, ...], ...]
    dtype: np.dtype

    @property
    def n(self) -> int:
        """Length of the state vector."""
        return sum(map(math.prod, self.shapes))

    def ravel(self, y: PyTree) -> Array:
        """Return the state vector of `y`, which has this structure."""
        parts = [jnp.asarray(leaf).astype(self.dtype).reshape(-1) for leaf in jax.tree.leaves(y)]
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def unravel(self, vector: Array) -> PyTree:
        """Return the state from `(..., n)`; leading axes stay in front of every leaf."""
        lead = vector.shape[:-1]
        if len(self.shapes) == 1:
            return jax.tree.unflatten(self.tree, [vector.reshape(lead + self.shapes[0])])
        leaves, start = [], 0
        for shape in self.shapes:
            stop = start + math.prod(shape)
            leaves.append(vector[..., start:stop].reshape(lead + shape))
            start = stop
        return jax.tree.unflatten(self.tree, leaves)

    def ravel_derivative(self, dy: PyTree, name: str, role: str = "vector_field") -> Array:
        """Return the vector of a time derivative after checking it against the state.

        Args:
            dy: What the vector field returned.
            name: The function's name, for messages.
            role: What the function is, for messages.
        """
        leaves, tree = jax.tree.flatten(dy)
        if tree != self.tree:
            raise TypeError(
                f"`{role}` {name} must return the structure of `y0`, {self.tree}, but it "
                f"returned {tree}."
            )
        parts = []
        for leaf, shape in zip(leaves, self.shapes, strict=True):
            parts.append(self._derivative_leaf(leaf, shape, name, role).reshape(-1))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def _derivative_leaf(self, leaf: Any, shape: tuple[int, ...], name: str, role: str) -> Array:
        array = jnp.asarray(leaf)
        if array.shape != shape:
            raise ValueError(
                f"`{role}` {name} must return leaves shaped like those of `y0`: expected "
                f"shape {shape}, got {array.shape}."
            )
        is_number = isinstance(leaf, (bool, int, float)) or array.weak_type
        widened = jnp.promote_types(array.dtype, self.dtype)
        is_real = jnp.issubdtype(array.dtype, np.floating)
        if not is_number and (not is_real or widened != self.dtype):
            raise TypeError(
                f"`{role}` {name} must return leaves of the state's dtype {self.dtype}, but "
                f"one has dtype {array.dtype}: cast the parameters or the result "
                f"(`.astype(y.dtype)`), or give `y0` as {widened}."
            )
        return array.astype(self.dtype)


def state_layout(y0: PyTree) -> StateLayout:
    """Return the layout of a state like `y0`.

    Raises:
        TypeError: A leaf is not real and floating.
        ValueError: There is no leaf.
    """
    leaves, tree = jax.tree.flatten(y0)
    if not leaves:
        raise ValueError("`y0` must have at least one leaf, got an empty pytree.")
    for leaf in leaves:
        _check_leaf(leaf)
    # result_type drops the weak floats (Python scalars) wherever another leaf has a dtype.
    dtype = np.dtype(jnp.result_type(*leaves))
    return StateLayout(tree, tuple(jnp.shape(leaf) for leaf in leaves), dtype)


def _check_leaf(leaf: Any) -> None:
    refuse_silent_narrowing(leaf, "y0")
    dtype = jnp.result_type(leaf)
    if jnp.issubdtype(dtype, np.complexfloating):
        raise TypeError(
            f"`y0` must be real, but a leaf has dtype {dtype}: split it into real and imaginary "
            f"part, as two leaves."
        )
    if not jnp.issubdtype(dtype, np.floating):
        raise TypeError(
            f"`y0` must have floating leaves, but one has dtype {dtype}: write 1.0 instead of 1, "
            f"or convert it with `.astype(float)`."
        )
    if jnp.finfo(dtype).bits < 32:
        raise TypeError(f"`y0` must be float32 or float64, but a leaf has dtype {dtype}.")


def refuse_silent_narrowing(leaf: Any, argument: str) -> None:
    """Raise where JAX would silently turn an explicit float64 into float32."""
    is_numpy = isinstance(leaf, (np.ndarray, np.generic))
    if is_numpy and leaf.dtype == np.float64 and jnp.result_type(float) == np.float32:
        raise TypeError(
            f"`{argument}` holds a float64 array of shape {leaf.shape}, but 64-bit types are "
            f"off in JAX and it would silently become float32: call "
            f"`jax.config.update('jax_enable_x64', True)` first, or pass float32."
        )
