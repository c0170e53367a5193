"""Drift and diffusion of a stochastic differential equation, traced for one trajectory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from pullback.core.typing import Array, PyTree
from pullback.ode.field import FlatField, trace_flat
from pullback.ode.flat_function import trace_function
from pullback.ode.noise import NoiseKind, NoiseSpec
from pullback.ode.ravel import StateLayout, state_layout

__all__ = ["TracedNoise", "trace_stochastic"]

_MATRIX = "; with general noise every leaf has one more axis, of length `n_noise`"


class TracedNoise(NamedTuple):
    """What tracing drift and diffusion gives.

    Attributes:
        field: The drift, static.
        noise: The diffusion and how noise enters, static.
        hoisted: The arrays that drift and diffusion close over, which follow the parameters in
            theta; the trajectory's key comes last.
        more_floating: Which entries of theta behind the drift's own are floating.
        layout: How the state vector and the user's state belong together.
    """

    field: FlatField
    noise: NoiseSpec
    hoisted: tuple[Array, ...]
    more_floating: tuple[bool, ...]
    layout: StateLayout


def trace_stochastic(
    drift: Callable[[Any, Any, Any], Any],
    diffusion: Callable[[Any, Any, Any], Any],
    y0: PyTree,
    params: PyTree,
    kind: NoiseKind,
    n_noise: int | None,
) -> TracedNoise:
    """Trace `drift(t, y, params)` and `diffusion(t, y, params)` once.

    Args:
        drift: The user's function; returns the structure of the state.
        diffusion: The user's function; returns that too, or leaves `(*state, n_noise)` for
            general noise.
        y0: Initial state: a pytree with floating leaves.
        params: Pytree of arrays and scalars.
        kind: Kind of noise.
        n_noise: Number of Wiener processes, for general noise.

    Raises:
        TypeError: A result has another structure or dtype than the state.
        ValueError: A result has another shape than expected, or there are side effects.
    """
    layout = state_layout(y0)
    n = layout.n
    flat = trace_flat(drift, layout, params, _raveller("drift", drift, layout, ()))
    floating = tuple(jnp.issubdtype(a.dtype, np.floating) for a in flat.jaxpr.in_avals[2:])
    field = FlatField(flat.key, flat.jaxpr, flat.name, n, floating)
    more = () if kind != "general" or n_noise is None else (n_noise,)
    finish = _raveller("diffusion", diffusion, layout, more)
    function, hoisted = trace_function(diffusion, layout, params, len(floating), finish)
    is_floating = tuple(jnp.issubdtype(a.dtype, np.floating) for a in hoisted)
    noise = NoiseSpec(
        diffusion=function,
        kind=kind,
        n_noise={"diagonal": n, "scalar": 1}.get(kind, n_noise or 1),
        key_place=len(floating) + len(hoisted),
        is_additive=not _uses_state(function.jaxpr.jaxpr),
    )
    return TracedNoise(field, noise, flat.hoisted + hoisted, (*is_floating, False), layout)


def _uses_state(jaxpr: jex.Jaxpr) -> bool:
    """Whether the result depends on the second argument, as far as the trace shows."""
    moving = {jaxpr.invars[1]}

    def is_moving(atom: Any) -> bool:
        return not isinstance(atom, jex.Literal) and atom in moving

    for eqn in jaxpr.eqns:
        if any(map(is_moving, eqn.invars)):
            moving.update(eqn.outvars)
    return any(map(is_moving, jaxpr.outvars))


def _raveller(
    role: str, function: Any, layout: StateLayout, more: tuple[int, ...]
) -> Callable[[Any], Array]:
    """Return what checks a result against the state, and makes an array `(n, *more)` of it."""
    name = getattr(function, "__name__", type(function).__name__)

    def ravel(value: PyTree) -> Array:
        leaves, tree = jax.tree.flatten(value)
        if tree != layout.tree:
            raise TypeError(
                f"`{role}` {name} must return the structure of `y0`, {layout.tree}, but it "
                f"returned {tree}."
            )
        parts = []
        for leaf, shape in zip(leaves, layout.shapes, strict=True):
            array = _checked_leaf(f"`{role}` {name}", leaf, (*shape, *more), layout.dtype, more)
            parts.append(array.reshape(math.prod(shape), *more))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    return ravel


def _checked_leaf(
    who: str, leaf: Any, shape: tuple[int, ...], dtype: np.dtype, more: tuple[int, ...]
) -> Array:
    array = jnp.asarray(leaf)
    if array.shape != shape:
        raise ValueError(
            f"{who} must return leaves shaped like those of `y0`{_MATRIX if more else ''}: "
            f"expected shape {shape}, got {array.shape}."
        )
    is_number = isinstance(leaf, (bool, int, float)) or array.weak_type
    is_real = jnp.issubdtype(array.dtype, np.floating)
    widened = jnp.promote_types(array.dtype, dtype)
    if not is_number and (not is_real or widened != dtype):
        raise TypeError(
            f"{who} must return leaves of the state's dtype {dtype}, but one has dtype "
            f"{array.dtype}: cast the parameters or the result (`.astype(y.dtype)`), or give "
            f"`y0` as {widened}."
        )
    return array.astype(dtype)
