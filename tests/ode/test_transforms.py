"""Solves and their derivatives inside JAX's transformations."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from ode.lane_problems import BACKENDS, FAST, LV_PARAMS, LV_Y0, lotka_volterra, solve
from pullback.lanes.primitive import lane_p
from pullback.testing import assert_close, tol

POINT = jnp.asarray(LV_PARAMS)
BATCH = jnp.outer(jnp.array([1.0, 0.9, 1.2]), POINT)
BOUND = tol("float64", n_ops=2000)


def loss(p, backend=FAST):
    sol = solve(lotka_volterra, LV_Y0, p, (0.0, 1.0), saveat=[0.4, 1.0], backend=backend)
    return jnp.sum(sol.y**2)


@pytest.fixture(scope="module")
def gradients():
    return jnp.stack([jax.jit(jax.grad(loss))(p) for p in BATCH])


@pytest.mark.parametrize("backend", [pytest.param("array", marks=pytest.mark.slow), *BACKENDS[1:]])
def test_vmap_of_grad_equals_grad_of_vmap(backend, gradients):
    def total(batch):
        return jnp.sum(jax.vmap(lambda p: loss(p, backend))(batch))

    inside = jax.jit(jax.vmap(jax.grad(lambda p: loss(p, backend))))(BATCH)
    assert_close(inside, gradients, rtol=BOUND, atol=BOUND)
    assert_close(jax.jit(jax.grad(total))(BATCH), gradients, rtol=BOUND, atol=BOUND)


def test_nested_vmap_with_different_axes(gradients):
    def end(y0, p):
        return solve(lotka_volterra, y0, p, (0.0, 1.0), saveat=[0.4, 1.0]).y

    starts = jnp.outer(jnp.array([1.0, 0.5]), LV_Y0)
    product = jax.jit(jax.vmap(jax.vmap(end, (None, 0)), (0, None)))(starts, BATCH)
    assert product.shape == (2, 3, 2, 2)
    for i in range(2):
        row = jax.jit(jax.vmap(end, (None, 0)))(starts[i], BATCH)
        assert_close(product[i], row, rtol=BOUND, atol=BOUND)


def test_shared_parameters_get_the_sum(gradients):
    scales = jnp.array([1.0, 0.9, 1.2])

    def total(p):
        return jnp.sum(jax.vmap(lambda s: loss(p * s))(scales))

    wanted = jnp.sum(gradients * scales[:, None], axis=0)
    assert_close(jax.jit(jax.grad(total))(POINT), wanted, rtol=BOUND, atol=BOUND)

    def shared(p):
        starts = jnp.outer(scales, LV_Y0)
        sol = jax.vmap(lambda y0: solve(lotka_volterra, y0, p).y_end)(starts)
        return jnp.sum(sol)

    def looped(p):
        return sum(jnp.sum(solve(lotka_volterra, jnp.asarray(LV_Y0) * s, p).y_end) for s in scales)

    found, wanted = jax.jit(jax.grad(shared))(POINT), jax.jit(jax.grad(looped))(POINT)
    assert_close(found, wanted, rtol=BOUND, atol=BOUND)


TRANSFORMS = {
    "jit grad": lambda: jax.jit(jax.grad(loss))(POINT),
    "eager grad": lambda: jax.grad(loss)(POINT),
    "grad jit": lambda: jax.grad(jax.jit(loss))(POINT),
    "checkpoint": lambda: jax.jit(jax.grad(jax.checkpoint(loss)))(POINT),
    "map": lambda: jax.jit(lambda b: lax.map(jax.grad(loss), b))(BATCH)[0],
    "scan of grad": lambda: jax.jit(
        lambda p: lax.scan(lambda c, _: (c, jax.grad(loss)(c)), p, None, length=2)[1]
    )(POINT)[1],
    "grad of scan": lambda: (
        jax.jit(
            jax.grad(lambda p: lax.scan(lambda c, _: (c + loss(p), None), 0.0, None, length=2)[0])
        )(POINT)
        / 2
    ),
    "linearize": lambda: jax.vmap(jax.linearize(loss, POINT)[1])(jnp.eye(4)),
    "vjp of cond": lambda: jax.jit(
        jax.grad(lambda p: lax.cond(p[0] > 0, loss, lambda p: jnp.sum(p), p))
    )(POINT),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transformations_compose(name, gradients):
    # Forward mode has a mesh of its own.
    bound = 1e-4 if name == "linearize" else BOUND
    assert_close(TRANSFORMS[name](), gradients[0], rtol=bound, atol=bound)


def test_a_batch_is_one_call_of_the_executor():
    def run(batch):
        return jax.vmap(jax.vmap(jax.grad(loss)))(batch)

    jaxpr = jax.make_jaxpr(run)(BATCH[None])
    calls = [e for e in jaxpr.jaxpr.eqns if e.primitive is lane_p]
    assert [e.params["n_traj"] for e in calls] == [3, 3]


def test_equal_problems_share_one_program():
    def programs():
        # A new function object each time, tracing to the same thing.
        jaxpr = jax.make_jaxpr(
            lambda p: solve(lambda t, y, p: -p[0] * y + jax.nn.relu(y), LV_Y0, p).y_end
        )(POINT)
        return [e.params["program"] for e in jaxpr.jaxpr.eqns if e.primitive is lane_p]

    first, second = programs(), programs()
    assert first == second
    assert hash(first[0]) == hash(second[0])
    other = jax.make_jaxpr(lambda p: solve(lambda t, y, p: -2 * y, LV_Y0, p).y_end)(POINT)
    assert first[0] != other.jaxpr.eqns[-1].params.get("program")
