"""A Jacobian that a user gives, traced like the vector field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array, PyTree
from pullback.ode.flat_function import FlatFunction, trace_function
from pullback.ode.ravel import StateLayout

__all__ = ["trace_jacobian"]


def trace_jacobian(
    jac: Callable[[Any, Any, Any], Any], layout: StateLayout, params: PyTree, n_theta: int
) -> tuple[FlatFunction, tuple[Array, ...]]:
    """Trace `jac(t, y, params)` once, for one trajectory.

    Args:
        jac: The user's function.
        layout: How the state vector and the user's state belong together.
        params: Parameters, like the vector field's.
        n_theta: Length of theta so far; what the function closes over is to follow.

    Returns:
        The flat function, whose value is `(n, n)`, and the arrays that it closes over.

    Raises:
        TypeError: It does not return one array of the state's dtype.
        ValueError: The array has another shape than the Jacobian.
    """
    name = getattr(jac, "__name__", type(jac).__name__)
    return trace_function(jac, layout, params, n_theta, lambda x: _matrix(x, layout, name))


def _matrix(value: Any, layout: StateLayout, name: str) -> Array:
    if not isinstance(value, (bool, int, float, list, tuple)) and not hasattr(value, "shape"):
        raise TypeError(
            f"`jac` {name} must return one array, the Jacobian of the ravelled state, but it "
            f"returned a {type(value).__name__}."
        )
    array, n = jnp.asarray(value), layout.n
    shapes: list[tuple[int, ...]] = [(n, n)]
    if len(layout.shapes) == 1 and layout.shapes[0] != (n,):
        shapes.append(layout.shapes[0] * 2)
    if array.shape not in shapes:
        raise ValueError(
            f"`jac` {name} must return shape {' or '.join(map(str, shapes))}, since the state has "
            f"{n} components, but it returned shape {array.shape}; entry (i, j) is the derivative "
            "of component i of the vector field by component j of the state."
        )
    is_real = jnp.issubdtype(array.dtype, np.floating)
    is_narrow = is_real and jnp.promote_types(array.dtype, layout.dtype) == layout.dtype
    if not array.weak_type and not is_narrow:
        raise TypeError(
            f"`jac` {name} must return the state's dtype {layout.dtype}, but it returned "
            f"{array.dtype}; cast the parameters or the result (`.astype(...)`)."
        )
    return array.astype(layout.dtype).reshape(n, n)
