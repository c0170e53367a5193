"""`checkpointed_scan` is `jax.lax.scan`: values, gradients, structures, lengths."""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from checkpoint.loops import EXACT, FORCING, N_STEPS, RATE, STATE, grads, scan_loss, scan_with
from pullback.checkpoint import (
    RAM,
    HRevolve,
    Multistage,
    Nested,
    Online,
    Periodic,
    Revolve,
    StoreAll,
    TwoLevel,
    checkpointed_scan,
)
from pullback.testing import assert_close, tol

SCHEMES = [
    Revolve(3), Online(3), TwoLevel(3, 1), Multistage(1, 2), HRevolve(1, 2), StoreAll(),
    Periodic(4), Nested(2), Nested(3),
]  # fmt: skip


@pytest.fixture(scope="module")
def truth():
    loss = scan_loss(jax.lax.scan)
    return jax.value_and_grad(loss, (0, 1, 2))(RATE, STATE, FORCING)


@pytest.mark.parametrize("mode", ["jit", "host"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_gradient_is_that_of_the_scan(truth, scheme, mode):
    storage = RAM()
    loss = scan_loss(scan_with(scheme=scheme, mode=mode, block=2, storage=storage))
    got = grads(loss, mode, RATE, STATE, FORCING)
    assert_close(got, truth, rtol=EXACT, atol=EXACT)
    assert len(storage) == 0


@pytest.mark.parametrize("mode", ["jit", "host"])
@pytest.mark.parametrize("block", [1, 5, N_STEPS - 1, 1000])
def test_c1_any_block(truth, block, mode):
    loss = scan_loss(scan_with(scheme=Revolve(2), mode=mode, block=block))
    got = grads(loss, mode, RATE, STATE, FORCING)
    assert_close(got, truth, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("mode", ["jit", "host"])
@pytest.mark.parametrize("scheme", [Revolve(2), Periodic(3)], ids=str)
@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_c1_any_length(n, scheme, mode):
    loss = scan_loss(scan_with(scheme=scheme, block=1, mode=mode))
    got = grads(loss, mode, RATE, STATE, FORCING[:n])
    assert_close(got, short_truth(n), rtol=EXACT, atol=EXACT)


@functools.cache
def short_truth(n):
    return grads(scan_loss(jax.lax.scan), "jit", RATE, STATE, FORCING[:n])


@pytest.mark.parametrize("mode", ["jit", "host"])
def test_c4_second_call_sees_new_values(mode):
    def slope(rate):
        def loss(rate):
            run = scan_with(scheme=Revolve(2), block=2, mode=mode)
            return run(lambda y, _: (y * rate, None), 1.0, length=9)[0]

        return jax.grad(loss)(rate)

    for rate in (2.0, 3.0):
        assert slope(rate) == 9 * rate**8


@pytest.mark.parametrize("mode", ["jit", "host"])
def test_c5_recomputed_steps_draw_the_same_numbers(mode):
    def both(run):
        def loss(rate):
            def step(carry, i):
                key, v = carry
                noise = jax.random.normal(jax.random.fold_in(key, i), v.shape)
                return (key, v + 0.1 * jnp.sin(rate * v + noise)), key

            (_, v), keys = run(step, (jax.random.key(3), STATE), jnp.arange(N_STEPS))
            return jnp.sum(v**2) + jax.random.normal(keys[4])

        return grads(loss, mode, RATE)

    got = both(scan_with(scheme=Revolve(2), block=3, mode=mode))
    assert_close(got, both(jax.lax.scan), rtol=EXACT, atol=0.0)


def test_results_have_the_types_of_the_scan():
    def step(carry, x):
        i, mask, z, key = carry
        z = z * (1.0 + 0.5j) + x
        return (i + jnp.uint8(1), ~mask, z, key), (z, None, {"key": key, "i": i})

    init = (jnp.uint8(250), jnp.array([True, False]), jnp.complex64(1.0), jax.random.key(0))
    xs = jnp.arange(9, dtype=jnp.float32)
    want = jax.lax.scan(step, init, xs)
    got = checkpointed_scan(step, init, xs, scheme=Revolve(2), block=2)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert jnp.array_equal(a, b)


def test_differentiates_complex_leaves():
    def both(run):
        def loss(z, factor):
            out, _ = run(lambda c, x: (c * factor + x, None), z, jnp.arange(7.0) + 0j)
            return jnp.abs(out) ** 2

        return jax.jit(jax.grad(loss, (0, 1)))(0.3 + 0.1j, 0.8 - 0.2j)

    got = both(scan_with(scheme=Revolve(2), block=2))
    assert_close(got, both(jax.lax.scan), rtol=EXACT, atol=0.0)


def test_plain_numbers_take_the_dtype_of_the_step():
    weight = jnp.float32(0.5)
    for init in (1, 1.0, np.float32(1.0)):
        got = checkpointed_scan(lambda c, _: (c * weight, c), init, length=40, scheme=Revolve(2))
        want = jax.lax.scan(lambda c, _: (c * weight, c), init, length=40)
        assert [x.dtype for x in got] == [x.dtype for x in want] == [jnp.float32] * 2
        assert_close(got, want, rtol=0.0, atol=0.0)


def test_float32_stays_float32():
    def both(run):
        def loss(rate):
            return run(lambda c, _: (c + 0.1 * jnp.sin(rate * c), None), rate, length=20)[0]

        return grads(loss, "jit", jnp.float32(0.7))

    got, want = both(scan_with(scheme=Revolve(2), block=3)), both(jax.lax.scan)
    assert got[1][0].dtype == jnp.float32
    assert_close(got, want, rtol=tol("float32", n_ops=400), atol=0.0)


SHAPES = st.sampled_from([(), (1,), (2,), (2, 3)])
LEAF = st.tuples(SHAPES, st.sampled_from(["float64", "float32", "int32"]))
TREE = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)


def is_leaf(node):
    return isinstance(node, tuple)


def arrays(tree, n=None):
    count = iter(range(100))

    def make(node):
        shape, dtype = node
        shape = shape if n is None else (n, *shape)
        values = np.cos(next(count) + np.arange(np.prod(shape, dtype=int)))
        return jnp.asarray(values.reshape(shape) * (1 if "float" in dtype else 9), dtype)

    return jax.tree.map(make, tree, is_leaf=is_leaf)


def floats(tree):
    leaves = map(jnp.asarray, jax.tree.leaves(tree))
    return [x for x in leaves if jnp.issubdtype(x.dtype, jnp.inexact)]


@pytest.mark.slow
@hypothesis.settings(max_examples=25)
@hypothesis.given(
    carry=TREE, rows=TREE, n=st.integers(0, 12), block=st.integers(1, 5),
    scheme=st.sampled_from(SCHEMES), mode=st.sampled_from(["jit", "host"]),
)  # fmt: skip
def test_any_pytree(carry, rows, n, block, scheme, mode):
    init, xs = arrays(carry), arrays(rows, n)

    def step(state, x):
        drive = sum((jnp.sum(leaf) for leaf in floats(x)), 0.0)

        def change(v):
            if not jnp.issubdtype(v.dtype, jnp.inexact):
                return v + 1
            return (jnp.sin(v) + 0.3 * drive).astype(v.dtype)

        return jax.tree.map(change, state), (state, x)

    def loss(init, xs, run):
        out = run(step, init, xs, length=n)
        return sum((jnp.sum(jnp.cos(x.astype(float))) for x in jax.tree.leaves(out)), 0.0)

    def both(run):
        return jax.value_and_grad(loss, (0, 1), allow_int=True)(init, xs, run)

    got = both(scan_with(scheme=scheme, block=block, mode=mode))
    want = both(jax.lax.scan)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    bound = tol("float32", n_ops=400)  # some leaves are single precision
    assert_close(floats(got), floats(want), rtol=bound, atol=bound)
