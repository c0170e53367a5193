"""Stiff problems: published end values, gradients, mass matrices and algebraic equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.stiff_problems import STIFF

import pullback as pb

KERNEL = pb.EnsembleKernel()
ALL = {
    m.__name__: m
    for m in (
        pb.Rosenbrock23,
        pb.Rodas4,
        pb.Rodas5P,
        pb.TRBDF2,
        pb.Kvaerno3,
        pb.Kvaerno5,
        pb.ImplicitEuler,
        pb.Trapezoid,
    )
}
# Error of the end in units of the tolerance: measured, times about three.
_CASES = [
    ("robertson", "Rodas5P", 1e-6, 1.0),
    ("robertson", "Rodas5P", 1e-10, 1.0),
    ("robertson", "Rodas4", 1e-6, 1.0),
    ("robertson", "Kvaerno5", 1e-6, 2.0),
    ("robertson", "Kvaerno3", 1e-6, 2.0),
    ("robertson", "Rosenbrock23", 1e-4, 4.0),
    ("robertson", "TRBDF2", 1e-4, 5.0),
    ("robertson", "ImplicitEuler", 1e-4, 30.0),
    ("hires", "Rodas5P", 1e-6, 1.0),
    ("hires", "Rodas5P", 1e-10, 1.0),
    ("hires", "Rodas4", 1e-6, 1.0),
    ("hires", "Kvaerno5", 1e-6, 3.0),
    ("hires", "Kvaerno5", 1e-10, 1.0),
    ("hires", "Kvaerno3", 1e-6, 50.0),
    ("oregonator", "Rodas5P", 1e-6, 2.0),
    ("oregonator", "Kvaerno5", 1e-6, 80.0),
    ("van_der_pol", "Rodas5P", 1e-6, 1.0),
    ("van_der_pol", "Rodas4", 1e-6, 1.0),
    ("van_der_pol", "Kvaerno5", 1e-6, 6.0),
    ("pollution", "Rodas5P", 1e-6, 1.0),
    ("pollution", "Rodas5P", 1e-10, 1.0),
]


def solve(name, method, rtol, executor=KERNEL, y0=None, params=None, **options):
    p = STIFF[name]
    y0 = p.y0 if y0 is None else y0
    problem = pb.ODEProblem(p.field, y0, (0.0, p.t1), p.params if params is None else params)
    return pb.solve(problem, method, executor, rtol=rtol, atol=rtol * p.unit, **options)


def error_in_tolerances(name, y, rtol):
    p = STIFF[name]
    return np.max(np.abs(y - p.end) / (np.abs(p.end) + p.unit)) / rtol


@pytest.mark.parametrize(("name", "method", "rtol", "bound"), _CASES)
def test_published_end_values(name, method, rtol, bound):
    sol = solve(name, ALL[method](), rtol)
    assert int(sol.status) == pb.Status.success
    assert error_in_tolerances(name, sol.y_end, rtol) < bound


def test_executors_agree():
    # Different elimination orders round differently; the steps are the same.
    a, b = (solve("hires", pb.Rodas5P(), 1e-6, ex) for ex in (KERNEL, pb.EnsembleArray()))
    assert int(a.stats["n_accepted"]) == int(b.stats["n_accepted"])
    np.testing.assert_allclose(a.y_end, b.y_end, rtol=1e-9)


def test_float32_to_a_sane_tolerance():
    p = STIFF["robertson"]
    right = [0.617234882396087, 6.15359127463913e-6, 0.382758964012637]
    problem = pb.ODEProblem(
        p.field, p.y0.astype(np.float32), (0.0, 100.0), p.params.astype(np.float32)
    )
    sol = pb.solve(problem, pb.Rodas5P(), KERNEL, rtol=1e-5, atol=1e-9)
    assert sol.y_end.dtype == np.float32
    assert int(sol.status) == pb.Status.success
    np.testing.assert_allclose(sol.y_end, right, rtol=2e-4)


def scaled_end(name, method, rtol, executor=KERNEL, **options):
    p = STIFF[name]
    weight = jnp.asarray(1.0 / (np.abs(p.end) + p.unit))

    def end(y0, params):
        return jnp.sum(weight * solve(name, method, rtol, executor, y0, params, **options).y_end)

    return end


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("robertson", "Rodas5P"),
        ("robertson", "Kvaerno5"),
        ("robertson", "Rodas4"),
        ("robertson", "TRBDF2"),
        ("hires", "Rodas5P"),
        pytest.param("hires", "Kvaerno5", marks=pytest.mark.slow),
        pytest.param("pollution", "Rodas5P", marks=pytest.mark.slow),
    ],
)
def test_gradients_against_a_finer_solve(name, method):
    p, rtol = STIFF[name], 1e-6
    y0, params = jnp.asarray(p.y0), jnp.asarray(p.params)
    grads = jax.grad(scaled_end(name, ALL[method](), rtol), argnums=(0, 1))(y0, params)
    fine = scaled_end(name, pb.Rodas5P(), 1e-9)
    along = jax.jvp(fine, (y0, params), (y0, params))[1]
    got = jnp.vdot(grads[0], y0) + jnp.vdot(grads[1], params)
    np.testing.assert_allclose(got, along, rtol=2e-4 if method == "TRBDF2" else 2e-6)
    forward = jax.jvp(scaled_end(name, ALL[method](), rtol), (y0, params), (y0, params))[1]
    np.testing.assert_allclose(forward, along, rtol=2e-4 if method == "TRBDF2" else 2e-6)


@pytest.mark.parametrize("method", ALL)
def test_gradient_is_that_of_the_executed_steps(method):
    """Fixed steps: reverse, forward and second derivatives against differences."""

    def field(t, y, p):
        return jnp.stack([-p[0] * y[0] + jnp.sin(p[1] * t) * y[1], y[0] ** 2 - 50.0 * p[0] * y[1]])

    def end(x):
        problem = pb.ODEProblem(field, x[:2], (0.0, 0.5), x[2:])
        # The equations of a stage are solved to rounding, so that differences see one function.
        tight = {"rtol": 1e-12, "atol": 1e-14}
        y = pb.solve(problem, ALL[method](), KERNEL, dt=0.05, adaptive=False, **tight).y_end
        return jnp.vdot(y, jnp.array([1.0, 30.0]))

    x, v = jnp.array([1.0, 0.3, 1.2, 2.0]), jnp.array([0.4, -0.2, 0.3, 0.5])
    grad = jax.grad(end)
    h = 1e-3

    # Central differences of order four.
    def difference(f):
        return (8.0 * (f(x + h * v) - f(x - h * v)) - (f(x + 2 * h * v) - f(x - 2 * h * v))) / (
            12.0 * h
        )

    expected = difference(end)
    np.testing.assert_allclose(jnp.vdot(grad(x), v), expected, rtol=2e-8)
    np.testing.assert_allclose(jax.jvp(end, (x,), (v,))[1], expected, rtol=2e-8)
    second = jax.jvp(grad, (x,), (v,))[1]
    np.testing.assert_allclose(second, difference(grad), rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("method", ALL)
def test_mass_matrix(method):
    problem = pb.ODEProblem(
        lambda t, y, p: -y, np.ones(2), (0.0, 1.0), mass_matrix=[[2.0, 0.0], [0.0, 2.0]]
    )
    rtol, options = (1e-6, {}) if method not in ("ImplicitEuler", "Trapezoid") else (1e-4, {})
    sol = pb.solve(problem, ALL[method](), KERNEL, rtol=rtol, atol=rtol, **options)
    # The error of a global solution may be some tolerances.
    np.testing.assert_allclose(sol.y_end, np.exp(-0.5), rtol=100 * rtol)


def test_full_mass_matrix_is_its_inverse_on_the_right():
    mass = np.array([[2.0, 1.0, 0.0], [0.5, 3.0, 0.2], [0.0, 0.3, 1.0]])

    def field(t, y, p):
        return -y + p * jnp.sin(t)

    plain = pb.ODEProblem(
        lambda t, y, p: jnp.linalg.inv(mass) @ field(t, y, p), np.ones(3), (0.0, 2.0), 0.5
    )
    massive = pb.ODEProblem(field, np.ones(3), (0.0, 2.0), 0.5, mass_matrix=mass)
    right = pb.solve(plain, pb.Vern7(), pb.EnsembleArray(), rtol=1e-11, atol=1e-11).y_end
    for method in (pb.Rodas5P(), pb.Kvaerno5()):
        got = pb.solve(massive, method, KERNEL, rtol=1e-8, atol=1e-8).y_end
        np.testing.assert_allclose(got, right, rtol=1e-6)


# ------------------------------------------------------------------------ algebraic equations


def robertson_dae(t, y, p):
    a, b, c = p[0] * y[0], p[1] * y[1] * y[2], p[2] * y[1] ** 2
    return jnp.stack([-a + b, a - b - c, y[0] + y[1] + y[2] - p[3]])


def robertson_ode(t, y, p):
    a, b, c = p[0] * y[0], p[1] * y[1] * y[2], p[2] * y[1] ** 2
    return jnp.stack([-a + b, a - b - c, c])


RATES = jnp.array([0.04, 1e4, 3e7, 1.0])


def functional(y):
    return y[0] + 1e4 * y[1] + 0.5 * y[2]


def dae_end(p, method, rtol=1e-7, executor=KERNEL, guess=0.3):
    problem = pb.ODEProblem(
        robertson_dae, jnp.array([1.0, 0.0, guess]), (0.0, 1e4), p, mass_matrix=[1.0, 1.0, 0.0]
    )
    return pb.solve(problem, method, executor, rtol=rtol, atol=1e-4 * rtol)


def ode_end(p):
    y0 = jnp.stack([jnp.ones(()), jnp.zeros(()), p[3] - 1.0])
    problem = pb.ODEProblem(robertson_ode, y0, (0.0, 1e4), p)
    return pb.solve(problem, pb.Rodas5P(), KERNEL, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("method", ["Rodas5P", "Rodas4", "Kvaerno5", "Kvaerno3"])
def test_robertson_as_a_dae(method):
    sol = dae_end(RATES, ALL[method]())
    assert int(sol.status) == pb.Status.success
    np.testing.assert_allclose(jnp.sum(sol.y_end), 1.0, rtol=1e-9)
    right = np.array([0.107300428537804, 4.80016697257e-7, 0.892699091445497])
    np.testing.assert_allclose(sol.y_end, right, rtol=3e-6)


@pytest.mark.parametrize("method", ["Rodas5P", "Kvaerno5"])
def test_gradient_with_respect_to_what_moves_the_consistent_start(method):
    right = jax.grad(lambda p: functional(ode_end(p).y_end))(RATES)
    got = jax.grad(lambda p: functional(dae_end(p, ALL[method]()).y_end))(RATES)
    np.testing.assert_allclose(got, right, rtol=2e-6)


def test_algebraic_start_has_no_derivative_of_its_own():
    grad = jax.grad(lambda guess: functional(dae_end(RATES, pb.Rodas5P(), guess=guess).y_end))
    assert float(grad(0.3)) == 0.0


def test_start_is_solved_for_or_checked():
    saved = pb.solve(
        pb.ODEProblem(
            robertson_dae,
            jnp.array([1.0, 0.0, 0.3]),
            (0.0, 1.0),
            RATES,
            mass_matrix=[1.0, 1.0, 0.0],
        ),
        pb.Rodas5P(),
        KERNEL,
        saveat=jnp.array([0.0, 1.0]),
    )
    np.testing.assert_allclose(saved.y[0], [1.0, 0.0, 0.0], atol=1e-12)
    checked = pb.solve(
        pb.ODEProblem(
            robertson_dae,
            jnp.array([1.0, 0.0, 0.3]),
            (0.0, 1.0),
            RATES,
            mass_matrix=[1.0, 1.0, 0.0],
        ),
        pb.Rodas5P(),
        KERNEL,
        initialization="check",
    )
    assert int(checked.status) == pb.Status.inconsistent_initial


def test_no_consistent_start_is_a_status():
    def field(t, y, p):
        return jnp.stack([-y[0], y[1] ** 2 + p])

    def status(p):
        problem = pb.ODEProblem(field, jnp.array([1.0, 0.5]), (0.0, 1.0), p, mass_matrix=[1.0, 0.0])
        return int(pb.solve(problem, pb.Rodas5P(), KERNEL).status)

    assert status(-4.0) == pb.Status.success
    assert status(4.0) == pb.Status.inconsistent_initial


def test_index_two_is_singular():
    def field(t, y, p):
        return jnp.stack([y[1], y[0] - jnp.sin(t)])

    problem = pb.ODEProblem(field, jnp.array([0.0, 1.0]), (0.0, 1.0), mass_matrix=[1.0, 0.0])
    assert int(pb.solve(problem, pb.Rodas5P(), KERNEL).status) == pb.Status.singular_dae


@pytest.mark.parametrize(
    ("mass", "sentence"),
    [
        (np.eye(3), r"`mass_matrix` must have shape \(2, 2\).*shape \(3, 3\) arrived"),
        ([[1.0, 1.0], [1.0, 1.0]], "semi-explicit"),
        ([1.0, np.nan], "finite"),
    ],
)
def test_mass_matrices_that_are_refused(mass, sentence):
    problem = pb.ODEProblem(lambda t, y, p: -y, np.ones(2), (0.0, 1.0), mass_matrix=mass)
    with pytest.raises(ValueError, match=sentence):
        pb.solve(problem, pb.Rodas5P(), KERNEL)


def test_explicit_methods_take_no_mass_matrix():
    problem = pb.ODEProblem(lambda t, y, p: -y, np.ones(2), (0.0, 1.0), mass_matrix=[2.0, 2.0])
    with pytest.raises(ValueError, match=r"Tsit5 is explicit.* cannot take a `mass_matrix`"):
        pb.solve(problem, pb.Tsit5(), KERNEL)


# ------------------------------------------------------------------------ faults that were


@pytest.mark.parametrize("method", ["ImplicitEuler", "Trapezoid", "TRBDF2", "Kvaerno3"])
def test_end_time_of_a_constant_jacobian(method):
    """The factors of the last step are used on both sides of the sweep."""

    def end(t1):
        problem = pb.ODEProblem(lambda t, y, p: -20.0 * (y - jnp.cos(t)), 1.0, (0.0, t1))
        return pb.solve(problem, ALL[method](), KERNEL, dt=0.05, adaptive=False, rtol=1e-10).y_end

    # On the fixed mesh the end moves along the field, to the methods' own errors.
    y = float(end(2.0))
    for derivative in (jax.grad(end)(2.0), jax.jacfwd(end)(2.0)):
        np.testing.assert_allclose(derivative, -20.0 * (y - np.cos(2.0)), rtol=3e-2)
    np.testing.assert_allclose(jax.grad(end)(2.0), jax.jacfwd(end)(2.0), rtol=1e-12)


@pytest.mark.parametrize("method", ["Kvaerno5", "Kvaerno3", "TRBDF2", "Trapezoid"])
@pytest.mark.parametrize("tol", [1e-4, 3e-6])
def test_newton_stops_at_rounding_in_float32(method, tol):
    with jax.enable_x64(False):
        problem = pb.ODEProblem(lambda t, y, p: p * y * y, 1.0, (0.0, 1.0), -3.0)
        sol = pb.solve(problem, ALL[method](), KERNEL, rtol=tol, atol=tol, max_steps=2000)
    assert int(sol.status) == pb.Status.success
    # TRBDF2 of order two adds up 50 tolerances.
    np.testing.assert_allclose(sol.y_end, 0.25, rtol=100 * tol)
