"""Cumulative operations and the place of an extremum, in registers and in loops."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.lanes.lane_check import assert_same

N = 11
CUMULATIVE = [lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("operation", CUMULATIVE, ids=lambda f: f.__name__)
def test_cumulative(operation, reverse, dtype, rng):
    x = rng.normal(size=(N, 5, 12)).astype(dtype)

    def program(v):
        along = [operation(v, axis, reverse=reverse) for axis in (0, 1)]
        return (*along, operation(v[0, :4], reverse=reverse), operation(v[:, 0] * 2))

    # XLA adds in another order: 12 operations, and logarithms of 4 ulp each
    assert_same(program, x, ulps=12 * 4, of_largest=True)


def test_integers(rng):
    assert_same(lambda v: (jnp.cumsum(v), jnp.cumprod(v[:9])), rng.integers(-9, 9, (N, 50)))


def test_logsumexp_of_infinities(rng):
    x = rng.normal(size=(N, 12))
    x[:, :2], x[1, 5], x[2, 7] = -np.inf, np.inf, np.nan
    assert_same(lambda v: (lax.cumlogsumexp(v), lax.cumlogsumexp(v[:4])), x, ulps=12 * 4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_place_of_extremum(dtype, rng):
    x = rng.integers(-20, 20, (N, 9, 12)).astype(dtype)
    if dtype is not np.int32:
        x[::2, 3, 5] = x[::3, 7, 5] = np.nan
    assert_same(lambda v: (jnp.argmax(v), jnp.argmin(v), jnp.argmax(v, 0), jnp.argmin(v, 1)), x)
    assert_same(lambda v: (jnp.argmax(v[0]), jnp.argmin(v[:, 1])), x)


def test_lanes_on_different_branches(rng):
    def program(v):
        ahead = lambda u: jnp.cumsum(u) + jnp.argmax(u)  # noqa: E731
        v = lax.cond(v[0] > 0, ahead, lambda u: lax.cummax(u, reverse=True), v)
        more = lambda s: s[0] < 2 + 2 * (v[1] > 0)  # noqa: E731
        return lax.while_loop(more, lambda s: (s[0] + 1, jnp.cumsum(s[1]) / 9), (0, v))[1]

    assert_same(program, rng.normal(size=(N, 60)), ulps=60 * 4, of_largest=True)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bits", [(5, 10), (8, 7), (4, 3), (8, 23)])
def test_reduced_precision(bits, dtype, rng):
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, 65519.99, 65520.0, 1e-45, 2.0**-14, 2.0**-15]
    x = rng.normal(size=(N, 60)) * 10.0 ** rng.integers(-12, 12, (N, 60))
    x[:, : len(special)] = special
    assert_same(lambda v: lax.reduce_precision(v, *bits), x.astype(dtype))
