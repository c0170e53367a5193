"""What events promise in corners: time backward, no time at all, coincidence, and NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import each_executor_slow_on_array

KERNEL = pb.EnsembleKernel()


def oscillate(t, y, p):
    return jnp.stack([y[1], -y[0]])


@pytest.mark.parametrize("method", [pb.Tsit5(), pb.Rodas5P()], ids=lambda m: m.name)
def test_each_root_is_found_once_in_either_direction_of_time(method):
    def crossings(t1):
        event = pb.Event(lambda t, y, p: y[0])
        problem = pb.ODEProblem(oscillate, jnp.array([1.0, 0.0]), (0.0, t1), events=[event])
        return pb.solve(problem, method, KERNEL, rtol=1e-8, atol=1e-8).events

    forward, backward = crossings(20.0), crossings(-20.0)
    assert int(forward.count) == int(backward.count) == 6
    want = np.pi * (np.arange(6) + 0.5)
    # Steps at 1e-8 over three periods.
    np.testing.assert_allclose(forward.t[:6], want, atol=1e-6)
    np.testing.assert_allclose(backward.t[:6], -want, atol=1e-6)


@pytest.mark.parametrize("t1", [1.0, -1.0])
@pytest.mark.parametrize("rate", [1.0, -1.0])
@pytest.mark.parametrize("direction", [-1, 0, 1])
def test_a_start_on_the_surface_is_no_event(t1, rate, direction):
    event = pb.Event(lambda t, y, p: y, terminate=True, direction=direction)
    problem = pb.ODEProblem(lambda t, y, p: p + 0 * y, 0.0, (0.0, t1), rate, events=[event])
    sol = pb.solve(problem, pb.Tsit5(), KERNEL)
    assert (int(sol.status), float(sol.t_end)) == (pb.Status.success, t1)


@each_executor_slow_on_array
def test_jumps_backward_in_time_happen_once_and_have_derivatives(executor):
    # The second component grows at the rate 1 and jumps by 2 when the first passes -1/2.
    def end(rate):
        event = pb.Event(lambda t, y, p: y[0] + 0.5, lambda t, y, p: y.at[1].add(2.0 * y[1]))
        problem = pb.ODEProblem(
            lambda t, y, p: jnp.stack([p, y[1]]), jnp.array([0.0, 1.0]), (0.0, -2.0), rate,
            events=[event],
        )  # fmt: skip
        return pb.solve(problem, pb.Tsit5(), executor, rtol=1e-9, atol=1e-9).y_end

    # It triples, whenever that is.
    np.testing.assert_allclose(end(1.0), [-2.0, 3.0 * np.exp(-2.0)], rtol=1e-7)
    np.testing.assert_allclose(jax.jacrev(end)(1.0), [-2.0, 0.0], atol=1e-7)


@pytest.mark.parametrize("terminate", [False, True])
def test_a_span_without_length_has_no_events(terminate):
    def jump(t, y, p):
        return y + 2.0

    for event in (
        pb.Event(lambda t, y, p: y[0], jump, terminate=terminate),
        pb.StepEvent(lambda t, y, p: True, jump, terminate=terminate),
    ):
        problem = pb.ODEProblem(lambda t, y, p: p + 0 * y, jnp.zeros(1), (1.0, 1.0), 1.0,
                                events=[event])  # fmt: skip
        sol = pb.solve(problem, pb.Tsit5(), KERNEL)
        assert (int(sol.status), float(sol.y_end[0]), int(sol.events.count)) == (0, 0.0, 0)


def test_times_that_are_no_numbers_are_invalid_input():
    def status(times):
        doses = pb.PresetTimes(times, lambda t, y, p: y + 1.0)
        problem = pb.ODEProblem(lambda t, y, p: -y, 1.0, (0.0, 1.0), events=[doses])
        return pb.solve(problem, pb.Tsit5(), KERNEL).status

    def status_with_stops(times):
        problem = pb.ODEProblem(lambda t, y, p: -y, 1.0, (0.0, 1.0))
        return pb.solve(problem, pb.Tsit5(), KERNEL, tstops=times).status

    for of in (status, status_with_stops):
        of = jax.jit(of)
        assert int(of(jnp.array([np.nan, 0.3]))) == pb.Status.invalid_input
        assert int(of(jnp.array([0.3, np.inf]))) == pb.Status.success  # one that never comes


def broken(t, y, p):
    return jnp.nan * y


ENDS = {
    "condition": pb.Event(lambda t, y, p: jnp.log(y[0] - 0.5) + 9.0),
    "root": pb.Event(lambda t, y, p: y[0] - 0.5, broken),
    "last root": pb.Event(lambda t, y, p: y[0] - 0.5, broken, terminate=True),
    "preset": pb.PresetTimes([0.5], broken),
    "at the end": pb.PresetTimes([1.0], broken),
    "last preset": pb.PeriodicEvent(0.5, broken, terminate=True),
    "step": pb.StepEvent(lambda t, y, p: t > 0.4, broken),
    "last step": pb.StepEvent(lambda t, y, p: t > 0.4, broken, terminate=True),
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("dt", [None, 0.2])
def test_a_state_behind_an_event_that_is_no_number_does_not_count(name, dt):
    problem = pb.ODEProblem(
        lambda t, y, p: -jnp.ones(1), jnp.ones(1), (0.0, 1.0), events=[ENDS[name]]
    )
    sol = pb.solve(problem, pb.Tsit5(), KERNEL, dt=dt, saveat=0.1)
    assert (int(sol.status), int(sol.events.count)) == (pb.Status.non_finite, 0)
    # The last good point is the start of the step that led to it.
    reached = float(sol.t_end)
    assert 0.0 <= reached < (0.999 if name == "at the end" else 0.6)
    np.testing.assert_allclose(sol.y_end[0], 1.0 - reached, rtol=1e-12)
    np.testing.assert_allclose(sol.y[:, 0], 1.0 - np.asarray(sol.t), rtol=1e-12)


def dies(t, y, p):
    return jnp.where(y > 1.0, jnp.nan, 1.0) * y  # one of two trajectories


@pytest.mark.parametrize(
    "event",
    [
        pb.PresetTimes([0.5], dies),
        pb.PresetTimes([1.0], dies),
        pb.StepEvent(lambda t, y, p: t > 0.3, dies),
        pb.Event(lambda t, y, p: t - 0.5, dies),
    ],
    ids=["preset", "end", "step", "root"],
)
@each_executor_slow_on_array
def test_a_trajectory_that_dies_leaves_shared_gradients_alone(executor, event):
    def loss(rate):
        problem = pb.ODEProblem(
            lambda t, y, p: -p * y, jnp.ones(1), (0.0, 1.0), rate, events=[event]
        )
        pair = pb.EnsembleProblem(problem, y0=jnp.array([[1.0], [2.0]]))
        sol = pb.solve(pair, pb.Tsit5(), executor, rtol=1e-8, atol=1e-8)
        assert sol.status.tolist() == [0, pb.Status.non_finite] or isinstance(rate, jax.core.Tracer)
        return jnp.where(sol.status < 10, sol.y_end[:, 0], 0.0).sum()

    loss(0.5)
    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(derivative(loss)(0.5), -np.exp(-0.5), rtol=1e-6)


@pytest.mark.parametrize("method", [pb.Tsit5(), pb.Rodas5P()], ids=lambda m: m.name)
@pytest.mark.parametrize("direction", [-1, 0])
@pytest.mark.parametrize("t0", [0.0, 3.0])
def test_a_root_at_a_preset_time_happens_first_and_once(method, direction, t0):
    def jump(t, y, p):
        return y.at[1].multiply(2.0)

    root = pb.Event(lambda t, y, p: p["level"] - y[0], jump, direction=direction)
    dose = pb.PresetTimes(lambda p: p["time"][None], lambda t, y, p: y.at[1].add(1.0))
    after = np.linspace(0.31, 2.7, 12)
    for rate in (1.0, 0.37):
        params = {"time": t0 + after, "level": rate * after, "rate": np.full(12, rate)}
        problem = pb.ODEProblem(
            lambda t, y, p: jnp.stack([p["rate"], 0.0 * y[0]]), jnp.array([0.0, 1.0]),
            (t0, t0 + 3.0), {"time": 0.0, "level": 0.0, "rate": 0.0}, events=[root, dose],
        )  # fmt: skip
        sol = pb.solve(pb.EnsembleProblem(problem, params=params), method, KERNEL)
        np.testing.assert_array_equal(sol.y_end[:, 1], 3.0)
        np.testing.assert_array_equal(sol.events.index[:, :3], [[0, 1, -1]] * 12)


def test_second_derivatives_in_forward_mode():
    def end(rate, event):
        problem = pb.ODEProblem(lambda t, y, p: -p * y, 1.0, (0.0, 1.0), rate, events=[event])
        return pb.solve(problem, pb.Tsit5(), KERNEL, rtol=1e-9, atol=1e-9).y_end

    def twice(event):
        return jax.jacfwd(jax.jacfwd(lambda rate: end(rate, event)))(0.5)

    quiet = pb.StepEvent(lambda t, y, p: False)
    np.testing.assert_allclose(twice(quiet), np.exp(-0.5), rtol=1e-6)
    # y(1) = (e^(-p/2) + p) e^(-p/2)
    dose = pb.PresetTimes([0.5], lambda t, y, p: y + p)
    want = np.exp(-0.5) - np.exp(-0.25) + 0.125 * np.exp(-0.25)
    np.testing.assert_allclose(twice(dose), want, rtol=1e-6)


P = pb.ODEProblem(lambda t, y, p: -p * y, 1.0, (0.0, 1.0), 0.5)
MISTAKES = {
    "events": (lambda: pb.ODEProblem(P.vector_field, 1.0, (0.0, 1.0), events=3), "`events` must"),
    "direction": (lambda: pb.Event(P.vector_field, direction=np.ones(2)), "`direction` must be 1"),
    "times": (lambda: pb.PresetTimes(lambda t, y, p: t), "`times` must be a function `times"),
    "period": (lambda: pb.PeriodicEvent(lambda t, y, p: t), "`period` must be a function"),
    "controller": (lambda: pb.PIDController("a"), "must be a number, got 'a'"),
    "switch": (lambda: pb.AutoSwitch(nonstiff=pb.RK4()), "`nonstiff` of AutoSwitch must be"),
    "valid": (
        lambda: pb.solve(P, pb.Tsit5(), is_valid=lambda t, y, p: None),
        "`is_valid` must return one boolean, but it returned None",
    ),
    "condition": (
        lambda: pb.solve(P, pb.Tsit5(), events=pb.Event(lambda t, y, p: None)),
        "`condition` <lambda> must return one real number",
    ),
    "python if": (
        lambda: pb.solve(P, pb.Tsit5(), events=pb.Event(lambda t, y, p: y if y > 0 else -y)),
        "`<lambda>` needs the value of a number .* write jnp.where",
    ),
    "numpy": (
        lambda: pb.solve(P, pb.Tsit5(), events=pb.Event(lambda t, y, p: np.sin(y))),
        "`<lambda>` needs the value of a number .* jax.numpy for NumPy",
    ),
    "if of times": (
        lambda: pb.solve(P, pb.Tsit5(), events=pb.PresetTimes(lambda p: [1.0] if p > 0 else [])),
        "`times` needs the value of a number",
    ),
    "text of times": (
        lambda: pb.solve(P, pb.Tsit5(), events=pb.PresetTimes(lambda p: "soon")),
        "`times` of PresetTimes must return .* it returned an object of class str",
    ),
    "ddof": (lambda: pb.MeanVar(ddof="a"), "`ddof` must be a number"),
    "dt_max": (
        lambda: pb.solve(P, pb.Tsit5(), dt=0.1, dt_max=0.2),
        "`dt_max` has no effect on fixed steps",
    ),
    "control": (
        lambda: pb.solve(P, pb.RK4(), dt=0.1, controller=pb.PIController()),
        "`controller` has no effect on fixed steps",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    make, sentence = MISTAKES[name]
    with pytest.raises((TypeError, ValueError), match=sentence):
        make()


def test_one_stop_needs_no_list():
    one, listed = (pb.solve(P, pb.Tsit5(), KERNEL, tstops=t).y_end for t in (0.5, [0.5]))
    assert float(one) == float(listed)


def test_single_precision_where_double_is_the_default():
    event = pb.Event(lambda t, y, p: t - p, lambda t, y, p: 0.0 * y)
    one, rate = jnp.float32(1.0), jnp.float32(0.7)
    problem = pb.ODEProblem(lambda t, y, p: 1.0 + 0.0 * y, one, (0.0, 1.0), rate, events=[event])
    sol = pb.solve(problem, pb.Tsit5(), KERNEL)
    assert sol.y_end.dtype == np.float32
    assert float(sol.y_end) == pytest.approx(0.3, abs=1e-6)
