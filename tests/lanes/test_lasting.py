"""What a loop reads in every trip, computed by branches and loops before it."""

import jax
import jax.numpy as jnp
from jax import lax
from tests.lanes.lane_check import assert_same


def test_constants_of_a_loop_survive_refills(rng):
    # more trajectories than lanes, of unequal length: lanes begin while others go on
    def program(x):
        factor = lax.cond(x > 0, lambda v: 2 + v, lambda v: 3 - v, x)
        limit = lax.while_loop(lambda n: n * factor < 40, lambda n: n + 1, jnp.int32(0))

        def body(s):
            return s[0] + 1, s[1] + factor

        return lax.while_loop(lambda s: s[0] < limit, body, (0, x))[1]

    # additions of a few tens of numbers
    assert_same(program, rng.normal(size=61) * 2, ulps=64, of_largest=True)


def test_what_is_read_before_a_loop_that_writes_is_kept(rng):
    """The loop overwrites the row; what was read of it is used behind the loop only."""

    def program(x, n):
        ref = jax.new_ref(jnp.zeros(4))

        def fill(i):
            ref[i % 4] = x + i
            return i + 1

        lax.while_loop(lambda i: i < n, fill, 0)
        first = ref[1]

        def overwrite(i):
            ref[1] = -x * i
            return i + 1

        last = lax.while_loop(lambda i: i < 2 * n, overwrite, 0)
        return first, ref[1], last

    x, n = rng.standard_normal(37), rng.integers(2, 9, 37)
    assert_same(program, x, n)
