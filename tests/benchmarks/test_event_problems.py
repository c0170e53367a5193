"""The event benchmark: its closed forms are right, and all peers solve the same problem."""

import jax
import numpy as np
import pytest
from benchmarks.event_problems import KERNEL, PROBLEMS, SCIPY
from benchmarks.solver import GRADIENT, PRIMAL
from benchmarks.tables import render

import pullback as pb
from benchmarks import event_problems as bench

# They compile other libraries' solvers, and say nothing about the package.
pytestmark = pytest.mark.slow

N = 4
TOL = 1e-8
# One tolerance is 1e-8 for each step; over some tens of steps, and in a derivative, that is more.
VALUE, SLOPE = 1e-6, 1e-5
PLAIN = pb.DiscreteAdjoint(resolve=False)
each_problem = pytest.mark.parametrize("name", PROBLEMS)


def kernel(name):
    return bench.ours(PROBLEMS[name], pb.EnsembleKernel(), PLAIN)


@each_problem
def test_scipy_agrees_with_the_closed_form(name):
    pytest.importorskip("scipy")
    problem = PROBLEMS[name]
    params = bench.inputs(problem, N)
    found = np.array([SCIPY[name](problem, p, TOL) for p in params])
    assert bench.errors(found, bench.truth(problem, PRIMAL, params))[1] < VALUE


@each_problem
def test_kernel_agrees_with_the_closed_form(name):
    problem = PROBLEMS[name]
    params = bench.inputs(problem, N)
    found = np.asarray(kernel(name)(params, TOL))
    assert bench.errors(found, bench.truth(problem, PRIMAL, params))[1] < VALUE
    slopes = np.asarray(jax.jit(bench.gradient_of(kernel(name)))(params, TOL))
    assert slopes.shape == (N, 2)
    assert bench.errors(slopes, bench.truth(problem, GRADIENT, params))[1] < SLOPE
    forward = np.asarray(jax.jit(bench.forward_gradient_of(kernel(name)))(params, TOL))
    assert bench.errors(forward, bench.truth(problem, GRADIENT, params))[1] < SLOPE


@each_problem
def test_diffrax_agrees_with_the_closed_form(name):
    pytest.importorskip("diffrax")
    problem = PROBLEMS[name]
    params = bench.inputs(problem, N)
    for peer, solve in bench.others(name, params).items():
        found = np.asarray(jax.jit(solve)(params, TOL))
        largest = bench.errors(found, bench.truth(problem, PRIMAL, params))[1]
        assert largest < VALUE, (peer, largest)


@each_problem
@pytest.mark.parametrize(
    ("adjoint", "gradient_of"),
    [(bench._REVERSE, bench.gradient_of), (bench._FORWARD, bench.forward_gradient_of)],
    ids=["reverse", "forward"],
)
def test_gradients_of_diffrax_agree_with_the_closed_form(name, adjoint, gradient_of):
    pytest.importorskip("diffrax")
    problem = PROBLEMS[name]
    params = bench.inputs(problem, N)
    for peer, solve in bench.others(name, params, adjoint).items():
        slopes = np.asarray(jax.jit(gradient_of(solve))(params, TOL))
        largest = bench.errors(slopes, bench.truth(problem, GRADIENT, params))[1]
        assert largest < SLOPE, (peer, largest)


@each_problem
def test_closed_gradients_are_those_of_the_closed_form(name):
    problem = PROBLEMS[name]
    params = bench.inputs(problem, N)
    slopes, step = bench.truth(problem, GRADIENT, params), 1e-6
    for i in range(2):
        shift = step * np.eye(2)[i]
        up, down = (bench.truth(problem, PRIMAL, params + s * shift)[:, 0] for s in (1, -1))
        # Rounding of the difference is 1e-9, its own error 1e-12.
        np.testing.assert_allclose(slopes[:, i], (up - down) / (2 * step), rtol=1e-6, atol=1e-8)


def test_balls_bounce_and_none_is_about_to_rest():
    params = bench.inputs(PROBLEMS["bounces"], 1000)
    times, speeds = bench.bounce_times(params)
    counts = sum((time <= bench.BALL_END).astype(int) for time in times)
    assert 4 <= counts.min() < counts.max() < bench.MOST_BOUNCES
    assert min(speed.min() for speed in speeds[: counts.max()]) > 0.5


def test_errors_are_relative_to_the_component_and_see_one_bad_trajectory():
    exact = np.array([[2.0, 10.0], [1.0, 10.0], [1.0, 5.0]])
    values = exact[:2] + np.array([[0.0, 0.0], [0.2, 0.1]])
    assert bench.errors(values, exact) == (pytest.approx(0.05), pytest.approx(0.1))


def test_time_at_the_same_error_needs_errors_that_follow_the_tolerance():
    def line(tol, error, each=1.0):
        return bench.Measured(bench.Row(tol, 1, each, error, 0.1), error)

    follows = {KERNEL: [line(1e-4, 1e-3), line(1e-6, 1e-5, 4.0)], "other": [line(1e-6, 1e-4, 6.0)]}
    assert bench.table("doses", PRIMAL, follows)[-1][-3:] == ("1.5", "3", "0.10 s")
    exact = {KERNEL: [line(1e-4, 1e-13), line(1e-6, 2e-13)], "other": [line(1e-6, 1.5e-13)]}
    assert bench.table("doses", PRIMAL, exact)[-1][-2] == ""


def test_table_renders(monkeypatch):
    pytest.importorskip("scipy")
    monkeypatch.setattr(bench, "others", lambda name, params, *adjoint: {})
    monkeypatch.setattr(bench, "TOLS", (1e-4, 1e-6))
    lines = bench.table("doses", PRIMAL, bench.measure("doses", PRIMAL, N, 1))
    assert [line[2] for line in lines] == [KERNEL, KERNEL, "array", "SciPy, RK45"]
    # At a tolerance of 1e-4 the error of the loosest is about 1e-5.
    assert all(float(line[6]) < 1e-4 for line in lines)
    text = render(bench._HEAD, lines).splitlines()
    assert len(text) == 2 + len(lines)
    assert len({len(line) for line in text}) == 1
