"""Calibrate a stochastic process by pathwise gradients.

An Ornstein-Uhlenbeck process dX = k (m - X) dt + s dW starts at 1. All that is known of it are the
mean and the variance at a few times. Thousands of paths are simulated, always with the same noise,
so that their sample moments are a smooth function of k, m and s; forward mode gives its
derivatives, and Gauss-Newton finds the parameters that reproduce what is known. The moments have
closed forms, so the result and the derivatives can be checked.
"""

from typing import NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

import pullback as pb

TIMES = np.array([0.25, 0.5, 1.0, 2.0])
TRUTH = {"rate": 1.5, "level": 0.4, "volatility": 0.3}
START = {"rate": 0.5, "level": 1.0, "volatility": 1.0}


class Result(NamedTuple):
    """The calibrated process.

    Attributes:
        parameters: k, m and s.
        history: sum of squares after each update.
        derivative_error: largest difference of the sample moments' derivatives by the parameters
            from those of the closed forms, at the truth.
    """

    parameters: dict[str, float]
    history: list[float]
    derivative_error: float


def pull(t, x, p):
    """Return the drift."""
    return p["rate"] * (p["level"] - x)


def noise(t, x, p):
    """Return the diffusion."""
    return p["volatility"] * jnp.ones_like(x)


def sample_moments(p, n_paths: int, dt: float):
    """Return mean and variance of the paths at `TIMES`, `(2, time)`."""
    process = pb.SDEProblem(pull, noise, 1.0, (0.0, TIMES[-1]), p)
    paths = pb.EnsembleProblem(process, lambda problem, ctx: problem)
    sol = pb.solve(
        paths, pb.SRA1(), trajectories=n_paths, key=jax.random.key(0), dt=dt, saveat=TIMES
    )
    return jnp.stack([sol.y.mean(axis=0), sol.y.var(axis=0)])


def exact_moments(p):
    """Return what `sample_moments` converges to."""
    decay = jnp.exp(-p["rate"] * TIMES)
    mean = p["level"] + (1.0 - p["level"]) * decay
    return jnp.stack([mean, p["volatility"] ** 2 / (2.0 * p["rate"]) * (1.0 - decay**2)])


def calibrate(known, n_paths: int, dt: float, n_updates: int):
    """Return the parameters whose paths have the known moments, and the way there."""

    def residual(logs):
        p = jax.tree.map(jnp.exp, logs)
        # A variance is a smaller number than a mean, and as important.
        return ((sample_moments(p, n_paths, dt) - known) / jnp.asarray([[1.0], [0.1]])).ravel()

    @jax.jit
    def update(logs):
        flat, unravel = jax.flatten_util.ravel_pytree(logs)

        def of_flat(x):
            return residual(unravel(x))

        r, jacobian = of_flat(flat), jax.jacfwd(of_flat)(flat)
        step = jnp.linalg.lstsq(jacobian, -r)[0]
        # Far away a full step may leave the region where the model is linear.
        return unravel(flat + step * jnp.minimum(1.0, 1.0 / jnp.max(jnp.abs(step)))), r @ r

    logs, history = jax.tree.map(jnp.log, START), []
    for _ in range(n_updates):
        logs, squares = update(logs)
        history.append(float(squares))
    return {name: float(jnp.exp(value)) for name, value in logs.items()}, history


def main(n_paths: int = 20_000, dt: float = 1 / 32, n_updates: int = 12) -> Result:
    """Calibrate the process to the exact moments of a known one."""
    jax.config.update("jax_enable_x64", True)
    found, history = calibrate(exact_moments(TRUTH), n_paths, dt, n_updates)
    sampled = jax.jacfwd(lambda p: sample_moments(p, n_paths, dt))(TRUTH)
    exact = jax.jacfwd(exact_moments)(TRUTH)
    error = max(float(jnp.abs(sampled[name] - exact[name]).max()) for name in TRUTH)
    print(f"{'':>12}{'truth':>10}{'start':>10}{'found':>10}")
    for name, value in TRUTH.items():
        print(f"{name:>12}{value:10.4f}{START[name]:10.4f}{found[name]:10.4f}")
    print(f"largest error of a derivative of {n_paths} paths' moments: {error:.1e}")
    return Result(found, history, error)


if __name__ == "__main__":
    main()
