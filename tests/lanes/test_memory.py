"""Arrays too large for registers: loops over memory, lazy views, carried buffers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.lanes.lane_check import assert_same

N = 11


def lorenz96(y):
    return (jnp.roll(y, -1) - jnp.roll(y, 2)) * jnp.roll(y, 1) - y + 8.0


def heat(y):
    wide = jnp.concatenate([jnp.zeros(1, y.dtype), y, jnp.ones(1, y.dtype)])
    return wide[2:] - 2 * y + wide[:-2] + jnp.sin(y)


def integrate(field, y, n_steps, dt=0.01):
    def body(s):
        i, y = s
        k1 = field(y)
        k2 = field(y + 0.5 * dt * k1)
        return i + 1, y + dt * k2

    return lax.while_loop(lambda s: s[0] < n_steps, body, (jnp.int32(0), y))[1]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("field", [lorenz96, heat])
def test_chain_in_a_loop_of_unequal_length(field, dtype, rng):
    y = rng.normal(size=(N, 70)).astype(dtype)
    n = rng.integers(1, 30, N).astype(np.int32)
    # fused multiply-adds round once where XLA may round twice: 60 stages of 4 operations
    assert_same(lambda y, n: integrate(field, y, n), y, n, ulps=300, of_largest=True)


def test_gradient_of_a_chain(rng):
    y, w = rng.normal(size=(2, N, 70))
    step = lambda y, w: jax.vjp(lambda y: y + 0.1 * lorenz96(y), y)[1](w)[0]  # noqa: E731
    assert_same(step, y, w, ulps=8, of_largest=True)


@pytest.mark.parametrize("width", [8, 33, 64])
def test_network_with_shared_weights(width, rng):
    w1, b1 = rng.normal(size=(width, 3)), rng.normal(size=width)
    w2, b2 = rng.normal(size=(3, width)) / width, rng.normal(size=3)

    def field(y, w1, b1, w2, b2):
        return w2 @ jnp.tanh(w1 @ y + b1) + b2

    def program(y, *weights):
        return integrate(lambda y: field(y, *weights), y, 5)

    y = rng.normal(size=(N, 3))
    assert_same(program, y, w1, b1, w2, b2, shared=(1, 2, 3, 4), ulps=2 * width, of_largest=True)

    def pull_back(y, *weights):
        return jax.vjp(field, y, *weights)[1](y)

    assert_same(pull_back, y, w1, b1, w2, b2, shared=(1, 2, 3, 4), ulps=2 * width, of_largest=True)


def test_network_with_weights_of_each_lane(rng):
    w = rng.normal(size=(N, 40, 40)) / 10
    y = rng.normal(size=(N, 40))
    assert_same(lambda w, y: jnp.tanh(w @ y), w, y, ulps=16, of_largest=True)
    assert_same(lambda w: w @ w.T, w, ulps=16, of_largest=True)


OPERATIONS = {
    "sum": lambda x: x.sum(),
    "sum_axis": lambda x: (x * 2).sum(0),
    "max_axis": lambda x: jnp.max(x, axis=1),
    "concat_reduce": lambda x: jnp.concatenate([x, x[:1]], axis=0).sum(0),
    "transpose": lambda x: x.T + 1.0,
    "reshape": lambda x: (x + 1).reshape(-1)[3:40],
    "stack": lambda x: jnp.stack([x, 2 * x])[1],
    "strided": lambda x: x[::2, 1::3],
    "flip": lambda x: jnp.flip(x, 0) - x,
    "pad": lambda x: jnp.pad(x, ((1, 2), (0, 1))),
    "cut": lambda x: lax.pad(x, 0.0, ((-1, -1, 0), (2, -3, 0))),
    "where": lambda x: jnp.where(x > 0, x, jnp.exp(x)),
    "outer": lambda x: jnp.outer(x[0], x[1]),
    "broadcast": lambda x: x - x.mean(0)[None, :],
    "iota": lambda x: x * jnp.arange(8.0)[None, :],
    "table": lambda x: x * jnp.asarray(np.linspace(0, 1, 80).reshape(10, 8)),
    "dynamic": lambda x: lax.dynamic_slice(
        x, (jnp.int32(jnp.abs(x[0, 0]) * 3), jnp.int32(1)), (4, 3)
    ),
    "gather": lambda x: x[jnp.array([0, 3, 9]), 2],
    "row": lambda x: x[jnp.int32(jnp.abs(x[0, 0]) * 3)],
    "set": lambda x: x.at[jnp.int32(jnp.abs(x[0, 0]) * 3), 1].set(5.0),
    "permuted": lambda x: x[:, np.array([3, 1, 7, 0, 2, 6, 5, 4])] * 2 + x,
    "scattered": lambda x: (
        jnp.zeros_like(x).at[np.array([3, 3, 1]), np.array([0, 0, 2])].add(x[:3, 0])
    ),
    "set_static": lambda x: x.at[2, 3].set(5.0),
    "add_rows": lambda x: x.at[2].add(x[0]),
    "bool": lambda x: jnp.any(x > 2.5, axis=0),
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "cast": lambda x: (x * 10).astype(jnp.int32) % 7,
    "cond": lambda x: lax.cond(x[0, 0] > 0, lambda v: v * 2, lambda v: v - 1, x),
    "einsum": lambda x: jnp.einsum("ij,kj->ik", x, x),
    "trace": lambda x: jnp.einsum("ij,ij->", x, x),
    "split": lambda x: jnp.split(x, 2, axis=1)[1] * 3,
    "diff": lambda x: jnp.diff(x, axis=0),
    "norm": lambda x: x / jnp.linalg.norm(x),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name, rng):
    assert_same(OPERATIONS[name], rng.uniform(-3, 3, (N, 10, 8)), ulps=16, of_largest=True)


def test_scan_with_large_rows(rng):
    def program(x):
        def step(carry, row):
            carry = 0.5 * carry + row
            return carry, carry.sum()

        return lax.scan(step, x[0], x)

    assert_same(program, rng.normal(size=(N, 50, 40)), ulps=32, of_largest=True)


def test_refs_with_large_rows(rng):
    def program(y, n):
        tape = jax.new_ref(lax.empty((40, 50), y.dtype))

        def forward(s):
            i, y = s
            tape[i, :] = y
            return i + 1, y * 0.9 + jnp.roll(y, 1) * 0.1

        n, y = lax.while_loop(lambda s: s[0] < n, forward, (jnp.int32(0), y))

        def back(s):
            i, total = s
            return i - 1, total * 0.5 + tape[i - 1, :]

        return lax.while_loop(lambda s: s[0] > 0, back, (n, y))[1]

    assert_same(
        program,
        rng.normal(size=(200, 50)),
        rng.integers(1, 40, 200).astype(np.int32),
        ulps=64,
        of_largest=True,
    )


def test_saved_rows_are_results(rng):
    def program(y, n):
        rows = jax.new_ref(jnp.zeros((6, 50), y.dtype))

        def forward(s):
            i, y = s
            rows[i, :] = y
            return i + 1, y * 0.9

        i, y = lax.while_loop(lambda s: s[0] < n, forward, (jnp.int32(0), y))
        return i, y, jax.freeze(rows)

    assert_same(program, rng.normal(size=(29, 50)), rng.integers(1, 6, 29).astype(np.int32), ulps=4)
