"""Events: found, timed, acted on, and differentiated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import each_executor, each_executor_slow_on_array

KERNEL = pb.EnsembleKernel()
G = 9.81


def fall(t, y, g):
    return jnp.stack([y[1], -g])


def height(t, y, p):
    return y[0]


def solve(field, y0, t1, params=None, events=(), executor=KERNEL, method=None, **options):
    problem = pb.ODEProblem(field, y0, (0.0, t1), params, events=events)
    options = {"rtol": 1e-6, "atol": 1e-6} | options
    return pb.solve(problem, pb.Tsit5() if method is None else method, executor, **options)


# ------------------------------------------------------------------------ terminal events


def landing(h0, g, executor=KERNEL):
    y0 = jnp.stack([h0, jnp.zeros_like(h0)])
    return solve(fall, y0, 100.0, g, [pb.Event(height, terminate=True)], executor)


@each_executor
def test_free_fall_ends_on_the_ground(executor):
    sol = landing(jnp.array(10.0), jnp.array(G), executor)
    assert int(sol.status) == pb.Status.terminated
    assert bool(sol.ok)
    t = np.sqrt(2 * 10.0 / G)
    # Tsit5 is exact for free fall, so that only the root is left.
    np.testing.assert_allclose(sol.t_end, t, rtol=1e-13)
    np.testing.assert_allclose(sol.y_end, [0.0, -G * t], atol=1e-12)
    assert int(sol.events.count) == 1
    np.testing.assert_allclose(sol.events.t[0], t, rtol=1e-13)
    assert np.isnan(sol.events.t[1:]).all()
    assert sol.events.index.tolist() == [0, *[-1] * 15]


@each_executor_slow_on_array
def test_time_of_landing_is_differentiable(executor):
    def t_end(h0, g):
        return landing(h0, g, executor).t_end

    h0, g = jnp.array(10.0), jnp.array(G)
    t = np.sqrt(2 * 10.0 / G)
    expected = (t / 20.0, -t / (2 * G))
    np.testing.assert_allclose(jax.grad(t_end, (0, 1))(h0, g), expected, rtol=1e-12)
    np.testing.assert_allclose(jax.jacfwd(t_end, (0, 1))(h0, g), expected, rtol=1e-12)


def test_time_of_landing_has_second_derivatives():
    def t_end(x):
        return landing(x[0], x[1]).t_end

    t = np.sqrt(2 * 10.0 / G)
    mixed = -t / (40.0 * G)
    expected = [[-t / 400.0, mixed], [mixed, 3 * t / (4 * G**2)]]
    got = jax.jacfwd(jax.grad(t_end))(jnp.array([10.0, G]))
    np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_each_ball_of_an_ensemble_stops_on_its_own():
    h0 = jnp.arange(1.0, 65.0)
    problem = pb.ODEProblem(
        fall, jnp.array([1.0, 0.0]), (0.0, 10.0), G, events=[pb.Event(height, terminate=True)]
    )
    y0 = jnp.stack([h0, jnp.zeros(64)], axis=1)
    sol = pb.solve(pb.EnsembleProblem(problem, y0=y0), pb.Tsit5(), KERNEL, rtol=1e-6)
    np.testing.assert_allclose(sol.t_end, np.sqrt(2 * h0 / G), rtol=1e-12)


def test_rows_behind_the_end_repeat_it():
    events = [pb.Event(height, terminate=True)]
    sol = solve(fall, jnp.array([1.0, 0.0]), 2.0, G, events, saveat=0.25)
    t = np.sqrt(2 / G)
    n = int(np.sum(np.arange(0, 2.01, 0.25) <= t))
    assert int(sol.n_saved) == n
    np.testing.assert_allclose(sol.t[n:], t, rtol=1e-12)
    np.testing.assert_allclose(sol.y[n:, 0], 0.0, atol=1e-12)


# ------------------------------------------------------------------------ jumps


def test_reset_at_a_threshold():
    def end(p, derivative):
        reset = pb.Event(lambda t, y, p: y[0] - p, lambda t, y, p: jnp.zeros(1))
        one = lambda t, y, p: jnp.ones(1)  # noqa: E731
        return derivative(lambda p: solve(one, jnp.zeros(1), 1.0, p, [reset]).y_end[0])(p)

    for p in (0.6, 0.83):
        np.testing.assert_allclose(end(p, lambda f: f), 1.0 - p, rtol=1e-12)
        np.testing.assert_allclose(end(p, jax.grad), -1.0, rtol=1e-12)
        np.testing.assert_allclose(end(p, jax.jacfwd), -1.0, rtol=1e-12)


def test_switch_at_a_parameter():
    def end(p):
        def stop(t, y, p):
            return jnp.stack([y[0], 0.0 * y[1]])

        switch = pb.Event(lambda t, y, p: t - p, stop)
        field = lambda t, y, p: jnp.stack([y[1], 0.0 * y[1]])  # noqa: E731
        return solve(field, jnp.array([0.0, 1.0]), 2.0, p, [switch]).y_end[0]

    np.testing.assert_allclose(end(0.98), 0.98, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(end)(0.98), 1.0, rtol=1e-12)


TIMES = np.array([0.3, 1.0, 1.8, 2.75])


def ball(x, executor=KERNEL):
    """Rows, end and event times of a ball with restitution x[0], height x[1], gravity x[2]."""
    bounce = pb.Event(
        height, lambda t, y, p: jnp.stack([jnp.zeros(()), -p[0] * y[1]]), direction=-1
    )
    y0 = jnp.stack([x[1], jnp.zeros(())])
    field = lambda t, y, p: jnp.stack([y[1], -p[2]])  # noqa: E731
    sol = solve(field, y0, 2.75, x, [bounce], executor, saveat=TIMES)
    return jnp.concatenate([sol.y[:, 0], sol.y_end, sol.events.t[:5]])


def ball_exact(x):
    e, h0, g = x
    t = jnp.sqrt(2 * h0 / g)
    v, times, flights = g * t, [t], [(jnp.zeros(()), h0, jnp.zeros(()))]
    for _ in range(5):
        v = v * e
        flights.append((t, jnp.zeros(()), v))
        t = t + 2 * v / g
        times.append(t)
    starts = np.array([float(jax.lax.stop_gradient(f[0])) for f in flights])

    def at(time):
        begin, y, w = flights[int(np.sum(starts <= time)) - 1]
        s = time - begin
        return y + w * s - g * s * s / 2, w - g * s

    return jnp.concatenate(
        [jnp.stack([at(t)[0] for t in TIMES]), jnp.stack(at(2.75)), jnp.stack(times[:5])]
    )


X = jnp.array([0.8, 1.0, G])


@each_executor
def test_bouncing_ball(executor):
    np.testing.assert_allclose(ball(X, executor), ball_exact(X), atol=1e-11)


def test_bouncing_ball_is_differentiable_in_both_modes():
    forward = jnp.stack([jax.jvp(ball, (X,), (v,))[1] for v in jnp.eye(3)], axis=1)
    h = 1e-5
    columns = [(ball_exact(X + h * v) - ball_exact(X - h * v)) / (2 * h) for v in jnp.eye(3)]
    # Differences of the closed form: d/de of the last velocity is 67.
    np.testing.assert_allclose(forward, jnp.stack(columns, axis=1), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(jax.jacrev(ball)(X), forward, rtol=1e-11, atol=1e-11)


def growth_end(p, method, **options):
    """u' = p0 u, and at u = p1 a reset to p2 u^2."""
    reset = pb.Event(lambda t, y, p: y[0] - p[1], lambda t, y, p: p[2] * y**2)
    field = lambda t, y, p: p[0] * y  # noqa: E731
    return solve(field, jnp.ones(1), 3.0, p, [reset], method=method, **options).y_end[0]


def growth_exact(p):
    t, u = 0.0, 1.0
    while t + np.log(p[1] / u) / p[0] <= 3.0:
        t, u = t + np.log(p[1] / u) / p[0], p[2] * p[1] ** 2
    return u * np.exp(p[0] * (3.0 - t))


@pytest.mark.parametrize(
    "method", [pb.Tsit5(), pb.Rodas5P(), pytest.param(pb.Kvaerno5(), marks=pytest.mark.slow)]
)
def test_parameter_in_field_surface_and_jump(method):
    p = np.array([1.0, 2.0, 0.3])
    options = {"rtol": 1e-8, "atol": 1e-8}
    tol = 3e-7 if isinstance(method, pb.Kvaerno5) else 1e-7
    np.testing.assert_allclose(growth_end(p, method, **options), growth_exact(p), rtol=tol)
    h = 1e-6
    expected = [(growth_exact(p + h * v) - growth_exact(p - h * v)) / (2 * h) for v in np.eye(3)]
    got = jax.grad(growth_end)(jnp.asarray(p), method, **options)
    np.testing.assert_allclose(got, expected, rtol=10 * tol)


def test_short_tapes_keep_what_events_need():
    p = jnp.array([1.0, 2.0, 0.3])

    def gradient(tape):
        return jax.grad(growth_end)(p, pb.Tsit5(), adjoint=pb.DiscreteAdjoint(tape=tape))

    np.testing.assert_array_equal(gradient(3), gradient(None))


def test_fixed_steps_are_cut_and_go_on():
    p = np.array([1.0, 2.0, 0.3])
    got = growth_end(p, pb.RK4(), dt=0.01)
    np.testing.assert_allclose(got, growth_exact(p), rtol=1e-8)


# ------------------------------------------------------------------------ search


def circle(t, y, p):
    return jnp.stack([y[1], -y[0]])


@each_executor
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_two_crossings_inside_one_step(executor, tol):
    level = pb.Event(lambda t, y, p: y[0] - 0.999)
    sol = solve(circle, jnp.array([0.0, 1.0]), 3.0, None, [level], executor, rtol=tol, atol=tol)
    first = np.arcsin(0.999)
    assert int(sol.events.count) == 2
    np.testing.assert_allclose(sol.events.t[:2], [first, np.pi - first], atol=3 * tol / 0.0447)


def test_grazing_fires_twice_and_not_more():
    level = pb.Event(lambda t, y, p: y[0] - (1.0 - 1e-7))
    options = {"rtol": 1e-9, "atol": 1e-9}
    sol = solve(circle, jnp.array([0.0, 1.0]), 3.0, None, [level], **options)
    assert int(sol.events.count) == 2


@pytest.mark.parametrize(("direction", "expected"), [(0, 6), (1, 3), (-1, 3)])
def test_direction(direction, expected):
    level = pb.Event(lambda t, y, p: y[0] - 0.5, direction=direction)
    sol = solve(circle, jnp.array([0.0, 1.0]), 6 * np.pi - 0.1, None, [level])
    assert int(sol.events.count) == expected
    up, down = np.arcsin(0.5), np.pi - np.arcsin(0.5)
    first = down if direction < 0 else up
    np.testing.assert_allclose(sol.events.t[0], first, atol=1e-5)


def test_simultaneous_events_happen_in_their_order():
    add = pb.Event(lambda t, y, p: t - 1.0, lambda t, y, p: y + 1.0)
    double = pb.Event(lambda t, y, p: t - 1.0, lambda t, y, p: 2.0 * y)
    still = lambda t, y, p: jnp.zeros(1)  # noqa: E731
    one = solve(still, jnp.ones(1), 2.0, None, [add, double])
    other = solve(still, jnp.ones(1), 2.0, None, [double, add])
    assert float(one.y_end[0]) == 4.0
    assert float(other.y_end[0]) == 3.0
    assert one.events.index.tolist()[:2] == [0, 1]


def test_chatter_and_accumulation_are_statuses():
    stuck = pb.Event(height, lambda t, y, p: y)
    sol = solve(fall, jnp.array([1.0, 0.0]), 2.0, G, [stuck])
    assert int(sol.status) == pb.Status.success  # it falls on, through the ground
    assert int(sol.events.count) == 1
    bounce = pb.Event(height, lambda t, y, p: jnp.stack([0.0 * y[0], -0.5 * y[1]]), direction=-1)
    sol = solve(fall, jnp.array([1.0, 0.0]), 10.0, G, [bounce])
    assert int(sol.status) == pb.Status.zeno
    t = np.sqrt(2 / G)
    np.testing.assert_allclose(sol.t_end, 3 * t, rtol=1e-3)


# ------------------------------------------------------------------------ preset times


def doses_exact(k, times, dose, t):
    return sum(dose * jnp.exp(-k * (t - s)) * (t >= s) for s in times)


@each_executor
def test_doses_land_exactly(executor):
    dosing = pb.PresetTimes([0.0, 2.0, 4.0], lambda t, y, p: y + 1.0)
    times = np.array([0.0, 1.0, 2.0, 3.0, 5.0])
    decay = lambda t, y, k: -k * y  # noqa: E731
    tight = {"rtol": 1e-9, "atol": 1e-9}
    sol = solve(decay, jnp.zeros(1), 5.0, 0.3, [dosing], executor, saveat=times, **tight)
    expected = [doses_exact(0.3, [0.0, 2.0, 4.0], 1.0, t) for t in times]
    np.testing.assert_allclose(sol.y[:, 0], expected, rtol=1e-7)
    np.testing.assert_array_equal(sol.events.t[:2], [2.0, 4.0])


def test_doses_of_each_trajectory_and_their_derivatives():
    dosing = pb.PresetTimes(lambda p: p["times"], lambda t, y, p: y + p["dose"])
    params = {"k": 0.3, "times": jnp.array([0.0, 2.0, 4.0]), "dose": 1.0}
    problem = pb.ODEProblem(
        lambda t, y, p: -p["k"] * y, jnp.zeros(1), (0.0, 10.0), params, events=[dosing]
    )

    def ends(k, times):
        ensemble = pb.EnsembleProblem(problem, params={"k": k, "times": times, "dose": 1.0})
        return pb.solve(ensemble, pb.Tsit5(), KERNEL, rtol=1e-9, atol=1e-9).y_end[:, 0]

    def exact(k, times):
        return jnp.exp(-k[:, None] * (10.0 - times)).sum(1)

    k = jnp.linspace(0.1, 0.5, 5)
    times = jnp.linspace(0.1, 1.0, 5)[:, None] + jnp.array([[0.0, 2.0, 4.0]])
    np.testing.assert_allclose(ends(k, times), exact(k, times), rtol=1e-7)
    got = jax.grad(lambda k, s: ends(k, s).sum(), (0, 1))(k, times)
    expected = jax.grad(lambda k, s: exact(k, s).sum(), (0, 1))(k, times)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_fixed_steps_land_on_preset_times():
    dosing = pb.PresetTimes([0.5, 1.0, 2.2], lambda t, y, p: y + 1.0)
    sol = solve(lambda t, y, k: -k * y, jnp.zeros(1), 3.0, 0.5, [dosing], method=pb.RK4(), dt=0.1)
    expected = doses_exact(0.5, [0.5, 1.0, 2.2], 1.0, 3.0)
    np.testing.assert_allclose(sol.y_end[0], expected, rtol=1e-6)
    assert int(sol.stats["n_accepted"]) == 30


def test_backward_in_time():
    dosing = pb.PresetTimes([2.0, 1.0], lambda t, y, p: y + 1.0)
    problem = pb.ODEProblem(lambda t, y, p: 0.0 * y, jnp.zeros(1), (3.0, 0.0), events=[dosing])
    sol = pb.solve(problem, pb.Tsit5(), KERNEL)
    np.testing.assert_allclose(sol.y_end, 2.0)
    np.testing.assert_array_equal(sol.events.t[:2], [2.0, 1.0])


# ------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: pb.Event(1.0), "`condition` must be a function"),
        (lambda: pb.Event(height, 2.0), "`affect` must be a function"),
        (lambda: pb.Event(height, terminate=1), "`terminate` must be True or False"),
        (lambda: pb.Event(height, direction=2), "`direction` must be 1"),
        (lambda: pb.PresetTimes([0.0, np.nan]), "`times` must be a 1-D array of finite times"),
        (lambda: pb.ODEProblem(fall, 1.0, (0.0, 1.0), events=[height]), "`events` must hold"),
    ],
)
def test_mistakes(make, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        make()


def test_condition_must_be_a_number():
    with pytest.raises(TypeError, match=r"`condition` .* one real number .* bool.*how far"):
        solve(fall, jnp.ones(2), 1.0, G, [pb.Event(lambda t, y, p: y[0] > 0)])
    with pytest.raises(TypeError, match=r"`condition` .* shape \(2,\)"):
        solve(fall, jnp.ones(2), 1.0, G, [pb.Event(lambda t, y, p: y)])
    with pytest.raises(ValueError, match=r"`affect` .* shape"):
        solve(fall, jnp.ones(2), 1.0, G, [pb.Event(height, lambda t, y, p: y[:1])])
