"""Reverse mode through the fused kernel: the gradient of a sum of final states.

Each trajectory is u' = p u from u(0) = 1 to t = 1 with a parameter of its own, so the sum of the
final states is sum(exp(p)) and its gradient exp(p). The steps are fixed, and the gradient is that
of the steps: it differs from exp(p) by the method's own error and by nothing else.

There is no buffer to reset before the next call: a gradient in JAX is a value.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb


class Result(NamedTuple):
    """The gradient that each executor found, what it should be, and that of the steps taken."""

    kernel: np.ndarray
    array: np.ndarray
    exact: np.ndarray
    of_the_steps: np.ndarray


def growth(t, u, p):
    return p * u


def ensemble_loss(p, executor, dt):
    problem = pb.ODEProblem(growth, jnp.ones((), p.dtype), (0.0, 1.0), p[0])

    def prob_func(problem, ctx):
        return problem.replace(params=p[ctx.sim_id])

    ensemble = pb.EnsembleProblem(problem, prob_func)
    sol = pb.solve(ensemble, pb.Tsit5(), executor, trajectories=len(p), adaptive=False, dt=dt)
    return jnp.sum(sol.y_end)


def gradient_of_the_steps(p: np.ndarray, dt: float) -> np.ndarray:
    """Return d/dp of R(p dt)^n, where R is what one step of the method does to u' = p u."""
    tableau = pb.Tsit5().tableau

    def one_step(z):
        stages = []
        for row in tableau.a:
            stages.append(z * (1.0 + sum(a * k for a, k in zip(row, stages, strict=False))))
        return 1.0 + sum(b * k for b, k in zip(tableau.b, stages, strict=True))

    n_steps = round(1.0 / dt)
    return np.asarray(jax.vmap(jax.grad(lambda q: one_step(q * dt) ** n_steps))(jnp.asarray(p)))


def main(p: tuple[float, ...] = (0.2, -0.3), dt: float = 0.05) -> Result:
    with jax.enable_x64(True):
        values = jnp.asarray(p, jnp.float64)
        kernel, array = (
            np.asarray(jax.grad(ensemble_loss)(values, executor, dt))
            for executor in (pb.EnsembleKernel(), pb.EnsembleArray())
        )
        result = Result(kernel, array, np.exp(np.asarray(p)), gradient_of_the_steps(values, dt))
    print(f"d/dp of the sum of final states, Tsit5 with steps of {dt}")
    print(f"  {'p':>6} {'gradient':>18} {'exp(p)':>18} {'difference':>11} {'to the steps':>13}")
    rows = zip(p, result.kernel, result.exact, result.of_the_steps, strict=True)
    for value, found, exact, steps in rows:
        print(
            f"  {value:6.2f} {found:18.15f} {exact:18.15f}"
            f" {found - exact:11.1e} {found - steps:13.1e}"
        )
    print(f"  kernel and array differ by {np.max(np.abs(result.kernel - result.array)):.1e}")
    return result


if __name__ == "__main__":
    main()
