"""Methods that switch: where they do, what they cost, and the derivative of what was executed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor, each_executor_slow_on_array
from pullback.testing import taylor_test

KERNEL = ANY


def van_der_pol(t, y, mu):
    return jnp.stack([y[1], mu * ((1 - y[0] ** 2) * y[1] - y[0])])


def solve(mu, t1=2.0, method=None, executor=KERNEL, **options):
    problem = pb.ODEProblem(van_der_pol, jnp.array([2.0, 0.0]), (0.0, t1), mu)
    options = {"rtol": 1e-7, "atol": 1e-7} | options
    return pb.solve(problem, method or pb.AutoSwitch(), executor, **options)


@each_executor
def test_stiff_and_nonstiff_parts_are_both_taken(executor):
    # From ivp.md's VDPOL: mu = 1e6, y(2) in the scaled form.
    sol = solve(jnp.array(1e6), executor=executor)
    reference = [1.706167732170469, -0.8928097010248125]
    assert int(sol.status) == pb.Status.success
    # Ten tolerance units: the error of a switching method is that of its worse half.
    np.testing.assert_allclose(sol.y[0], reference, rtol=2e-6)
    explicit = solve(jnp.array(1e6), method=pb.Tsit5(), executor=executor, max_steps=5000)
    assert int(explicit.status) == pb.Status.looks_stiff


def test_cost_is_that_of_the_better_method():
    options = {"rtol": 1e-6, "atol": 1e-6}
    stiff = solve(jnp.array(1e5), **options).stats
    rodas = solve(jnp.array(1e5), method=pb.Rodas5P(), **options).stats
    assert int(stiff["n_attempts"]) < 2.0 * int(rodas["n_attempts"])
    easy = solve(jnp.array(1.0), t1=20.0, **options)
    tsit = solve(jnp.array(1.0), t1=20.0, method=pb.Tsit5(), **options)
    # Never stiff: the same steps, and the same bits.
    assert int(easy.stats["n_attempts"]) == int(tsit.stats["n_attempts"])
    np.testing.assert_allclose(easy.y, tsit.y, rtol=1e-12)


def test_stiff_first_begins_with_the_stiff_method():
    options = {"dt": 1e-2, "t1": 0.05}
    method = pb.AutoSwitch(stiff_first=True, max_nonstiff=99)
    first = solve(jnp.array(10.0), method=method, **options)
    rodas = solve(jnp.array(10.0), method=pb.Rodas5P(), **options)
    np.testing.assert_allclose(first.y, rodas.y, rtol=1e-14)


@each_executor_slow_on_array
def test_gradient_is_that_of_the_executed_steps(executor):
    times = jnp.linspace(0.0, 2.0, 5)

    def f(mu):
        rows = solve(mu, executor=executor, saveat=times, rtol=1e-5, atol=1e-7).y
        return jnp.sum(rows[:, 0] ** 2)

    mu = jnp.array(300.0)
    taylor_test(f, mu, mesh="frozen")
    forward = jax.jvp(f, (mu,), (jnp.ones_like(mu),))[1]
    # Each mode chooses its own mesh; both are right to the tolerance's slack.
    np.testing.assert_allclose(jax.grad(f)(mu), forward, rtol=2e-3)


def test_fixed_steps_agree_in_both_modes_and_both_executors():
    def f(y0, executor):
        problem = pb.ODEProblem(van_der_pol, y0, (0.0, 1.2), jnp.array(40.0))
        sol = pb.solve(problem, pb.AutoSwitch(max_stiff=2), executor, dt=0.05, saveat=0.11)
        return jnp.sum(sol.y**2)

    y0 = jnp.array([2.0, 0.0])
    results = [jax.grad(f)(y0, e) for e in (KERNEL, pb.EnsembleArray())]
    forward = jax.jacfwd(lambda y: f(y, KERNEL))(y0)
    np.testing.assert_allclose(results[0], forward, rtol=1e-9)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-9)


def test_second_derivative():
    def f(mu):
        return solve(mu, t1=0.5, dt=0.02).y[0, 0]

    mu, eps = jnp.array(20.0), 1e-4
    second = jax.jacfwd(jax.grad(f))(mu)
    difference = (jax.grad(f)(mu + eps) - jax.grad(f)(mu - eps)) / (2 * eps)
    np.testing.assert_allclose(second, difference, rtol=1e-5)


def test_tape_in_segments_gives_the_same_gradient():
    def f(mu, tape):
        adjoint = pb.DiscreteAdjoint(tape=tape, resolve=False)
        return solve(mu, rtol=1e-5, atol=1e-7, adjoint=adjoint).y[0, 0]

    mu = jnp.array(300.0)
    np.testing.assert_array_equal(jax.grad(f)(mu, 16), jax.grad(f)(mu, None))


@pytest.mark.slow
def test_events_are_found_by_either_method():
    event = pb.Event(lambda t, y, mu: y[0], terminate=True)

    def t_end(mu, method):
        problem = pb.ODEProblem(van_der_pol, jnp.array([2.0, 0.0]), (0.0, 5.0), mu, events=[event])
        return pb.solve(problem, method, KERNEL, rtol=1e-9, atol=1e-9).t_end

    mu = jnp.array(500.0)
    switching, rodas = (jax.value_and_grad(t_end)(mu, m) for m in (pb.AutoSwitch(), pb.Rodas5P()))
    np.testing.assert_allclose(switching[0], rodas[0], rtol=1e-7)
    np.testing.assert_allclose(switching[1], rodas[1], rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nonstiff": pb.Bosh3()}, "`nonstiff` of AutoSwitch must be an explicit method with two"),
        ({"nonstiff": pb.Rodas5P()}, "`nonstiff` of AutoSwitch must be an explicit method"),
        ({"stiff": pb.Tsit5()}, "`stiff` of AutoSwitch must be a method for stiff problems"),
        ({"max_stiff": 0}, "`max_stiff` and `max_nonstiff` must be at least 1"),
        ({"dt_factor": -1.0}, "`tolerance` and `dt_factor` must be positive"),
    ],
)
def test_wrong_parts(options, text):
    with pytest.raises(ValueError, match=text):
        pb.AutoSwitch(**options)


def test_mass_matrices_are_refused():
    problem = pb.ODEProblem(van_der_pol, jnp.array([2.0, 0.0]), (0.0, 1.0), 1.0, mass_matrix=[1, 2])
    with pytest.raises(ValueError, match="explicit, at least in part, and cannot take a `mass_m"):
        pb.solve(problem, pb.AutoSwitch(), KERNEL)


@each_executor
def test_only_stability_is_called_stiff(executor):
    def solve_one(field, y0, t1, rtol, **options):
        problem = pb.ODEProblem(field, jnp.array(y0), (0.0, t1))
        options = {"max_steps": 2000, "rtol": rtol, "atol": 1e-2 * rtol} | options
        return pb.Status(int(pb.solve(problem, pb.Tsit5(), executor, **options).status))

    def decay(t, y, p):
        return -1e4 * (y - jnp.cos(t))

    def turn(t, y, p):
        return jnp.stack([y[1], -y[0]])

    assert solve_one(decay, [0.0], 1e3, 1e-4) == pb.Status.looks_stiff
    assert solve_one(turn, [1.0, 0.0], 1e6, 1e-2) == pb.Status.max_steps_reached
    # Accuracy holds these steps, not stability.
    assert solve_one(decay, [0.0], 1e-3, 1e-12, max_steps=20) == pb.Status.max_steps_reached
