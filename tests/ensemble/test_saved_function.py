"""`save_fn`: what is saved instead of the state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor, each_executor_slow_on_array
from pullback.testing import assert_close, tol
from quick import quick_compilation  # noqa: F401

TIMES = np.array([0.0, 0.4, 1.0])


def oscillator(t, y, p):
    return {"x": y["v"], "v": -p["k"] * y["x"]}


PROBLEM = pb.ODEProblem(oscillator, {"x": 1.0, "v": 0.0}, (0.0, 1.0), {"k": 2.0})


def energy(t, y, p):
    return {"energy": p["k"] * y["x"] ** 2 + y["v"] ** 2, "early": t < 0.5}


def solve(problem=PROBLEM, executor=ANY, **options):
    options = {"rtol": 1e-8, "atol": 1e-8, "saveat": TIMES, "save_fn": energy} | options
    return pb.solve(problem, pb.Tsit5(), executor, **options)


@each_executor
def test_it_is_saved_instead_of_the_state(executor):
    sol = solve(executor=executor)
    np.testing.assert_allclose(sol.y["energy"], 2.0, rtol=1e-6)
    assert sol.y["early"].tolist() == [True, True, False]
    assert sol.y_end["x"].shape == ()
    np.testing.assert_allclose(sol.y_end["x"], np.cos(np.sqrt(2.0)), rtol=1e-6)


@each_executor
def test_each_trajectory_has_its_own_parameters(executor):
    stiffness = np.array([1.0, 2.0, 5.0])
    ensemble = pb.EnsembleProblem(PROBLEM, params={"k": stiffness})
    sol = solve(ensemble, executor)
    assert sol.y["energy"].shape == (3, 3)
    expected = np.broadcast_to(stiffness[:, None], (3, 3))
    np.testing.assert_allclose(sol.y["energy"], expected, rtol=1e-6)
    by_function = pb.EnsembleProblem(
        PROBLEM, lambda q, c: q.replace(params={"k": jnp.asarray(stiffness)[c.sim_id]})
    )
    again = solve(by_function, executor, trajectories=3)
    assert_close(again.y["energy"], sol.y["energy"], rtol=tol("float64", 20), atol=0.0)


@pytest.mark.parametrize("saveat", [None, 0.3, TIMES, "steps"], ids=str)
def test_it_is_the_function_of_what_would_be_saved(saveat):
    plain = solve(save_fn=None, saveat=saveat)
    found = solve(saveat=saveat)
    expected = jax.vmap(lambda t, y: energy(t, y, {"k": 2.0}))(plain.t, plain.y)
    assert_close(found.y["energy"], expected["energy"], rtol=tol("float64", 4), atol=0.0)
    if isinstance(saveat, str):
        np.testing.assert_array_equal(found(0.7)["x"], plain(0.7)["x"])


@each_executor_slow_on_array
def test_gradient(executor):
    def position(k, x0, shift):
        problem = PROBLEM.replace(params={"k": k}, y0={"x": x0, "v": 0.0})
        sol = solve(problem, executor, save_fn=lambda t, y, p: shift * p["k"] * y["x"])
        return sol.y[1]

    def exact(k, x0, shift):
        return shift * k * x0 * jnp.cos(jnp.sqrt(k) * 0.4)

    point = (2.0, 1.0, 3.0)
    found = jax.grad(position, (0, 1, 2))(*point)
    np.testing.assert_allclose(found, jax.grad(exact, (0, 1, 2))(*point), rtol=1e-6)
    dots = [jax.jvp(position, point, tuple(row))[1] for row in np.eye(3)]
    np.testing.assert_allclose(found, dots, rtol=1e-6)


@each_executor
def test_rows_behind_a_failure_have_no_derivative(executor):
    # Blows up at t = 1 / y0.
    problem = pb.ODEProblem(lambda t, y, p: y**2 + 0.0 * p, 0.5, (0.0, 1.0), 0.0)
    times = np.array([0.1, 0.2, 0.9])

    def saved(y0, rate):
        ensemble = pb.EnsembleProblem(problem.replace(params=rate), y0=y0)
        return pb.solve(
            ensemble, pb.Tsit5(), executor, saveat=times, save_fn=lambda t, y, p: y * (1.0 + p)
        )

    y0 = jnp.array([0.5, 2.0, 6.0])
    sol = saved(y0, 1.0)
    assert sol.ok.tolist() == [True, False, False]
    assert sol.n_saved.tolist() == [3, 2, 1]
    np.testing.assert_allclose(sol.y[2, 1:], 2.0 * sol.y_end[2], rtol=1e-15)
    by_y0, by_rate = jax.grad(lambda y0, r: jnp.sum(saved(y0, r).y[:, 1:]), (0, 1))(y0, 1.0)
    assert by_y0[2] == 0.0
    real = jnp.sum(sol.y[:, 1:], where=jnp.array([[1, 1], [1, 0], [0, 0]], bool)) / 2.0
    np.testing.assert_allclose(by_rate, real, rtol=1e-12)


def test_with_batches_and_a_stochastic_problem():
    problem = pb.SDEProblem(lambda t, y, p: -y, lambda t, y, p: p * y, jnp.ones(2), (0.0, 1.0), 0.1)
    ensemble = pb.EnsembleProblem(problem, lambda q, c: q)
    options = {"key": jax.random.key(0), "dt": 0.1, "trajectories": 7, "saveat": TIMES}
    options["save_fn"] = lambda t, y, p: y[0]
    whole = pb.solve(ensemble, pb.EulerMaruyama(), ANY, **options)
    parts = pb.solve(ensemble, pb.EulerMaruyama(), ANY, batch_size=3, **options)
    np.testing.assert_array_equal(whole.y, parts.y)
    assert whole.y.shape == (7, 3)


def test_errors():
    with pytest.raises(TypeError, match=r"`save_fn` must be a function .* but a"):
        solve(save_fn=3)
    with pytest.raises(TypeError, match=r"`save_fn` must return arrays .* but a str is among what"):
        solve(save_fn=lambda t, y, p: "x")
    with pytest.raises(ValueError, match="`save_fn` must return what is to be saved, but it ret"):
        solve(save_fn=lambda t, y, p: None)
