"""Traces with fewer equations: the same function, the same derivatives."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jex

from pullback.ode.tidy import tidy


def trace(function, *shapes):
    return jax.make_jaxpr(function)(*(jnp.zeros(s) for s in shapes))


def counts(closed):
    return Counter(eqn.primitive.name for eqn in closed.jaxpr.eqns)


def lorenz(y, p):
    return jnp.stack([p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]])


def unpacked(y, p):
    a, b, c = y
    return jnp.stack([a * b + y[0], jnp.sin(c) * p[1], jnp.sin(c) + p[1]])


def computed(y, p):
    # Entries of a vector that is computed, and one that is used twice as a vector of one.
    z = jnp.outer(y, p) @ y
    return jnp.concatenate([z[1:2] * z[1], y[:1] + z[2], z[1:2] + z[0]])


def few(y, p):
    return jnp.concatenate([y[1] + y[:2], y[2:] * p[0]])


FUNCTIONS = [lorenz, unpacked, computed, few]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_same_function_and_derivatives(function):
    rng = np.random.default_rng(0)
    y, p, v = (jnp.asarray(rng.normal(size=3)) for _ in range(3))
    closed = trace(function, 3, 3)
    tidied = tidy(closed)
    assert len(tidied.jaxpr.eqns) <= len(closed.jaxpr.eqns)
    f, g = jex.jaxpr_as_fun(closed), jex.jaxpr_as_fun(tidied)
    np.testing.assert_array_equal(g(y, p)[0], f(y, p)[0])
    for mode in (jax.jacfwd, jax.jacrev):
        a, b = (mode(lambda y, h=h: h(y, p)[0])(y) for h in (f, g))
        # Cotangents of one entry are added up in another order.
        np.testing.assert_allclose(b, a, rtol=1e-14, atol=1e-15)
    a, b = (jax.jvp(lambda p, h=h: h(y, p)[0], (p,), (v,))[1] for h in (f, g))
    np.testing.assert_allclose(b, a, rtol=1e-14, atol=1e-15)


def test_entries_are_taken_at_once():
    before, after = (counts(c) for c in (trace(lorenz, 3, 3), tidy(trace(lorenz, 3, 3))))
    assert before["slice"] == before["squeeze"] == 11
    assert after["slice"] == after["squeeze"] == 0
    assert after["unstack"] == 2


def test_a_vector_of_which_little_is_used_stays_whole():
    closed = tidy(trace(lambda y: y[7] * y, 40))
    assert counts(closed)["unstack"] == 0
    closed = tidy(trace(lambda y: y[7] * y + y[7], 40))
    assert counts(closed)["squeeze"] == 1


def test_what_is_repeated_is_computed_once():
    closed = tidy(trace(lambda x: jnp.sin(x + 1.0) * jnp.sin(x + 1.0) + jnp.sin(x + 2.0), ()))
    assert counts(closed) == {"add": 3, "sin": 2, "mul": 1}


def test_literals_of_other_dtypes_are_not_the_same():
    def f(x):
        return x.astype(jnp.float32) * np.float32(1), x * 1.0, jnp.full((), 1) + x

    results = jex.jaxpr_as_fun(tidy(trace(f, ())))(jnp.array(3.0))
    assert [r.dtype.name for r in results] == ["float32", "float64", "float64"]
    assert list(map(float, results)) == [3.0, 3.0, 4.0]


def test_operands_and_results_keep_their_places():
    closed = tidy(trace(lambda x, y: (y, x[0], 2.0, x[1], x[0]), 2, ()))
    assert len(closed.in_avals) == 2
    results = jex.jaxpr_as_fun(closed)(jnp.array([3.0, 4.0]), jnp.array(5.0))
    assert list(map(float, results)) == [5.0, 3.0, 2.0, 4.0, 3.0]


def test_what_nothing_depends_on_is_left_out():
    def f(x):
        jnp.cos(x)
        return x + 1.0

    assert counts(tidy(trace(f, ()))) == {"add": 1}
