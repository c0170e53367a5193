"""Train a network whose output is the parameters of a differential equation.

A layer maps the constant input 1 to two numbers p, ten trajectories of u' = 1.01 u p[0] p[1]
start at different u(0), and the loss asks all of them to stay at 1. `jax.grad` goes through the
network, the ensemble and the loss at once. The equation has a closed solution, so the gradient
can be checked.

Needs the extra `examples` (Equinox and Optax).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import pullback as pb

SAVE_EVERY = 0.1
# With Adam's rate of 0.1 an epoch moves each output by 0.2. From this initialisation the minimum is
# ten epochs away; from one that is nearer the steps are too large and the loss circles the minimum.
SEED = 250


class Result(NamedTuple):
    """What the training and the check of its gradient gave.

    Attributes:
        losses: before the first epoch and after each.
        smallest_loss: that any parameters can reach.
        gradient_errors: of the first gradient, relative, by dtype.
    """

    losses: list[float]
    smallest_loss: float
    gradient_errors: dict[str, float]


def growth(t, u, p):
    return 1.01 * u * p[0] * p[1]


def start_of(sim_id, u0):
    """Return the start of trajectory `sim_id`, which counts from 0; in Julia it counts from 1."""
    return 0.5 + jnp.asarray(sim_id + 1, u0.dtype) / 100 * u0


def simulate(p, n_traj: int, rtol: float):
    problem = pb.ODEProblem(growth, jnp.full((1,), 3.0, p.dtype), (0.0, 1.0), p)

    def prob_func(problem, ctx):
        return problem.replace(y0=start_of(ctx.sim_id, problem.y0))

    return pb.solve(
        pb.EnsembleProblem(problem, prob_func),
        pb.Tsit5(),
        pb.EnsembleKernel(),
        trajectories=n_traj,
        saveat=SAVE_EVERY,
        rtol=rtol,
        atol=rtol,
    ).y


def exact(p, n_traj: int):
    """Return what `simulate` should: u(t) = u(0) exp(1.01 p[0] p[1] t)."""
    t = jnp.linspace(0.0, 1.0, 11, dtype=p.dtype)
    u0 = start_of(jnp.arange(n_traj), jnp.full((), 3.0, p.dtype))
    return (u0[:, None] * jnp.exp(1.01 * p[0] * p[1] * t)[None, :])[..., None]


def loss(network, trajectories):
    """Score the trajectories, a function of p, that the network's output leads to."""
    dtype = network.weight.dtype
    return jnp.sum((1.0 - trajectories(network(jnp.ones((1,), dtype)))) ** 2)


def make_network(dtype, seed: int = SEED) -> eqx.nn.Linear:
    return eqx.nn.Linear(1, 2, key=jax.random.key(seed), dtype=dtype)


def train(network, n_traj: int, n_epochs: int, rtol: float) -> list[float]:
    optimizer = optax.adam(0.1)
    state = optimizer.init(network)

    @jax.jit
    def update(network, state):
        value, grads = jax.value_and_grad(loss)(network, lambda p: simulate(p, n_traj, rtol))
        changes, state = optimizer.update(grads, state)
        return optax.apply_updates(network, changes), state, value

    losses = []
    for _ in range(n_epochs + 1):
        network, state, value = update(network, state)
        losses.append(float(value))
    return losses


def gradient_error(dtype, n_traj: int, rtol: float) -> float:
    """Return how far the first gradient is from that of the closed solution, relative to it."""
    network = make_network(dtype)
    found = jax.grad(loss)(network, lambda p: simulate(p, n_traj, rtol))
    wanted = jax.grad(loss)(network, lambda p: exact(p, n_traj))
    found, wanted = (np.concatenate([jnp.ravel(g.weight), g.bias]) for g in (found, wanted))
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def smallest_loss(n_traj: int) -> float:
    """Return the least loss; it depends on p[0] p[1] alone."""
    products = jnp.linspace(-1.0, 2.0, 3001)
    losses = jax.vmap(lambda q: jnp.sum((1.0 - exact(jnp.stack([q, 1.0]), n_traj)) ** 2))(products)
    return float(jnp.min(losses))


def main(n_traj: int = 10, n_epochs: int = 10) -> Result:
    losses = train(make_network(jnp.float32), n_traj, n_epochs, rtol=1e-4)
    print("epoch   loss")
    for epoch, value in enumerate(losses):
        print(f"{epoch:5d}   {value:.6f}")
    smallest = smallest_loss(n_traj)
    print(f"the smallest possible loss is {smallest:.6f}")
    errors = {"float32": gradient_error(jnp.float32, n_traj, rtol=1e-4)}
    with jax.enable_x64(True):
        errors["float64"] = gradient_error(jnp.float64, n_traj, rtol=1e-10)
    for name, error in errors.items():
        print(f"gradient against the closed solution, {name}: relative error {error:.1e}")
    return Result(losses, smallest, errors)


if __name__ == "__main__":
    main()
