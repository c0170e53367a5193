"""Small problems with known answers, of kinds that solvers are known to get wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import each_executor, each_executor_slow_on_array
from pullback.testing import tol

PLAIN = pb.DiscreteAdjoint(resolve=False)


def ensemble_of(field, y0, t_span, params=None):
    problem = pb.ODEProblem(field, y0[0], t_span, None if params is None else params[0])
    return pb.EnsembleProblem(problem, y0=y0, params=params)


# ------------------------------------------------------------------------------- failures


@each_executor
def test_blow_up_leaves_the_others_alone(executor):
    y0 = np.array([0.5, 0.9, 2.0])
    ensemble = ensemble_of(lambda t, y, p: y**2, y0, (0.0, 1.0))
    sol = pb.solve(ensemble, pb.Tsit5(), executor, rtol=1e-8, atol=1e-8)
    assert sol.ok.tolist() == [True, True, False]
    # The state grows by 1 / (1 - y0), and an error in it by the square of that: 100.
    np.testing.assert_allclose(sol.y_end[:2], [1.0, 9.0], rtol=100 * 1e-8)
    np.testing.assert_allclose(sol.t_end[2], 0.5, atol=1e-2)
    assert np.isfinite(sol.y_end).all()
    alone = pb.solve(ensemble_of(lambda t, y, p: y**2, y0[:2], (0.0, 1.0)), pb.Tsit5(), executor,
                     rtol=1e-8, atol=1e-8)  # fmt: skip
    np.testing.assert_array_equal(alone.y_end, sol.y_end[:2])
    np.testing.assert_array_equal(alone.stats["n_attempts"], sol.stats["n_attempts"][:2])


@each_executor
def test_square_root_of_a_negative_number_ends(executor):
    problem = pb.ODEProblem(lambda t, y, p: -jnp.sqrt(y), 1.0, (0.0, 3.0))
    times = np.linspace(0.0, 3.0, 13)
    sol = pb.solve(problem, pb.Tsit5(), executor, rtol=1e-6, atol=1e-9, saveat=times)
    assert pb.Status(int(sol.status)) in (pb.Status.non_finite, pb.Status.dt_underflow)
    n = int(sol.n_saved)
    assert 8 <= n <= 9  # up to t = 2, where y reaches zero
    np.testing.assert_allclose(sol.y[:n], (1 - times[:n] / 2) ** 2, atol=1e-5)
    np.testing.assert_allclose(sol.t_end, 2.0, atol=1e-2)
    assert int(sol.stats["n_attempts"]) < 1000


@each_executor
def test_nan_from_the_start_stops_at_once(executor):
    rates = np.array([1.0, np.nan, 1.0])
    ensemble = ensemble_of(lambda t, y, k: -k * y, np.ones(3), (0.0, 1.0), rates)
    sol = pb.solve(ensemble, pb.Tsit5(), executor, rtol=1e-6)
    assert pb.Status(int(sol.status[1])) is pb.Status.non_finite
    assert (float(sol.t_end[1]), float(sol.y_end[1])) == (0.0, 1.0)
    assert int(sol.stats["n_attempts"][1]) <= 2
    np.testing.assert_allclose(sol.y_end[0], np.exp(-1.0), rtol=1e-5)
    assert sol.y_end[0] == sol.y_end[2]


@each_executor
def test_a_masked_failure_leaves_gradients_finite_and_exact(executor):
    y0 = np.array([0.5, 0.9, 2.0])

    def loss(y0):
        ensemble = ensemble_of(lambda t, y, p: y**2, y0, (0.0, 1.0))
        sol = pb.solve(ensemble, pb.Tsit5(), executor, rtol=1e-8, atol=1e-8, adjoint=PLAIN)
        return jnp.where(sol.ok, sol.y_end, 0.0).sum()

    grads = jax.jit(jax.grad(loss))(y0)
    np.testing.assert_allclose(grads[:2], 1 / (1 - y0[:2]) ** 2, rtol=1e-4)
    assert grads[2] == 0.0


# ------------------------------------------------------------------------------- ends


@each_executor
def test_fixed_steps_end_exactly_at_the_end(executor):
    problem = pb.ODEProblem(lambda t, y, p: jnp.cos(t), 0.0, (0.0, 1.0))
    sol = pb.solve(problem, pb.RK4(), executor, dt=0.3)
    assert float(sol.t_end) == 1.0
    assert int(sol.stats["n_accepted"]) == 4
    np.testing.assert_allclose(sol.y_end, np.sin(1.0), rtol=1e-5)  # dt**4 / 2880


@each_executor
@pytest.mark.parametrize("options", [{"dt": 0.01}, {"rtol": 1e-9, "atol": 1e-12}])
def test_backward_in_time(executor, options):
    problem = pb.ODEProblem(lambda t, y, p: -y, np.exp(-1.0), (1.0, 0.0))
    sol = pb.solve(problem, pb.Tsit5(), executor, **options)
    assert float(sol.t_end) == 0.0
    np.testing.assert_allclose(sol.y_end, 1.0, rtol=1e-8)


@each_executor
def test_tiny_time_scale(executor):
    tau = 1e-10
    problem = pb.ODEProblem(lambda t, y, tau: -y / tau, 1.0, (0.0, tau), tau)
    sol = pb.solve(problem, pb.Euler(), executor, dt=tau / 1000)
    assert int(sol.stats["n_accepted"]) in (1000, 1001)  # the last step may round
    np.testing.assert_allclose(sol.y_end, (1 - 1e-3) ** 1000, rtol=1e-10)


# ------------------------------------------------------------------------------- ensembles


def van_der_pol(t, y, mu):
    return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])


@each_executor
def test_trajectories_of_unequal_length_equal_their_single_solves(executor):
    mu = np.geomspace(0.1, 100.0, 12)
    np.random.default_rng(1).shuffle(mu)
    problem = pb.ODEProblem(van_der_pol, np.array([2.0, 0.0]), (0.0, 20.0), mu[0])
    options = {"rtol": 1e-6, "atol": 1e-6}
    together = pb.solve(pb.EnsembleProblem(problem, params=mu), pb.Tsit5(), executor, **options)
    attempts = np.asarray(together.stats["n_attempts"])
    assert attempts.max() > 10 * attempts.min()
    for i in (0, 5, 11):
        alone = pb.solve(problem.replace(params=mu[i]), pb.Tsit5(), executor, **options)
        np.testing.assert_array_equal(alone.stats["n_attempts"], attempts[i])
        # XLA may round a batched program differently; the limit cycle does not amplify it.
        bound = 0 if isinstance(executor, pb.EnsembleKernel) else 1e-9
        np.testing.assert_allclose(alone.y_end, together.y_end[i], rtol=bound, atol=bound)


@each_executor
def test_order_of_trajectories_does_not_matter(executor):
    mu = np.geomspace(0.1, 10.0, 9)
    problem = pb.ODEProblem(van_der_pol, np.array([2.0, 0.0]), (0.0, 5.0), mu[0])

    def run(mu):
        return pb.solve(pb.EnsembleProblem(problem, params=mu), pb.Tsit5(), executor, rtol=1e-6)

    order = np.array([4, 8, 0, 2, 6, 1, 7, 3, 5])
    np.testing.assert_array_equal(run(mu[order]).y_end, run(mu).y_end[order])


# ------------------------------------------------------------------------------- derivatives


@each_executor_slow_on_array
def test_second_derivative(executor):
    problem = pb.ODEProblem(lambda t, y, z: -z * y, 2.0, (0.0, 1.0))

    def end(z):
        return pb.solve(problem.replace(params=z), pb.RK4(), executor, dt=0.02).y_end

    np.testing.assert_allclose(jax.jacfwd(jax.grad(end))(2.3), 2 * np.exp(-2.3), rtol=1e-6)


@each_executor
def test_gradients_of_an_ensemble_are_those_of_its_members(executor):
    rng = np.random.default_rng(0)
    u0, p = rng.uniform(0.5, 2.0, 64), rng.uniform(-1.0, 1.0, 64)
    problem = pb.ODEProblem(lambda t, u, p: 1.01 * u * p, 1.0, (0.0, 1.0), 1.0)
    options = {"dt": 0.05, "adjoint": PLAIN}

    def total(u0, p):
        ensemble = pb.EnsembleProblem(problem, y0=u0, params=p)
        return pb.solve(ensemble, pb.Tsit5(), executor, **options).y_end.sum()

    def one(u0, p):
        single = problem.replace(y0=u0, params=p)
        return pb.solve(single, pb.Tsit5(), executor, **options).y_end

    by_u0, by_p = jax.grad(total, (0, 1))(u0, p)
    growth = np.exp(1.01 * p)
    np.testing.assert_allclose(by_u0, growth, rtol=1e-8)  # 1 / 5! (1.01 dt)**5, with room
    np.testing.assert_allclose(by_p, 1.01 * u0 * growth, rtol=1e-8)
    single = jax.jit(jax.grad(one, (0, 1)))
    bound = tol(np.float64, n_ops=20 * 50)  # 20 steps of some 50 operations each
    for i in range(0, 64, 9):
        np.testing.assert_allclose(single(u0[i], p[i]), [by_u0[i], by_p[i]], rtol=bound)


@each_executor
def test_a_second_parameter_value_gives_its_own_gradient(executor):
    scale = {"value": 1.0}

    def end(y0):
        problem = pb.ODEProblem(lambda t, y, p: -scale["value"] * y, y0, (0.0, 1.0))
        return pb.solve(problem, pb.RK4(), executor, dt=0.05).y_end

    for value in (1.0, 2.0):
        scale["value"] = value
        np.testing.assert_allclose(jax.grad(end)(1.0), np.exp(-value), rtol=1e-5)
