"""Control flow and literals where types and shapes are not those of a plain 64-bit program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.lanes.lane_check import assert_same, run_kernel

from pullback.core.errors import UnsupportedPrimitive

LITERALS = {
    "nested call": lambda y: -y * jax.jit(jnp.sin)(2.5),
    "fori": lambda y: lax.fori_loop(0, 5, lambda i, c: c * 1.5 + y, 2.0),
    "while": lambda y: lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * y, c[1] + 1), (1.0, 0))[
        0
    ],
    "scan": lambda y: lax.scan(lambda c, _: (c * y, c), 1.0, None, length=5)[0],
    "cond": lambda y: lax.cond(y > 1, lambda: 1.0, lambda: 2.5),
    "switch": lambda y: lax.switch((y * 2).astype(int), [lambda: 1.0, lambda: 2.5, lambda: y]),
    "select": lambda y: jnp.where(y > 1, 1, 2.5) * y,
    "integer carry": lambda y: lax.fori_loop(0, 3, lambda i, c: c + i, 1) * y,
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", LITERALS)
def test_literals_have_the_width_of_the_program(name, x64):
    with jax.enable_x64(x64):
        y = np.linspace(0.1, 2.0, 20).astype(np.float64 if x64 else np.float32)
        assert_same(LITERALS[name], y, ulps=8)


def _doubling(v):
    return lax.while_loop(lambda c: c < 10, lambda c: c * 2 + 0.1, v)


def _counted(v):
    start = (v, jnp.ones(3, v.dtype))
    return lax.fori_loop(
        0, (v * 2).astype(int), lambda i, c: (c[0] * 2 + v, c[1] + i * jnp.arange(3)), start
    )


def _loop_in_loop(y):
    def body(c):
        return c[0] + 1.0, jax.vmap(_doubling)(y) + c[1]

    return lax.while_loop(lambda c: c[0] < y[0] * 3, body, (0.0, y))[1]


ELEMENTWISE_LOOPS = {
    "while": (jax.vmap(_doubling), 3),
    "while in memory": (jax.vmap(_doubling), 40),
    "fori": (jax.vmap(_counted), 3),
    "two axes": (
        lambda y: jax.vmap(jax.vmap(lambda v, w: _doubling(v * w), (0, None)), (None, 0))(y, y + 1),
        3,
    ),
    "inside a loop": (_loop_in_loop, 3),
    "cond": (jax.vmap(lambda v: lax.cond(v > 1, jnp.sin, jnp.cos, v)), 3),
}


@pytest.mark.parametrize("name", ELEMENTWISE_LOOPS)
def test_every_element_of_a_vmapped_loop_ends_on_its_own(name):
    function, size = ELEMENTWISE_LOOPS[name]
    assert_same(function, np.linspace(0.1, 9.0, 20 * size).reshape(20, size), ulps=4)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda y: jnp.abs(jnp.exp(1j * y)), "complex128"),
        (lambda y: y.astype(jnp.float16).astype(y.dtype), "float16"),
    ],
)
def test_types_without_lanes_are_named_with_the_line(function, named):
    with pytest.raises(UnsupportedPrimitive, match=rf"type {named}.*test_control.py:\d+"):
        run_kernel(function, [np.ones(3)])
