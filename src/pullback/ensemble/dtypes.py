"""Precision: the floating leaves of `y0` decide, and everything else is cast to the widest of them.

Python numbers give way; an explicit float64 never becomes float32 silently.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback.ensemble.leaf import Leaf, is_array, is_traced

_SUPPORTED = (np.dtype(np.float32), np.dtype(np.float64))


def dtype_of(value: Any) -> np.dtype:
    """Return the dtype that NumPy or JAX sees in `value`."""
    return value.dtype if isinstance(value, (jax.Array, np.ndarray)) else np.asarray(value).dtype


def state_dtype(leaves: list[Leaf]) -> np.dtype:
    """Return the widest floating dtype of the leaves of `y0`.

    Raises:
        TypeError: a leaf is not a real floating number, or is float64 without JAX's 64-bit mode.
        ValueError: there is no number at all.
    """
    for leaf in leaves:
        _check_state_leaf(leaf)
    if sum(int(np.prod(leaf.shape)) for leaf in leaves) == 0:
        raise ValueError(
            "`y0` holds no numbers, but at least one floating leaf was expected; give y0 a value."
        )
    strong = [dtype_of(leaf.value) for leaf in leaves if not leaf.weak]
    return max(strong, key=lambda d: d.itemsize) if strong else np.dtype(jnp.result_type(float))


def _check_state_leaf(leaf: Leaf) -> None:
    where = f"`{leaf.path}`"
    if not is_array(leaf.value):
        raise TypeError(
            f"{where} must be a real floating array or number, but a "
            f"{type(leaf.value).__name__} arrived; put what is not a state into params."
        )
    dtype = dtype_of(leaf.value)
    if jnp.issubdtype(dtype, np.complexfloating):
        raise TypeError(
            f"{where} is complex ({dtype}), but a state must be real; split it into real and "
            "imaginary parts, for example y0=(z.real, z.imag)."
        )
    if not jnp.issubdtype(dtype, np.floating):
        raise TypeError(
            f"{where} has dtype {dtype}, but a state must be floating (its derivative is); write "
            "1.0 instead of 1, or convert it with .astype(float)."
        )
    if dtype not in _SUPPORTED:
        raise TypeError(
            f"{where} has dtype {dtype}, but a state must be float32 or float64; convert it with "
            ".astype('float32')."
        )
    check_x64(leaf)


def check_x64(leaf: Leaf) -> None:
    """Refuse an explicit float64 that JAX would silently make a float32."""
    if leaf.weak or jax.dtypes.canonicalize_dtype(np.float64) == np.float64:
        return
    dtype = dtype_of(leaf.value)
    if dtype in (np.float64, np.complex128):
        raise TypeError(
            f"`{leaf.path}` is {dtype}, but JAX's 64-bit mode is off, so it would silently become "
            "single precision; call jax.config.update('jax_enable_x64', True) at the start of the "
            f"program, or convert `{leaf.path}` with .astype('float32')."
        )


def cast_leaf(leaf: Leaf, dtype: np.dtype) -> Leaf:
    """Return `leaf` as an array of `dtype`; NumPy's numbers stay known."""
    return replace(leaf, value=cast(leaf.value, dtype), weak=False)


def cast(value: Any, dtype: np.dtype) -> Any:
    """Return `value` as an array of exactly `dtype`."""
    if not isinstance(value, jax.Array):
        return np.asarray(value, dtype)
    return value if value.dtype == dtype and not _weak(value) else value.astype(dtype)


def _weak(value: jax.Array) -> bool:
    return bool(getattr(jax.typeof(value), "weak_type", False))


def cast_state(leaves: list[Leaf], dtype: np.dtype) -> list[Leaf]:
    """Return the leaves of `y0` in the dtype of the state, the widest among them."""
    return [cast_leaf(leaf, dtype) for leaf in leaves]


def cast_params(leaves: list[Leaf], dtype: np.dtype) -> list[Leaf]:
    """Return the leaves of `params` as JAX sees them; Python floats take the state's `dtype`.

    Leaves that are no numbers (an activation function, a string) are returned as they are.
    """
    return [_cast_param(leaf, dtype) if is_array(leaf.value) else leaf for leaf in leaves]


def _cast_param(leaf: Leaf, dtype: np.dtype) -> Leaf:
    check_x64(leaf)
    own = dtype_of(leaf.value)
    if leaf.weak and jnp.issubdtype(own, np.floating):
        return cast_leaf(leaf, dtype)
    if isinstance(leaf.value, jax.Array):
        return leaf
    return cast_leaf(leaf, jax.dtypes.canonicalize_dtype(own))


def known(value: Any) -> np.ndarray | None:
    """Return the numbers in `value` in double precision, or None while they are traced."""
    return None if is_traced(value) else np.asarray(value, np.float64)
