"""The slope y' of M y' = f(t, y), also of a differential-algebraic equation."""

from __future__ import annotations

import jax.numpy as jnp

from pullback.core.typing import Array
from pullback.ode.stage_solve import constraint_matrix
from pullback.ode.system import System

__all__ = ["slope"]


def slope(system: System, t: Array, y: Array) -> Array:
    """Return y' at (t, y).

    Where the mass matrix is singular, the algebraic variables move so that the algebraic
    equations go on to hold: with the rows of f that have no derivative called g,
    g_y y' + g_t = 0.
    """
    value, mass = system(t, y), system.mass
    if mass is None:
        return value
    if not mass.is_singular:
        return mass.inverse_times(value)
    drift = jnp.zeros_like(value) if system.is_autonomous else system.time_derivative(t, y)
    right = jnp.where(jnp.asarray(mass.algebraic), drift, value)
    return constraint_matrix(system, t, y).solve(right)
