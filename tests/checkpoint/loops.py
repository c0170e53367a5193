"""Loops that the tests of this folder share, as functions of what runs them."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pullback.checkpoint import checkpointed_scan, checkpointed_while
from pullback.testing import tol

N_STEPS = 19
N_STATE = 3
MOST_STEPS = 97
RATE = jnp.float64(1.3)
STATE = jnp.array([0.1, 0.5, -0.3])
FORCING = jnp.sin(jnp.arange(N_STEPS * N_STATE, dtype=float)).reshape(N_STEPS, N_STATE)

# Each number passes some 20 operations a step; the loops below amplify by less than 10.
EXACT = tol("float64", n_ops=20 * N_STEPS, cond=10.0)


def scan_loss(run: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of everything that a scan returns; the carry has an integer leaf."""

    def loss(rate, state, forcing=FORCING):
        def step(carry, x):
            i, v = carry
            v = v + 0.1 * jnp.sin(rate * v + x) * jnp.cos(0.1 * i)
            return (i + 1, v), {"first": v[0], "index": i}

        (i, v), ys = run(step, (0, state), forcing)
        weight = jnp.cos(ys["index"])
        return jnp.sum(v**2) * i + jnp.sum(ys["first"] * weight)

    return loss


def while_loss(run: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of the end of a loop that counts its steps itself."""

    def loss(rate, state, n_steps=N_STEPS):
        def step(carry):
            i, v = carry
            return i + 1, v + 0.1 * jnp.sin(rate * v) * jnp.cos(0.1 * i)

        i, v = run(lambda carry: carry[0] < n_steps, step, (0, state))
        return jnp.sum(v**2) * (1.0 + i)

    return loss


def grads(loss: Callable[..., Any], mode: str, *args: Any) -> Any:
    """Value and gradient; compiled as one program where Python need not follow the schedule."""
    f = jax.value_and_grad(loss, tuple(range(len(args))))
    return f(*args) if mode == "host" else jax.jit(f)(*args)


def scan_with(**options: Any) -> Callable[..., Any]:
    return functools.partial(checkpointed_scan, **options)


def while_with(**options: Any) -> Callable[..., Any]:
    return functools.partial(checkpointed_while, **options)


@functools.cache
def while_truth() -> Callable[..., Any]:
    """Return value and gradient of `while_loss` for up to `MOST_STEPS` steps, compiled once."""

    def run(cond, step, init):
        def masked(carry, _):
            return jax.lax.cond(cond(carry), step, lambda carry: carry, carry), None

        return jax.lax.scan(masked, init, None, length=MOST_STEPS)[0]

    return jax.jit(jax.value_and_grad(while_loss(run), (0, 1)))


def plain_while(n_steps: int = N_STEPS) -> Callable[..., Any]:
    """Run a loop that makes `n_steps` steps as a scan, which has a gradient."""

    def run(cond, step, init):
        return jax.lax.scan(lambda carry, _: (step(carry), None), init, None, length=n_steps)[0]

    return run
