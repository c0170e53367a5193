"""Control of the step size: PID, a smallest step, and states that are not valid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor
from pullback.testing import taylor_test

KERNEL = ANY


def lotka(t, y, p):
    return jnp.stack([y[0] * (p - y[1]), y[1] * (y[0] - 1.0)])


def solve(executor=KERNEL, params=1.0, t1=20.0, method=None, **options):
    problem = pb.ODEProblem(lotka, jnp.array([2.0, 0.5]), (0.0, t1), params)
    return pb.solve(problem, method or pb.Tsit5(), executor, **({"rtol": 1e-6} | options))


@each_executor
@pytest.mark.parametrize(
    "controller",
    [
        pb.PIDController(),
        pb.PIDController(pcoeff=0.0, icoeff=1.0),
        pb.PIDController(pcoeff=0.2, icoeff=0.3, dcoeff=0.05),
    ],
    ids=["pi", "integral", "pid"],
)
def test_pid_control_keeps_the_tolerance(executor, controller):
    sol = solve(executor, controller=controller)
    exact = solve(executor, rtol=1e-11, atol=1e-11)
    assert bool(sol.ok)
    # As with the default controller: an error of a few tens of tolerances over 60 steps.
    np.testing.assert_allclose(sol.y, exact.y, rtol=1e-4)
    plain = int(solve(executor).stats["n_attempts"])
    assert 0.5 * plain < int(sol.stats["n_attempts"]) < 2.0 * plain


def test_steps_of_a_pid_controller_are_smoother():
    def roughness(controller):
        sol = solve(controller=controller, saveat="steps", rtol=1e-4)
        t = np.asarray(sol.t)[: int(sol.n_saved)]
        return np.abs(np.diff(np.log(np.diff(t)[:-1]), 2)).mean()

    integral = pb.PIController(beta=0.0)
    assert roughness(pb.PIDController(pcoeff=0.4, icoeff=0.3)) < roughness(integral)


def test_gradient_with_a_pid_controller_in_segments():
    controller = pb.PIDController(dcoeff=0.05)

    def f(p, tape=None):
        adjoint = pb.DiscreteAdjoint(tape=tape)
        return solve(params=p, controller=controller, adjoint=adjoint).y[0, 0]

    p = jnp.array(1.0)
    # The segments are repeated with the controller's memory, two numbers, as it was.
    np.testing.assert_array_equal(jax.grad(f)(p, 8), jax.grad(f)(p))
    taylor_test(f, p, mesh="frozen")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"icoeff": 0.0}, "`icoeff` must be positive"),
        ({"pcoeff": np.nan}, "`pcoeff` and `dcoeff` must be finite"),
        ({"safety": 2.0}, "`safety` must lie between 0 and 1"),
    ],
)
def test_wrong_controllers(options, text):
    with pytest.raises(ValueError, match=text):
        pb.PIDController(**options)


# ---------------------------------------------------------------------------- dt_min


@each_executor
def test_smallest_step(executor):
    free = solve(executor, saveat="steps", max_saves=500)
    sizes = np.diff(np.asarray(free.t)[: int(free.n_saved)])
    loose = solve(executor, dt_min=1e-3 * sizes.min())
    np.testing.assert_array_equal(loose.y, free.y[int(free.n_saved) - 1 :][:1])
    tight = solve(executor, dt_min=0.5 * (sizes.min() + sizes.max()))
    assert int(tight.status) == pb.Status.dt_underflow
    assert 0.0 <= float(tight.t_end) < 20.0


def test_smallest_step_is_checked():
    with pytest.raises(ValueError, match=r"`dt_min` must be positive and finite, but 0\.0"):
        solve(dt_min=0.0)
    with pytest.raises(ValueError, match="`dt_min` must not be larger than `dt_max`"):
        solve(dt_min=1.0, dt_max=0.1)


# -------------------------------------------------------------------------- is_valid


def drain(t, y, p):
    """Torricelli's law: sqrt(y) falls linearly, below zero there is nothing."""
    return -p * jnp.sqrt(jnp.maximum(y, 0.0)) - 0.05


def emptied(executor=KERNEL, p=1.0, t1=1.8, **options):
    problem = pb.ODEProblem(drain, jnp.array(1.0), (0.0, t1), p)
    options = {"rtol": 1e-3, "atol": 1e-3, "is_valid": lambda t, y, p: y > 0} | options
    return pb.solve(problem, pb.Tsit5(), executor, **options)


@each_executor
def test_steps_to_states_that_are_not_valid_are_rejected(executor):
    sol = emptied(executor, t1=5.0)
    assert int(sol.status) == pb.Status.left_domain
    assert float(sol.y_end) > 0
    # The exact solution reaches zero; no step was small enough to go on behind that.
    assert float(sol.y_end) < 1e-6
    free = emptied(executor, t1=5.0, is_valid=None)
    assert bool(free.ok)
    assert float(free.y_end) < 0
    fixed = emptied(executor, t1=5.0, dt=0.1)
    assert int(fixed.status) == pb.Status.left_domain
    assert 0.0 < float(fixed.y_end) < 0.1


@each_executor
def test_valid_steps_are_left_alone(executor):
    free = emptied(executor, t1=1.5, is_valid=None)
    np.testing.assert_array_equal(emptied(executor, t1=1.5).y, free.y)


def test_domain_uses_parameters_and_closed_over_arrays():
    def run(level, p):
        return emptied(p=p, t1=5.0, is_valid=lambda t, y, p: y > level * p)

    for level in (0.25, 0.5):
        sol = run(jnp.array(level), jnp.array(1.0))
        assert int(sol.status) == pb.Status.left_domain
        assert float(sol.y_end) == pytest.approx(level, abs=1e-9)
    # A failed trajectory's last good point still has the derivative of its steps.
    assert np.isfinite(jax.grad(lambda p: emptied(p=p).y_end)(jnp.array(1.0)))


def test_gradient_where_steps_were_rejected():
    def gap(t, y, p):
        return (t < 0.5) | (t > 0.6)

    def run(p):
        return emptied(p=p, t1=1.2, rtol=1e-1, atol=1e-1, dt=0.55, adaptive=True, is_valid=gap)

    def f(p):
        return run(p).y_end

    p = jnp.array(1.0)
    assert int(run(p).stats["n_rejected"]) > 0
    taylor_test(f, p, mesh="frozen")


@pytest.mark.parametrize(
    ("is_valid", "text"),
    [
        (True, "`is_valid` must be a function"),
        (lambda t, y, p: y, "`is_valid` must return one boolean, but it returned float64"),
        (lambda t, y, p: jnp.stack([y > 0, y < 1]), r"but it returned bool of shape \(2,\)"),
    ],
)
def test_wrong_domains(is_valid, text):
    with pytest.raises(TypeError, match=text):
        emptied(is_valid=is_valid)
