"""Compiled loops whose snapshots a storage keeps: the bits of loops that keep their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pullback.checkpoint import (
    RAM,
    Disk,
    Multistage,
    Online,
    Revolve,
    Tiered,
    called_slots,
    checkpointed_scan,
    checkpointed_while,
)

RATE, STATE = 1.3, jnp.arange(5.0)


def turned(rate, y):
    return y + 0.1 * jnp.sin(rate * jnp.roll(y, 1))


def scan_loss(storage, scheme=None, mode="auto"):
    def loss(rate, y):
        def step(carry, _):
            y, key, n = carry
            key, now = jax.random.split(key)
            noise = 1e-3 * jax.random.normal(now, y.shape)
            return (turned(rate, y) + noise, key, n + 1), jnp.sum(y)

        options = {"scheme": scheme or Revolve(3), "storage": storage, "block": 2, "mode": mode}
        init = (y, jax.random.key(0), 0)
        (y, _, _), ys = checkpointed_scan(step, init, None, 21, **options)
        return jnp.sum(y**2) + jnp.sum(ys)

    return loss


def while_loss(storage, mode="auto"):
    def loss(rate, y):
        def step(carry):
            return turned(rate, carry[0]), carry[1] + 1

        options = {"scheme": Online(3), "storage": storage, "block": 2, "mode": mode}
        y, _ = checkpointed_while(lambda carry: carry[1] < 23, step, (y, 0), **options)
        return jnp.sum(y**2)

    return loss


LOSSES = {"scan": scan_loss, "while": while_loss}


def compiled(loss):
    return jax.jit(jax.grad(loss, (0, 1)))


def assert_same_bits(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(params=LOSSES)
def make_loss(request):
    return LOSSES[request.param]


@pytest.fixture
def disk(tmp_path):
    with Disk(tmp_path / "d") as disk:
        yield disk


def test_same_bits_again_and_again_and_nothing_is_left(make_loss, disk):
    want, gradient = compiled(make_loss(RAM()))(RATE, STATE), compiled(make_loss(disk))
    for _ in range(3):
        assert_same_bits(gradient(RATE, STATE), want)
        assert len(disk) == 0
    assert disk.bytes_on_disk() > 0
    assert_same_bits(compiled(make_loss(disk, mode="jit"))(RATE, STATE), want)


def test_tiers_are_those_of_the_schedule(tmp_path):
    class Counted(RAM):
        n_puts = 0

        def put(self, slot, tree):
            self.n_puts += 1
            super().put(slot, tree)

    scheme = Multistage(1, 2)
    memory = Counted()
    with Tiered(memory, Disk(tmp_path / "d")) as storage:
        got = compiled(scan_loss(storage, scheme))(RATE, STATE)
        assert_same_bits(got, compiled(scan_loss(RAM(), scheme))(RATE, STATE))
        assert memory.n_puts > 0
        assert storage.bytes_on_disk() > 0


def test_a_derivative_is_pulled_back_twice(make_loss, disk):
    pull = jax.jit(lambda *x: jax.vjp(make_loss(disk), *x)[1])(RATE, STATE)
    want = compiled(make_loss(RAM()))(RATE, STATE)
    assert len(disk) > 0, "as long as it may be pulled back"
    for _ in range(2):
        assert_same_bits(pull(jnp.ones(())), want)
        assert len(disk) == 0


def test_derivatives_that_nobody_asks_for_make_room(make_loss, disk, monkeypatch):
    monkeypatch.setattr(called_slots, "_MOST_RUNS", 2)
    forward = jax.jit(lambda *x: jax.vjp(make_loss(disk), *x)[1])
    pulls = [forward(RATE, STATE) for _ in range(5)]
    assert len(disk) <= 3 * 4
    want = compiled(make_loss(RAM()))(RATE, STATE)
    for pull in pulls:  # the first ones' snapshots are gone
        assert_same_bits(pull(jnp.ones(())), want)


def test_inside_a_scan_a_vmap_and_a_remat(disk):
    def all_of(storage):
        slope = jax.grad(scan_loss(storage))

        def descend(rate, _):
            bar = slope(rate, STATE)
            return rate - 1e-3 * bar, bar

        rates = jnp.array([1.0, 1.3])
        return (
            jax.lax.scan(descend, RATE, None, length=3),
            jax.vmap(slope, (0, None))(rates, STATE),
            jax.jit(jax.grad(jax.checkpoint(scan_loss(storage))))(RATE, STATE),
            jax.jacrev(scan_loss(storage))(RATE, STATE),
        )

    # Other orders of summation under vmap and remat: XLA fuses differently.
    for a, b in zip(jax.tree.leaves(all_of(disk)), jax.tree.leaves(all_of(RAM())), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    assert len(disk) == 0
