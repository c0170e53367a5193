"""First derivatives: forward and reverse mode against closed forms, each other and plain loops."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from ode.lane_problems import (
    BACKENDS,
    FAST,
    LV_PARAMS,
    LV_Y0,
    decay,
    decay_exact,
    lotka_volterra,
    make_solve,
    solve,
)
from pullback.core import Status
from pullback.ode import RK4, Bosh3, DiscreteAdjoint, Euler, Tsit5, Vern7, solve_lanes
from pullback.ode.step import advance
from pullback.testing import assert_close, dot_test, taylor_test, tol

SLOW_ARRAY = (pytest.param("array", marks=pytest.mark.slow), *BACKENDS[1:])
TIMES = np.array([0.3, 0.5, 1.0, 1.7, 2.0])
POINT = (
    jnp.array(1.2),  # y0
    jnp.array(0.3),  # t0, also the first save time
    jnp.array(2.0),  # t1, also the last
    jnp.array(0.7),  # p
    jnp.asarray(TIMES),
)


def everything(y0, t0, t1, p, times, **kwargs):
    sol = solve(decay, y0, p, (t0, t1), saveat=times, **kwargs)
    return sol.y[:, 0], sol.y_end[0], sol.t, sol.t_end


def exact_jacobian():
    """Of `everything`: rows move with their own times, only the end with t1."""
    y0, t0, t1, p, times = POINT
    row = jax.jacfwd(decay_exact, argnums=(0, 1, 2, 3))
    d_y0, d_t0, d_t, d_p = jax.vmap(row, (None, None, 0, None))(y0, t0, times, p)
    e_y0, e_t0, e_t1, e_p = row(y0, t0, t1, p)
    none, vector, eye = jnp.zeros(()), jnp.zeros(5), jnp.eye(5)
    return (
        (d_y0, d_t0, vector, d_p, jnp.diag(d_t)),
        (e_y0, e_t0, e_t1, e_p, vector),
        (vector, vector, vector, vector, eye),
        (none, none, jnp.ones(()), none, vector),
    )


@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize(
    ("kwargs", "accuracy"),
    [
        pytest.param({"rtol": 1e-8, "atol": 1e-8}, 1e-7, marks=pytest.mark.slow),
        ({"method": RK4(), "dt": 0.01}, 1e-8),
        ({"method": Vern7(), "rtol": 1e-8, "atol": 1e-8}, 1e-7),
    ],
    ids=["Tsit5", "RK4 fixed", "Vern7"],
)
def test_derivatives_by_every_input(jacobian, kwargs, accuracy):
    run = jax.jit(jacobian(lambda *a: everything(*a, **kwargs), argnums=(0, 1, 2, 3, 4)))
    assert_close(run(*POINT), exact_jacobian(), rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_derivatives_backward_in_time(jacobian):
    def run(y0, t0, t1, p, times):
        return everything(y0, t0, t1, p, times, rtol=1e-8, atol=1e-8)[:2]

    y0, _, _, p, times = POINT
    back = (y0, jnp.array(2.0), jnp.array(0.3), p, times[::-1])
    found = jax.jit(jacobian(run, argnums=(0, 1, 2, 3)))(*back)
    row = jax.jacfwd(decay_exact, argnums=(0, 1, 2, 3))
    end = row(y0, 2.0, 0.3, p)
    # The tangent behind a reverse gradient may err ten times as much as the state.
    assert_close(found[1], end, rtol=1e-6, atol=1e-6)
    rows = jax.vmap(row, (None, None, 0, None))(y0, 2.0, times[::-1], p)
    assert_close(found[0], (rows[0], rows[1], jnp.zeros(5), rows[3]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "backend"),
    [
        *((m, FAST) for m in (Euler(), RK4(), Bosh3(), Tsit5(), Vern7())),
        pytest.param(Tsit5(), "array", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_gradient_equals_that_of_a_plain_scan_of_the_same_steps(method, backend):
    n, dt = 25, 0.04
    weight = jnp.array([0.3, -1.1])

    def loop(y0, p):
        def step(y, i):
            t = i * dt

            def field(t, y):
                return lotka_volterra(t, y, p)

            return advance(method.tableau, field, t, y, jnp.asarray(dt)), None

        return weight @ lax.scan(step, y0, jnp.arange(n) * 1.0)[0]

    def ours(y0, p):
        sol = solve(lotka_volterra, y0, p, method=method, dt=dt, backend=backend)
        return weight @ sol.y_end

    point = (jnp.asarray(LV_Y0), jnp.asarray(LV_PARAMS))
    wanted = jax.jit(jax.grad(loop, argnums=(0, 1)))(*point)
    found = jax.jit(jax.grad(ours, argnums=(0, 1)))(*point)
    # The same steps to rounding: a few hundred operations deep, and the last step is t1 - t.
    assert_close(found, wanted, rtol=tol("float64", n_ops=400), atol=tol("float64", n_ops=400))


@pytest.mark.parametrize(
    "method", [Tsit5(), pytest.param(Vern7(), marks=pytest.mark.slow)], ids=str
)
def test_forward_and_reverse_are_each_others_transpose(method):
    def run(x):
        y0, t0, t1, p, times = x
        sol = solve(lotka_volterra, y0, p, (t0, t1), method=method, dt=0.13, saveat=times)
        return sol.y, sol.y_end, sol.t_end

    x = (
        jnp.asarray(LV_Y0),
        jnp.array(0.1),
        jnp.array(2.0),
        jnp.asarray(LV_PARAMS),
        jnp.array([0.1, 0.25, 0.26, 1.3, 2.0]),
    )
    dot_test(jax.jit(run), x)


def test_taylor_remainders_with_fixed_steps():
    def run(x):
        y0, t1, p = x
        sol = solve(lotka_volterra, y0, p, (0.0, t1), dt=0.1, saveat=[0.33, 0.7])
        return jnp.sum(jnp.sin(sol.y)) + jnp.sum(sol.y_end**2)

    # t1 stays within its last step, which alone depends on it.
    x = (jnp.asarray(LV_Y0), jnp.array(1.05), jnp.asarray(LV_PARAMS))
    direction = (jnp.array([0.2, -0.3]), jnp.array(0.1), jnp.array([0.1, 0.2, -0.1, 0.3]))
    taylor_test(jax.jit(run), x, direction, steps=2.0 ** -np.arange(4, 13))


@pytest.mark.parametrize(
    ("kwargs", "resolve", "backend"),
    [
        ({}, True, "array"),
        ({}, True, FAST),
        pytest.param({}, False, FAST, marks=pytest.mark.slow),
        pytest.param({"dt": 0.1}, False, FAST, marks=pytest.mark.slow),
        ({"saveat": np.linspace(0, 2, 7)}, True, FAST),
    ],
    ids=["array", "resolved", "plain", "fixed", "rows"],
)
def test_segments_of_the_tape_give_the_same_gradient(kwargs, resolve, backend):
    def gradient(tape):
        adjoint = DiscreteAdjoint(tape=tape, resolve=resolve)

        def loss(y0, p):
            sol = solve(
                lotka_volterra,
                y0,
                p,
                (0.0, 2.0),
                adjoint=adjoint,
                max_steps=100,
                backend=backend,
                **kwargs,
            )
            return jnp.sum(jnp.sin(sol.y))

        point = (jnp.asarray(LV_Y0), jnp.asarray(LV_PARAMS))
        return jax.jit(jax.grad(loss, argnums=(0, 1)))(*point)

    whole = gradient(None)
    n = int(solve(lotka_volterra, LV_Y0, LV_PARAMS, (0.0, 2.0), **kwargs).n_accepted)
    for tape in (4, n) if backend == FAST else (4,):
        # A repeated segment may round differently where XLA fuses it differently.
        bound = tol("float64", n_ops=100)
        assert_close(gradient(tape), whole, rtol=bound, atol=bound)


@pytest.mark.slow
def test_resolve_false_uses_the_solves_own_mesh():
    p = jnp.asarray(LV_PARAMS)

    def gradient(resolve):
        adjoint = DiscreteAdjoint(resolve=resolve)
        loss = lambda p: solve(  # noqa: E731
            lotka_volterra, LV_Y0, p, (0.0, 3.0), rtol=1e-5, atol=1e-5, adjoint=adjoint
        ).y_end[0]
        return jax.jit(jax.grad(loss))(p)

    def replayed(p):
        sol = solve(
            lotka_volterra, LV_Y0, LV_PARAMS, (0.0, 3.0), rtol=1e-5, atol=1e-5, n_steps_saved=64
        )
        n = int(sol.n_saved)
        times = np.concatenate([[0.0], np.asarray(sol.t[:n])])
        y = jnp.asarray(LV_Y0)
        for t, h in zip(times, np.diff(times), strict=False):
            y = advance(Tsit5().tableau, lambda t, y: lotka_volterra(t, y, p), t, y, h)
        return y[0]

    wanted = jax.grad(replayed)(p)
    # Step sizes are recovered from times, with their rounding.
    assert_close(gradient(False), wanted, rtol=1e-11, atol=1e-11)
    assert float(jnp.abs(gradient(True) - wanted).max()) > 1e-8


def test_rows_of_every_step_differentiate_on_the_solves_mesh():
    def run(p):
        return solve(lotka_volterra, LV_Y0, p, n_steps_saved=12).y

    p = jnp.asarray(LV_PARAMS)
    n = int(solve(lotka_volterra, LV_Y0, p).n_accepted)
    forward, reverse = jax.jit(jax.jacfwd(run))(p), jax.jit(jax.jacrev(run))(p)
    assert_close(reverse, forward, rtol=1e-10, atol=1e-10)
    sol = solve(lotka_volterra, LV_Y0, p, n_steps_saved=12)

    def at_times(p):
        return solve(
            lotka_volterra, LV_Y0, p, saveat=sol.t[:n], rtol=1e-10, atol=1e-10, method=Vern7()
        ).y

    assert_close(forward[:n], jax.jacfwd(at_times)(p), rtol=1e-4, atol=1e-4)
    assert np.all(np.asarray(forward[n:]) == 0.0)


@pytest.mark.parametrize("backend", SLOW_ARRAY)
def test_failed_trajectory_is_masked_out_of_a_gradient(backend):
    def loss(starts):
        def run(y0):
            return solve(lambda t, y, p: y * y, y0, saveat=[0.25, 1.0], backend=backend)

        sol = jax.vmap(run)(starts)
        ok = sol.status == int(Status.success)
        return jnp.sum(jnp.where(ok[:, None], sol.y[..., 0], 0.0)), sol.status

    starts = jnp.array([0.5, 2.0, 0.25])
    gradient, status = jax.jit(jax.grad(loss, has_aux=True))(starts)
    assert int(status[1]) != Status.success
    exact = 1 / (1 - 0.25 * starts) ** 2 + 1 / (1 - starts) ** 2
    assert_close(gradient[::2], exact[::2], rtol=1e-4, atol=0.0)
    assert float(gradient[1]) == 0.0


def test_rows_after_a_failure_have_no_derivative():
    def row(y0):
        return solve(lambda t, y, p: y * y, y0, saveat=[0.25, 1.0]).y[:, 0]

    forward, reverse = jax.jacfwd(row)(2.0), jax.jacrev(row)(2.0)
    assert_close(forward[0], jnp.array(4.0), rtol=1e-4, atol=0.0)
    assert_close(reverse[0], jnp.array(4.0), rtol=1e-4, atol=0.0)
    assert float(forward[1]) == float(reverse[1]) == 0.0


@pytest.mark.parametrize("backend", SLOW_ARRAY)
def test_float32_gradient(backend):
    def gradient(dtype, rtol):
        def loss(y0, p):
            sol = solve(
                lotka_volterra,
                y0,
                p,
                (0.0, 2.0),
                rtol=rtol,
                atol=rtol,
                saveat=[1.0, 2.0],
                backend=backend,
            )
            return jnp.sum(sol.y)

        point = (jnp.asarray(LV_Y0, dtype), jnp.asarray(LV_PARAMS, dtype))
        return jax.jit(jax.grad(loss, argnums=(0, 1)))(*point)

    narrow = gradient(np.float32, 1e-5)
    assert {g.dtype for g in narrow} == {np.dtype("float32")}
    wide = gradient(np.float64, 1e-9)
    assert_close(narrow, wide, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_empty_time_span_moves_with_its_ends(jacobian):
    def end(y0, t0, t1):
        sol = solve(decay, y0, 0.7, (t0, t1), saveat=t1[None])
        return sol.y_end[0], sol.y[0, 0]

    found = jacobian(end, argnums=(0, 1, 2))(jnp.array(1.2), jnp.array(0.5), jnp.array(0.5))
    slope = -0.7 * 1.2 * np.cos(0.5)
    bound = tol("float64", n_ops=10)
    # The row's time is t1 as a save time: it moves along the field too.
    for row in found:
        assert_close(jnp.stack(row), np.array([1.0, -slope, slope]), rtol=bound, atol=bound)


def test_arrays_the_field_closes_over_are_differentiated():
    weights = jnp.array([[0.0, 1.0], [-1.0, 0.0]])

    def end(w):
        def field(t, y, p):
            return w @ y

        return solve(field, jnp.array([1.0, 0.0]), rtol=1e-9, atol=1e-9).y_end

    def exact(w):
        return jax.scipy.linalg.expm(w)[:, 0]

    wanted = jax.jacfwd(exact)(weights)
    assert_close(jax.jit(jax.jacrev(end))(weights), wanted, rtol=1e-7, atol=1e-7)
    assert_close(jax.jit(jax.jacfwd(end))(weights), wanted, rtol=1e-7, atol=1e-7)


def test_integer_parameters_are_left_alone():
    def end(p):
        return solve(lambda t, y, p: -p["k"] * y * p["n"], 1.0, {"k": p, "n": 2}).y_end[0]

    assert_close(jax.grad(end)(0.5), jnp.array(-2 * np.exp(-1.0)), rtol=1e-4, atol=0.0)


def test_probe_carries_the_estimate_out():
    spec, operands = make_solve(lotka_volterra, LV_Y0, LV_PARAMS, (0.0, 10.0), rtol=1e-6)

    def loss(p, probe):
        return solve_lanes(spec, operands._replace(theta=(p,), probe=probe), FAST).y_end[0]

    point = (jnp.asarray(LV_PARAMS), jnp.zeros(3))
    gradient, probe = jax.jit(jax.grad(loss, argnums=(0, 1)))(*point)
    tight, fine = make_solve(
        lotka_volterra, LV_Y0, LV_PARAMS, (0.0, 10.0), rtol=1e-10, atol=1e-10, method=Vern7()
    )

    def end(p):
        return solve_lanes(tight, fine._replace(theta=(p,)), FAST).y_end[0]

    exact = jax.jit(jax.jacfwd(end))(point[0])
    error = float(jnp.linalg.norm((gradient - exact) * point[0]))
    scale = float(jnp.linalg.norm(exact * point[0]))
    assert float(probe[0]) == 0.0
    # The estimate is of one random projection of the error, and of a lower-order formula.
    assert error / 30 < float(jnp.sqrt(probe[1])) < 300 * error
    assert scale / 3 < float(jnp.sqrt(probe[2])) < 3 * scale

    def plain(probe):
        off = dataclasses.replace(spec, adjoint=DiscreteAdjoint(resolve=False))
        return solve_lanes(off, operands._replace(probe=probe), FAST).y_end[0]

    unknown = jax.grad(plain)(jnp.zeros(3))
    assert float(unknown[0]) == 0.0
    assert np.isnan(np.asarray(unknown[1:])).all()
