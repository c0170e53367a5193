"""Check the adjoint of an optimal-control problem that has a solution in closed form.

Minimise y2(1), where y1' = y1/2 + u and y2' = y1^2 + u^2/2 begin at (1, 0). The optimal control
and its states and adjoints are known; the problem is a test of revolve and of Checkpointing.jl. The
midpoint rule makes 100 steps with 4 snapshots. The gradient by the initial state must be the
adjoint at t = 0, and that by the control in each step must vanish at the optimum, both up to the
error of the rule: it is divided by four when the steps are halved.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb

E3 = np.exp(3.0)


class Result(NamedTuple):
    """Computed and exact.

    Attributes:
        state: at t = 1, (2,).
        adjoint: at t = 0, (2,).
        state_error: of the state, relative to the exact one.
        adjoint_error: largest error of the adjoint.
        control_gradient: norm of the gradient by the control of each step, over that where the
            control is zero.
    """

    state: np.ndarray
    adjoint: np.ndarray
    state_error: float
    adjoint_error: float
    control_gradient: float


def optimal_control(t):
    return 2 * (jnp.exp(3 * t) - E3) / (jnp.exp(1.5 * t) * (2 + E3))


def optimal_state(t):
    y1 = (2 * np.exp(3 * t) + E3) / (np.exp(1.5 * t) * (2 + E3))
    y2 = (2 * np.exp(3 * t) - np.exp(6 - 3 * t) - 2 + np.exp(6)) / (2 + E3) ** 2
    return np.array([y1, y2])


def optimal_adjoint(t):
    return np.array([(2 * np.exp(3 - t) - 2 * np.exp(2 * t)) / (np.exp(t / 2) * (2 + E3)), 1.0])


def rates(y, u):
    return jnp.stack([0.5 * y[0] + u, y[0] ** 2 + 0.5 * u**2])


def simulate(y, controls, n_snapshots: int):
    """Return the state at t = 1; `controls` has a row (start, middle) for each step."""
    h = 1.0 / len(controls)

    def midpoint(y, u):
        middle = y + h / 2 * rates(y, u[0])
        return y + h * rates(middle, u[1]), None

    scheme = pb.Revolve(n_snapshots)
    return pb.checkpointed_scan(midpoint, y, controls, scheme=scheme, block=1)[0]


def main(n_steps: int = 100, n_snapshots: int = 4) -> Result:
    with jax.enable_x64(True):
        t = jnp.arange(n_steps) / n_steps
        controls = jnp.stack([optimal_control(t), optimal_control(t + 0.5 / n_steps)], axis=1)

        @jax.jit
        def cost_and_gradients(y, controls):
            def cost(y, controls):
                end = simulate(y, controls, n_snapshots)
                return end[1], end

            return jax.value_and_grad(cost, (0, 1), has_aux=True)(y, controls)

        start = jnp.array([1.0, 0.0])
        (_, state), (adjoint, by_control) = cost_and_gradients(start, controls)
        _, (_, without) = cost_and_gradients(start, jnp.zeros_like(controls))
        result = Result(
            np.asarray(state),
            np.asarray(adjoint),
            float(np.max(np.abs(state / optimal_state(1.0) - 1))),
            float(np.max(np.abs(adjoint - optimal_adjoint(0.0)))),
            float(jnp.linalg.norm(by_control.sum(1)) / jnp.linalg.norm(without.sum(1))),
        )
    print(f"{n_steps} steps, {n_snapshots} snapshots      computed     exact")
    for name, found, wanted in (
        ("state y(1)", result.state, optimal_state(1.0)),
        ("adjoint l(0)", result.adjoint, optimal_adjoint(0.0)),
    ):
        for i in range(2):
            print(f"{name:>14}[{i + 1}]    {found[i]:14.9f} {wanted[i]:14.9f}")
    print(f"gradient by the control, of that without control: {result.control_gradient:.1e}")
    return result


if __name__ == "__main__":
    main()
