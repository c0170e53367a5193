"""A Jacobian that the user gives: used, differentiated, and compared with the derived one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor_slow_on_array
from pullback.testing import dot_test, taylor_test

STIFF = [pb.Rosenbrock23(), pb.Rodas4(), pb.Rodas5P(), pb.TRBDF2(), pb.Kvaerno3(), pb.Kvaerno5()]
each_method = pytest.mark.parametrize("method", STIFF, ids=lambda m: m.name)
RATES = jnp.array([0.04, 1e4, 3e7])


def robertson(t, y, p):
    a, b, c = p[0] * y[0], p[1] * y[1] * y[2], p[2] * y[1] ** 2
    return jnp.stack([b - a, a - b - c, c])


def jacobian(t, y, p):
    a, b, c, d = p[0], p[1] * y[2], p[1] * y[1], 2.0 * p[2] * y[1]
    return jnp.array([[-a, b, c], [a, -b - d, -c], [0.0, d, 0.0]])


def problem(jac=jacobian, **parts):
    start = {"y0": jnp.array([1.0, 0.0, 0.0]), "t_span": (0.0, 100.0), "params": RATES} | parts
    return pb.ODEProblem(robertson, **start, jac=jac)


@each_executor_slow_on_array
@each_method
def test_steps_are_those_of_the_derived_one(executor, method):
    options = {"rtol": 1e-4, "atol": 1e-8}
    given = pb.solve(problem(), method, executor, **options)
    derived = pb.solve(problem(None), method, executor, **options)
    assert int(given.stats["n_accepted"]) == int(derived.stats["n_accepted"])
    # The entries are summed up in another order, and the elimination may be another one.
    np.testing.assert_allclose(given.y_end, derived.y_end, rtol=1e-9)


def test_float32():
    p = problem(y0=np.array([1.0, 0.0, 0.0], np.float32), params=np.asarray(RATES, np.float32))
    sol = pb.solve(p, pb.Rodas5P(), ANY, rtol=1e-5, atol=1e-9)
    assert sol.y_end.dtype == np.float32
    right = [0.617234882396087, 6.15359127463913e-6, 0.382758964012637]
    np.testing.assert_allclose(sol.y_end, right, rtol=2e-4)


@each_executor_slow_on_array
@pytest.mark.parametrize(
    "method",
    [pb.Rodas5P(), pytest.param(pb.Kvaerno5(), marks=pytest.mark.slow)],
    ids=lambda m: m.name,
)
def test_gradient_is_that_with_the_derived_one(executor, method):
    def end(rates, jac):
        return pb.solve(problem(jac, params=rates), method, executor, rtol=1e-6, atol=1e-10).y_end

    for derivative in (jax.jacrev, jax.jacfwd):
        given, derived = (np.asarray(derivative(end)(RATES, jac)) for jac in (jacobian, None))
        scale = np.abs(derived).max(axis=0)
        np.testing.assert_allclose(given / scale, derived / scale, atol=1e-9)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(pb.Rodas5P(), marks=pytest.mark.slow),
        pb.Kvaerno3(),
        pytest.param(pb.Rodas4(), marks=pytest.mark.slow),
    ],
    ids=lambda m: m.name,
)
def test_gradient_is_that_of_the_executed_steps(method):
    """Also by what `jac` closes over, which a Rosenbrock step depends on."""

    def loss(z):
        def field(t, y, p):
            return jnp.stack([-p[0] * y[0] * y[1] + z["held"], p[0] * y[0] ** 2 - z["k"] * y[1]])

        def jac(t, y, p):
            return jnp.array([[-p[0] * y[1], -p[0] * y[0]], [2.0 * p[0] * y[0], -z["k"]]])

        ode = pb.ODEProblem(field, z["y0"], (0.0, 0.43), z["p"], jac=jac)
        tight = {"rtol": 1e-12, "atol": 1e-14, "adaptive": False}
        at = np.array([0.11, 0.3, 0.43])
        return jnp.sum(pb.solve(ode, method, ANY, dt=0.05, saveat=at, **tight).y ** 2)

    z = {"y0": jnp.array([1.0, 0.8]), "p": jnp.array([1.5]), "k": 40.0, "held": 0.3}
    # The sweeps that replace a factorisation at each stage leave 1e-7 of the gradient.
    steps = 2.0 ** -np.arange(3.0, 11.0)
    taylor_test(loss, z, steps=steps)
    taylor_test(loss, z, mode="forward", steps=steps)
    dot_test(lambda z: loss(z)[None], z, rtol=1e-6 if method.is_fsal else None)


def test_a_rosenbrock_step_is_a_function_of_the_given_jacobian():
    """Its derivative is exact also where the Jacobian is wrong, which a trace cannot see."""

    def loss(z):
        ode = pb.ODEProblem(
            lambda t, y, p: -p * y**2, z[0], (0.0, 0.5), z[1], jac=lambda t, y, p: -1.4 * p
        )
        return pb.solve(ode, pb.Rodas4(), ANY, dt=0.1).y_end

    taylor_test(jax.jit(loss), jnp.array([1.2, 3.0]))
    with pytest.raises(ValueError, match="is not the Jacobian"):
        loss(np.array([1.2, 3.0]))


def test_natural_shapes():
    """A scalar, and a state that is a matrix."""
    options = {"rtol": 1e-8, "atol": 1e-8}
    scalar = pb.ODEProblem(lambda t, y, p: -p * y, 1.0, (0.0, 1.0), 2.0, jac=lambda t, y, p: -p)
    np.testing.assert_allclose(pb.solve(scalar, pb.Rodas5P(), ANY, **options).y_end, np.exp(-2.0))
    coupling = np.array([[-2.0, 1.0], [1.0, -3.0]])

    def jac(t, y, p):
        return jnp.einsum("ik,jl->ijkl", coupling, np.eye(2))

    y0 = np.array([[1.0, 0.0], [0.0, 1.0]])
    matrix = pb.ODEProblem(lambda t, y, p: coupling @ y, y0, (0.0, 1.0), jac=jac)
    right = jax.scipy.linalg.expm(coupling)
    for method in (pb.Rodas5P(), pb.Kvaerno5()):
        end = pb.solve(matrix, method, ANY, **options).y_end
        np.testing.assert_allclose(end, right, rtol=1e-6)


@pytest.mark.slow
def test_with_a_mass_matrix_and_a_consistent_start():
    def field(t, y, p):
        a, b, c = p[0] * y[0], p[1] * y[1] * y[2], p[2] * y[1] ** 2
        return jnp.stack([b - a, a - b - c, jnp.sum(y) - 1.0])

    def jac(t, y, p):
        return jacobian(t, y, p).at[2].set(1.0)

    def end(p, jac):
        y0 = jnp.array([1.0, 0.0, 0.3])
        dae = pb.ODEProblem(field, y0, (0.0, 100.0), p, mass_matrix=[1.0, 1.0, 0.0], jac=jac)
        return pb.solve(dae, pb.Rodas5P(), ANY, rtol=1e-7, atol=1e-11).y_end

    right = [0.617234882396087, 6.15359127463913e-6, 0.382758964012637]
    np.testing.assert_allclose(end(RATES, jac), right, rtol=1e-6)
    grads = [jax.grad(lambda p, jac=j: end(p, jac)[0])(RATES) for j in (jac, None)]
    np.testing.assert_allclose(*grads, rtol=1e-8)


def test_ensemble_whose_jacobian_closes_over_an_array():
    held = jnp.array([3.0, 5.0])

    def make(held):
        def jac(t, y, p):
            return -p * jnp.diag(held)

        return pb.ODEProblem(lambda t, y, p: -p * held * y, np.ones(2), (0.0, 1.0), 1.0, jac=jac)

    def loss(held):
        ensemble = pb.EnsembleProblem(make(held), params=np.array([0.5, 1.0, 2.0]))
        return jnp.sum(pb.solve(ensemble, pb.Rodas5P(), ANY, rtol=1e-8, atol=1e-10).y_end)

    rates = np.array([0.5, 1.0, 2.0])[:, None]
    remaining = np.exp(-rates * np.array([3.0, 5.0]))
    np.testing.assert_allclose(loss(held), np.sum(remaining), rtol=1e-6)
    right = np.sum(-rates * remaining, axis=0)
    np.testing.assert_allclose(jax.grad(loss)(held), right, rtol=1e-6)


# ------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("jac", "error", "sentence"),
    [
        (lambda t, y, p: jnp.ones((3, 2)), ValueError, r"must return shape \(3, 3\).*shape \(3, 2"),
        (lambda t, y, p: jnp.ones(3), ValueError, r"since the state has 3 components"),
        (lambda t, y, p: {"a": y}, TypeError, "must return one array, .* but it returned a dict"),
        (lambda t, y, p: np.eye(3, dtype=int), TypeError, "the state's dtype float64, but .*int64"),
    ],
)
def test_what_is_no_jacobian(jac, error, sentence):
    with pytest.raises(error, match=sentence):
        pb.solve(problem(jac), pb.Rodas5P(), ANY)


def test_a_wrong_one_is_named():
    """Entry (1, 1) at y0 is right: what is wrong is multiplied by a zero of the initial state."""

    def wrong(t, y, p):
        return jacobian(t, y, p).at[1, 1].add(p[2] * y[1])

    with pytest.raises(ValueError, match="of component 1 by component 1 of the ravelled state is"):
        pb.solve(problem(wrong), pb.Rodas5P(), ANY)
    transposed = problem(lambda t, y, p: jacobian(t, y, p).T)
    with pytest.raises(ValueError, match="`jac` <lambda> is not the Jacobian of the vector field"):
        pb.solve(pb.EnsembleProblem(transposed, params=np.stack([RATES] * 2)), pb.Kvaerno5(), ANY)


def test_it_is_compared_inside_jit_too_where_the_numbers_are_known():
    def wrong(t, y, p):
        return 2.0 * jacobian(t, y, p)

    def end(jac, t1):
        start = np.array([1.0, 0.0, 0.0])
        given = problem(jac, y0=start, t_span=(0.0, t1), params=np.asarray(RATES))
        return pb.solve(given, pb.Rodas5P(), ANY).y_end

    with pytest.raises(ValueError, match="is not the Jacobian"):
        jax.jit(lambda t1: end(wrong, t1))(1.0)
    right = jax.jit(lambda t1: end(lambda t, y, p: jacobian(t, y, p) * 1.0, t1))(1.0)
    np.testing.assert_allclose(right, end(None, 1.0), rtol=1e-6)


def test_where_the_field_has_no_value_nothing_is_compared():
    """Near the start the root is not a number: only the start itself counts."""

    def field(t, y, p):
        return -jnp.sqrt(1.0 - y) - y

    def jac(t, y, p):
        return (0.5 / jnp.sqrt(1.0 - y) - 1.0)[:, None]

    ode = pb.ODEProblem(field, np.array([0.999]), (0.0, 1.0), jac=jac)
    assert bool(pb.solve(ode, pb.Rodas5P(), ANY).ok)
