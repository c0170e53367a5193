"""A small shallow-water model: three fields, two parameters, one step that runs anywhere.

Lengths are in grid distances, times in those that a wave of depth 1 takes for one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

__all__ = ["Friction", "Water", "initial_water", "step"]

# Waves need less than 1/sqrt(2); viscosity damps what forward steps of the advection amplify.
_DT = 0.25
_ROTATION = 0.1


class Water(NamedTuple):
    """Fields on a periodic C-grid; axis 0 points north, axis 1 east.

    Attributes:
        depth: At the centres of cells, shape (n, n).
        u: Eastward velocity at their western faces, shape (n, n).
        v: Northward velocity at their southern faces, shape (n, n).
    """

    depth: Any
    u: Any
    v: Any


class Friction(NamedTuple):
    """Parameters.

    Attributes:
        viscosity: Of momentum.
        drag: Of the bottom: acts on momentum, hence more where the water is shallow.
    """

    viscosity: Any
    drag: Any


def initial_water(n: int) -> tuple[Water, Friction]:
    """Return two hills of water at rest in a shear flow, in float64, and the parameters."""
    along = 2 * jnp.pi * jnp.arange(n, dtype=jnp.float64) / n
    y, x = along[:, None], along[None, :]
    hills = jnp.exp(3 * (jnp.cos(x - 1) + jnp.cos(y - 2) - 2))
    hills += 0.5 * jnp.exp(5 * (jnp.cos(x - 4) + jnp.cos(y - 4) - 2))
    u = 0.05 * jnp.sin(2 * y) + 0.01 * jnp.cos(3 * x)
    v = 0.03 * jnp.sin(x) + 0.01 * jnp.cos(2 * y)
    return Water(1 + 0.1 * hills, u, v), Friction(jnp.asarray(0.05), jnp.asarray(1e-4))


def step(water: Water, friction: Friction) -> Water:
    """Take one forward-backward step: velocities feel the new depth.

    Fluxes are centred, so that mass is conserved to rounding; advection is written with
    vorticity and kinetic energy.
    """
    depth, u, v = water
    flux_u, flux_v = u * (depth + _west(depth)) / 2, v * (depth + _south(depth)) / 2
    depth = depth - _DT * (_east(flux_u) - flux_u + _north(flux_v) - flux_v)
    # At the south-western corner of a cell, and at its centre.
    vorticity = v - _west(v) - u + _south(u) + _ROTATION
    energy = (u**2 + _east(u) ** 2 + v**2 + _north(v) ** 2) / 4
    head = depth + energy
    # What turns at corners, averaged to faces.
    turned_v = vorticity * (v + _west(v)) / 2
    turned_u = vorticity * (u + _south(u)) / 2
    u_dot = (turned_v + _north(turned_v)) / 2 - (head - _west(head))
    v_dot = -(turned_u + _east(turned_u)) / 2 - (head - _south(head))
    u_dot += friction.viscosity * _laplacian(u) - friction.drag * 2 * u / (depth + _west(depth))
    v_dot += friction.viscosity * _laplacian(v) - friction.drag * 2 * v / (depth + _south(depth))
    return Water(depth, u + _DT * u_dot, v + _DT * v_dot)


def _laplacian(field: Any) -> Any:
    return _west(field) + _east(field) + _south(field) + _north(field) - 4 * field


def _west(field: Any) -> Any:
    """Return each cell's neighbour in the west."""
    return jnp.roll(field, 1, 1)


def _east(field: Any) -> Any:
    return jnp.roll(field, -1, 1)


def _south(field: Any) -> Any:
    return jnp.roll(field, 1, 0)


def _north(field: Any) -> Any:
    return jnp.roll(field, -1, 0)
