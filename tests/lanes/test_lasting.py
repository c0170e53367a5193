"""What a loop reads in every trip, computed by branches and loops before it."""

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
