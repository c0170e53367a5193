"""Memory of a compiled gradient is bounded by the snapshots, and snapshots are not copied."""

import re

import jax
import jax.numpy as jnp
import pytest

from checkpoint.loops import scan_with
from pullback.checkpoint import Nested, Online, Revolve, checkpointed_while

SIZE = 5000
STATE_BYTES = 8 * SIZE


@pytest.fixture(autouse=True)
def full_optimization():
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


def compiled(run, n_steps):
    def loss(rate, state):
        def step(v, _):
            return v + 0.01 * jnp.sin(rate * jnp.roll(v, 1)), None

        return jnp.sum(run(step, state, None, n_steps)[0] ** 2)

    state = jax.ShapeDtypeStruct((SIZE,), float)
    return jax.jit(jax.grad(loss, (0, 1))).lower(jnp.float64(0.3), state).compile()


def online(step, init, _, n_steps):
    def cond(carry):
        return carry[0] < n_steps

    def counted(carry):
        return carry[0] + 1, step(carry[1], None)[0]

    options = {"scheme": Online(8), "block": 4}
    return (checkpointed_while(cond, counted, (0, init), **options)[1], None)


def states(run, n_steps):
    return compiled(run, n_steps).memory_analysis().temp_size_in_bytes / STATE_BYTES


@pytest.mark.parametrize("n_snapshots", [pytest.param(4, marks=pytest.mark.slow), 32])
def test_revolve_keeps_its_snapshots_and_a_few_states(n_snapshots):
    # The spare row, the state in hand, the end, the cotangent, and the tape of one step.
    assert states(scan_with(scheme=Revolve(n_snapshots), block=1), 1000) < n_snapshots + 15


def test_memory_does_not_grow_with_the_length():
    run = scan_with(scheme=Revolve(6), block=4)
    short = states(run, 1000)
    assert states(run, 10_000) == pytest.approx(short, rel=0.01)
    assert short < 6 + 1 + 4 * 10 + 15
    # The length is an argument of the condition only: nothing to compare.
    assert states(online, 1000) < 8 + 2 + 4 * 10 + 20


def test_nested_keeps_a_root_per_level():
    assert states(scan_with(scheme=Nested(3)), 1000) < 3 * 10 + 10 * 10 + 15


@pytest.mark.parametrize(
    ("run", "rows"), [(scan_with(scheme=Revolve(32), block=4), 33), (online, 10)]
)
def test_snapshots_are_written_in_place(run, rows):
    text = compiled(run, 1000).as_text()
    copies = re.findall(rf"f64\[{rows},{SIZE}\]\S* copy\(", text)
    # One before each of the loops that take the buffer over: none per step or block.
    assert len(copies) <= 2
    for copy in copies:
        assert not inside_loop(text, copy)


def inside_loop(text, line):
    computation = text[: text.index(line)].rsplit("\n\n", 1)[-1]
    return not computation.lstrip().startswith("ENTRY")
