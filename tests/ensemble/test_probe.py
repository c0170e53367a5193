"""The probe gets into every solve of a traced function, and its cotangent out of it.

A stand-in for a solve (a `custom_vjp` with a known cotangent of the probe) keeps these tests fast.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pullback.ensemble.probe import contains_probe, evaluate, make_probe, recording


@jax.custom_vjp
def sine(x, probe):
    return jnp.sin(x)


# The probe's cotangent counts the calls and sums the cotangents that arrive.
sine.defvjp(
    lambda x, probe: (jnp.sin(x), x),
    lambda x, bar: (bar * jnp.cos(x), jnp.stack([jnp.ones_like(bar), bar, 0 * bar])),
)


def solve(x):
    return sine(x, make_probe(np.dtype(np.float64)))


def value_and_grads(f):
    def wrapped(x):
        with recording(True):
            closed = jax.make_jaxpr(f)(x)

        def scalar(x, probe):
            return evaluate(closed.jaxpr, closed.consts, probe, x)[0]

        return jax.value_and_grad(scalar, (0, 1))(x, jnp.zeros(3))

    return wrapped


def loop(x):
    return jax.lax.scan(lambda c, _: (jitted(c), None), x, None, length=3)[0]


def scan_with_everything(x):
    def step(carry, xs):
        return solve(carry * x) + xs, carry

    last, all_but_first = jax.lax.scan(step, x, jnp.arange(3.0), reverse=True, unroll=3)
    return last + all_but_first.sum()


jitted = jax.jit(solve)
SOLVES = {
    "plain": (solve, 1),
    "twice": (lambda x: solve(x) * solve(x), 2),
    "jit": (jitted, 1),
    "nested jit": (jax.jit(lambda x: jitted(x) + solve(x)), 2),
    "scan": (loop, 3),
    "scan with constants": (scan_with_everything, 3),
    "cond": (lambda x: jax.lax.cond(x > 0, jitted, lambda c: c, x), 1),
    "cond, other branch": (lambda x: jax.lax.cond(x < 0, jitted, lambda c: c, x), 0),
    "switch": (lambda x: jax.lax.switch(2, [jnp.cos, jnp.exp, solve], x), 1),
    "checkpoint": (jax.checkpoint(jitted), 1),
    "checkpoint with policy": (
        jax.checkpoint(solve, policy=jax.checkpoint_policies.everything_saveable),
        1,
    ),
    "vmap": (lambda x: jax.vmap(solve)(x + jnp.arange(4.0)).sum(), 4),
    "vmap of jit": (lambda x: jax.vmap(jitted)(x + jnp.arange(4.0)).sum(), 4),
    "beside a custom rule": (lambda x: jax.nn.relu(solve(x)), 1),
    "map": (lambda x: jax.lax.map(solve, x + jnp.arange(4.0)).sum(), 4),
}


@pytest.mark.parametrize("name", SOLVES)
@pytest.mark.parametrize("outside", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_every_solve_contributes_once(name, outside):
    f, n_solves = SOLVES[name]
    value, slope = jax.value_and_grad(f)(0.7)
    got, (grad, probe_bar) = outside(value_and_grads(f))(0.7)
    np.testing.assert_allclose(got, value, rtol=1e-15)
    np.testing.assert_allclose(grad, slope, rtol=1e-14)
    assert float(probe_bar[0]) == n_solves


def test_under_vmap_each_element_has_its_own():
    f, n_solves = SOLVES["scan"]
    _, (grads, probe_bar) = jax.vmap(value_and_grads(f))(jnp.array([0.3, 0.7]))
    singles = [value_and_grads(f)(x)[1] for x in (0.3, 0.7)]
    np.testing.assert_allclose(grads, [g for g, _ in singles], rtol=1e-14)
    np.testing.assert_allclose(probe_bar, [p for _, p in singles], rtol=1e-14)
    assert probe_bar[:, 0].tolist() == [n_solves, n_solves]


def test_a_jit_cache_from_before_has_no_probe_and_is_not_used():
    traces = []

    @jax.jit
    def f(x):
        traces.append(1)
        return solve(x)

    f(0.5)
    for _ in range(2):
        assert float(value_and_grads(f)(0.5)[1][1][0]) == 1
        f(0.5)
    assert len(traces) == 2  # once without and once with the probe


def test_without_a_recording_the_probe_is_zero():
    assert not contains_probe(jax.make_jaxpr(solve)(0.5).jaxpr)
    with recording(True):
        closed = jax.make_jaxpr(jitted)(0.5)
        assert contains_probe(closed.jaxpr)
        np.testing.assert_array_equal(make_probe(np.dtype(np.float32)), np.zeros(3, np.float32))
        # Left in place, it is a zero like any other.
        np.testing.assert_allclose(jitted(0.5), np.sin(0.5), rtol=1e-15)
        np.testing.assert_allclose(jax.grad(jitted)(0.5), np.cos(0.5), rtol=1e-15)
    assert float(jax.make_jaxpr(jitted)(0.5).consts == [])


def test_where_it_cannot_follow_it_stays_zero():
    @jax.custom_vjp
    def opaque(x):
        return solve(x)

    opaque.defvjp(lambda x: (solve(x), x), lambda x, bar: (bar,))
    _, (grad, probe_bar) = value_and_grads(opaque)(0.5)
    assert (float(grad), float(probe_bar[0])) == (1.0, 0.0)

    def count_down(x):
        return jax.lax.while_loop(lambda c: c > 0.4, lambda c: solve(c), x)

    with recording(True):
        closed = jax.make_jaxpr(count_down)(0.5)
    out = evaluate(closed.jaxpr, closed.consts, jnp.zeros(3), 0.5)
    np.testing.assert_allclose(out[0], count_down(0.5), rtol=1e-15)
