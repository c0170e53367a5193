"""Differentiate an explicit heat equation through 500 steps with 100 snapshots, and with 4.

A rod of 100 points is held at 20 degrees at one end and 0 at the other. The loss is the sum of all
final temperatures, the gradient is with respect to the initial ones. It is an example of
Checkpointing.jl, whose tests give the norms of both to sixteen digits. The equation is linear and
symmetric, so the gradient is known by another way too: the same loop, run with the loss's weights.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

import pullback as pb

N_POINTS = 100
DIFFUSION = 0.5  # diffusivity * dt / dx^2: the largest that is stable
PUBLISHED = {"temperature": 66.21987468492061, "gradient": 6.970279349365908}


class Result(NamedTuple):
    """Norms, and how they compare.

    Attributes:
        temperature_norm: of the final temperatures.
        gradient_norm: of the gradient at the inner points, by number of snapshots.
        forward_steps: that each of them takes.
        symmetry_error: largest difference of a gradient from the transposed loop.
    """

    temperature_norm: float
    gradient_norm: dict[int, float]
    forward_steps: dict[int, int]
    symmetry_error: float


def conduct(temperature, _=None):
    left, middle, right = temperature[:-2], temperature[1:-1], temperature[2:]
    middle = middle + DIFFUSION * (left - 2 * middle + right)
    return jnp.concatenate([temperature[:1], middle, temperature[-1:]]), None


def transposed(n_steps: int):
    """Return the gradient at the inner points: there the step is its own transpose."""
    weights = jnp.ones(N_POINTS).at[0].set(0.0).at[-1].set(0.0)
    return jax.lax.scan(conduct, weights, None, length=n_steps)[0][1:-1]


def main(n_steps: int = 500, snapshots: tuple[int, ...] = (100, 4)) -> Result:
    with jax.enable_x64(True):
        start = jnp.zeros(N_POINTS).at[0].set(20.0)
        wanted = transposed(n_steps)
        norms, forward, error = {}, {}, 0.0
        end = jnp.zeros(())
        for n_snapshots in snapshots:
            scheme = pb.Revolve(n_snapshots)

            def total(temperature, scheme=scheme):
                end, _ = pb.checkpointed_scan(
                    conduct, temperature, None, n_steps, scheme=scheme, block=1
                )
                return jnp.sum(end), end

            gradient, end = jax.jit(jax.grad(total, has_aux=True))(start)
            gradient = gradient[1:-1]
            norms[n_snapshots] = float(jnp.linalg.norm(gradient))
            forward[n_snapshots] = scheme.cost(n_steps).forward_steps
            error = max(error, float(jnp.max(jnp.abs(gradient - wanted))))
        result = Result(float(jnp.linalg.norm(end)), norms, forward, error)
    print(f"norm of the temperatures after {n_steps} steps: {result.temperature_norm:.14f}")
    print("snapshots   forward steps   norm of the gradient")
    for n_snapshots, norm in norms.items():
        print(f"{n_snapshots:9d}   {forward[n_snapshots]:13d}   {norm:.15f}")
    print(f"largest difference from the transposed loop: {error:.1e}")
    if n_steps == 500:
        print(f"published: {PUBLISHED['temperature']:.14f} and {PUBLISHED['gradient']:.15f}")
    return result


if __name__ == "__main__":
    main()
