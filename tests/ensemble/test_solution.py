"""What a solution tells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor

# Blows up at t = 1 / y0.
BLOW_UP = pb.ODEProblem(lambda t, y, p: y**2, 0.5, (0.0, 1.0))
ENSEMBLE = pb.EnsembleProblem(BLOW_UP, y0=np.array([0.5, 0.9, 2.0, 4.0]))


@each_executor
def test_shapes(executor):
    problem = pb.ODEProblem(
        lambda t, y, p: jax.tree.map(jnp.negative, y),
        {"a": 1.0, "b": (np.ones(2), np.ones((2, 3)))},
        (0.0, 1.0),
    )
    one = pb.solve(problem, pb.Tsit5(), executor, saveat=0.25)
    assert one.t.shape == (5,)
    assert jax.tree.map(jnp.shape, one.y) == {"a": (5,), "b": ((5, 2), (5, 2, 3))}
    assert jax.tree.map(jnp.shape, one.y_end) == {"a": (), "b": ((2,), (2, 3))}
    assert {x.shape for x in (one.t_end, one.status, one.ok, one.n_saved)} == {()}
    assert sorted(one.stats) == ["n_accepted", "n_attempts", "n_rejected", "n_rhs"]
    ensemble = pb.EnsembleProblem(problem, lambda p, ctx: p)
    many = pb.solve(ensemble, pb.Tsit5(), executor, saveat=0.25, trajectories=3)
    shapes = [x.shape for x in jax.tree.leaves(many)]
    assert shapes == [(3, *x.shape) for x in jax.tree.leaves(one)]


@each_executor
def test_statistics_add_up(executor):
    sol = pb.solve(ENSEMBLE, pb.Tsit5(), executor, rtol=1e-6)
    stats = {name: np.asarray(value) for name, value in sol.stats.items()}
    np.testing.assert_array_equal(stats["n_attempts"], stats["n_accepted"] + stats["n_rejected"])
    assert (stats["n_rhs"] >= 6 * stats["n_attempts"]).all()


def test_ok_is_below_the_failures():
    sol = pb.solve(ENSEMBLE, pb.Tsit5(), ANY, rtol=1e-6)
    assert sol.ok.tolist() == [True, True, False, False]


def test_raise_if_failed_returns_the_solution():
    sol = pb.solve(BLOW_UP, pb.Tsit5(), ANY)
    assert sol.raise_if_failed() is sol


def test_raise_if_failed_says_everything_once():
    sol = pb.solve(ENSEMBLE, pb.Tsit5(), ANY, rtol=1e-6)
    with pytest.raises(pb.SolveFailedError) as caught:
        sol.raise_if_failed()
    text = str(caught.value)
    code = pb.Status(int(sol.status[2]))
    assert text.startswith(
        "2 of 4 trajectories failed, the first is number 2, which reached t = 0."
    )
    assert f"{code.name} 2" in text
    assert code.message in text
    assert code.advice in text
    assert "`sol.t_end`" in text


def test_raise_if_failed_under_jit():
    with pytest.raises(ValueError, match=r"call sol.raise_if_failed\(\) on the solution that"):
        jax.jit(lambda y0: pb.solve(BLOW_UP.replace(y0=y0), pb.Tsit5(), ANY).raise_if_failed())(0.5)


def test_solution_passes_through_jit_and_vmap():
    def run(y0):
        return pb.solve(BLOW_UP.replace(y0=y0), pb.Tsit5(), ANY, rtol=1e-6)

    sol = jax.jit(jax.vmap(run))(np.array([0.5, 0.9, 2.0]))
    assert isinstance(sol, pb.Solution)
    assert sol.ok.tolist() == [True, True, False]
    nested = jax.vmap(jax.vmap(run))(np.array([[0.5, 2.0], [0.9, 0.5]]))
    with pytest.raises(pb.SolveFailedError, match=r"1 of 4 trajectories .* number \(0, 1\)"):
        nested.raise_if_failed()


def test_repr():
    one = repr(pb.solve(BLOW_UP, pb.RK4(), ANY, dt=0.25, saveat=0.5))
    assert one == "Solution(3 saves, y: float64[3], success 1, n_attempts 4)"
    many = repr(pb.solve(ENSEMBLE, pb.Tsit5(), ANY, rtol=1e-6))
    assert many.startswith("Solution(4 trajectories, 1 save, y: float64[4,1], success 2, ")
    assert "n_attempts " in many and ".." in many
    traced = []
    jax.jit(lambda y0: traced.append(repr(pb.solve(BLOW_UP.replace(y0=y0), pb.Tsit5(), ANY))))(0.5)
    assert traced == ["Solution(1 save, y: float64[1], traced)"]
    assert "Solution(" in repr(jax.eval_shape(lambda: pb.solve(BLOW_UP, pb.Tsit5(), ANY)))


@each_executor
def test_empty_ensemble(executor):
    ensemble = pb.EnsembleProblem(BLOW_UP, lambda p, ctx: p.replace(y0=0.1 * ctx.sim_id))
    sol = pb.solve(ensemble, pb.Tsit5(), executor, trajectories=0, saveat=0.5)
    assert sol.y.shape == sol.t.shape == (0, 3)
    assert sol.status.shape == (0,)
    assert sol.raise_if_failed() is sol
    assert "0 trajectories" in repr(sol)
