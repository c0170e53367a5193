"""Vector fields with derivative rules of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.executors import each_executor

import pullback as pb


@jax.custom_vjp
def reverse_only(x):
    return jnp.sin(x)


reverse_only.defvjp(lambda x: (jnp.sin(x), x), lambda x, bar: (bar * jnp.cos(x),))


def end(p, executor, function, **options):
    problem = pb.ODEProblem(lambda t, y, p: -p * function(y), jnp.array(1.0), (0.0, 1.0), p)
    return pb.solve(problem, pb.Tsit5(), executor, rtol=1e-8, atol=1e-8, **options).y_end


@each_executor
def test_custom_vjp_has_gradients_on_the_plain_mesh(executor):
    right = jax.grad(lambda p: end(p, executor, jnp.sin))(0.7)
    with pytest.warns(pb.GradientUnresolvedWarning, match="custom_vjp"):
        got = jax.grad(lambda p: end(p, executor, reverse_only))(0.7)
    np.testing.assert_allclose(got, right, rtol=1e-7)
    plain = pb.DiscreteAdjoint(resolve=False)
    got = jax.grad(lambda p: end(p, executor, reverse_only, adjoint=plain))(0.7)
    np.testing.assert_allclose(got, right, rtol=1e-7)


@each_executor
def test_custom_vjp_has_no_forward_mode(executor):
    with pytest.raises((TypeError, NotImplementedError), match=r"forward.*custom_vjp"):
        jax.jvp(lambda p: end(p, executor, reverse_only), (0.7,), (1.0,))
