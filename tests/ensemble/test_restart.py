"""`restart`: go on from where a solution ended."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor, each_executor_slow_on_array
from pullback.testing import assert_close, taylor_test, tol
from quick import quick_compilation  # noqa: F401

PROBLEM = pb.ODEProblem(
    lambda t, y, p: {"x": y["v"], "v": -p["k"] * y["x"] + jnp.sin(t) * p["drive"]},
    {"x": 1.0, "v": 0.0}, (0.0, 1.0), {"k": 2.0, "drive": 0.3},
)  # fmt: skip
RATES = np.array([1.0, 2.0, 5.0, 9.0])


def by_function(problem, ctx):
    params = problem.params | {"k": jnp.asarray(RATES)[ctx.sim_id]}
    x = 1.0 + 0.1 * jax.random.normal(ctx.key)
    return problem.replace(params=params, y0={"x": x, "v": 0.0})


def fixed(problem, executor=ANY, **options):
    options = {"dt": 0.125} | options
    return pb.solve(problem, pb.RK4(), executor, **options)


@each_executor
def test_two_halves_are_one_whole(executor):
    whole = fixed(PROBLEM.replace(t_span=(0.0, 2.0)), executor)
    first = fixed(PROBLEM, executor)
    second = pb.restart(PROBLEM, first, 2.0)
    assert isinstance(second, pb.ODEProblem)
    assert float(second.t_span[0]) == 1.0
    assert_close(fixed(second, executor).y_end, whole.y_end, rtol=0.0, atol=tol("float64", 50))


@each_executor
@pytest.mark.parametrize("name", ["function", "leaves"])
def test_of_an_ensemble(name, executor):
    if name == "function":
        ensemble = pb.EnsembleProblem(PROBLEM, by_function)
        long = pb.EnsembleProblem(PROBLEM.replace(t_span=(0.0, 2.0)), by_function)
        options = {"trajectories": 4, "key": jax.random.key(1)}
    else:
        leaves = {"params": {"k": RATES, "drive": None}}
        ensemble = pb.EnsembleProblem(PROBLEM, **leaves)
        long = pb.EnsembleProblem(PROBLEM, t_span=(0.0, 2.0), **leaves)
        options = {}
    whole = fixed(long, executor, **options)
    first = fixed(ensemble, executor, **options)
    second = pb.restart(ensemble, first, 2.0, key=options.get("key"))
    np.testing.assert_array_equal(second.params["k"], RATES)
    assert second.params["drive"] is None
    assert_close(fixed(second, executor).y_end, whole.y_end, rtol=0.0, atol=tol("float64", 200))


def test_ends_of_each_trajectorys_own():
    ensemble = pb.EnsembleProblem(PROBLEM, params={"k": RATES, "drive": None})
    first = fixed(ensemble)
    ends = np.array([1.5, 2.0, 2.5, 3.0])
    sol = fixed(pb.restart(ensemble, first, ends))
    np.testing.assert_allclose(sol.t_end, ends, rtol=1e-15)


@each_executor_slow_on_array
def test_gradient_across(executor):
    def halves(x):
        ensemble = pb.EnsembleProblem(PROBLEM, params={"k": x["k"], "drive": None})
        second = pb.restart(ensemble, fixed(ensemble, executor), x["t1"])
        return jnp.sum(fixed(second, executor).y_end["x"])

    def whole(x):
        ensemble = pb.EnsembleProblem(
            PROBLEM, params={"k": x["k"], "drive": None}, t_span=(0.0, x["t1"])
        )
        return jnp.sum(fixed(ensemble, executor).y_end["x"])

    point = {"k": jnp.asarray(RATES), "t1": jnp.array(2.0)}
    assert_close(jax.grad(halves)(point), jax.grad(whole)(point), rtol=1e-11, atol=1e-11)


def test_gradient_of_a_single_problem():
    def f(x):
        problem = PROBLEM.replace(params={"k": x, "drive": 0.3})
        first = fixed(problem)
        return fixed(pb.restart(problem, first, 2.0)).y_end["x"] + first.y_end["v"]

    taylor_test(f, jnp.array(2.0))


def test_failed_trajectories_go_on_from_where_they_stopped():
    ensemble = pb.EnsembleProblem(PROBLEM, params={"k": RATES, "drive": None})
    first = fixed(ensemble, max_steps=4)
    assert not first.ok.any()
    np.testing.assert_allclose(first.t_end, 0.5, rtol=1e-15)
    whole = fixed(ensemble)
    assert_close(
        fixed(pb.restart(ensemble, first, 1.0)).y_end,
        whole.y_end,
        rtol=0.0,
        atol=tol("float64", 50),
    )


def test_goes_on_behind_a_terminating_event():
    ground = pb.Event(lambda t, y, p: y[0], terminate=True)
    ball = pb.ODEProblem(
        lambda t, y, p: jnp.stack([y[1], -9.81]), jnp.array([1.0, 0.0]), (0.0, 9.0), events=[ground]
    )
    first = pb.solve(ball, pb.Tsit5(), ANY)
    assert int(first.status) == pb.Status.terminated
    below = pb.solve(pb.restart(ball, first, 1.0), pb.Tsit5(), ANY)
    np.testing.assert_allclose(below.y_end[0], 1.0 - 9.81 / 2, rtol=1e-9)


def test_inside_vmap():
    def go(k):
        problem = PROBLEM.replace(params={"k": k, "drive": 0.3})
        return fixed(pb.restart(problem, fixed(problem), 2.0)).y_end["x"]

    expected = [go(k) for k in RATES]
    assert_close(jax.vmap(go)(RATES), jnp.stack(expected), rtol=0.0, atol=tol("float64", 50))


def test_errors():
    ensemble = pb.EnsembleProblem(PROBLEM, params={"k": RATES, "drive": None})
    single, many = fixed(PROBLEM), fixed(ensemble)
    with pytest.raises(
        ValueError, match=r"is a single problem, but `solution` has the axes \(4,\)"
    ):
        pb.restart(PROBLEM, many, 2.0)
    with pytest.raises(
        ValueError, match=r"is an EnsembleProblem, but `solution` has the axes \(\)"
    ):
        pb.restart(ensemble, single, 2.0)
    with pytest.raises(
        TypeError, match=r"`solution` of restart must be a pb.Solution, but a tuple"
    ):
        pb.restart(PROBLEM, (1, 2), 2.0)
    with pytest.raises(
        ValueError, match=r"`t1` of restart .* shape \(4,\), .* shape \(2,\) arrived"
    ):
        pb.restart(ensemble, many, np.ones(2))
    with pytest.raises(TypeError, match="`t1` of restart must be one time or one for each"):
        pb.restart(ensemble, many, "end")
