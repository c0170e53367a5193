"""A bouncing ball: gradients through bounces, and what its bounces tell about it.

A ball falls from a known height onto the ground, where an event turns its velocity around and
takes some of it away. Height and bounce times after several bounces have closed forms, so the
derivatives through the events can be checked. Then gravity and the coefficient of restitution are
found from noisy bounce times by Gauss-Newton, with the derivatives of `sol.events.t`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb

HEIGHT = 1.5
TRUTH = {"gravity": 9.81, "restitution": 0.8}
START = {"gravity": 7.0, "restitution": 0.6}
TOLERANCE = 1e-10


class Result(NamedTuple):
    """What was found.

    Attributes:
        gradient: derivative of the height at the end by gravity and restitution.
        exact: the same from the closed form.
        parameters: gravity [m/s^2] and restitution, fitted.
        deviation: standard deviations of the fit, from the noise of the times.
    """

    gradient: dict[str, float]
    exact: dict[str, float]
    parameters: dict[str, float]
    deviation: dict[str, float]


def fall(t, state, p):
    """Return the rates of change of height and velocity."""
    return {"height": state["velocity"], "velocity": -p["gravity"]}


def bounce(t, state, p):
    """Return the state behind a bounce."""
    return {"height": state["height"], "velocity": -p["restitution"] * state["velocity"]}


def drop(p, t1):
    """Return the solution for a ball that is dropped at t = 0."""
    ground = pb.Event(lambda t, state, p: state["height"], bounce, direction=-1)
    start = {"height": HEIGHT, "velocity": 0.0}
    ball = pb.ODEProblem(fall, start, (0.0, t1), p, events=[ground])
    return pb.solve(ball, pb.Tsit5(), rtol=TOLERANCE, atol=TOLERANCE)


def exact_times(p, n: int):
    """Return the times of the first n bounces."""
    first = jnp.sqrt(2.0 * HEIGHT / p["gravity"])
    flights = 2.0 * p["restitution"] ** jnp.arange(1, n)
    return first * (1.0 + jnp.concatenate([jnp.zeros(1), jnp.cumsum(flights)]))


def exact_height(p, t1, n: int):
    """Return the height at t1, between bounce n and the next one."""
    since = t1 - exact_times(p, n)[-1]
    speed = p["restitution"] ** n * jnp.sqrt(2.0 * HEIGHT * p["gravity"])
    return speed * since - 0.5 * p["gravity"] * since**2


def fit(times, t1, n_updates: int):
    """Return gravity and restitution from bounce times, and the matrix of the normal equations."""
    names = tuple(START)

    def residual(x):
        found = drop(dict(zip(names, x, strict=True)), t1).events.t[: len(times)]
        return found - times

    @jax.jit
    def update(x):
        jacobian = jax.jacfwd(residual)(x)
        return x - jnp.linalg.lstsq(jacobian, residual(x))[0], jacobian.T @ jacobian

    x = jnp.array([START[name] for name in names])
    normal = jnp.eye(len(names))
    for _ in range(n_updates):
        x, normal = update(x)
    return x, normal


def main(n_bounces: int = 8, noise: float = 2e-3, n_updates: int = 8) -> Result:
    """Differentiate through the bounces, then fit the ball."""
    jax.config.update("jax_enable_x64", True)
    times = np.asarray(exact_times(TRUTH, n_bounces + 1))
    t1 = 0.7 * times[-2] + 0.3 * times[-1]  # within the last flight
    gradient = jax.grad(lambda p: drop(p, t1).y_end["height"])(TRUTH)
    exact = jax.grad(lambda p: exact_height(p, t1, n_bounces))(TRUTH)
    seen = times[:-1] + noise * np.random.default_rng(0).normal(size=n_bounces)
    found, normal = fit(jnp.asarray(seen), 3.0 * t1, n_updates)
    deviation = noise * jnp.sqrt(jnp.diag(jnp.linalg.inv(normal)))
    names = tuple(START)
    result = Result(
        {name: float(gradient[name]) for name in names},
        {name: float(exact[name]) for name in names},
        dict(zip(names, map(float, found), strict=True)),
        dict(zip(names, map(float, deviation), strict=True)),
    )
    print(f"{'':>12}{'d height':>12}{'exact':>12}{'truth':>10}{'fitted':>10}{'+-':>9}")
    for name in names:
        numbers = (result.gradient[name], result.exact[name], TRUTH[name])
        print(f"{name:>12}{numbers[0]:12.7f}{numbers[1]:12.7f}{numbers[2]:10.4f}", end="")
        print(f"{result.parameters[name]:10.4f}{result.deviation[name]:9.4f}")
    return result


if __name__ == "__main__":
    main()
