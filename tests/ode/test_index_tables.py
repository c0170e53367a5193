"""Which arrays of a vector field stay in its trace: tables of positions."""

import jax
import jax.numpy as jnp
import numpy as np

from pullback.ode.field import trace_vector_field
from pullback.testing import assert_close

ORDER = np.array([2, 0, 1])


def traced(field):
    return trace_vector_field(field, jnp.arange(3.0))


def test_positions_stay_and_other_arrays_become_operands():
    weights, counts = jnp.ones(3), np.array([1, 2, 3])
    result = traced(lambda t, y, p: weights * y[ORDER] * counts)
    assert sorted(str(x.dtype) for x in result.theta) == ["float64", "int64"]
    assert_close(
        result.field(0.0, result.y0, result.theta), np.array([2.0, 0.0, 3.0]), rtol=0.0, atol=0.0
    )


def test_positions_inside_functions_and_loops():
    def field(t, y, p):
        inner = jax.jit(lambda v, i: v[i])
        return jax.lax.fori_loop(0, 3, lambda k, v: inner(v, jnp.asarray(ORDER)), y)

    assert traced(field).theta == ()


def test_positions_count_in_the_key():
    def make(order):
        return traced(lambda t, y, p: y[order]).field

    assert make(ORDER) == make(ORDER.copy())
    assert make(ORDER) != make(ORDER[::-1].copy())


def test_later_changes_of_the_array_change_nothing():
    order = ORDER.copy()
    field, theta, y0, _ = traced(lambda t, y, p: y[order])
    order[:] = 0
    assert_close(field(0.0, y0, theta), np.array([2.0, 0.0, 1.0]), rtol=0.0, atol=0.0)


def test_traced_positions_and_single_integers_become_operands():
    which = jnp.asarray(1)
    assert len(traced(lambda t, y, p: y * y[which]).theta) == 1

    def value(order):
        result = traced(lambda t, y, p: y[order])
        assert len(result.theta) == 1
        return result.field(0.0, result.y0, result.theta)

    assert_close(jax.jit(value)(ORDER), np.array([2.0, 0.0, 1.0]), rtol=0.0, atol=0.0)
