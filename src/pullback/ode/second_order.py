"""A vector field of second order: x' = v, v' = acceleration(t, x, v)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array, PyTree
from pullback.ode.field import FlatField, Traced, trace_flat
from pullback.ode.ravel import StateLayout, state_layout

__all__ = ["TracedSecondOrder", "trace_second_order"]


class TracedSecondOrder(NamedTuple):
    """What tracing an acceleration gives.

    Attributes:
        field: The vector field of the pair, static; positions are the first half of its state.
        hoisted: The arrays that the acceleration closes over, behind the parameters in theta.
        layout: How the state vector and the user's pair (x, v) belong together.
        of_velocity: A second trace, of `(t, v, ...)`: what the acceleration makes of v.
    """

    field: FlatField
    hoisted: tuple[Array, ...]
    layout: StateLayout
    of_velocity: Traced


def trace_second_order(
    acceleration: Callable[[Any, Any, Any, Any], Any], y0: tuple[PyTree, PyTree], params: PyTree
) -> TracedSecondOrder:
    """Trace `acceleration(t, x, v, params)` once, for one trajectory.

    Args:
        acceleration: The user's function; returns the structure of x.
        y0: Positions and velocities, of one structure.
        params: Pytree of arrays and scalars.

    Raises:
        TypeError: The acceleration has another structure or dtype than the positions.
        ValueError: Shapes differ, or there are side effects.
    """
    layout = state_layout(y0)
    n_leaves = len(layout.shapes) // 2
    shapes = layout.shapes[:n_leaves]
    if shapes != layout.shapes[n_leaves:]:
        raise ValueError(
            "`y0` of SecondOrderODEProblem must hold positions and velocities of the same shapes, "
            f"but {shapes} and {layout.shapes[n_leaves:]} arrived."
        )
    half = StateLayout(jax.tree.structure(y0[0]), shapes, layout.dtype)
    name = getattr(acceleration, "__name__", type(acceleration).__name__)

    def ravel(a: PyTree) -> Array:
        if jax.tree.structure(a) != half.tree:
            raise TypeError(
                f"`acceleration` {name} must return the structure of the positions, {half.tree}, "
                f"but it returned {jax.tree.structure(a)}."
            )
        return half.ravel_derivative(a, name, "acceleration")

    def field(t: Array, y: tuple[PyTree, PyTree], params: PyTree) -> tuple[PyTree, PyTree]:
        return y[1], acceleration(t, *y, params)

    def of_velocity(t: Array, v: PyTree, more: tuple[PyTree, PyTree]) -> PyTree:
        return acceleration(t, more[0], v, more[1])

    field.__name__ = name
    flat = trace_flat(
        field, layout, params, lambda dy: jnp.concatenate([half.ravel(dy[0]), ravel(dy[1])])
    )
    floating = tuple(jnp.issubdtype(a.dtype, np.floating) for a in flat.jaxpr.in_avals[2:])
    positions = half.unravel(jnp.zeros(half.n, layout.dtype))
    return TracedSecondOrder(
        FlatField(flat.key, flat.jaxpr, name, layout.n, floating),
        flat.hoisted,
        layout,
        trace_flat(of_velocity, half, (positions, params), ravel),
    )
