"""Sorting in a lane: stable, several keys and operands, every axis, NaN and zeros as in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.lanes.lane_check import assert_same

from pullback.lanes.rules.sorting import merge_exchange

N = 13
LENGTHS = [1, 2, 8, 9, 33, 100]  # written out up to 8, then a loop
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, 1.0, 5e-324]


def awkward(rng, n, dtype):
    x = rng.normal(size=(N, n)).astype(dtype)
    x[:, ::3] = rng.choice(SPECIAL, x[:, ::3].shape)
    return x


@pytest.mark.parametrize("n", [*range(1, 10), 100])
def test_network_sorts_every_0_1_sequence(n, rng):
    # a network that sorts all sequences of zeros and ones sorts everything; for 100, some of them
    rows = rng.integers(0, 2, (500, n)) if n > 9 else np.array(list(np.ndindex(*[2] * n)))
    for i, j in merge_exchange(n):
        assert i < j < n
        rows[:, [i, j]] = np.sort(rows[:, [i, j]], axis=1)
    assert (np.diff(rows, axis=1) >= 0).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", LENGTHS)
def test_floats(n, dtype, rng):
    bits = np.int64 if dtype is np.float64 else np.int32
    x = awkward(rng, n, dtype)
    assert_same(lambda v: (jnp.sort(v), jnp.argsort(v)), x)
    # the order of -0 and 0 too, which compare equal
    x = np.where(np.isnan(x), dtype(2), x)
    assert_same(lambda v: lax.bitcast_convert_type(jnp.sort(v), bits), x)


@pytest.mark.parametrize("n", LENGTHS)
def test_equal_keys_keep_their_order(n, rng):
    few = rng.integers(0, 3, (N, n)).astype(float)
    assert_same(jnp.argsort, few)
    assert_same(lambda u, v: lax.sort((u, v, u + v), num_keys=2), few, awkward(rng, n, np.float64))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.bool_])
def test_integers(dtype, rng):
    x = rng.integers(0, 2 if dtype is np.bool_ else 50, (N, 20)).astype(dtype)
    assert_same(lambda v: (jnp.sort(v), jnp.argsort(v), jnp.sort(v[:5])), x)


@pytest.mark.parametrize("width", [4, 8, 16])
def test_widths(width, rng):
    assert_same(lambda v: (jnp.sort(v), jnp.sort(v[:6])), rng.normal(size=(N, 40)), width=width)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes(axis, rng):
    x = rng.normal(size=(N, 6, 11, 3))
    assert_same(lambda v: (jnp.sort(v, axis), jnp.argsort(v, axis)), x)


@pytest.mark.parametrize("n", [5, 20])
def test_top_k_and_median(n, rng):
    x = rng.normal(size=(N, n))
    x[:, 3] = x[:, 1]
    assert_same(lambda v: lax.top_k(v, 3), x)
    assert_same(jnp.median, x, ulps=1)


@pytest.mark.parametrize("n", [5, 40])
def test_derivatives(n, rng):
    weights = jnp.arange(1.0, n + 1)
    x, x_dot = rng.normal(size=(2, N, n))
    assert_same(jax.grad(lambda v: (jnp.sort(v) * weights).sum()), x)
    assert_same(lambda v, w: jax.jvp(jnp.sort, (v,), (w,)), x, x_dot)


@pytest.mark.parametrize("n", [6, 30])
def test_lanes_on_different_branches(n, rng):
    def program(v):
        v = lax.cond(v[0] > 0, jnp.sort, lambda u: -u, v)
        more = lambda s: s[0] < 2 + 2 * (v[1] > 0)  # noqa: E731
        return lax.while_loop(more, lambda s: (s[0] + 1, jnp.sort(-s[1])), (0, v))[1]

    assert_same(program, rng.normal(size=(N, n)))
