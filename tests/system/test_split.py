"""Split problems: additive methods on the two parts, and every other method on their sum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor_slow_on_array
from pullback.testing import convergence_order, dot_test, taylor_test

METHODS = [pb.KenCarp3(), pb.KenCarp4()]
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)


def slow(t, y, p):
    return jnp.stack([y[1] * y[0], jnp.sin(3.0 * t) - y[0] * y[1]])


def fast(t, y, p):
    return jnp.stack([-p[0] * y[0], -p[1] * y[1] ** 3 - y[0]])


def problem(p=(2.0, 1.5), y0=(1.0, 0.8), t1=1.0):
    return pb.SplitODEProblem(slow, fast, jnp.asarray(y0), (0.0, t1), jnp.asarray(p))


def reference(problem):
    return pb.solve(problem, pb.Vern9(), ANY, rtol=1e-13, atol=1e-13).y_end


@each_method
def test_order(method):
    steps = [0.1, 0.05, 0.025, 0.0125]
    exact = reference(problem())
    options = {"adaptive": False, "rtol": 1e-12, "atol": 1e-14}
    errors = [
        jnp.abs(pb.solve(problem(), method, ANY, dt=h, **options).y_end - exact).max()
        for h in steps
    ]
    assert convergence_order(errors, steps) == pytest.approx(method.order, abs=0.15)


@each_method
def test_rows_inside_a_step_have_the_order_of_the_dense_output(method):
    errors, steps = [], [0.025, 0.0125, 0.00625, 0.003125]
    for h in steps:
        options = {"adaptive": False, "rtol": 1e-12, "atol": 1e-14}
        at = jnp.array([0.35 * h])
        row = pb.solve(problem(t1=h), method, ANY, dt=h, saveat=at, **options).y[0]
        errors.append(jnp.abs(row - reference(problem(t1=0.35 * h))).max())
    expected = method.tableau.dense_order + 1
    assert convergence_order(errors, steps) == pytest.approx(expected, abs=0.15)


@each_executor_slow_on_array
@pytest.mark.parametrize(
    "method", [*METHODS, pb.Tsit5(), pb.Rodas5P(), pb.Kvaerno5()], ids=lambda m: m.name
)
def test_every_method_solves_the_sum(executor, method):
    sol = pb.solve(problem(), method, executor, rtol=1e-7, atol=1e-7)
    assert int(sol.status) == pb.Status.success
    # The error of a global solution may be some tolerances.
    np.testing.assert_allclose(sol.y_end, reference(problem()), atol=2e-6)


@each_method
def test_float32(method):
    p = np.array([2.0, 1.5], np.float32)
    split = pb.SplitODEProblem(slow, fast, np.array([1.0, 0.8], np.float32), (0.0, 1.0), p)
    sol = pb.solve(split, method, ANY, rtol=1e-5, atol=1e-5)
    assert sol.y_end.dtype == np.float32
    np.testing.assert_allclose(sol.y_end, reference(problem()), atol=2e-4)


@each_method
@pytest.mark.parametrize("stiffness", [1e2, 1e5, 1e8])
def test_stiff_limit(method, stiffness):
    """Prothero and Robinson's problem: the explicit part moves what the implicit one follows.

    y' = -k (y - sin t) + cos t. The steps do not shrink with 1 / k: the stage order of two, which
    is all that is left of the order, asks for about the cube root of the tolerance.
    """

    def stiff(t, y, k):
        return -k * (y - jnp.sin(t))

    following = pb.SplitODEProblem(lambda t, y, k: jnp.cos(t), stiff, 0.0, (0.0, 2.0), stiffness)
    sol = pb.solve(following, method, ANY, rtol=1e-6, atol=1e-6)
    assert int(sol.status) == pb.Status.success
    np.testing.assert_allclose(sol.y_end, np.sin(2.0), atol=5e-5)
    assert int(sol.stats["n_attempts"]) < 400
    explicit = pb.solve(following, pb.Tsit5(), ANY, rtol=1e-6, atol=1e-6, max_steps=1000)
    assert bool(explicit.ok) == (stiffness < 1e4)


@pytest.mark.parametrize(("method", "is_same"), [("KenCarp4", True), ("Kvaerno5", False)])
def test_only_the_implicit_part_is_in_the_jacobian(method, is_same):
    """A derivative of the explicit part that is wrong is not noticed by an additive method."""

    @jax.custom_jvp
    def cooling(y):
        return -y

    @cooling.defjvp
    def _(primals, tangents):
        return cooling(*primals), -8.0 * tangents[0]

    def end(explicit):
        split = pb.SplitODEProblem(explicit, lambda t, y, p: -10.0 * y**2, 1.0, (0.0, 1.0))
        return pb.solve(split, getattr(pb, method)(), ANY, rtol=1e-7, atol=1e-10).y_end

    right, wrong = (float(end(f)) for f in (lambda t, y, p: -y, lambda t, y, p: cooling(y)))
    np.testing.assert_allclose(right, 1.0 / (11.0 * np.e - 10.0), rtol=1e-5)
    assert (right == wrong) == is_same


@each_executor_slow_on_array
@each_method
def test_gradient_in_closed_form(executor, method):
    """y' = a y - k y, of either part."""

    def end(y0, a, k):
        split = pb.SplitODEProblem(
            lambda t, y, p: p[0] * y, lambda t, y, p: -p[1] * y, y0, (0.0, 0.5), (a, k)
        )
        return pb.solve(split, method, executor, rtol=1e-9, atol=1e-12).y_end

    y0, a, k = 2.0, 0.7, 5.0
    right = np.exp(0.5 * (a - k)) * np.array([1.0, 0.5 * y0, -0.5 * y0])
    np.testing.assert_allclose(jax.grad(end, argnums=(0, 1, 2))(y0, a, k), right, rtol=1e-7)
    np.testing.assert_allclose(jax.jacfwd(end, argnums=(0, 1, 2))(y0, a, k), right, rtol=1e-7)


@each_executor_slow_on_array
def test_gradient_in_float32(executor):
    def end(k, dtype):
        split = pb.SplitODEProblem(
            lambda t, y, p: jnp.cos(y), lambda t, y, p: -p * y, dtype(1.0), (0.0, 1.0), k
        )
        return pb.solve(split, pb.KenCarp4(), executor, rtol=1e-4, atol=1e-5).y_end

    right = jax.grad(lambda k: end(k, np.float64))(20.0)
    for derivative in (jax.grad, jax.jacfwd):
        got = derivative(lambda k: end(k, np.float32))(np.float32(20.0))
        assert got.dtype == np.float32
        # The tolerance of the steps, which differ in rounding.
        np.testing.assert_allclose(got, right, rtol=1e-4)


@pytest.mark.parametrize(
    "method",
    [pb.KenCarp4(), pytest.param(pb.KenCarp3(), marks=pytest.mark.slow)],
    ids=lambda m: m.name,
)
def test_gradient_is_that_of_the_executed_steps(method):
    """Fixed steps, rows inside them, and an array that each part closes over."""

    def loss(z):
        split = pb.SplitODEProblem(
            lambda t, y, p: slow(t, y, p) * z["held"],
            lambda t, y, p: fast(t, y, p) + z["also"],
            z["y0"],
            (0.0, 0.43),
            z["p"],
        )
        tight = {"rtol": 1e-12, "atol": 1e-14, "adaptive": False}
        at = np.array([0.11, 0.3, 0.43])
        return jnp.sum(pb.solve(split, method, ANY, dt=0.08, saveat=at, **tight).y ** 2)

    z = {"y0": jnp.array([1.0, 0.8]), "p": jnp.array([20.0, 1.5]), "held": 1.2, "also": 0.3}
    taylor_test(loss, z)
    taylor_test(loss, z, mode="forward")
    dot_test(lambda z: loss(z)[None], z)


@pytest.mark.slow
def test_gradient_agrees_with_that_of_the_sum():
    def loss(p, method, make):
        return jnp.sum(pb.solve(make(p), method, ANY, rtol=1e-9, atol=1e-9).y_end ** 2)

    def whole(p):
        return pb.ODEProblem(
            lambda t, y, p: slow(t, y, p) + fast(t, y, p), jnp.array([1.0, 0.8]), (0.0, 1.0), p
        )

    p = jnp.array([2.0, 1.5])
    got = jax.grad(lambda p: loss(p, pb.KenCarp4(), problem))(p)
    np.testing.assert_allclose(got, jax.grad(lambda p: loss(p, pb.Vern7(), whole))(p), rtol=1e-6)


def test_ensemble_and_events():
    base = pb.SplitODEProblem(
        lambda t, y, p: -jnp.ones_like(y),
        lambda t, y, p: -p * y,
        1.0,
        (0.0, 5.0),
        1.0,
        events=[pb.Event(lambda t, y, p: y, terminate=True)],
    )
    rates = np.array([0.5, 1.0, 50.0])
    sol = pb.solve(pb.EnsembleProblem(base, params=rates), pb.KenCarp4(), ANY, rtol=1e-8, atol=1e-9)
    assert (np.asarray(sol.status) == pb.Status.terminated).all()
    # y = (1 + 1/k) exp(-k t) - 1/k.
    np.testing.assert_allclose(sol.t_end, np.log(1.0 + rates) / rates, rtol=1e-6)


def test_a_problem_that_is_not_split_is_all_implicit():
    """Robertson's, as in the tests of the other stiff methods, and as an algebraic equation."""

    def robertson(t, y, p):
        a, b, c = p[0] * y[0], p[1] * y[1] * y[2], p[2] * y[1] ** 2
        return jnp.stack([-a + b, a - b - c, jnp.sum(y) - 1.0])

    dae = pb.ODEProblem(
        robertson,
        jnp.array([1.0, 0.0, 0.0]),
        (0.0, 1e4),
        jnp.array([0.04, 1e4, 3e7]),
        mass_matrix=[1.0, 1.0, 0.0],
    )
    sol = pb.solve(dae, pb.KenCarp4(), ANY, rtol=1e-7, atol=1e-11)
    right = np.array([0.107300428537804, 4.80016697257e-7, 0.892699091445497])
    np.testing.assert_allclose(sol.y_end, right, rtol=2e-6)
