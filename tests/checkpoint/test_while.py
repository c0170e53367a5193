"""`checkpointed_while` is `jax.lax.while_loop` with a gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checkpoint.loops import (
    EXACT,
    MOST_STEPS,
    RATE,
    STATE,
    grads,
    plain_while,
    while_loss,
    while_truth,
    while_with,
)
from pullback.checkpoint import (
    RAM,
    Nested,
    Online,
    Revolve,
    StoreAll,
    checkpointed_while,
    placement,
)
from pullback.checkpoint.schedules.binomial import split
from pullback.checkpoint.schedules.online import Placement
from pullback.testing import assert_close

LENGTHS = [0, 1, 2, 3, 4, 5, 8, 9, 31, MOST_STEPS]


@pytest.mark.parametrize(
    ("n_snapshots", "block", "mode"),
    [
        (2, 1, "jit"),
        (3, 3, "jit"),
        (2, 3, "host"),
        pytest.param(1, 2, "jit", marks=pytest.mark.slow),
        pytest.param(1, 2, "host", marks=pytest.mark.slow),
        pytest.param(3, 1, "host", marks=pytest.mark.slow),
    ],
)
def test_any_length(n_snapshots, block, mode):
    storage = RAM()
    scheme = Online(n_snapshots)
    run = while_with(scheme=scheme, block=block, mode=mode, storage=storage)
    f = jax.value_and_grad(while_loss(run), (0, 1))
    if mode == "jit":
        f = jax.jit(f)
    for n in LENGTHS:
        want = while_truth()(RATE, STATE, n)
        # The longest amplifies by 1e3.
        assert_close(f(RATE, STATE, n), want, rtol=1000 * EXACT, atol=EXACT)
    assert len(storage) == 0


@pytest.mark.parametrize("mode", ["jit", "host"])
def test_c2_no_iteration_is_the_identity(mode):
    def loop(x):
        return checkpointed_while(lambda y: y < 0.0, lambda y: y * 3.0, x, mode=mode)

    assert jax.value_and_grad(loop)(2.0) == (2.0, 1.0)


@pytest.mark.parametrize("mode", ["jit", "host"])
@pytest.mark.parametrize("max_steps", [0, 4, 9])
def test_max_steps_end_the_loop(max_steps, mode):
    run = while_with(scheme=Online(2), block=4, max_steps=max_steps, mode=mode)
    got = grads(lambda r, s: while_loss(run)(r, s, 10**6), mode, RATE, STATE)
    assert_close(got, while_truth()(RATE, STATE, max_steps), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("scheme", [Revolve(2), StoreAll(), Nested(2)], ids=str)
def test_other_schemes_need_max_steps(scheme):
    run, n = while_with(scheme=scheme, block=2, max_steps=9), 5
    got = grads(lambda r, s: while_loss(run)(r, s, n), "jit", RATE, STATE)
    assert_close(got, while_truth()(RATE, STATE, n), rtol=EXACT, atol=EXACT)
    with pytest.raises(ValueError, match=r"`max_steps`: expected an integer because"):
        while_loss(while_with(scheme=scheme))(RATE, STATE)


def test_condition_closes_over_arrays_and_has_no_derivative():
    def loop(limit, factor):
        return checkpointed_while(lambda y: y < limit, lambda y: y * factor, 1.0, block=2)

    value, grads = jax.value_and_grad(loop, (0, 1))(100.0, 3.0)
    assert (value, grads) == (243.0, (0.0, 5 * 81.0))


def test_random_keys_in_the_carry():
    def both(run):
        def loss(v):
            def step(carry):
                i, key, v = carry
                return i + 1, key, v + 0.1 * jax.random.normal(jax.random.fold_in(key, i)) * v

            init = (0, jax.random.key(1), v)
            return run(lambda carry: carry[0] < 11, step, init)[2]

        return grads(loss, "jit", 1.0)

    got = both(while_with(scheme=Online(2), block=2))
    assert_close(got, both(plain_while(11)), rtol=EXACT, atol=0.0)


@pytest.mark.parametrize("n_snapshots", [1, 4])
def test_compiled_placement_is_the_schedules(n_snapshots):
    place = jax.jit(placement.place)
    entries, reference = placement.no_entries(n_snapshots + 1), Placement(n_snapshots)
    for position in range(60):
        stack = placement.remaining(entries)
        kept = np.asarray(stack.step[: int(stack.n)])
        assert kept.tolist() == [s.step for s in reference.stack] + [position]
        assert sorted(stack.slot.tolist()) == list(range(n_snapshots + 1))
        _, entries = place(entries, position + 1)
        reference.leave()


@pytest.mark.parametrize("n_snapshots", [2, 3, 9])
def test_compiled_split_is_the_schedules(n_snapshots):
    table = jnp.asarray(placement.split_table(n_snapshots))
    lengths = np.arange(2, 500, dtype=np.int32)
    compiled = jax.jit(jax.vmap(lambda n: placement.split(table, n, jnp.int32(n_snapshots))))
    assert compiled(lengths).tolist() == [split(int(n), n_snapshots) for n in lengths]
    # Beyond the table: nearly.
    n = 10**6
    assert int(compiled(np.int32([n]))[0]) == pytest.approx(split(n, n_snapshots), rel=1e-3)
