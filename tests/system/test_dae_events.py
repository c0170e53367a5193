"""Events of differential-algebraic equations: algebraic variables behind a jump.

y' = -z with 0 = z - k y^2 is y' = -k y^2, so that y(t) = y0 / (1 + k t y0).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor_slow_on_array

PARAMS = {"k": 0.7, "dose": 0.4}


def field(t, y, p):
    return jnp.stack([-y[1], y[1] - p["k"] * y[0] ** 2])


def jump(t, y, p):
    """Only the differential variable."""
    return y.at[0].add(p["dose"])


KINDS = {
    "root": (pb.Event(lambda t, y, p: t - 0.5, jump), {}),
    "preset": (pb.PresetTimes([0.5], jump), {}),
    "step": (pb.StepEvent(lambda t, y, p: (t >= 0.5) & (y[0] < 0.8), jump), {"tstops": 0.5}),
}


def solve(p, kind, method, executor, **options):
    event, given = KINDS[kind]
    problem = pb.ODEProblem(
        field, jnp.array([1.0, 0.0]), (0.0, 1.0), p, events=[event], mass_matrix=np.array([1.0, 0])
    )
    return pb.solve(problem, method, executor, rtol=1e-8, atol=1e-8, **given, **options)


def exact(p):
    behind = 1.0 / (1.0 + 0.5 * p["k"]) + p["dose"]
    return behind / (1.0 + 0.5 * p["k"] * behind)


@pytest.mark.parametrize("kind", ["root", pytest.param("preset", marks=pytest.mark.slow), "step"])
@pytest.mark.parametrize(
    "method",
    [
        pb.Rodas5P(),
        *(pytest.param(m, marks=pytest.mark.slow) for m in (pb.Rodas4(), pb.Kvaerno5())),
    ],
    ids=lambda m: m.name,
)
@each_executor_slow_on_array
def test_they_are_consistent_again_and_differentiated(executor, method, kind):
    sol = solve(PARAMS, kind, method, executor, saveat=[0.45, 0.5, 0.501, 0.7, 1.0])
    assert (int(sol.status), int(sol.events.count)) == (pb.Status.success, 1)
    np.testing.assert_allclose(sol.y_end[0], exact(PARAMS), atol=1e-7)
    # Rows inside steps are as good as the dense output.
    np.testing.assert_allclose(sol.y[:, 1], PARAMS["k"] * sol.y[:, 0] ** 2, atol=3e-5)
    behind = 1.0 / (1.0 + 0.5 * PARAMS["k"]) + PARAMS["dose"]
    np.testing.assert_allclose(sol.y[1], [behind, PARAMS["k"] * behind**2], atol=1e-7)

    def end(p):
        return solve(p, kind, method, executor).y_end[0]

    want = jax.grad(exact)(PARAMS)
    for derivative in (jax.grad, jax.jacfwd):
        found = derivative(end)(PARAMS)
        np.testing.assert_allclose([found[k] for k in want], [want[k] for k in want], atol=1e-6)


def test_an_inconsistent_jump_is_refused_where_starts_are_only_checked():
    problem = pb.ODEProblem(
        field, jnp.array([1.0, 0.7]), (0.0, 1.0), PARAMS, events=[pb.PresetTimes([0.5], jump)],
        mass_matrix=np.array([1.0, 0.0]),
    )  # fmt: skip
    sol = pb.solve(problem, pb.Rodas5P(), ANY, initialization="check")
    assert int(sol.status) == pb.Status.inconsistent_initial
    assert 0.0 < float(sol.t_end) < 0.5

    def right(t, y, p):
        behind = y[0] + p["dose"]
        return jnp.stack([behind, p["k"] * behind**2])

    kept = problem.replace(events=[pb.PresetTimes([0.5], right)])
    sol = pb.solve(kept, pb.Rodas5P(), ANY, rtol=1e-8, atol=1e-8, initialization="check")
    np.testing.assert_allclose(sol.y_end[0], exact(PARAMS), atol=1e-7)


def test_a_jump_to_where_the_equations_say_nothing_is_told():
    # 0 = y z - 1 does not determine z where y is zero.
    wipe = pb.PresetTimes([0.5], lambda t, y, p: 0.0 * y)
    problem = pb.ODEProblem(
        lambda t, y, p: jnp.stack([-y[1], y[0] * y[1] - 1.0]), jnp.array([2.0, 0.5]), (0.0, 1.0),
        events=[wipe], mass_matrix=np.array([1.0, 0.0]),
    )  # fmt: skip
    assert int(pb.solve(problem, pb.Rodas5P(), ANY).status) == pb.Status.singular_dae
