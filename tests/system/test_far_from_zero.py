"""Time far from zero in float32: the state advances by what time really does."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.executors import each_executor

import pullback as pb


def oscillator(t, y, omega):
    return jnp.stack([y[1], -omega * omega * y[0]])


@each_executor
@pytest.mark.parametrize("t0", [0.0, 1000.0, 1900.0])
def test_state_and_time_do_not_drift_apart(executor, t0):
    y0 = jnp.array([1.0, 0.0], jnp.float32)
    problem = pb.ODEProblem(oscillator, y0, (t0, t0 + 10), jnp.float32(20.0))
    sol = pb.solve(problem, pb.Tsit5(), executor, rtol=1e-5, atol=1e-5)
    # some 2 000 roundings of size 6e-8 and the method's own error; the drift was 1e-1
    assert abs(float(sol.y_end[0]) - np.cos(200.0)) < 1e-3


@each_executor
def test_first_step_is_one_that_time_can_make(executor):
    problem = pb.ODEProblem(lambda t, y, p: 1.0 - y, jnp.float32(0.0), (1900.0, 1920.0))
    sol = pb.solve(problem, pb.Tsit5(), executor)
    assert sol.ok
    assert abs(float(sol.y_end) - 1.0) < 2e-3


@each_executor
def test_a_step_that_time_cannot_make_changes_nothing(executor):
    y0 = jnp.float32(0.25)
    problem = pb.ODEProblem(lambda t, y, p: 1.0 - y, y0, (2_450_000.0, 2_450_100.0))
    sol = pb.solve(problem, pb.Tsit5(), executor, dt=1e-2, adaptive=True)
    assert int(sol.status) == pb.Status.dt_underflow
    assert float(sol.t_end) == 2_450_000.0
    assert float(sol.y_end) == 0.25
