"""Stability of explicit methods, and the estimates that say when it holds a step."""

import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback.ode.stability import decay_reach, stability_length, stage_pair, step_stiffness

# Published real stability intervals: [HW96] section IV.2 for DOPRI5, SciML's tables for the rest.
LENGTHS = {
    pb.Euler: 2.0,
    pb.Heun: 2.0,
    pb.RK4: 2.7853,
    pb.Bosh3: 2.5127,
    pb.Dopri5: 3.3066,
    pb.Tsit5: 3.5068,
    pb.Vern7: 4.6400,
    pb.Vern9: 4.4762,
}


@pytest.mark.parametrize(("method", "length"), LENGTHS.items(), ids=lambda m: str(m))
def test_stability_interval(method, length):
    assert stability_length(method.tableau) == pytest.approx(length, abs=1e-4)


@pytest.mark.parametrize("method", [pb.Tsit5, pb.Dopri5, pb.Vern7, pb.Vern9])
def test_two_stages_tell_the_eigenvalue(method):
    # For y' = -k y the two stages differ by exactly -k times the difference of their states.
    rate, h, y = 3.0, 0.4, jnp.array([1.0])
    step = method().step(lambda t, y: -rate * y, jnp.array(0.0), y, jnp.array(h), None)
    found = step_stiffness(method.tableau, step.stages)
    assert float(found) == pytest.approx(h * rate / stability_length(method.tableau), rel=1e-9)


def test_without_change_there_is_no_stiffness():
    step = pb.Tsit5().step(lambda t, y: 0.0 * y, *map(jnp.array, (0.0, [1.0], 0.1)), None)
    assert float(step_stiffness(pb.Tsit5.tableau, step.stages)) == 0.0


def test_which_stages_are_at_one_time():
    assert stage_pair(pb.Tsit5.tableau) == (5, 6)
    assert stage_pair(pb.RK4.tableau) == (1, 2)
    assert stage_pair(pb.Bosh3.tableau) is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_power_iteration_sees_decay_but_not_oscillation(sign):
    y, unit = jnp.array([0.5, -2.0, 1.0]), jnp.full(3, 1e-6)
    turn = np.array([[0.0, 50.0, 0.0], [-50.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
    decay = np.array([[-80.0, 1.0, 0.0], [0.0, -1.0, 0.0], [3.0, 0.0, -2.0]])
    h = jnp.array(0.25 * sign)

    def reach(matrix, is_wanted=True):
        return decay_reach(lambda y: jnp.asarray(sign * matrix) @ y, y, h, unit, is_wanted)

    # After 30 iterations the second eigenvalue is gone, differences keep half of the digits.
    assert float(reach(decay)) == pytest.approx(20.0, rel=1e-6)
    assert float(reach(turn)) < 0.3
    assert float(reach(decay, jnp.array(False))) == 0.0
