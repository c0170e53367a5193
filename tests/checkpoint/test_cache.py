"""Repeated calls compile nothing, keep nothing alive, and hold no value of an earlier call."""

import gc
import weakref

import jax
import jax.numpy as jnp
import pytest

from checkpoint.loops import RATE, STATE, scan_loss, scan_with, while_loss, while_with
from pullback.checkpoint import Online, Revolve

LOSSES = {
    "scan, jit": scan_loss(scan_with(scheme=Revolve(3), block=3)),
    "scan, host": scan_loss(scan_with(scheme=Revolve(3), block=3, mode="host")),
    "while, jit": while_loss(while_with(scheme=Online(3), block=3)),
    "while, host": while_loss(while_with(scheme=Online(3), block=3, mode="host")),
}


@pytest.fixture
def compilations():
    """Counts what XLA compiles."""
    durations = []

    def listen(name, duration, **_):
        if "backend_compile" in name:
            durations.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield durations
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize("name", LOSSES)
def test_second_call_compiles_nothing(name, compilations):
    grad = jax.grad(LOSSES[name], (0, 1))
    grad(RATE, STATE)
    compilations.clear()
    for rate in (0.5, 0.7):
        grad(jnp.float64(rate), STATE)
    assert compilations == []


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_stays_alive(name):
    grad = jax.grad(LOSSES[name], (0, 1))
    grad(RATE, STATE)
    gc.collect()
    before = len(jax.live_arrays())
    state = STATE + 1.0
    gone = weakref.ref(state)
    grad(RATE, state)
    del state
    gc.collect()
    assert gone() is None
    assert len(jax.live_arrays()) == before


@pytest.mark.parametrize("name", ["scan, jit", "while, jit"])
def test_no_tracer_leaks(name):
    with jax.checking_leaks():
        jax.jit(jax.value_and_grad(LOSSES[name]))(RATE, STATE)


@pytest.mark.parametrize("mode", ["jit", "host"])
def test_rules_with_the_same_name_are_told_apart(mode):
    def scaled(factor):
        @jax.custom_vjp
        def identity(x):
            return x

        identity.defvjp(lambda x: (x, None), lambda _, bar: (factor * bar,))
        run = scan_with(scheme=Revolve(2), block=1, mode=mode)
        return jax.grad(lambda x: run(lambda c, _: (identity(c), None), x, None, 3)[0])(1.0)

    assert (scaled(2.0), scaled(3.0)) == (8.0, 27.0)
