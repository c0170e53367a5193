"""Which results depend on which arguments."""

import jax
import jax.numpy as jnp
import pytest

from pullback.ensemble.dependence import dependent_outputs


def flags(function, *args, on):
    closed = jax.make_jaxpr(function)(*args)
    return dependent_outputs(closed.jaxpr, on)


def test_straight_line_code_is_exact():
    out = flags(lambda a, b: (a + 1, a * b, b, 3.0), 1.0, 2.0, on=[False, True])
    assert out == [False, True, True, False]


@pytest.mark.parametrize(
    "wrap", [jax.jit, jax.checkpoint, jax.custom_jvp], ids=["jit", "checkpoint", "custom_jvp"]
)
def test_nested_calls_are_exact(wrap):
    inner = wrap(lambda a, b: (jnp.sin(a), jnp.cos(b)))
    if wrap is jax.custom_jvp:
        inner.defjvp(lambda primals, tangents: (inner(*primals), tangents))
    assert flags(inner, 1.0, 2.0, on=[False, True]) == [False, True]


def test_loops_and_branches_are_conservative():
    def loop(a, b):
        return jax.lax.fori_loop(0, 3, lambda i, s: (s[0], s[1] * 2.0), (a, b))

    assert flags(loop, 1.0, 2.0, on=[False, True])[1]
    assert flags(loop, 1.0, 2.0, on=[False, False]) == [False, False]

    def branch(a, b):
        return jax.lax.cond(b > 0, lambda a: a, lambda a: -a, a)

    assert flags(branch, 1.0, 2.0, on=[False, True]) == [True]
