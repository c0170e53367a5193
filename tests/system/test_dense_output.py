"""`sol(t)` and `sol.derivative(t)`: the solution between its steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor, each_executor_slow_on_array
from pullback.testing import assert_close, taylor_test, tol
from quick import quick_compilation  # noqa: F401

TIGHT = {"rtol": 1e-9, "atol": 1e-9, "saveat": "steps", "max_saves": 200}
OMEGA = 2.0


def oscillator(t, y, omega):
    return {"x": y["v"], "v": -(omega**2) * y["x"]}


def swing(omega=OMEGA, executor=ANY, t_span=(0.0, 3.0), method=None, **options):
    problem = pb.ODEProblem(oscillator, {"x": 1.0, "v": 0.0}, t_span, omega)
    method = pb.Tsit5() if method is None else method
    return pb.solve(problem, method, executor, **(TIGHT | options))


@each_executor
def test_any_times_in_any_order_and_shape(executor):
    sol = swing(executor=executor)
    times = np.array([[2.9, 0.0, 1.234], [3.0, 0.7, 0.7]])
    y = sol(times)
    assert y["x"].shape == y["v"].shape == (2, 3)
    # The interpolant is of order 4 between states that are right to 1e-9.
    np.testing.assert_allclose(y["x"], np.cos(OMEGA * times), atol=2e-7)
    np.testing.assert_allclose(sol.derivative(times)["x"], y["v"], atol=2e-6)
    assert sol(1.5)["x"].shape == ()
    assert sol([1, 2])["x"].shape == (2,)


@each_executor
def test_at_the_ends_of_steps_it_is_the_saved_state(executor):
    sol = swing(executor=executor, rtol=1e-4, atol=1e-4)
    n = int(sol.n_saved)
    np.testing.assert_array_equal(sol(sol.t[:n])["x"], sol.y["x"][:n])
    assert float(sol(0.0)["x"]) == 1.0
    # The slope at the very end is the vector field's.
    np.testing.assert_allclose(sol.derivative(3.0)["v"], -(OMEGA**2) * sol.y_end["x"], rtol=1e-15)


SLOW = [pb.Dopri5(), pb.Bosh3(), pb.Rosenbrock23(), pb.TRBDF2()]
METHODS = [
    pb.Tsit5(), pb.Vern7(), pb.Rodas5P(), pb.Kvaerno5(),
    *(pytest.param(m, marks=pytest.mark.slow) for m in SLOW),
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_it_is_what_saveat_saves(method):
    times = np.linspace(0.05, 2.95, 9)
    options = {"rtol": 1e-5, "atol": 1e-5}
    sol = swing(method=method, **options)
    saved = swing(method=method, saveat=times, max_saves=None, **options)
    # One formula, twice: rounding, but for Newton's iteration, which ends at its tolerance.
    atol = 1e-7 if isinstance(method, pb.Kvaerno5 | pb.TRBDF2) else 1e-12
    np.testing.assert_allclose(sol(times)["x"], saved.y["x"], atol=atol)


def test_backward_in_time():
    sol = swing(t_span=(3.0, 0.0))
    times = np.array([3.0, 1.1, 0.0])
    np.testing.assert_allclose(sol(times)["x"], np.cos(OMEGA * (times - 3.0)), atol=2e-7)


def test_fixed_steps_and_a_method_without_an_estimate():
    sol = swing(method=pb.RK4(), dt=0.01, rtol=1e-3, atol=1e-3, max_saves=400)
    np.testing.assert_allclose(sol(1.2345)["x"], np.cos(OMEGA * 1.2345), atol=1e-6)


def test_single_precision_stays_so():
    problem = pb.ODEProblem(lambda t, y, p: -p * y, jnp.ones(2, "float32"), (0.0, 1.0), 0.5)
    sol = pb.solve(problem, pb.Tsit5(), ANY, saveat="steps", max_saves=20)
    assert sol(0.3).dtype == sol.derivative(np.float64(0.3)).dtype == jnp.float32
    np.testing.assert_allclose(sol(0.3), np.exp(-0.15), rtol=1e-4)


# ------------------------------------------------------------------------ derivatives


@each_executor_slow_on_array
def test_gradient_by_everything(executor):
    def x(omega, x0, t):
        problem = pb.ODEProblem(oscillator, {"x": x0, "v": 0.0}, (0.0, 3.0), omega)
        return pb.solve(problem, pb.Tsit5(), executor, **TIGHT)(t)["x"]

    t = 1.3
    expected = (-t * np.sin(OMEGA * t), np.cos(OMEGA * t), -OMEGA * np.sin(OMEGA * t))
    found = jax.grad(x, (0, 1, 2))(OMEGA, 1.0, t)
    # Not rounding: the derivative of the interpolant, of order 4.
    np.testing.assert_allclose(found, expected, atol=3e-6)
    dots = [jax.jvp(x, (OMEGA, 1.0, t), tuple(row))[1] for row in np.eye(3)]
    np.testing.assert_allclose(dots, found, rtol=1e-9)


def test_gradient_is_exact_on_fixed_steps():
    def f(x):
        problem = pb.ODEProblem(oscillator, {"x": x["x0"], "v": 0.0}, (0.0, 1.0), x["omega"])
        sol = pb.solve(problem, pb.RK4(), ANY, dt=0.1, saveat="steps", max_saves=20)
        return jnp.sum(sol(x["t"])["x"] * jnp.array([1.0, -2.0])) + sol.derivative(x["t"][0])["v"]

    taylor_test(f, {"x0": 1.0, "omega": 2.0, "t": jnp.array([0.33, 0.71])})


@pytest.mark.parametrize(
    "method",
    [pb.Rodas5P(), pytest.param(pb.Kvaerno3(), marks=pytest.mark.slow)],
    ids=lambda m: m.name,
)
def test_gradient_of_implicit_methods(method):
    def f(x):
        problem = pb.ODEProblem(lambda t, y, k: -k * (y - jnp.cos(t)), x["y0"], (0.0, 1.0), x["k"])
        sol = pb.solve(
            problem, method, ANY, dt=0.1, saveat="steps", max_saves=20, rtol=1e-12, atol=1e-12
        )
        return sol(x["t"])

    taylor_test(f, {"y0": 0.3, "k": 20.0, "t": 0.433})


def test_the_start_moves():
    def f(t0):
        problem = pb.ODEProblem(lambda t, y, p: -t * y, 1.0, (t0, 2.0))
        sol = pb.solve(problem, pb.Tsit5(), ANY, **TIGHT)
        return jnp.sum(sol(jnp.stack([t0 + 0.01, 1.5])))

    def exact(t0):
        return jnp.exp((t0**2 - (t0 + 0.01) ** 2) / 2) + jnp.exp((t0**2 - 1.5**2) / 2)

    np.testing.assert_allclose(jax.grad(f)(0.4), jax.grad(exact)(0.4), rtol=1e-6)


def test_under_jit_and_vmap():
    sol = swing()
    times = jnp.linspace(0.0, 3.0, 7)
    expected = sol(times)["x"]
    assert_close(jax.vmap(lambda t: sol(t)["x"])(times), expected, rtol=0.0, atol=tol("float64", 4))
    jitted = jax.jit(lambda s, t: s(t)["x"])
    assert_close(jitted(sol, times), expected, rtol=0.0, atol=tol("float64", 4))
    many = jax.vmap(lambda w: swing(w))(jnp.array([1.0, 2.0]))
    assert_close(jax.vmap(lambda s: s(times)["x"])(many)[1], expected, rtol=0.0, atol=1e-12)


# ------------------------------------------------------------------------ events, mass matrices


def bounce(x, executor=ANY, **options):
    ground = pb.Event(lambda t, y, p: y[0], lambda t, y, p: jnp.stack([0.0, -p["e"] * y[1]]))
    problem = pb.ODEProblem(
        lambda t, y, p: jnp.stack([y[1], -9.81]), jnp.stack([x["h"], 0.0]), (0.0, 2.0), x,
        events=[ground],
    )  # fmt: skip
    return pb.solve(problem, pb.Tsit5(), executor, **(TIGHT | options))


BALL = {"h": jnp.array(1.0), "e": jnp.array(0.8)}
T_1 = np.sqrt(2.0 / 9.81)


def bounced(x, t):
    """Height after the first and before the second bounce."""
    t_1 = jnp.sqrt(2.0 * x["h"] / 9.81)
    s = t - t_1
    return x["e"] * 9.81 * t_1 * s - 9.81 * s**2 / 2


@each_executor_slow_on_array
def test_through_an_event(executor):
    sol = bounce(BALL, executor)
    np.testing.assert_allclose(sol(0.3)[0], 1.0 - 9.81 * 0.09 / 2, rtol=1e-12)
    np.testing.assert_allclose(sol(0.9)[0], bounced(BALL, 0.9), rtol=1e-11)
    # At the event itself: behind it.
    speed = 9.81 * T_1
    np.testing.assert_allclose(sol(sol.events.t[0])[1], 0.8 * speed, rtol=1e-11)
    np.testing.assert_allclose(sol(sol.events.t[0] - 1e-9)[1], -speed, rtol=1e-7)


@each_executor_slow_on_array
def test_gradient_behind_an_event(executor):
    for t in (0.6, 0.9):
        found = jax.grad(lambda x, t=t: bounce(x, executor)(t)[0])(BALL)
        expected = jax.grad(bounced)(BALL, t)
        # Free fall is integrated exactly; the saltation is exact too.
        assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_gradient_behind_a_time_at_which_a_step_had_to_end():
    # Steps behind the event move with it, those behind the stop do not.
    found = jax.grad(lambda x: bounce(x, tstops=[0.7])(jnp.array([0.6, 0.9]))[:, 0].sum())(BALL)
    expected = jax.grad(lambda x: bounced(x, 0.6) + bounced(x, 0.9))(BALL)
    assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_gradient_behind_more_events_than_are_recorded_is_not_a_number():
    def f(rate):
        wrap = pb.Event(lambda t, y, p: y - 1.0, lambda t, y, p: y - 1.0)
        problem = pb.ODEProblem(lambda t, y, p: p * jnp.ones_like(y), 0.5, (0.0, 20.0), rate)
        sol = pb.solve(problem, pb.Tsit5(), ANY, events=[wrap], saveat="steps", max_saves=200)
        return sol(jnp.array([3.7, 19.7]))

    np.testing.assert_allclose(f(1.0), [0.2, 0.2], atol=1e-6)
    slopes = jax.jacfwd(f)(1.0)
    np.testing.assert_allclose(slopes[0], 3.7, rtol=1e-6)
    assert not np.isfinite(slopes[1])


def test_a_step_at_a_dose():
    dose = pb.PresetTimes([0.0, 1.0], lambda t, y, p: y + p)
    problem = pb.ODEProblem(lambda t, y, p: -y, 0.0, (0.0, 2.0), 3.0, events=[dose])

    def f(amount, t):
        return pb.solve(problem.replace(params=amount), pb.Tsit5(), ANY, **TIGHT)(t)

    np.testing.assert_allclose(f(3.0, 0.5), 3.0 * np.exp(-0.5), rtol=1e-7)
    after = np.exp(-1.5) + np.exp(-0.5)
    np.testing.assert_allclose(f(3.0, 1.5), 3.0 * after, rtol=1e-7)
    np.testing.assert_allclose(jax.grad(f)(3.0, 1.5), after, rtol=1e-6)


def test_algebraic_variables_start_consistently():
    problem = pb.ODEProblem(
        lambda t, y, k: jnp.stack([-k * y[0], y[1] - y[0] ** 2]),
        jnp.array([1.0, 5.0]),
        (0.0, 1.0),
        2.0,
        mass_matrix=[1.0, 0.0],
    )
    sol = pb.solve(problem, pb.Rodas5P(), ANY, **TIGHT)
    np.testing.assert_allclose(sol(0.0), [1.0, 1.0], rtol=1e-12)
    np.testing.assert_allclose(sol(0.37), [np.exp(-0.74), np.exp(-1.48)], rtol=1e-6)


def test_a_stochastic_path_is_the_line_between_steps():
    problem = pb.SDEProblem(lambda t, y, p: -y, lambda t, y, p: 0.1 * y, 1.0, (0.0, 1.0))
    sol = pb.solve(
        problem, pb.EulerMaruyama(), ANY, key=jax.random.key(1), dt=0.25, saveat="steps",
        max_saves=10,
    )  # fmt: skip
    np.testing.assert_allclose(sol(0.625), (sol.y[1] + sol.y[2]) / 2, rtol=1e-14)
    with pytest.raises(ValueError, match="stochastic problem does not exist"):
        sol.derivative(0.5)


def test_an_automatic_choice_of_methods():
    problem = pb.ODEProblem(
        lambda t, y, k: jnp.stack([y[1], k * (1 - y[0] ** 2) * y[1] - y[0]]),
        jnp.array([2.0, 0.0]), (0.0, 100.0), 100.0,
    )  # fmt: skip
    options = {"rtol": 1e-6, "atol": 1e-6}
    times = np.array([1e-3, 3.0, 50.0, 90.0])
    saved = pb.solve(problem, pb.AutoSwitch(), ANY, saveat=times, **options)
    sol = pb.solve(problem, pb.AutoSwitch(), ANY, saveat="steps", max_saves=2000, **options)
    np.testing.assert_allclose(sol(times), saved.y, rtol=1e-9)


# ------------------------------------------------------------------------ what is refused


def test_a_failed_solve_answers_up_to_where_it_got():
    problem = pb.ODEProblem(lambda t, y, p: y**2, 1.0, (0.0, 2.0))
    sol = pb.solve(problem, pb.Tsit5(), ANY, **(TIGHT | {"max_saves": 20}))
    assert not bool(sol.ok)
    reached = float(sol.t_end)
    np.testing.assert_allclose(sol(reached / 2), 1 / (1 - reached / 2), rtol=1e-6)
    with pytest.raises(ValueError, match=r"`t` must lie inside the span that was solved, \(0, 0."):
        sol(1.5)


def test_times_outside():
    sol = swing()
    with pytest.raises(ValueError, match=r"must lie inside .* \(0, 3\), but 3.1 arrived; there is"):
        sol(np.array([1.0, 3.1]))
    assert np.isnan(jax.jit(lambda t: sol(t)["x"])(3.1))
    assert np.isfinite(jax.jit(lambda t: sol(t)["x"])(np.nextafter(3.0, 4.0)))
    with pytest.raises(TypeError, match="`t` must be a time or an array of times, but 'a' arrived"):
        sol("a")


def test_a_solve_without_steps():
    sol = swing(executor=ANY)
    problem = pb.ODEProblem(oscillator, {"x": 1.0, "v": 0.0}, (0.0, 3.0), OMEGA)
    saved = pb.solve(problem, pb.Tsit5(), ANY, saveat=0.5)
    with pytest.raises(ValueError, match=r"`sol\(t\)` takes the steps of a single problem"):
        saved(0.5)
    ensemble = pb.EnsembleProblem(problem, params=np.array([1.0, 2.0]))
    many = pb.solve(ensemble, pb.Tsit5(), ANY, saveat="steps", max_saves=50)
    with pytest.raises(ValueError, match=r"`sol.derivative\(t\)` takes the steps of a single"):
        many.derivative(0.5)
    mapped = jax.vmap(lambda w: swing(w))(jnp.array([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"call jax.vmap\(lambda sol: sol\(t\)\)\(sol\)"):
        mapped(0.5)
    assert jax.tree.structure(sol) == jax.tree.structure(swing(executor=ANY))
