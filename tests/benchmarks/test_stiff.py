"""The stiff benchmark: what it measures is right, at small sizes."""

import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.stiff_problems import STIFF

import pullback as pb
from benchmarks import stiff

PLAIN = pb.DiscreteAdjoint(resolve=False)


def test_peers_solve_the_same_problem():
    pytest.importorskip("diffrax")
    problem = STIFF["hires"]
    params = jnp.asarray(stiff.inputs(problem, 2))
    scale = np.abs(problem.end) + problem.unit
    truth, size = stiff._truth(problem, stiff.PRIMAL, np.log(params), scale)
    found = stiff.ours(problem, pb.Rodas5P(), PLAIN)(params, 1e-6, 1e-6 * problem.unit)
    # One tolerance is 1e-6; a problem of 300 time units keeps some tens of them.
    assert stiff.error_of(found, truth, size) < 1e-4
    _, other = stiff.scipy_radau(problem, np.asarray(params[:1]), 1e-6)
    assert stiff.error_of(other, truth, size) < 1e-4


def test_gradients_are_those_of_the_logarithms():
    problem = STIFF["hires"]
    solve = stiff.ours(problem, pb.Rodas5P(), PLAIN)
    logs = jnp.log(jnp.asarray(stiff.inputs(problem, 1)))
    scale = np.abs(problem.end) + problem.unit
    options = (1e-9, 1e-9 * problem.unit)
    found = stiff.gradient_of(solve, scale)(logs, *options)
    for i in range(logs.shape[1]):
        step = jnp.zeros_like(logs).at[0, i].set(1e-4)
        ends = [jnp.sum(solve(jnp.exp(x), *options) / scale) for x in (logs + step, logs - step)]
        # A difference of solves at 1e-9 with steps of 1e-4.
        assert float(found[0, i]) == pytest.approx(float((ends[0] - ends[1]) / 2e-4), rel=1e-3)


def test_time_at_the_same_error_is_interpolated():
    lines = [stiff.Row(1e-3, 1, 1.0, 1e-2, 0.0), stiff.Row(1e-5, 1, 4.0, 1e-4, 0.0)]
    assert stiff.matched(lines, 1e-3) == pytest.approx(2.0)
    assert stiff.matched(lines, 1e-1) == pytest.approx(1.0)
    assert np.isnan(stiff.matched(lines, 1e-9)), "nobody knows"
