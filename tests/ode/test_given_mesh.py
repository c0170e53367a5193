"""A solve on the steps of another one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ode.lane_problems import BACKENDS, FAST, lotka_volterra, make_solve
from pullback.core import Status
from pullback.ode import Bosh3, DiscreteAdjoint, Tsit5, Vern7, solve_lanes
from pullback.testing import assert_close

P = jnp.array([1.5, 1.0, 1.0, 3.0])


def chosen(method=None, **options):
    defaults = {"rtol": 1e-3, "atol": 1e-3, "adjoint": DiscreteAdjoint(resolve=False)}
    return make_solve(
        lotka_volterra,
        jnp.array([1.0, 1.0]),
        P,
        **({"t_span": (0.0, 10.0), "method": method} | defaults | options),
    )


def ends_of_steps(backend, method, **options):
    spec, operands = chosen(method, n_steps_saved=200, **options)
    rows = jax.jit(lambda: solve_lanes(spec, operands, backend))()
    n = int(rows.n_saved)
    return jnp.concatenate([rows.t[: n - 1], jnp.full(3, np.nan)]), n


def given(spec, operands, times):
    spec = dataclasses.replace(
        spec, mesh="given", adaptive=False, automatic_dt=False, limit_dt=False
    )
    return spec, operands._replace(dt=times)


@pytest.mark.parametrize("t_span", [(0.0, 10.0), (4.0, 1.0)], ids=str)
@pytest.mark.parametrize("method", [Tsit5(), Bosh3(), Vern7()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_repeats_the_solve(backend, method, t_span):
    options = {"t_span": t_span, "saveat": jnp.linspace(*t_span, 5)}
    times, n = ends_of_steps(backend, method, t_span=t_span)
    spec, operands = chosen(method, **options)
    first = jax.jit(lambda: solve_lanes(spec, operands, backend))()
    again = jax.jit(lambda: solve_lanes(*given(spec, operands, times), backend))()
    assert int(again.status) == Status.success
    assert int(again.n_accepted) == int(again.n_attempts) == int(first.n_accepted) == n
    assert float(again.t_end) == t_span[1]
    # Sizes of steps are differences of rounded times.
    assert_close(again.y, first.y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", [jax.grad, jax.jacfwd])
def test_derivative_is_that_of_the_plain_mesh(mode):
    times, _ = ends_of_steps(FAST, None)
    spec, operands = chosen()

    def end(spec, operands, y0, t0, t1):
        operands = operands._replace(y0=y0, t0=t0, t1=t1)
        return jnp.sum(solve_lanes(spec, operands, FAST).y_end)

    ends = (operands.y0, operands.t0, operands.t1)
    plain = jax.jit(jax.grad(lambda *x: end(spec, operands, *x), (0, 1, 2)))(*ends)
    on_mesh = jax.jit(mode(lambda *x: end(*given(spec, operands, times), *x), (0, 1, 2)))(*ends)
    for found, wanted in zip(on_mesh, plain, strict=True):
        assert_close(found, wanted, rtol=1e-10, atol=0.0)


def test_ends_move_and_the_rest_stays():
    times, n = ends_of_steps(FAST, None)
    spec, operands = chosen(n_steps_saved=n)
    moved = operands._replace(t0=operands.t0 + 1e-3, t1=operands.t1 - 1e-3)
    rows = solve_lanes(*given(spec, moved, times), FAST)
    np.testing.assert_array_equal(rows.t[:-1], times[: n - 1])
    assert float(rows.t[-1]) == float(moved.t1)


def test_a_step_that_is_not_finite_fails():
    times, _ = ends_of_steps(FAST, None)
    spec, operands = chosen()
    sol = solve_lanes(*given(spec, operands, times.at[3].set(1e200)), FAST)
    assert int(sol.status) == Status.non_finite
    assert float(sol.t_end) == float(times[2])


def test_a_given_mesh_is_not_adaptive():
    spec, _ = chosen()
    with pytest.raises(ValueError, match="`adaptive` must be False with `mesh`"):
        dataclasses.replace(spec, mesh="given")


def test_unknown_action_is_refused():
    with pytest.raises(ValueError, match="'refine', 'ignore', got 'hide'"):
        DiscreteAdjoint(on_unresolved="hide")


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"tape": 1.5}, "`tape` must be a positive whole number of rows or None.*got 1.5"),
        ({"tape": 0}, "`tape` must be a positive whole number.*got 0"),
        ({"slack": "much"}, "`slack` must be a positive number or None, got 'much'"),
        ({"slack": -1.0}, "`slack` must be a positive number"),
        ({"resolve": "yes"}, "`resolve` must be True or False, got 'yes'"),
    ],
)
def test_options_of_the_adjoint_are_checked(option, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        DiscreteAdjoint(**option)
