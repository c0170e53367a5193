import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pullback.core.fingerprint import jaxpr_key

X = jnp.arange(3.0)


def key(fun, *args):
    return jaxpr_key(jax.make_jaxpr(fun)(*(args or (X,))))


@jax.custom_vjp
def square(x):
    return x * x


square.defvjp(lambda x: (x * x, x), lambda x, bar: (2 * x * bar,))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def scaled(x, factor):
    return x * 1.0


scaled.defjvp(lambda factor, primals, tangents: (primals[0] * 1.0, tangents[0] * factor))

FUNCTIONS = {
    "arithmetic": lambda x: jnp.sin(x) * 2.0 + 1.0,
    "loop": lambda x: lax.fori_loop(0, 3, lambda i, y: y * x, x),
    "branches": lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "custom jvp": lambda x: jax.nn.relu(x),
    "custom vjp": square,
    "nondiff argument": lambda x: scaled(x, 3.0),
    "gather": lambda x: x[jnp.array([2, 0])],
    "jit": jax.jit(jnp.tanh),
    "constant": lambda x: x + np.array([1.0, np.nan, 3.0]),
    "random": lambda x: jax.random.normal(jax.random.key(1), (3,)) + x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tracing_again_gives_an_equal_key(name):
    first = key(FUNCTIONS[name])
    jax.clear_caches()
    second = key(FUNCTIONS[name])
    assert first == second
    assert hash(first) == hash(second)


DIFFERENT = {
    "literal": (lambda x: x * 2.0, lambda x: x * 3.0),
    "sign of zero": (lambda x: x + 0.0, lambda x: x + -0.0),
    "primitive": (jnp.sin, jnp.cos),
    "operand order": (lambda x: x - jnp.sin(x), lambda x: jnp.sin(x) - x),
    "result order": (lambda x: (x, -x), lambda x: (-x, x)),
    "parameter": (lambda x: jnp.sum(x, keepdims=True), lambda x: lax.reshape(jnp.sum(x), (1,))),
    "loop body": (
        lambda x: lax.fori_loop(0, 3, lambda i, y: y * x, x),
        lambda x: lax.fori_loop(0, 3, lambda i, y: y + x, x),
    ),
    "constant": (lambda x: x + np.array([1.0, 2.0, 3.0]), lambda x: x + np.array([1.0, 2.0, 4.0])),
    "nondiff argument": (lambda x: scaled(x, 2.0), lambda x: scaled(x, 3.0)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_functions_have_different_keys(name):
    first, second = DIFFERENT[name]
    assert key(first) != key(second)


def test_rules_with_the_same_name_and_value_are_different():
    def make(slope):
        @jax.custom_jvp
        def rule(x):
            return x * 1.0

        @rule.defjvp
        def rule_jvp(primals, tangents):
            return primals[0] * 1.0, tangents[0] * slope

        return rule

    first, second = make(1.0), make(2.0)
    assert key(first) == key(first)
    assert key(first) != key(second)


def test_shapes_and_dtypes_count():
    keys = {key(jnp.sin, x) for x in (X, X[:2], X.astype(np.float32), X[None])}
    assert len(keys) == 4


def test_traced_constants_count_by_identity():
    def keys(w):
        first, second = (key(lambda x: x * w) for _ in range(2))
        other = key(lambda x: x * (w + 1.0))
        assert first == second
        assert first != other
        return w.sum()

    jax.grad(keys)(X)
