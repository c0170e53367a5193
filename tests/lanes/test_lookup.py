"""Gather and scatter: positions that are known, shared by lanes, or of each lane; few and many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.lanes.lane_check import assert_same

N = 13
RNG = np.random.default_rng(7)
SIZES = [3, 12, 40]
PERMUTATIONS = {n: RNG.permutation(n) for n in SIZES}
ANYWHERE = {n: RNG.integers(-n, n, n) for n in SIZES}
SEGMENTS = {n: np.sort(RNG.integers(0, max(n // 2, 1), n)) for n in SIZES}


def here(v):
    """Positions that differ from lane to lane, inside the array."""
    return (jnp.abs(v) * v.size).astype(int) % v.size


def beyond(v):
    """Positions that differ from lane to lane, some outside the array."""
    return (v * v.size).astype(int)


def table(v):
    return jnp.outer(v, v[:3])


READS = {
    "permuted": lambda v: v[PERMUTATIONS[v.size]] * 2 + v,
    "rolled": lambda v: v[(np.arange(v.size) + 2) % v.size] + v,
    "flipped": lambda v: v[np.arange(v.size)[::-1]] * v,
    "reflected": lambda v: v[np.abs(np.arange(-2, v.size))] * 3,
    "negative": lambda v: v[ANYWHERE[v.size]],
    "many": lambda v: v[np.tile(np.arange(v.size), 5)[:-1]] * 2,
    "filled": lambda v: v.at[np.arange(v.size) + 1].get(mode="fill", fill_value=-2) + v,
    "clipped": lambda v: v.at[np.arange(v.size) + 2].get(mode="clip"),
    "rows": lambda v: table(v)[PERMUTATIONS[v.size]],
    "columns": lambda v: table(v)[:, np.array([2, 0])],
    "points": lambda v: table(v)[PERMUTATIONS[v.size][:, None], np.array([[0, 2]])],
    "lanes": lambda v: v[here(v)] * 2,
    "lanes_filled": lambda v: v.at[beyond(v)].get(mode="fill", fill_value=3),
    "lanes_rows": lambda v: table(v)[here(v)],
    "lanes_batched": lambda v: jax.vmap(lambda a, i: a[i])(table(v), here(v) % 3),
    "slice": lambda v: lax.dynamic_slice(v, (here(v)[0],), (v.size - 1,)) * 2,
}
WRITES = {
    "segments": lambda v: jax.ops.segment_sum(v, SEGMENTS[v.size], num_segments=v.size),
    "segment_max": lambda v: jax.ops.segment_max(v, SEGMENTS[v.size], num_segments=v.size),
    "permuted": lambda v: v.at[PERMUTATIONS[v.size]].set(v * 2),
    "dropped": lambda v: v.at[np.arange(v.size) + 2].set(v * 2, mode="drop"),
    "added": lambda v: v.at[ANYWHERE[v.size]].add(v),
    "multiplied": lambda v: v.at[ANYWHERE[v.size][:2]].mul(v[:2]),
    "rows": lambda v: table(v).at[PERMUTATIONS[v.size][:2]].add(1.5 * v[:3]),
    "lanes_added": lambda v: v.at[here(v)].add(v),
    "lanes_set": lambda v: jnp.zeros_like(v).at[jnp.argsort(v)].set(v),
    "lanes_dropped": lambda v: v.at[beyond(v)].max(v * 2, mode="drop"),
    "lanes_rows": lambda v: table(v).at[here(v)].add(v[:3]),
    "slice": lambda v: lax.dynamic_update_slice(v, v[1:] * 2, (here(v)[0],)),
}
# JAX has no gradient of these where positions repeat.
WITHOUT_GRADIENT = {
    "write_segment_max",
    "write_multiplied",
    "write_dropped",
    "write_lanes_dropped",
    "write_lanes_set",
}
CASES = {
    **{f"read_{k}": f for k, f in READS.items()},
    **{f"write_{k}": f for k, f in WRITES.items()},
}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, n, rng):
    program, x = CASES[name], rng.normal(size=(N, n))
    dtype = np.float32 if n == 12 else np.float64
    # sums of up to 5 terms, and a cosine of 4 ulp
    assert_same(program, x.astype(dtype), ulps=8, of_largest=True)
    if n != 12 and name not in WITHOUT_GRADIENT:
        gradient = jax.grad(lambda v: jnp.sin(program(v)).sum())
        assert_same(gradient, x.astype(dtype), ulps=64, of_largest=True)


@pytest.mark.parametrize("n", [9, 60])
def test_positions_that_lanes_share(n, rng):
    at, x, rows = rng.integers(0, n, 40), rng.normal(size=(N, n)), rng.normal(size=(n, 2))
    assert_same(lambda v, i: v[i] * 2, x, at, shared=(1,))
    assert_same(lambda v, i: v[i[:5]] * 2, x, at, shared=(1,))
    assert_same(lambda v, i: v.at[i].add(1.5), x, at, shared=(1,), ulps=4)
    assert_same(lambda v, t, i: v[:2] + t[i].sum(0), x, rows, at, shared=(1, 2), ulps=40)


@pytest.mark.parametrize("n", SIZES)
def test_lanes_on_different_branches(n, rng):
    def program(v):
        known = lambda u: u[PERMUTATIONS[n]] + u.at[SEGMENTS[n]].add(u[::-1])  # noqa: E731
        v = lax.cond(v[0] > 0, known, lambda u: u.at[here(u)].add(u[here(-u)]), v)
        more = lambda s: s[0] < 2 + 2 * (v[1] > 0)  # noqa: E731
        return lax.while_loop(more, lambda s: (s[0] + 1, s[1][PERMUTATIONS[n]] + s[0]), (0, v))[1]

    assert_same(program, rng.normal(size=(N, n)), ulps=16, of_largest=True)
