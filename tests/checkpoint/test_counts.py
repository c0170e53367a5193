"""Loops run as many steps as their schedules predict."""

import jax
import jax.numpy as jnp
import pytest

from pullback.checkpoint import (
    Advance,
    Nested,
    Online,
    Periodic,
    Revolve,
    StoreAll,
    TwoLevel,
    checkpointed_scan,
    checkpointed_while,
)
from pullback.checkpoint.schedules.online import Placement
from pullback.checkpoint.schedules.reverse_sweep import binomial_sweep

BLOCK, N_BLOCKS, N_TAIL = 3, 9, 2


class Counter:
    """Counts how often a step is run, also inside compiled loops."""

    def __init__(self):
        self.n = 0

    def count(self, _):
        self.n += 1

    def step(self, v, x=None):
        jax.debug.callback(self.count, v)  # without an operand it would leave the loop
        return jnp.sin(v), x


def steps_of(grad, counter):
    jax.block_until_ready(grad(0.7))
    jax.effects_barrier()
    return counter.n


@pytest.mark.parametrize("mode", ["jit", "host"])
@pytest.mark.parametrize("scheme", [Revolve(2), Revolve(20), Online(2), TwoLevel(4, 1)], ids=str)
def test_scan(scheme, mode):
    counter, length = Counter(), N_BLOCKS * BLOCK + N_TAIL
    options = {"scheme": scheme, "block": BLOCK, "mode": mode}

    def loss(v):
        return checkpointed_scan(counter.step, v, None, length, **options)[0]

    # Besides the schedule's: the last block and the rest for the result, and every step taped.
    wanted = scheme.cost(N_BLOCKS).forward_steps * BLOCK + BLOCK + N_TAIL + length
    assert steps_of(jax.grad(loss), counter) == wanted


@pytest.mark.parametrize("scheme", [StoreAll(), Periodic(4), Nested(3)], ids=str)
def test_chunks(scheme):
    counter, length = Counter(), 29

    def loss(v):
        return checkpointed_scan(counter.step, v, None, length, scheme=scheme)[0]

    wanted = scheme.cost(length).forward_steps + length
    assert steps_of(jax.jit(jax.grad(loss)), counter) == wanted


@pytest.mark.parametrize("mode", ["jit", "host"])
@pytest.mark.parametrize("n_snapshots", [2, 5])
def test_while(n_snapshots, mode):
    counter, n = Counter(), 30

    def loss(v):
        def step(carry):
            return carry[0] + 1, counter.step(carry[1])[0]

        options = {"scheme": Online(n_snapshots), "block": 1, "mode": mode}
        return checkpointed_while(lambda carry: carry[0] < n, step, (0, v), **options)[1]

    placement = Placement(n_snapshots)
    for _ in range(n - 1):
        placement.leave()
    # A compiled loop has one slot more in the reverse sweep.
    free_slots = placement.free_slots + [n_snapshots] * (mode == "jit")
    reverse = binomial_sweep(placement.stack, free_slots, n - 1, n)
    again = sum(a.stop - a.start for a in reverse if isinstance(a, Advance))
    # The newest step once more, because only the running loop knows how long its block is.
    run = steps_of(jax.grad(loss), counter)
    assert run == n + again + n + 1
    predicted = Online(n_snapshots).cost(n).forward_steps + 1 + n + 1
    assert run == predicted if mode == "host" else run <= predicted
