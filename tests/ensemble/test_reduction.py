"""`reduce`: a summary of an ensemble that is never stored."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback.ensemble.run as module
from executors import ANY, each_executor, each_executor_slow_on_array
from pullback.testing import assert_close, taylor_test, tol
from quick import quick_compilation  # noqa: F401

TIMES = np.array([0.0, 0.5, 1.0])
PROBLEM = pb.ODEProblem(
    lambda t, y, p: {"x": y["v"], "v": -p * y["x"]},
    {"x": 1.0, "v": np.zeros(2)[0]},
    (0.0, 1.0),
    2.0,
)
RATES = np.linspace(1.0, 9.0, 23)
KEY = jax.random.key(5)


def by_function(problem, ctx):
    return problem.replace(params=1.0 + 8.0 * jax.random.uniform(ctx.key))


ENSEMBLES = {
    "function": (pb.EnsembleProblem(PROBLEM, by_function), {"trajectories": 23, "key": KEY}),
    "leaves": (pb.EnsembleProblem(PROBLEM, params=RATES), {}),
}


def solve(name="leaves", executor=ANY, **options):
    ensemble, more = ENSEMBLES[name]
    options = {"rtol": 1e-7, "atol": 1e-7, "saveat": TIMES} | options
    return pb.solve(ensemble, pb.Tsit5(), executor, **more, **options)


@each_executor_slow_on_array
@pytest.mark.parametrize("name", ENSEMBLES)
@pytest.mark.parametrize("size", [5, 23, None])
def test_mean_and_variance(name, size, executor):
    summary = solve(name, executor, reduce="mean_var", batch_size=size)
    y = solve(name, executor).y
    assert int(summary.n_ok) == 23
    np.testing.assert_array_equal(summary.t, TIMES)
    atol = tol("float64", 50)  # sums of 23 numbers of size one, in another order
    for leaf in ("x", "v"):
        np.testing.assert_allclose(summary.value.mean[leaf], y[leaf].mean(0), atol=atol)
        np.testing.assert_allclose(summary.value.var[leaf], y[leaf].var(0, ddof=1), atol=atol)
        np.testing.assert_allclose(summary.value.std[leaf], y[leaf].std(0, ddof=1), atol=atol)


def test_variance_of_numbers_with_a_large_mean():
    # Squares of the values would lose all digits of the variance.
    ensemble = pb.EnsembleProblem(
        pb.ODEProblem(lambda t, y, p: 0.0 * y, 1.0, (0.0, 1.0)), y0=1e9 + np.arange(1000.0) % 7
    )
    summary = pb.solve(ensemble, pb.Tsit5(), ANY, reduce="mean_var", batch_size=64)
    expected = np.var(np.arange(1000.0) % 7, ddof=1)
    np.testing.assert_allclose(summary.value.var[0], expected, rtol=1e-7)


@each_executor
def test_functions_of_a_trajectory(executor):
    sol = solve(executor=executor)

    def peak(one):
        assert one.y["x"].shape == (3,)
        return {"peak": jnp.max(one.y["x"]), "steps": one.stats["n_attempts"], "ok": one.ok}

    found = solve(executor=executor, reduce=peak, batch_size=7).value
    np.testing.assert_allclose(found["peak"], sol.y["x"].max(1).mean(), rtol=1e-14)
    np.testing.assert_allclose(
        found["steps"], np.asarray(sol.stats["n_attempts"]).mean(), rtol=1e-14
    )
    assert float(found["ok"]) == 1.0
    total = solve(executor=executor, reduce=pb.Sum(peak), batch_size=7).value
    assert int(total["steps"]) == int(sol.stats["n_attempts"].sum())
    assert int(total["ok"]) == 23


@pytest.mark.parametrize("size", [4, 10, None])
def test_failed_trajectories_are_left_out_and_counted(size):
    # Blow up at t = 1 / y0.
    problem = pb.ODEProblem(lambda t, y, p: y**2, 0.5, (0.0, 1.0))
    y0 = np.array([0.1, 2.0, 0.2, 0.3, 5.0, 0.4, 0.5, 0.6, 3.0, 0.7])
    ensemble = pb.EnsembleProblem(problem, y0=y0)
    summary = pb.solve(ensemble, pb.Tsit5(), ANY, reduce="mean_var", batch_size=size)
    good = y0[y0 < 1.0]
    assert int(summary.n_ok) == good.size
    assert int(summary.n_failed) == 3
    assert int(summary.status["success"]) == good.size
    assert sum(map(int, summary.status.values())) == 10
    np.testing.assert_allclose(summary.value.mean[0], (good / (1 - good)).mean(), rtol=1e-2)
    with pytest.raises(pb.SolveFailedError, match=r"3 of 10 trajectories failed \(.* 3\): "):
        summary.raise_if_failed()
    with pytest.raises(pb.SolveFailedError, match="3 of 10 trajectories failed"):
        pb.solve(ensemble, pb.Tsit5(), ANY, reduce="mean_var", throw=True)

    def mean(y0):
        ensemble = pb.EnsembleProblem(problem, y0=y0)
        found = pb.solve(ensemble, pb.Tsit5(), ANY, reduce=lambda s: jnp.sqrt(1.0 - s.y_end / 1e3))
        return found.value

    # The root of a negative number: not finite for those that failed, whatever they reached.
    slopes = jax.grad(mean)(jnp.asarray(y0))
    assert np.isfinite(slopes).all()
    np.testing.assert_array_equal(np.asarray(slopes) != 0.0, y0 < 1.0)


def test_nothing_is_left():
    problem = pb.ODEProblem(lambda t, y, p: y**2, 5.0, (0.0, 1.0))
    ensemble = pb.EnsembleProblem(problem, y0=np.array([5.0, 6.0]))
    for reduce in ("mean_var", "quantiles"):
        summary = pb.solve(ensemble, pb.Tsit5(), ANY, reduce=reduce)
        assert int(summary.n_ok) == 0
        assert all(np.isnan(x).all() for x in jax.tree.leaves(summary.value))
    empty = pb.EnsembleProblem(problem, y0=np.zeros((0,)))
    assert int(pb.solve(empty, pb.Tsit5(), ANY, reduce="mean_var").n_ok) == 0


@each_executor_slow_on_array
def test_gradient_is_that_of_the_stored_ensemble(executor):
    weights = jnp.array([0.3, 1.0, -2.0])

    def loss(rates, scale, is_reduced):
        ensemble = pb.EnsembleProblem(PROBLEM.replace(y0={"x": scale, "v": 0.0}), params=rates)
        options = {"saveat": TIMES, "rtol": 1e-7, "atol": 1e-7}
        if not is_reduced:
            x = pb.solve(ensemble, pb.Tsit5(), executor, **options).y["x"]
            return jnp.sum(weights * (x.mean(0) + x.var(0, ddof=1)))
        found = pb.solve(
            ensemble, pb.Tsit5(), executor, reduce="mean_var", batch_size=5, **options
        ).value
        return jnp.sum(weights * (found.mean["x"] + found.var["x"]))

    rates = jnp.asarray(RATES)
    found, expected = (jax.grad(loss, (0, 1))(rates, 1.3, flag) for flag in (True, False))
    assert_close(found, expected, rtol=1e-10, atol=1e-12)
    along = jnp.ones_like(rates)
    dot = jax.jvp(lambda r: loss(r, 1.3, True), (rates,), (along,))[1]
    np.testing.assert_allclose(dot, jnp.sum(found[0]), rtol=1e-5)  # another mesh


def test_gradient_through_prob_func():
    def loss(x):
        def prob_func(problem, ctx):
            return problem.replace(params=x["mean"] + x["width"] * jax.random.normal(ctx.key))

        ensemble = pb.EnsembleProblem(PROBLEM, prob_func)
        found = pb.solve(
            ensemble, pb.RK4(), ANY, dt=0.1, trajectories=12, key=KEY, batch_size=5,
            reduce=pb.MeanVar(lambda sol: x["unit"] * sol.y_end["x"]),
        )  # fmt: skip
        return found.value.mean + found.value.var

    taylor_test(loss, {"mean": jnp.array(4.0), "width": jnp.array(0.5), "unit": jnp.array(2.0)})


def test_error_estimate_of_the_gradient():
    def loss(rates):
        ensemble = pb.EnsembleProblem(PROBLEM, params=rates)
        return pb.solve(
            ensemble, pb.Tsit5(), ANY, reduce=lambda s: s.y_end["x"], batch_size=5
        ).value

    _, grad, stats = pb.value_and_grad(loss)(jnp.asarray(RATES))
    assert_close(grad, jax.grad(loss)(jnp.asarray(RATES)), rtol=1e-12, atol=0.0)
    assert bool(stats.resolved)
    assert 0.0 < float(stats.error_estimate) < 0.1


def test_inside_jit_and_with_a_bar(capsys):
    plain = solve("function", reduce="mean_var", batch_size=5)
    jitted = jax.jit(lambda: solve("function", reduce="mean_var", batch_size=5))()
    assert_close(jitted.value, plain.value, rtol=0.0, atol=tol("float64", 50))
    shown = solve("function", reduce="mean_var", batch_size=5, progress=True)
    assert_close(shown.value, plain.value, rtol=0.0, atol=tol("float64", 50))
    assert "23.0/23.0" in capsys.readouterr().err
    with pytest.raises(ValueError, match="`progress`=True needs to run batch by batch"):
        jax.jit(lambda: solve("function", reduce="mean_var", progress=True))()


def test_a_second_call_compiles_nothing():
    def fresh():
        return solve("function", reduce=lambda s: s.y_end["x"], batch_size=5).value

    fresh()
    n_compiled = module._compiled._cache_size()
    fresh()
    assert module._compiled._cache_size() == n_compiled


@dataclass(frozen=True)
class Largest(pb.Reduction):
    """A reduction that the package does not have."""

    def start(self, like, before):
        return jax.tree.map(lambda x: jnp.full(x.shape, -jnp.inf, x.dtype), like)

    def add(self, state, values, is_ok):
        return jax.tree.map(lambda a, x: jnp.maximum(a, x.max(0)), state, values)

    def finish(self, state):
        return state


def test_a_reduction_of_the_users_own():
    sol = solve()
    found = solve(reduce=Largest(lambda s: s.y["x"] + 10.0), batch_size=5).value
    np.testing.assert_allclose(found, sol.y["x"].max(0) + 10.0, rtol=1e-15)


def test_stochastic_ensembles_and_own_save_times():
    problem = pb.SDEProblem(lambda t, y, p: -y, lambda t, y, p: 0.3 * y, np.ones(2), (0.0, 1.0))
    ensemble = pb.EnsembleProblem(problem, lambda q, c: q)
    options = {
        "key": KEY,
        "dt": 0.1,
        "trajectories": 9,
        "saveat": np.linspace(0, 1, 18).reshape(2, 9).T,
    }
    sol = pb.solve(ensemble, pb.SRIW1(), ANY, **options)
    found = pb.solve(ensemble, pb.SRIW1(), ANY, reduce="mean_var", batch_size=4, **options)
    assert found.t is None
    np.testing.assert_allclose(found.value.mean, sol.y.mean(0), rtol=1e-13)


def test_what_a_trajectory_looks_like_is_known_before_it_is_solved():
    event = pb.Event(lambda t, y, p: y["x"] - 0.5, terminate=True)
    looked, leaves = [], jax.tree_util.tree_leaves_with_path

    def look(sol):
        looked.append({jax.tree_util.keystr(k): (x.shape, x.dtype) for k, x in leaves(sol)})
        return sol.t_end

    options = {"events": [event], "save_fn": lambda t, y, p: y["x"]}
    solve(reduce=look, batch_size=5, **options)
    sol = solve(**options)
    expected = {jax.tree_util.keystr(k): (x.shape[1:], x.dtype) for k, x in leaves(sol)}
    assert looked[0] == expected


def test_what_it_looks_like():
    text = repr(solve(reduce="mean_var"))
    assert text == "Summary(value: float64[3], float64[3], float64[3], float64[3], success 23)"


def test_errors():
    with pytest.raises(ValueError, match="`reduce` summarises an ensemble, but a single problem"):
        pb.solve(PROBLEM, pb.Tsit5(), ANY, reduce="mean_var")
    with pytest.raises(TypeError, match="`reduce` must be one of 'mean_var', 'quantiles', a funct"):
        solve(reduce="median")
    with pytest.raises(TypeError, match=r"arrived; write pb.MeanVar\(\)"):
        solve(reduce=pb.MeanVar)
    with pytest.raises(TypeError, match="a function given to `reduce` must return arrays"):
        solve(reduce=lambda s: "x")
    with pytest.raises(ValueError, match="`batch_size` must be the number"):
        solve(reduce="mean_var", batch_size=-1)
    with pytest.raises(ValueError, match="`saveat` has 2 rows, but there are 23 trajectories"):
        solve(reduce="mean_var", saveat=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="`trajectories` is missing"):
        pb.solve(ENSEMBLES["function"][0], pb.Tsit5(), ANY, reduce="mean_var")
