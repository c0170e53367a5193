"""`batch_size` and `progress`: an ensemble solved in parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor, each_executor_slow_on_array
from pullback.ensemble.batches import balanced
from pullback.testing import assert_close, tol
from quick import quick_compilation  # noqa: F401

PROBLEM = pb.ODEProblem(
    lambda t, y, p: jnp.stack([y[1], -p * y[0]]), np.array([1.0, 0.0]), (0.0, 1.0), 2.0
)
RATES = np.linspace(1.0, 50.0, 11)


def by_function(problem, ctx):
    y0 = problem.y0 + 0.1 * jax.random.normal(ctx.key, (2,))
    return problem.replace(params=jnp.asarray(RATES)[ctx.sim_id], y0=y0)


ENSEMBLES = {
    "function": (pb.EnsembleProblem(PROBLEM, by_function), {"trajectories": 11}),
    "leaves": (
        pb.EnsembleProblem(PROBLEM, params=RATES, t_span=(0.0, np.linspace(0.5, 1.5, 11))),
        {},
    ),
}
KEY = jax.random.key(3)


def solve(name="leaves", executor=ANY, **options):
    ensemble, more = ENSEMBLES[name]
    options = {"rtol": 1e-6, "atol": 1e-6, "saveat": 0.25 if name == "function" else None} | options
    return pb.solve(ensemble, pb.Tsit5(), executor, key=KEY, **more, **options)


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", ENSEMBLES)
@pytest.mark.parametrize("size", [1, 3, 4, 11, 100])
def test_the_same_numbers_bit_for_bit(name, size):
    assert_same(solve(name, batch_size=size), solve(name))


@each_executor
@pytest.mark.parametrize("name", ENSEMBLES)
def test_inside_a_trace(name, executor):
    whole = solve(name, executor)
    looped = jax.jit(lambda: solve(name, executor, batch_size=4))()
    # On arrays XLA may round an operation differently in loops of another length.
    for x, y in zip(jax.tree.leaves(looped), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(x, y, rtol=0.0, atol=tol("float64", 200))
    assert_close(solve(name, executor, batch_size=4).y, whole.y, rtol=0.0, atol=tol("float64", 200))


def test_inside_a_trace_bit_for_bit_in_the_kernel():
    assert_same(jax.jit(lambda: solve(batch_size=4))(), solve())


@each_executor_slow_on_array
def test_gradient(executor):
    def loss(rates, size):
        ensemble = pb.EnsembleProblem(PROBLEM, params=rates)
        sol = pb.solve(ensemble, pb.Tsit5(), executor, rtol=1e-6, atol=1e-6, batch_size=size)
        return jnp.sum(sol.y_end[:, 0])

    rates = jnp.asarray(RATES)
    whole, parts = (jax.grad(loss)(rates, size) for size in (None, 4))
    assert_close(parts, whole, rtol=1e-12, atol=1e-12)
    exact = jax.grad(lambda k: jnp.sum(jnp.cos(jnp.sqrt(k))))(rates)
    assert_close(parts, exact, rtol=0.0, atol=2e-5)


@pytest.mark.parametrize("n", [1, 2, 7, 11, 100, 101])
@pytest.mark.parametrize("size", [1, 3, 10, 200])
def test_batches_are_balanced(n, size):
    n_batches, equal = balanced(n, size)
    assert equal <= size
    assert n_batches == -(-n // size)
    assert 0 <= n_batches * equal - n < n_batches


def test_times_of_each_trajectorys_own():
    times = np.linspace(0.0, 1.0, 22).reshape(2, 11).T
    ensemble = pb.EnsembleProblem(PROBLEM, params=RATES)
    whole, parts = (
        pb.solve(ensemble, pb.Tsit5(), ANY, saveat=times, batch_size=size) for size in (None, 4)
    )
    assert_same(parts, whole)


def test_noise_does_not_depend_on_batches():
    problem = pb.SDEProblem(lambda t, y, p: -y, lambda t, y, p: 0.3 * y, np.ones(2), (0.0, 1.0))
    ensemble = pb.EnsembleProblem(problem, lambda q, c: q)
    options = {"key": KEY, "dt": 0.1, "trajectories": 9}
    whole, parts = (
        pb.solve(ensemble, pb.SRIW1(), ANY, batch_size=size, **options) for size in (None, 4)
    )
    assert_same(parts, whole)


def test_a_bar_shows_trajectories(capsys):
    assert_same(solve(batch_size=4, progress=True), solve())
    shown = capsys.readouterr().err
    assert "11.0/11.0" in shown
    assert "trajectories/s" in shown
    solve(progress=True)
    assert "11.0/11.0" in capsys.readouterr().err


def test_empty_ensemble():
    ensemble = pb.EnsembleProblem(PROBLEM, params=np.zeros((0,)))
    assert pb.solve(ensemble, pb.Tsit5(), ANY, batch_size=4, progress=True).y.shape == (0, 1, 2)


def test_errors():
    with pytest.raises(ValueError, match=r"`batch_size` must be the number .* but 0 arrived"):
        solve(batch_size=0)
    with pytest.raises(ValueError, match=r"`batch_size` must be the number .* but True arrived"):
        solve(batch_size=True)
    with pytest.raises(ValueError, match="`batch_size` divides an ensemble, but a single problem"):
        pb.solve(PROBLEM, pb.Tsit5(), ANY, batch_size=4)
    with pytest.raises(ValueError, match="`progress` divides an ensemble, but a single problem"):
        pb.solve(PROBLEM, pb.Tsit5(), ANY, progress=True)
    with pytest.raises(TypeError, match="`progress` must be True or False, but 1 arrived"):
        solve(progress=1)
    with pytest.raises(
        ValueError, match=r"`progress`=True needs to run batch by batch, but the so"
    ):
        jax.jit(lambda r: pb.solve(
            pb.EnsembleProblem(PROBLEM, params=r), pb.Tsit5(), ANY, progress=True
        ))(RATES)  # fmt: skip
