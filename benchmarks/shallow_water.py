"""A small shallow-water model, and loops of its steps that other libraries run.

Lengths are in grid distances, times in those that a wave of depth 1 takes for one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

__all__ = [
    "Friction",
    "Loop",
    "Peer",
    "Water",
    "diffrax_euler",
    "equinox_scan",
    "initial_water",
    "nested_scan",
    "pairs",
    "plain_scan",
    "shifted",
    "step",
    "stepper",
]

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
    return shifted(1, 1, field)


def _east(field: Any) -> Any:
    return shifted(-1, 1, field)


def _south(field: Any) -> Any:
    return shifted(1, 0, field)


def _north(field: Any) -> Any:
    return shifted(-1, 0, field)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def shifted(shift: int, axis: int, field: Any) -> Any:
    """Return a rolled field; its transpose rolls back.

    JAX's own transpose pads pieces and adds them, which makes the reverse of a step twice as dear.
    """
    return jnp.roll(field, shift, axis)


def _shifted_forward(shift: int, axis: int, field: Any) -> tuple[Any, None]:
    return shifted(shift, axis, field), None


def _shifted_backward(shift: int, axis: int, _: None, field_bar: Any) -> tuple[Any]:
    return (shifted(-shift, axis, field_bar),)


shifted.defvjp(_shifted_forward, _shifted_backward)


class Loop(NamedTuple):
    """What is differentiated.

    Attributes:
        n: Cells along each axis.
        n_steps: Number of steps.
        n_snapshots: For those that take a number of snapshots.
    """

    n: int
    n_steps: int
    n_snapshots: int


Run: TypeAlias = Callable[[Water, Friction], Water]


class Peer(NamedTuple):
    """One way to run the loop.

    Attributes:
        run: Takes the initial state and the parameters, returns the last state.
        n_snapshots: States that its gradient keeps, as it predicts.
        n_taped: Steps that it tapes at a time.
        block: Steps between two places for snapshots.
        compiles: Whether the gradient may be compiled as a whole.
    """

    run: Run
    n_snapshots: int
    n_taped: int
    block: int = 1
    compiles: bool = True


def stepper(friction: Friction) -> Callable[[Water, Any], tuple[Water, None]]:
    """Return the step as `jax.lax.scan` wants it."""
    return lambda water, _: (step(water, friction), None)


def plain_scan(loop: Loop) -> Peer:
    """Run `jax.lax.scan`."""

    def run(water: Water, friction: Friction) -> Water:
        return lax.scan(stepper(friction), water, None, length=loop.n_steps)[0]

    return Peer(run, 0, loop.n_steps)


def nested_scan(loop: Loop) -> Peer:
    """Run two nested scans, as square as may be, the inner one under `jax.checkpoint`."""
    inner = next(i for i in range(math.isqrt(loop.n_steps), 0, -1) if loop.n_steps % i == 0)
    n_outer = loop.n_steps // inner

    def run(water: Water, friction: Friction) -> Water:
        @functools.partial(jax.checkpoint, prevent_cse=False)
        def chunk(water: Water, _: None) -> tuple[Water, None]:
            return lax.scan(stepper(friction), water, None, length=inner)[0], None

        return lax.scan(chunk, water, None, length=n_outer)[0]

    return Peer(run, n_outer, inner)


def equinox_scan(loop: Loop) -> Peer:
    """Run Equinox's checkpointed scan."""
    import equinox.internal  # noqa: PLC0415 - optional

    scan: Any = equinox.internal.scan

    def run(water: Water, friction: Friction) -> Water:
        options = {"kind": "checkpointed", "checkpoints": loop.n_snapshots}
        return scan(stepper(friction), water, None, loop.n_steps, **options)[0]

    return Peer(run, loop.n_snapshots, 1)


def diffrax_euler(loop: Loop) -> Peer:
    """Solve with Diffrax and Euler's method, which adds the change of one step."""
    import diffrax  # noqa: PLC0415 - optional

    def change(_: Any, water: Water, friction: Friction) -> Water:
        return jax.tree.map(jnp.subtract, step(water, friction), water)

    def run(water: Water, friction: Friction) -> Water:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(change), diffrax.Euler(), 0.0, float(loop.n_steps), 1.0, water,
            args=friction, max_steps=loop.n_steps,
            adjoint=diffrax.RecursiveCheckpointAdjoint(checkpoints=loop.n_snapshots),
        )  # fmt: skip
        return jax.tree.map(lambda saved: saved[0], solution.ys)

    return Peer(run, loop.n_snapshots, 1)


def pairs(loop: Loop, water: Water, friction: Friction) -> Any:
    """Run steps that each push a cotangent through their own transpose: a step and its reverse."""

    def pair(carry: Any, _: None) -> tuple[Any, None]:
        water, water_bar, friction_bar = carry
        water, pull = jax.vjp(step, water, friction)
        water_bar, more = pull(water_bar)
        return (water, water_bar, jax.tree.map(jnp.add, friction_bar, more)), None

    zeros = jax.tree.map(jnp.zeros_like, friction)
    return lax.scan(pair, (water, water, zeros), None, length=loop.n_steps)[0]
