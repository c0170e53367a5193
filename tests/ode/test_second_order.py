"""Second derivatives: forward over reverse and forward over forward, mesh frozen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ode.lane_problems import decay, decay_exact, solve
from pullback.core import TransposeUnsupported
from pullback.ode import DiscreteAdjoint
from pullback.testing import assert_close, taylor_test

Z = 2.3


def end(z):
    """y(1) of y' = -z y, y(0) = 2."""
    return solve(lambda t, y, p: -p * y, 2.0, z, rtol=1e-9, atol=1e-9).y_end[0]


@pytest.mark.parametrize(
    "second",
    [
        lambda f: jax.jacfwd(jax.grad(f)),
        lambda f: jax.jacfwd(jax.jacfwd(f)),
        jax.hessian,
        lambda f: jax.jit(jax.jacfwd(jax.jit(jax.grad(f)))),
        lambda f: lambda z: jax.jvp(jax.grad(f), (z,), (1.0,))[1],
    ],
    ids=["jacfwd grad", "jacfwd jacfwd", "hessian", "jit", "jvp grad"],
)
def test_exponential(second):
    assert_close(second(end)(Z), jnp.array(2 * np.exp(-Z)), rtol=1e-7, atol=0.0)


def test_vmap_of_a_hessian():
    zs = jnp.array([0.5, 1.0, 2.3])
    found = jax.jit(jax.vmap(jax.hessian(end)))(zs)
    assert_close(found, 2 * jnp.exp(-zs), rtol=1e-7, atol=0.0)


@pytest.mark.parametrize(
    "second",
    [lambda f: jax.grad(jax.grad(f)), lambda f: jax.jacrev(jax.jacfwd(f))],
    ids=["grad grad", "jacrev jacfwd"],
)
def test_reverse_over_anything_says_what_to_use(second):
    with pytest.raises(TransposeUnsupported, match=r"jacfwd\(grad\(f\)\)"):
        second(end)(Z)


@pytest.mark.slow
def test_every_second_derivative_of_rows_and_end():
    times = jnp.array([0.3, 0.5, 1.0, 2.0])  # from t0 to t1, both included
    weight = jnp.arange(1.0, 5.0)
    point = (jnp.array(1.2), jnp.array(0.3), jnp.array(2.0), jnp.array(0.7), times)

    def ours(y0, t0, t1, p, times):
        sol = solve(decay, y0, p, (t0, t1), saveat=times, rtol=1e-8, atol=1e-8)
        return weight @ jnp.sin(sol.y[:, 0]) + jnp.cos(sol.y_end[0])

    def exact(y0, t0, t1, p, times):
        rows = decay_exact(y0, t0, times, p)
        return weight @ jnp.sin(rows) + jnp.cos(decay_exact(y0, t0, t1, p))

    argnums = (0, 1, 2, 3, 4)
    found = jax.jit(jax.jacfwd(jax.grad(ours, argnums), argnums))(*point)
    wanted = jax.jacfwd(jax.grad(exact, argnums), argnums)(*point)
    assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_hessian_at_a_perfect_fit():
    # The cotangents are zero there, their tangents are not: nothing may be skipped.
    times = np.linspace(0.0, 1.0, 5)

    def loss(z):
        sol = solve(lambda t, y, p: -p * y, 2.0, z, saveat=times, rtol=1e-8, atol=1e-8)
        return 0.5 * jnp.sum((sol.y[:, 0] - jax.lax.stop_gradient(sol.y[:, 0])) ** 2)

    slope = -2 * times * np.exp(-Z * times)
    assert float(jax.jit(jax.grad(loss))(Z)) == 0.0
    assert_close(jax.jit(jax.hessian(loss))(Z), jnp.array(slope @ slope), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("tape", [None, pytest.param(4, marks=pytest.mark.slow)], ids=str)
def test_taylor_remainder_of_third_order(tape):
    def run(x):
        y0, p = x
        adjoint = DiscreteAdjoint(tape=tape)
        sol = solve(
            lambda t, y, p: jnp.sin(y) - p * y * y,
            y0,
            p,
            dt=0.1,
            saveat=[0.25, 1.0],
            adjoint=adjoint,
            max_steps=16,
        )
        return jnp.sum(sol.y**2)

    x = (jnp.array(0.8), jnp.array(0.6))
    taylor_test(jax.jit(run), x, (jnp.array(0.5), jnp.array(-0.4)), order=3)
