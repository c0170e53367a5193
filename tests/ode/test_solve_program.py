import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
from pullback.ode import (
    RK4,
    Bosh3,
    Dopri5,
    Euler,
    Heun,
    Midpoint,
    Tsit5,
    Vern7,
    solve_lanes,
)
from pullback.testing import assert_close, tol

METHODS = (Euler(), Heun(), Midpoint(), RK4(), Bosh3(), Tsit5(), Dopri5(), Vern7())
ADAPTIVE = tuple(m for m in METHODS if m.has_error_estimate)


def name_of(method):
    return type(method).__name__


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_fixed_steps_equal_a_plain_loop(method):
    tableau, n, dt = method.tableau, 20, 0.05

    def step(y, t):
        stages = []
        for row, node in zip(tableau.a, tableau.c, strict=True):
            at = y + dt * sum((w * k for w, k in zip(row, stages, strict=True)), 0.0 * y)
            stages.append(lotka_volterra(t + node * dt, at, LV_PARAMS))
        return y + dt * sum(w * k for w, k in zip(tableau.b, stages, strict=True))

    y = jnp.asarray(LV_Y0)
    for i in range(n):
        y = step(y, i * dt)
    sol = solve(lotka_volterra, LV_Y0, LV_PARAMS, method=method, dt=dt)
    # Sums are grouped differently: some ten roundings a stage, and the flow spreads them by ~10.
    n_ops = 10 * n * tableau.n_stages
    assert_close(sol.y_end, y, rtol=tol("float64", n_ops=n_ops, cond=10), atol=0.0)
    assert int(sol.n_accepted) == n


@pytest.mark.parametrize("method", ADAPTIVE, ids=name_of)
def test_adaptive_error_is_near_the_tolerance(method):
    rtol = 1e-5 if method.order > 2 else 1e-3
    times = np.linspace(0.0, 2.0, 9)
    sol = solve(decay, 1.0, 1.3, (0.0, 2.0), method=method, rtol=rtol, atol=rtol, saveat=times)
    error = np.abs(sol.y[:, 0] - decay_exact(1.0, 0.0, times, 1.3))
    # Local errors below rtol add up over the steps, and the dense output has its own.
    assert error.max() < 20 * rtol
    assert int(sol.status) == Status.success
    assert int(sol.n_saved) == 9
    assert_close(sol.t, times, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_blow_up_fails_alone_and_says_where(backend):
    def field(t, y, p):
        return y * y

    starts = jnp.array([0.5, 0.9, 2.0])
    sol = jax.jit(jax.vmap(lambda y0: solve(field, y0, backend=backend)))(starts)
    # Errors made on the way to y = 9 grow with dy/dy0 = (y / y0)^2 = 100.
    assert_close(sol.y_end[:2, 0], np.array([1.0, 9.0]), rtol=5e-5, atol=0.0)
    assert list(sol.status[:2]) == [Status.success] * 2
    assert int(sol.status[2]) in (Status.dt_underflow, Status.non_finite)
    # The pole is seen where the relative step is rounding: y = 1 / (t_pole - t).
    assert abs(float(sol.t_end[2]) - 0.5) < 1e-5
    alone = solve(field, starts[0], backend=backend)
    assert int(alone.n_attempts) == int(sol.n_attempts[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_square_root_stops_where_the_solution_ends(backend):
    times = np.array([0.5, 1.5, 2.5, 3.0])
    sol = solve(lambda t, y, p: -jnp.sqrt(y), 1.0, None, (0.0, 3.0), saveat=times, backend=backend)
    assert int(sol.status) == Status.non_finite
    assert abs(float(sol.t_end) - 2.0) < 1e-3  # y = (1 - t/2)^2 is flat there
    assert int(sol.n_saved) == 2
    assert_close(sol.y[:2, 0], (1 - times[:2] / 2) ** 2, rtol=1e-4, atol=0.0)
    assert_close(sol.y[2:, 0], np.array([sol.y_end[0]] * 2), rtol=0.0, atol=0.0)
    assert_close(sol.t[2:], np.array([sol.t_end] * 2), rtol=0.0, atol=0.0)
    assert int(sol.n_attempts) < 400


@pytest.mark.parametrize("kwargs", [{}, {"first_dt": 0.1}, {"dt": 0.1}], ids=str)
@pytest.mark.parametrize("method", [Tsit5(), Vern7()], ids=name_of)
def test_nan_field_stops_at_once_and_leaves_neighbours_alone(method, kwargs):
    def run(p):
        return solve(lambda t, y, p: -y * p, 1.0, p, method=method, **kwargs)

    sol = jax.jit(jax.vmap(run))(jnp.array([1.0, np.nan, 2.0]))
    assert list(sol.status) == [Status.success, Status.non_finite, Status.success]
    assert int(sol.n_attempts[1]) == 1
    assert float(sol.t_end[1]) == 0.0
    assert float(sol.y_end[1, 0]) == 1.0
    assert_close(sol.y_end[::2, 0], np.exp([-1.0, -2.0]), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize(("dt", "n"), [(0.3, 4), (0.1, 10), (1 / 3, 3), (5.0, 1)])
def test_fixed_steps_end_exactly_at_t1(dt, n):
    for dtype in (jnp.float32, jnp.float64):
        sol = solve(lambda t, y, p: -y, jnp.ones((), dtype), method=RK4(), dt=dt)
        assert float(sol.t_end) == 1.0
        assert int(sol.n_accepted) == int(sol.n_attempts) == n


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward_in_time(backend):
    times = np.array([1.0, 0.7, 0.2, 0.0])
    sol = solve(lambda t, y, p: -y, np.exp(-1.0), None, (1.0, 0.0), saveat=times, backend=backend)
    assert float(sol.t_end) == 0.0
    assert_close(sol.y[:, 0], np.exp(-times), rtol=1e-5, atol=0.0)
    assert float(sol.y[0, 0]) == np.exp(-1.0)
    assert float(sol.y[-1, 0]) == float(sol.y_end[0])
    fixed = solve(lambda t, y, p: -y, np.exp(-1.0), None, (1.0, 0.0), method=RK4(), dt=0.01)
    assert_close(fixed.y_end, np.array([1.0]), rtol=1e-9, atol=0.0)


def test_tiny_time_scale():
    sol = solve(lambda t, y, p: -y / p, 1.0, 1e-10, (0.0, 1e-10), method=Euler(), dt=1e-13)
    assert int(sol.n_accepted) == 1000
    assert_close(
        sol.y_end, np.array([(1 - 1e-3) ** 1000]), rtol=tol("float64", n_ops=4000), atol=0.0
    )
    adaptive = solve(lambda t, y, p: -y / p, 1.0, 1e-10, (0.0, 1e-10))
    assert_close(adaptive.y_end, np.array([np.exp(-1.0)]), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("factor", [1.0, np.nan])
@pytest.mark.parametrize("dt", [None, 0.1])
def test_empty_time_span_returns_the_start(backend, factor, dt):
    sol = solve(
        lambda t, y, p: -y * p, 2.0, factor, (1.0, 1.0), saveat=[1.0, 1.0], dt=dt, backend=backend
    )
    assert int(sol.status) == Status.success
    assert int(sol.n_saved) == 2
    assert int(sol.n_attempts) == int(sol.n_accepted) == 0
    assert_close(sol.y, np.array([[2.0], [2.0]]), rtol=0.0, atol=0.0)
    assert_close(sol.t, np.array([1.0, 1.0]), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_step_is_saved_or_the_overflow_reported(backend):
    def run(n):
        return solve(lambda t, y, p: -y, 1.0, n_steps_saved=n, backend=backend)

    sol = run(16)
    n = int(sol.n_saved)
    assert int(sol.status) == Status.success
    assert n == int(sol.n_accepted)
    assert np.all(np.diff(sol.t[:n]) > 0)
    assert float(sol.t[n - 1]) == 1.0
    assert np.all(np.asarray(sol.t[n:]) == 1.0)
    assert_close(sol.y[:n, 0], np.exp(-sol.t[:n]), rtol=1e-5, atol=0.0)
    assert_close(sol.y[n:, 0], jnp.full(16 - n, sol.y_end[0]), rtol=0.0, atol=0.0)
    short = run(3)
    assert int(short.status) == Status.save_overflow
    assert int(short.n_saved) == 3
    assert_close(short.t, sol.t[:3], rtol=0.0, atol=0.0)
    assert float(short.t_end) == float(short.t[2])


def test_max_steps_bounds_attempts():
    sol = solve(lotka_volterra, LV_Y0, LV_PARAMS, (0.0, 10.0), max_steps=7)
    assert int(sol.status) == Status.max_steps_reached
    assert int(sol.n_attempts) == 7
    assert 0.0 < float(sol.t_end) < 10.0
    fixed = solve(decay, 1.0, 1.0, method=RK4(), dt=0.01, max_steps=7)
    assert int(fixed.status) == Status.max_steps_reached
    assert_close(fixed.t_end, 0.07, rtol=tol("float64", n_ops=8), atol=0.0)


def test_largest_step_is_respected():
    sol = solve(lambda t, y, p: -y, 1.0, None, dt_max=0.03, n_steps_saved=64)
    sizes = np.diff(np.concatenate([[0.0], sol.t[: int(sol.n_saved)]]))
    # The last step may be stretched by one per cent to reach the end.
    assert sizes.max() <= 0.03 * 1.011
    assert int(sol.n_accepted) == 34


def test_given_first_step_is_taken():
    sol = solve(lambda t, y, p: -y, 1.0, None, first_dt=1e-3, n_steps_saved=64)
    assert float(sol.t[0]) == 1e-3


INVALID = {
    "t0": {"t0": np.nan},
    "t1": {"t1": np.nan},
    "infinite t1": {"t1": np.inf},
    "rtol": {"rtol": -1e-3},
    "unsorted saveat": {"saveat": [0.8, 0.2]},
    "saveat outside": {"saveat": [0.2, 1.5]},
    "saveat nan": {"saveat": [0.2, np.nan]},
}


@pytest.mark.parametrize("dt", [None, 0.1], ids=["adaptive", "fixed"])
def test_invalid_traced_input_has_its_own_status(dt):
    spec, good = make_solve(lambda t, y, p: -y, 1.0, None, saveat=[0.2, 0.8], dt=dt)
    cases = [good._replace(**{k: jnp.asarray(v) for k, v in c.items()}) for c in INVALID.values()]
    if dt is not None:
        cases.append(good._replace(dt=jnp.asarray(np.nan)))
        cases = [c for c in cases if float(c.rtol) > 0]
    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), good, *cases)
    sol = jax.jit(jax.vmap(lambda o: solve_lanes(spec, o, FAST)))(stacked)
    assert int(sol.status[0]) == Status.success
    assert set(np.asarray(sol.status[1:])) == {Status.invalid_input}
    assert np.all(np.asarray(sol.n_attempts[1:]) == 0)
    assert np.all(np.asarray(sol.n_saved[1:]) == 0)
    assert np.all(np.asarray(sol.y_end[1:]) == 1.0)


def test_save_time_past_the_end_by_rounding_is_the_end():
    late = np.nextafter(1.0, 2.0)
    sol = solve(lambda t, y, p: -y, 1.0, None, saveat=[0.5, late])
    assert int(sol.status) == Status.success
    assert int(sol.n_saved) == 2
    assert float(sol.y[1, 0]) == float(sol.y_end[0])


def test_row_at_the_end_of_a_step_is_the_step():
    times = np.array([0.1, 0.2, 0.30000000000000004])
    sol = solve(lotka_volterra, LV_Y0, LV_PARAMS, (0.0, 0.4), method=RK4(), dt=0.1, saveat=times)
    every = solve(
        lotka_volterra, LV_Y0, LV_PARAMS, (0.0, 0.4), method=RK4(), dt=0.1, n_steps_saved=4
    )
    assert_close(sol.y, every.y[:3], rtol=0.0, atol=0.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_float32_stays_float32(backend):
    sol = solve(
        lotka_volterra,
        LV_Y0.astype(np.float32),
        LV_PARAMS.astype(np.float32),
        (0.0, 2.0),
        rtol=1e-4,
        atol=1e-4,
        saveat=[1.0, 2.0],
        backend=backend,
    )
    assert {a.dtype for a in (sol.t, sol.y, sol.t_end, sol.y_end)} == {np.dtype("float32")}
    assert {a.dtype for a in sol[4:10]} == {np.dtype("int32")}
    wide = solve(lotka_volterra, LV_Y0, LV_PARAMS, (0.0, 2.0), rtol=1e-9, atol=1e-9)
    assert_close(sol.y_end, wide.y_end, rtol=1e-3, atol=0.0)
    assert int(sol.status) == Status.success


def test_evaluations_are_counted():
    calls = []

    def field(t, y, p):
        jax.debug.callback(lambda: calls.append(1))
        return -y

    sol = solve(lambda t, y, p: -y, 1.0)
    # FSAL: six new stages an attempt, one evaluation at the start, one for the first step size.
    assert int(sol.n_rhs) == 6 * int(sol.n_attempts) + 2
    with pytest.raises(ValueError, match="side effects"):
        solve(field, 1.0)
    assert not calls
