"""`jax.random` inside a lane gives the bits that it gives outside."""

import jax
import jax.numpy as jnp
import numpy as np
from tests.lanes.lane_check import assert_same

N = 9


def test_fold_in_and_bits():
    def program(seed):
        key = jax.random.fold_in(jax.random.key(seed), 3)
        return jax.random.bits(key, (3,)), jax.random.bits(key, (2,), jnp.uint8)

    assert_same(program, np.arange(N))


def test_uniform_is_bit_equal():
    def program(seed):
        key = jax.random.key(seed)
        return (
            jax.random.uniform(key, (4,)),
            jax.random.uniform(key, (), jnp.float32),
            jax.random.randint(key, (3,), 0, 100),
        )

    assert_same(program, np.arange(N))


def test_split_and_keys_in_a_loop():
    def program(seed):
        def step(carry, _):
            key, total = carry
            key, sub = jax.random.split(key)
            return (key, total + jax.random.uniform(sub)), None

        (key, total), _ = jax.lax.scan(step, (jax.random.key(seed), 0.0), None, length=50)
        return total, jax.random.key_data(key)

    assert_same(program, np.arange(N))


def test_normal():
    # the tail of the inverse error function follows the same polynomial, with other logarithms
    def program(seed):
        return jax.random.normal(jax.random.key(seed), (20,))

    assert_same(program, np.arange(N), ulps=64)


def test_raw_keys():
    def program(seed):
        return jax.random.uniform(jax.random.PRNGKey(seed), (2,))

    assert_same(program, np.arange(N))
