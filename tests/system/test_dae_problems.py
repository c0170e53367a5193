"""Differential-algebraic problems: published end values, and gradients through their starts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from dae_problems import (
    AMPLIFIER_END,
    ANGLE,
    DAE,
    akzo_nobel_ode,
    amplifier_voltages,
    pendulum_angle,
    pendulum_state,
)
from executors import ANY, each_executor_slow_on_array
from pullback.testing import dot_test, taylor_test

METHODS = {m.__name__: m() for m in (pb.Rodas5P, pb.Rodas4, pb.Kvaerno5, pb.Kvaerno3)}
# Error of the end in units of the tolerance: measured, times about three. The fast ones have each
# problem and each method once.
_CASES = [
    ("akzo_nobel", "Rodas5P", 1e-7, 0.3),
    pytest.param("akzo_nobel", "Rodas4", 1e-7, 0.3, marks=pytest.mark.slow),
    pytest.param("akzo_nobel", "Kvaerno5", 1e-7, 0.4, marks=pytest.mark.slow),
    pytest.param("akzo_nobel", "Kvaerno3", 1e-6, 1.5, marks=pytest.mark.slow),
    pytest.param("amplifier", "Rodas5P", 1e-7, 0.05, marks=pytest.mark.slow),
    ("amplifier", "Rodas4", 1e-7, 0.2),
    pytest.param("amplifier", "Kvaerno5", 1e-7, 2.0, marks=pytest.mark.slow),
    pytest.param("amplifier", "Kvaerno3", 1e-6, 1.5, marks=pytest.mark.slow),
    pytest.param("pendulum", "Rodas5P", 1e-8, 4.0, marks=pytest.mark.slow),
    pytest.param("pendulum", "Rodas4", 1e-8, 4.0, marks=pytest.mark.slow),
    ("pendulum", "Kvaerno5", 1e-8, 60.0),
    pytest.param("pendulum", "Kvaerno3", 1e-6, 20.0, marks=pytest.mark.slow),
    pytest.param("robertson", "Rodas5P", 1e-7, 2.5, marks=pytest.mark.slow),
    pytest.param("robertson", "Rodas4", 1e-7, 0.4, marks=pytest.mark.slow),
    pytest.param("robertson", "Kvaerno5", 1e-7, 4.0, marks=pytest.mark.slow),
    ("robertson", "Kvaerno3", 1e-7, 2.5),
]


def make(name, params=None, y0=None, t1=None):
    p = DAE[name]
    params, y0 = p.params if params is None else params, p.y0 if y0 is None else y0
    span = (0.0, p.t1 if t1 is None else t1)
    return pb.ODEProblem(p.field, y0, span, params, mass_matrix=p.mass)


def solve(name, method, rtol, executor=ANY, params=None, y0=None, t1=None, **options):
    problem = make(name, params, y0, t1)
    return pb.solve(problem, method, executor, rtol=rtol, atol=rtol * DAE[name].unit, **options)


def voltages(name, y):
    return amplifier_voltages(y) if name == "amplifier" else y


def algebraic_residual(name, sol):
    p = DAE[name]
    value = p.field(p.t1, sol.y_end, jnp.asarray(p.params))
    return jnp.abs(value[np.array(p.mass) == 0.0]).max()


@pytest.mark.parametrize(("name", "method", "rtol", "bound"), _CASES)
def test_end_values(name, method, rtol, bound):
    p = DAE[name]
    sol = solve(name, METHODS[method], rtol)
    assert int(sol.status) == pb.Status.success
    error = np.abs(voltages(name, sol.y_end) - p.end) / (np.abs(p.end) + p.unit)
    assert np.max(error) / rtol < bound
    # A stiffly accurate method ends where its last stage, which solves them, is.
    assert algebraic_residual(name, sol) < 1e-9


@pytest.mark.slow
def test_published_end_of_the_amplifier():
    """Ten periods of a signal that switches transistors, rtol 1e-7: 4842 attempts."""
    sol = solve("amplifier", pb.Rodas5P(), 1e-7, t1=0.2)
    np.testing.assert_allclose(amplifier_voltages(sol.y_end), AMPLIFIER_END, rtol=1e-8)


def test_float32():
    p = DAE["pendulum"]
    sol = solve(
        "pendulum",
        pb.Rodas5P(),
        1e-4,
        params=p.params.astype(np.float32),
        y0=p.y0.astype(np.float32),
    )
    assert sol.y_end.dtype == np.float32
    assert int(sol.status) == pb.Status.success
    np.testing.assert_allclose(sol.y_end, p.end, rtol=2e-2)


def test_ensemble_in_which_each_trajectory_has_a_start_of_its_own():
    supplies = np.array([5.0, 6.0, 7.0])
    params = np.stack([np.array([v, 1.0, 0.99, 0.1]) for v in supplies])
    ensemble = pb.EnsembleProblem(make("amplifier", t1=0.01), params=params)
    options = {"rtol": 1e-6, "atol": 1e-6}
    sol = pb.solve(ensemble, pb.Rodas5P(), ANY, saveat=np.array([0.0, 0.01]), **options)
    assert bool(sol.ok.all())
    # Before the signal, with nothing but the capacitors' charge.
    start = jax.vmap(amplifier_voltages)(sol.y[:, 0])
    np.testing.assert_allclose(start[1], [0.0, 3.0, 3.0, 6.0, 3.0, 3.0, 6.0, 0.0], atol=1e-9)
    assert (np.diff(start[:, 3]) > 0.1).all()
    alone = solve("amplifier", pb.Rodas5P(), 1e-6, params=params[2], t1=0.01)
    np.testing.assert_allclose(sol.y_end[2], alone.y_end, rtol=1e-12)


# ------------------------------------------------------------------------ gradients


@each_executor_slow_on_array
@pytest.mark.parametrize("method", ["Rodas5P", pytest.param("Kvaerno5", marks=pytest.mark.slow)])
def test_gradient_in_closed_form(executor, method):
    """y' = z - a y, 0 = z - b y: y = y0 exp((b - a) t), and z starts at b y0 whatever was given."""

    def end(p):
        y0 = jnp.stack([p["y0"], p["guess"]])
        problem = pb.ODEProblem(
            lambda t, y, p: jnp.stack([y[1] - p["a"] * y[0], y[1] - p["b"] * y[0]]),
            y0,
            (0.0, 1.0),
            p,
            mass_matrix=[1.0, 0.0],
        )
        return pb.solve(problem, METHODS[method], executor, rtol=1e-9, atol=1e-11).y_end[1]

    p = {"y0": 2.0, "guess": 0.7, "a": 3.0, "b": 0.5}
    value = np.exp(-2.5)
    right = {"y0": 0.5 * value, "guess": 0.0, "a": -value, "b": 2.0 * value + value}
    for derivative in (jax.grad, jax.jacfwd):
        got = derivative(end)(p)
        for name, expected in right.items():
            np.testing.assert_allclose(got[name], expected, rtol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["Rodas5P", "Kvaerno5"])
def test_gradient_of_akzo_nobel_is_that_of_the_ordinary_equation(method):
    """The equilibrium constant moves the start of the last component."""
    p = DAE["akzo_nobel"]
    weight = 1.0 / p.end

    def of_dae(params):
        return jnp.sum(weight * solve("akzo_nobel", METHODS[method], 1e-8, params=params).y_end)

    def of_ode(params):
        problem = pb.ODEProblem(akzo_nobel_ode, p.y0[:5], (0.0, p.t1), params)
        y = pb.solve(problem, pb.Rodas5P(), ANY, rtol=1e-10, atol=1e-13).y_end
        return jnp.sum(weight * jnp.concatenate([y, (params[0] * y[0] * y[3])[None]]))

    params = jnp.asarray(p.params)
    got, right = jax.grad(of_dae)(params), jax.grad(of_ode)(params)
    np.testing.assert_allclose(got * params, right * params, rtol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["Rodas5P", "Kvaerno5"])
def test_gradient_of_the_pendulum_is_that_of_its_angle(method):
    """By gravity and damping, which move the tension at the start, and by the angle."""

    def of_dae(z):
        y0 = pendulum_state(jnp.stack([z[2], z[3]]), z).at[4].set(1.0)
        sol = solve("pendulum", METHODS[method], 1e-8, params=z[:2], y0=y0, t1=1.0)
        return jnp.vdot(sol.y_end, jnp.arange(1.0, 6.0))

    def of_angle(z):
        problem = pb.ODEProblem(pendulum_angle, z[2:], (0.0, 1.0), z[:2])
        y = pb.solve(problem, pb.Vern9(), ANY, rtol=1e-12, atol=1e-12).y_end
        return jnp.vdot(pendulum_state(y, z), jnp.arange(1.0, 6.0))

    z = jnp.array([9.81, 0.2, *ANGLE])
    np.testing.assert_allclose(of_dae(z), of_angle(z), rtol=1e-5)
    right = jax.grad(of_angle)(z)
    np.testing.assert_allclose(jax.grad(of_dae)(z), right, rtol=1e-5)
    np.testing.assert_allclose(jax.jacfwd(of_dae)(z), right, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "method", "t1"),
    [
        ("pendulum", "Rodas4", 0.1),
        pytest.param("amplifier", "Rodas5P", 2e-3, marks=pytest.mark.slow),
        pytest.param("amplifier", "Rodas4", 2e-3, marks=pytest.mark.slow),
        pytest.param("amplifier", "Kvaerno5", 2e-3, marks=pytest.mark.slow),
        pytest.param("robertson", "Rodas5P", 100.0, marks=pytest.mark.slow),
        pytest.param("akzo_nobel", "Kvaerno3", 5.0, marks=pytest.mark.slow),
    ],
)
def test_gradient_is_that_of_the_executed_steps(name, method, t1):
    """On the frozen mesh, by parameters that move the consistent start, and by the start."""
    p = DAE[name]
    is_differential = np.array(p.mass) != 0.0
    weight = jnp.asarray(1.0 / (np.abs(p.end) + p.unit))

    def end(z):
        params = jnp.asarray(p.params) * (1.0 + z["params"])
        y0 = jnp.asarray(p.y0) + jnp.where(is_differential, z["y0"], 0.0) * p.y0
        sol = solve(name, METHODS[method], 1e-5, params=params, y0=y0, t1=t1)
        return jnp.sum(weight * voltages(name, sol.y_end))

    z = {"params": jnp.zeros(p.params.size), "y0": jnp.zeros(p.y0.size)}
    direction = {
        "params": jnp.linspace(0.5, 1.0, p.params.size),
        "y0": 0.01 * jnp.linspace(1.0, 0.5, p.y0.size),
    }
    # Newton's iteration is solved to a part of the tolerance, of which differences see the noise.
    is_exact = method.startswith("Rodas")
    options = {"mesh": "frozen", "slope_tolerance": 0.15, "noise": None if is_exact else 1e-9}
    # The current of a transistor grows by a factor of e every 0.026 volts.
    steps = 2.0 ** -(np.arange(7.0, 14.0) if name == "amplifier" else np.arange(5.0, 13.0))
    for mode in ("reverse", "forward"):
        taylor_test(end, z, direction, mode=mode, steps=steps, **options)


@pytest.mark.slow
def test_modes_are_adjoint_to_each_other():
    def end(params):
        return solve("amplifier", pb.Rodas5P(), 1e-5, params=params, t1=1e-3, dt=1e-4).y_end

    dot_test(end, jnp.asarray(DAE["amplifier"].params), rtol=1e-10)


# ------------------------------------------------------------------------ what is refused


def test_the_amplifier_as_it_was_published_is_refused():
    """Its capacitors couple nodes: the matrix is singular, but has no row of zeros."""
    c = np.arange(1.0, 6.0)
    mass = np.zeros((8, 8))
    for k, (i, j) in zip(c[[0, 2, 4]], ((0, 1), (3, 4), (6, 7)), strict=True):
        mass[np.ix_([i, j], [i, j])] = k * np.array([[-1.0, 1.0], [1.0, -1.0]])
    mass[2, 2], mass[5, 5] = -c[1], -c[3]
    assert np.linalg.matrix_rank(mass) == 5
    problem = pb.ODEProblem(lambda t, y, p: -y, np.ones(8), (0.0, 1.0), mass_matrix=mass)
    sentence = "singular, but not in semi-explicit form.*combine equations and variables"
    with pytest.raises(ValueError, match=sentence):
        pb.solve(problem, pb.Rodas5P(), ANY)


def test_rows_of_zeros_need_columns_of_zeros():
    """Rows alone are not enough: which variables the algebraic equations determine is not said."""
    mass = [[1.0, 1.0], [0.0, 0.0]]
    problem = pb.ODEProblem(lambda t, y, p: -y, np.ones(2), (0.0, 1.0), mass_matrix=mass)
    with pytest.raises(ValueError, match="as many columns of zeros"):
        pb.solve(problem, pb.Rodas5P(), ANY)


@pytest.mark.parametrize("method", ["Rodas5P", "Kvaerno5"])
def test_algebraic_variables_may_be_left_out_of_the_error(method):
    # The output is the deviation of a state from what it is: nothing, to no relative accuracy.
    def field(t, y, rate):
        return jnp.stack([-rate * y[0], y[1] - (y[0] - jnp.exp(-t))])

    def run(rate, atol):
        problem = pb.ODEProblem(
            field, jnp.array([1.0, 0.0]), (0.0, 1.0), rate, mass_matrix=np.array([1.0, 0.0])
        )
        return pb.solve(problem, METHODS[method], rtol=1e-6, atol=atol)

    masked, controlled = (run(1.0, jnp.array([1e-6, a])) for a in (np.inf, 1e-12))
    assert masked.stats["n_attempts"] < controlled.stats["n_attempts"] / 4
    # The equations hold at the end of every step, however long: one rounding.
    assert masked.y_end[1] == pytest.approx(float(masked.y_end[0]) - np.exp(-1.0), abs=1e-15)
    assert float(masked.y_end[0]) == pytest.approx(np.exp(-1.0), abs=1e-6)
    slope = jax.grad(lambda rate: jnp.sum(run(rate, jnp.array([1e-6, np.inf])).y_end))(1.0)
    assert float(slope) == pytest.approx(-2 * np.exp(-1.0), abs=1e-5)
