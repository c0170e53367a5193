"""Events at known times: lists, periods, stops, and those at the very start or end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor, each_executor_slow_on_array

TIGHT = {"rtol": 1e-9, "atol": 1e-9}
METHODS = [
    pb.Tsit5(),
    pytest.param(pb.Rodas5P(), marks=pytest.mark.slow),
    pytest.param(pb.Kvaerno5(), marks=pytest.mark.slow),
    pytest.param(pb.AutoSwitch(), marks=pytest.mark.slow),
]


def decay(t, y, p):
    return -p["k"] * y


def add(t, y, p):
    return y + p["d"]


def solve(field, y0, t_span, params=None, events=(), executor=ANY, method=None, **options):
    problem = pb.ODEProblem(field, y0, t_span, params, events=events)
    method = pb.Tsit5() if method is None else method
    return pb.solve(problem, method, executor, **(TIGHT | options))


def assert_derivatives(function, exact, x, *, rtol=1e-7):
    """Value and both modes, against a closed form."""
    scale = 1.0 + np.abs(exact(x)).max()
    np.testing.assert_allclose(function(x), exact(x), atol=rtol * scale)
    expected = jax.jacfwd(exact)(x)
    size = 1.0 + np.abs(expected).max()
    np.testing.assert_allclose(jax.jacrev(function)(x), expected, atol=10 * rtol * size)
    np.testing.assert_allclose(jax.jacfwd(function)(x), expected, atol=10 * rtol * size)


# ------------------------------------------------------------------------ periods


def levels(x, executor=ANY, t1=5.0, method=None):
    """Rate x[0], period x[1], dose x[2]: two rows, the end, three times."""
    params = {"k": x[0], "T": x[1], "d": x[2]}
    doses = pb.PeriodicEvent(lambda p: p["T"], add)
    rows = jnp.array([1.3, 4.1])
    sol = solve(decay, jnp.zeros(1), (0.0, t1), params, [doses], executor, method, saveat=rows)
    return jnp.concatenate([sol.y[:, 0], sol.y_end, sol.events.t[:3]])


def levels_exact(x, t1=5.0):
    k, period, dose = x

    def at(t):
        times = [i * period for i in range(1, 12)]
        return sum(jnp.where(s <= t, dose * jnp.exp(-k * (t - s)), 0.0) for s in times)

    return jnp.stack([at(1.3), at(4.1), at(t1), period, 2 * period, 3 * period])


X = jnp.array([0.3, 1.1, 2.0])


@each_executor
def test_periodic_doses(executor):
    np.testing.assert_allclose(levels(X, executor), levels_exact(X), atol=1e-8)


def test_periodic_doses_are_differentiable():
    assert_derivatives(levels, levels_exact, X)


@pytest.mark.slow
def test_periodic_doses_are_differentiable_on_the_array():
    got = jax.jacrev(lambda x: levels(x, pb.EnsembleArray()))(X)
    np.testing.assert_allclose(got, jax.jacfwd(levels_exact)(X), atol=1e-7)


def thirty(x):
    params = {"k": x[0], "T": x[1], "d": x[2]}
    doses = pb.PeriodicEvent(lambda p: p["T"], add)
    return solve(decay, jnp.zeros(1), (0.0, 3.0), params, [doses]).y_end


def thirty_exact(x):
    return sum(x[2] * jnp.exp(-x[0] * (3.0 - i * x[1])) for i in range(1, 31))[None]


THIRTY = jnp.array([0.3, 0.1, 2.0])


def test_the_last_of_many_lies_at_the_end():
    """Thirty periods of 0.1 are 3 up to rounding, and the thirtieth event happens.

    It has the derivative of one just before the end.
    """
    doses = pb.PeriodicEvent(0.1, add)
    sol = solve(decay, jnp.zeros(1), (0.0, 3.0), {"k": 0.3, "d": 2.0}, [doses])
    assert int(sol.events.count) == 30
    assert_derivatives(thirty, thirty_exact, THIRTY)


def test_more_events_than_any_bound_on_them():
    doses = pb.PeriodicEvent(5e-4, add)
    stop = pb.Event(lambda t, y, p: t - 0.9, terminate=True)
    sol = solve(decay, jnp.zeros(1), (0.0, 1.0), {"k": 0.3, "d": 1.0}, [doses, stop])
    assert int(sol.status) == pb.Status.terminated
    # The one at 0.9 itself or not, by rounding.
    assert int(sol.events.count) in (1800, 1801)


def from_t0(x):
    doses = pb.PeriodicEvent(lambda p: p["T"], add)
    params = {"k": x[0], "T": x[2], "d": 1.0}
    return solve(decay, jnp.ones(1), (x[1], 2.0), params, [doses]).y_end


def from_t0_exact(x):
    k, t0, period = x
    return sum(jnp.exp(-k * (2 - t0 - i * period)) for i in range(7))[None]


def test_default_start_moves_with_t0():
    assert_derivatives(from_t0, from_t0_exact, jnp.array([0.8, 0.1, 0.3]))


def backward(x):
    kicks = pb.PeriodicEvent(lambda p: p["T"], lambda t, y, p: y + t)
    sol = solve(decay, jnp.ones(1), (x[2], 0.0), {"k": x[0], "T": x[1]}, [kicks])
    return jnp.concatenate([sol.y_end, sol.events.t[:6]])


def backward_exact(x):
    k, period, t0 = x
    times = [t0 - i * period for i in range(1, 7)]
    return jnp.stack([jnp.exp(k * t0) + sum(t * jnp.exp(k * t) for t in times), *times])


def test_periods_run_backward():
    assert_derivatives(backward, backward_exact, jnp.array([0.4, 0.3, 2.0]))


def test_terminal_period_ends_at_its_first():
    def end(x):
        stop = pb.PeriodicEvent(lambda p: p["T"], lambda t, y, p: y + t, terminate=True)
        sol = solve(decay, jnp.ones(1), (0.0, 5.0), {"k": x[0], "T": x[1]}, [stop])
        return jnp.concatenate([sol.y_end, sol.t_end[None]])

    def exact(x):
        return jnp.stack([jnp.exp(-x[0] * x[1]) + x[1], x[1]])

    assert_derivatives(end, exact, jnp.array([0.4, 1.3]))


def test_a_period_that_makes_no_sense_is_invalid_input():
    doses = pb.PeriodicEvent(lambda p: p["T"], add)
    one = pb.ODEProblem(
        decay, jnp.ones(1), (0.0, 1.0), {"k": 1.0, "d": 1.0, "T": 1.0}, events=[doses]
    )
    periods = jnp.array([0.3, -1.0, 0.0, jnp.nan])
    params = {"k": jnp.ones(4), "d": jnp.ones(4), "T": periods}
    sol = pb.solve(pb.EnsembleProblem(one, params=params), pb.Tsit5(), ANY)
    assert sol.status.tolist() == [pb.Status.success, *[pb.Status.invalid_input] * 3]


# ------------------------------------------------------------------------ at the very start


def at_t0(x):
    kick = pb.PresetTimes(
        lambda p: p["tau"][None], lambda t, y, p: y * (1 + t) + p["d"] * jnp.exp(t)
    )
    field = lambda t, y, p: -p["k"] * y * (1 + t)  # noqa: E731
    params = {"k": x[0], "tau": x[1], "d": x[3]}
    span, at = (x[2], 2.0), jnp.array([0.7, 1.5])
    return solve(field, jnp.ones(1), span, params, [kick], saveat=at).y[:, 0]


def at_t0_exact(x):
    k, tau, t0, d = x
    g = lambda t: k * (t + t * t / 2)  # noqa: E731
    y = jnp.exp(g(t0) - g(tau)) * (1 + tau) + d * jnp.exp(tau)
    return jnp.stack([y * jnp.exp(g(tau) - g(t)) for t in (0.7, 1.5)])


AT_T0 = jnp.array([0.8, 0.3, 0.3, 1.3])


def test_times_at_t0_have_derivatives():
    """By the time, by t0 and by what happens, all depending on time, as if just behind t0."""

    assert_derivatives(at_t0, at_t0_exact, AT_T0)


@pytest.mark.parametrize("start", [0.3, pytest.param(-1.13, marks=pytest.mark.slow)])
def test_start_at_t0_or_before_it(start):
    def rows(x):
        kicks = pb.PeriodicEvent(
            lambda p: p["T"], lambda t, y, p: y + jnp.exp(-t), start=lambda p: p["s"]
        )
        params = {"k": x[0], "s": x[1], "T": x[2]}
        return solve(decay, jnp.ones(1), (0.3, 2.0), params, [kicks]).y_end

    def exact(x):
        k, s, period = x
        times = [s + i * period for i in range(40)]
        kicks = (jnp.exp(-t - k * (2.0 - t)) * ((t >= 0.3) & (t <= 2.0)) for t in times)
        return (jnp.exp(-k * 1.7) + sum(kicks))[None]

    assert_derivatives(rows, exact, jnp.array([0.8, start, 0.25]))


# ------------------------------------------------------------------------ lists


def test_lists_in_any_order_with_repetitions_and_times_that_do_not_come():
    doses = pb.PresetTimes(lambda p: p["times"], add)
    times = jnp.array([[3.0, 1.0, 9.0], [2.0, 2.0, 1.0]])
    one = pb.ODEProblem(
        decay, jnp.zeros(1), (0.0, 5.0), {"k": 0.3, "d": 1.0, "times": times[0]}, events=[doses]
    )

    def ends(times):
        params = {"k": 0.3, "d": 1.0, "times": times}
        return pb.solve(pb.EnsembleProblem(one, params=params), pb.Tsit5(), ANY, **TIGHT)

    sol = ends(times)
    k = 0.3
    expected = [np.exp(-2 * k) + np.exp(-4 * k), np.exp(-3 * k) + np.exp(-4 * k)]
    np.testing.assert_allclose(sol.y_end[:, 0], expected, rtol=1e-8)
    np.testing.assert_array_equal(sol.events.count, [2, 2])
    np.testing.assert_array_equal(sol.events.t[:, :2], [[1.0, 3.0], [1.0, 2.0]])
    slope = jax.grad(lambda times: ends(times).y_end.sum())(times)
    np.testing.assert_allclose(slope[0], [k * np.exp(-2 * k), k * np.exp(-4 * k), 0.0], atol=1e-8)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_events_that_coincide_leave_no_empty_step(method):
    """An implicit step divides by its size; and each event happens once."""
    one = lambda t, y, p: y + 1.0  # noqa: E731
    doses = pb.PresetTimes([1.0, 0.5], one)
    again = pb.PresetTimes([1.0, 2.0], one)
    root = pb.Event(lambda t, y, p: t - 1.0, one)
    at_end = pb.Event(lambda t, y, p: t - 2.0, one)

    def end(k):
        events, stops = [doses, again, root, at_end], [0.1 * 5, 1.0, 1.0 + 3e-16]
        sol = solve(decay, jnp.ones(1), (0.0, 2.0), {"k": k}, events, method=method, tstops=stops)
        return sol

    sol = end(0.5)
    assert int(sol.status) == pb.Status.success
    assert int(sol.events.count) == 6
    terms = [2.0, 1.5, 1.0, 1.0, 1.0, 0.0, 0.0]
    np.testing.assert_allclose(sol.y_end[0], sum(np.exp(-0.5 * s) for s in terms), rtol=1e-8)
    slope = -sum(s * np.exp(-0.5 * s) for s in terms)
    np.testing.assert_allclose(jax.grad(lambda k: end(k).y_end[0])(0.5), slope, rtol=1e-7)
    forward = jax.jvp(lambda k: end(k).y_end[0], (0.5,), (1.0,))[1]
    np.testing.assert_allclose(forward, slope, rtol=1e-7)


# ------------------------------------------------------------------------ stops


def jump(x, strict=True, t_span=(0.0, 2.0), y0=1.0, **options):
    """-k y before tau, 1 - y behind it."""

    def field(t, y, p):
        is_before = t < p["tau"] if strict else t <= p["tau"]
        return jnp.where(is_before, -p["k"] * y, 1.0 - y)

    params, y0 = {"k": x[0], "tau": x[1]}, jnp.full(1, y0)
    return solve(field, y0, t_span, params, **({"tstops": x[1][None]} | options))


def jump_exact(x):
    return (1 + (jnp.exp(-x[0] * x[1]) - 1) * jnp.exp(x[1] - 2))[None]


def jump_back_exact(x):
    return ((1 - 0.3 * jnp.exp(2 - x[1])) * jnp.exp(x[0] * x[1]))[None]


P = jnp.array([0.8, 0.7123])


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("method", [pb.Tsit5(), pb.Vern7(), pb.Rodas5P()], ids=lambda m: m.name)
def test_stops_spare_the_search_for_a_jump(method, strict):
    sol = jump(P, strict, method=method)
    without = jump(P, strict, method=method, tstops=None)
    np.testing.assert_allclose(sol.y_end, jump_exact(P), atol=1e-9)
    # Nothing but the jump makes step control reject.
    assert int(sol.stats["n_rejected"]) == 0
    assert int(without.stats["n_rejected"]) > 20
    assert sol.events is None


@pytest.mark.parametrize("strict", [True, False])
def test_stops_backward_in_time(strict):
    sol = jump(P, strict, (2.0, 0.0), 0.7)
    np.testing.assert_allclose(sol.y_end, jump_back_exact(P), atol=1e-8)
    assert int(sol.stats["n_rejected"]) == 0


def jump_end(x):
    return jump(x).y_end


def jump_back_end(x):
    return jump(x, True, (2.0, 0.0), 0.7).y_end


def test_a_jump_that_moves_is_differentiated():
    assert_derivatives(jump_end, jump_exact, P)


@pytest.mark.slow
def test_a_jump_that_moves_is_differentiated_backward_in_time():
    assert_derivatives(jump_back_end, jump_back_exact, P)


@each_executor_slow_on_array
def test_stops_of_each_trajectory(executor):
    taus = jnp.linspace(0.3, 1.7, 5)
    field = lambda t, y, p: jnp.where(t < p["tau"], -0.8 * y, 1.0 - y)  # noqa: E731
    one = pb.ODEProblem(field, jnp.ones(1), (0.0, 2.0), {"tau": taus[0]})

    def ends(taus):
        ensemble = pb.EnsembleProblem(one, params={"tau": taus})
        sol = pb.solve(ensemble, pb.Tsit5(), executor, tstops=taus[:, None], **TIGHT)
        return sol.y_end[:, 0]

    exact = jax.vmap(lambda tau: jump_exact(jnp.stack([0.8, tau]))[0])
    np.testing.assert_allclose(ends(taus), exact(taus), atol=1e-9)
    slopes = jax.grad(lambda taus: ends(taus).sum())(taus)
    np.testing.assert_allclose(slopes, jax.grad(lambda t: exact(t).sum())(taus), atol=1e-8)


def test_stops_with_fixed_steps_and_at_both_ends():
    sol = jump(P, method=pb.RK4(), dt=0.1)
    np.testing.assert_allclose(sol.y_end, jump_exact(P), atol=1e-6)
    assert int(sol.stats["n_accepted"]) == 21
    rows = jnp.array([0.0, 1.0, 2.0])
    ends = solve(decay, jnp.ones(1), (0.0, 2.0), {"k": 1.0}, tstops=[0.0, 1.0, 2.0], saveat=rows)
    np.testing.assert_allclose(ends.y[:, 0], np.exp(-rows), atol=1e-9)


# ------------------------------------------------------------------------ second derivatives


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "exact", "x"),
    [
        (levels, levels_exact, X),
        (thirty, thirty_exact, THIRTY),
        (from_t0, from_t0_exact, jnp.array([0.8, 0.1, 0.3])),
        (backward, backward_exact, jnp.array([0.4, 0.3, 2.0])),
        (at_t0, at_t0_exact, AT_T0),
        (jump_end, jump_exact, P),
        (jump_back_end, jump_back_exact, P),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_forward_over_reverse(function, exact, x):
    expected = jax.jacfwd(jax.jacfwd(exact))(x)
    size = 1.0 + np.abs(expected).max()
    # Rows inside a step are interpolated, one order less accurate with every derivative.
    got = jax.jacfwd(jax.jacrev(function))(x)
    np.testing.assert_allclose(got, expected, atol=1e-5 * size)


# ------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: pb.PeriodicEvent(0.0), "`period` must be positive"),
        (lambda: pb.PeriodicEvent([1.0]), "`period` must be one finite number or a function"),
        (lambda: pb.PeriodicEvent(1.0, start=np.nan), "`start` must be one finite number"),
        (lambda: pb.PeriodicEvent(1.0, 2.0), "`affect` must be a function"),
        (lambda: pb.PeriodicEvent(1.0, terminate=1), "`terminate` must be True or False"),
    ],
)
def test_mistakes(make, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        make()


@pytest.mark.parametrize(
    ("tstops", "sentence"),
    [
        ([3.0], "`tstops` must lie inside `t_span`, but its entry 0 is 3"),
        ([1.0, 0.5], "`tstops` must be sorted in the direction of integration"),
        ([np.nan], "`tstops` must hold numbers"),
        (np.ones((2, 3)), r"`tstops` must have shape \(stop,\)"),
        ("end", "`tstops` must be None or an array of times"),
    ],
)
def test_stops_are_checked_as_saveat_is(tstops, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        solve(decay, jnp.ones(1), (0.0, 2.0), {"k": 1.0}, tstops=tstops)


def test_a_period_must_give_one_number():
    with pytest.raises(
        ValueError, match=r"`period` of PeriodicEvent must return one .* shape \(1,\)"
    ):
        events = [pb.PeriodicEvent(lambda p: p["k"][None])]
        solve(decay, jnp.ones(1), (0.0, 2.0), {"k": 1.0}, events)
