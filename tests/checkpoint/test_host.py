"""A schedule followed by Python: storages, repeated use, and what is left behind."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checkpoint.loops import (
    EXACT,
    RATE,
    STATE,
    scan_loss,
    scan_with,
    while_loss,
    while_truth,
    while_with,
)
from checkpoint.test_errors import Elsewhere
from pullback.checkpoint import (
    RAM,
    AbstractScheme,
    Advance,
    Free,
    Online,
    Restore,
    Revolve,
    Store,
    TwoLevel,
    UTurn,
    simulate,
)
from pullback.core import ScheduleError
from pullback.testing import assert_close


@pytest.fixture(scope="module")
def truth():
    return jax.value_and_grad(scan_loss(jax.lax.scan), (0, 1))(RATE, STATE)


class Recorder(Elsewhere):
    """Counts what it is asked for."""

    def __init__(self):
        super().__init__()
        self.puts, self.gets, self.most, self.tiers = 0, 0, 0, set()

    def put_in_tier(self, tier, slot, tree):
        self.tiers.add(tier)
        self.put(slot, tree)

    def put(self, slot, tree):
        super().put(slot, tree)
        self.puts += 1
        self.most = max(self.most, len(self.kept))

    def get(self, slot):
        self.gets += 1
        return super().get(slot)


@pytest.mark.parametrize("scheme", [Revolve(3), Online(2), TwoLevel(3, 1)], ids=str)
def test_storage_is_used_as_predicted(truth, scheme):
    storage = Recorder()
    loss = scan_loss(scan_with(scheme=scheme, storage=storage, block=2))
    assert_close(jax.value_and_grad(loss, (0, 1))(RATE, STATE), truth, rtol=EXACT, atol=EXACT)
    cost = scheme.cost(9)
    assert (storage.puts, storage.gets) == (cost.stores, cost.restores)
    assert storage.most <= cost.peak_ram + cost.peak_disk
    assert ("disk" in storage.tiers) == (cost.peak_disk > 0)
    assert storage.kept == {}


@pytest.mark.parametrize("make", [RAM, Elsewhere])
def test_two_loops_share_a_storage(truth, make):
    storage = make()
    one = scan_loss(scan_with(scheme=Revolve(2), storage=storage, block=2, mode="host"))
    two = while_loss(while_with(scheme=Online(2), storage=storage, block=2, mode="host"))
    got = jax.grad(lambda rate: one(rate, STATE) * two(rate, STATE))(RATE)
    (a, (a_bar, _)), (b, (b_bar, _)) = truth, while_truth()(RATE, STATE, 19)
    assert_close(got, a * b_bar + b * a_bar, rtol=EXACT, atol=0.0)


@pytest.mark.parametrize("loss", [
    scan_loss(scan_with(scheme=Revolve(2), block=2, mode="host")),
    while_loss(while_with(scheme=Online(2), block=2, mode="host")),
], ids=["scan", "while"])  # fmt: skip
def test_pulling_back_twice_gives_the_same(loss):
    value, pull = jax.vjp(loss, RATE, STATE)
    first, second = pull(jnp.ones_like(value)), pull(2 * jnp.ones_like(value))
    assert_close(second, jax.tree.map(lambda x: 2 * x, first), rtol=0.0, atol=0.0)
    assert np.all(jnp.isfinite(value))  # nothing of the caller's was donated


@pytest.mark.parametrize("make", [RAM, Elsewhere])
def test_snapshots_go_with_the_derivative(make):
    storage = make()
    for loss in (
        scan_loss(scan_with(scheme=Revolve(2), storage=storage, block=2, mode="host")),
        while_loss(while_with(scheme=Online(2), storage=storage, block=2, mode="host")),
    ):
        _, pull = jax.vjp(loss, RATE, STATE)
        kept = storage._kept if make is RAM else storage.kept
        assert len(kept) == 2
        del pull
        gc.collect()
        assert len(kept) == 0


def test_ram_is_a_dictionary():
    with RAM() as storage:
        tree = {"a": jnp.ones(2)}
        storage.put(3, tree)
        assert storage.get(3)["a"] is tree["a"]
        storage.discard(3)
        storage.discard(3)
        assert len(storage) == 0
        assert [storage.reserve() for _ in range(3)] == [0, 1, 2]
        storage.release(1)
        assert [storage.reserve(), storage.reserve()] == [1, 3]


class Middle(AbstractScheme):
    """A user's scheme: one snapshot in the middle, restores where compiled loops allow none."""

    def __init__(self, again):
        self.again = again

    def actions(self, n_steps):
        yield Store(7, 0)
        middle = n_steps // 2
        yield Advance(0, middle)
        yield Store(5, middle)
        for end in range(n_steps, 0, -1):
            slot, start = (5, middle) if end > middle else (7, 0)
            if self.again and 1 < end < n_steps:
                yield Restore(7, 0)
                yield Advance(0, 1)
            if end < n_steps:
                yield Restore(slot, start)
            if start < end - 1:
                yield Advance(start, end - 1)
            yield UTurn(end - 1, end)
            if end - 1 == start:
                yield Free(slot, start)


def test_schemes_from_outside_work(truth):
    for scheme, modes in ((Middle(again=False), ("jit", "host")), (Middle(again=True), ("host",))):
        assert simulate(scheme.actions(9), 9).peak_ram == 2
        for mode in modes:
            loss = scan_loss(scan_with(scheme=scheme, block=2, mode=mode))
            got = jax.value_and_grad(loss, (0, 1))(RATE, STATE)
            assert_close(got, truth, rtol=EXACT, atol=EXACT)
    with pytest.raises(ScheduleError, match=r'a compiled loop does not support.* mode="host"'):
        scan_loss(scan_with(scheme=Middle(again=True), block=2))(RATE, STATE)
