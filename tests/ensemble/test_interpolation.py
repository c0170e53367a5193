"""Data as a function of time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import CubicSpline

import pullback as pb
from executors import each_executor, each_executor_slow_on_array
from pullback.testing import assert_close, taylor_test
from quick import quick_compilation  # noqa: F401

UNEVEN = np.array([0.0, 0.3, 1.1, 1.2, 2.0, 3.5, 4.0])
EVEN = np.linspace(-1.0, 3.0, 9)
KINDS = ["linear", "cubic"]


def values_at(t, shape=()):
    rng = np.random.default_rng(3)
    return rng.normal(size=(len(t), *shape))


@pytest.mark.parametrize("t", [UNEVEN, EVEN, UNEVEN[:4], UNEVEN[:3], UNEVEN[:2]], ids=len)
def test_cubic_is_scipys_spline(t):
    values = values_at(t, (2, 3))
    forcing = pb.Interpolation(jnp.asarray(t), jnp.asarray(values), kind="cubic")
    times = np.concatenate([t, np.linspace(t[0], t[-1], 57)])
    reference = CubicSpline(t, values)
    # A few dozen roundings of numbers of size ten, through a well conditioned system.
    np.testing.assert_allclose(forcing(times), reference(times), atol=1e-12)
    one = pb.Interpolation(t, values[:, 0, 1], kind="cubic")
    np.testing.assert_allclose(one(times), reference(times)[:, 0, 1], atol=1e-12)
    inside = times[(times > t[0]) & (times < t[-1])]
    np.testing.assert_allclose(forcing.derivative(inside), reference(inside, 1), atol=1e-11)


@pytest.mark.parametrize("t", [UNEVEN, EVEN], ids=["uneven", "even"])
def test_linear_is_numpys(t):
    values = values_at(t)
    forcing = pb.Interpolation(t, values)
    times = np.concatenate([t, np.linspace(t[0] - 1.0, t[-1] + 1.0, 101)])
    np.testing.assert_allclose(forcing(times), np.interp(times, t, values), atol=1e-14)
    assert forcing.is_uniform == (t is EVEN)


def test_outside():
    line = {"t": [0.0, 1.0, 3.0], "values": [0.0, 2.0, 0.0]}

    def at(time, how):
        return float(pb.Interpolation(**line, extrapolate=how)(time))

    assert (at(-1.0, "clamp"), at(5.0, "clamp")) == (0.0, 0.0)
    assert (at(-1.0, "linear"), at(5.0, "linear")) == (-2.0, -2.0)
    assert (at(-1.0, "periodic"), at(4.0, "periodic"), at(6.5, "periodic")) == (1.0, 2.0, 1.0)
    assert np.isnan([at(-0.1, "nan"), at(3.1, "nan")]).all()
    assert at(3.0, "nan") == 0.0
    assert float(pb.Interpolation(**line).derivative(4.0)) == 0.0
    bent = pb.Interpolation(UNEVEN, UNEVEN**2, kind="cubic", extrapolate="linear")
    np.testing.assert_allclose(bent(5.0), 16.0 + 8.0 * 1.0, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives(kind):
    def f(x):
        forcing = pb.Interpolation(x["t"], x["values"], kind)
        return jnp.sum(jnp.sin(forcing(x["time"])))

    point = {
        "t": jnp.asarray(UNEVEN), "values": jnp.asarray(values_at(UNEVEN, (2,))),
        "time": jnp.array([0.1, 1.15, 2.7]),
    }  # fmt: skip
    taylor_test(f, point)
    even = point | {"t": jnp.asarray(EVEN), "values": jnp.asarray(values_at(EVEN, (2,)))}
    assert pb.Interpolation(even["t"], even["values"]).is_uniform
    # With traced times the grid is not known to be uniform, and the derivative is the same.
    by_values = jax.grad(lambda v: f(even | {"values": v}))(even["values"])
    assert_close(by_values, jax.grad(f)(even)["values"], rtol=1e-12, atol=1e-12)


@each_executor_slow_on_array
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("t", [UNEVEN, EVEN], ids=["uneven", "even"])
def test_in_a_vector_field(executor, kind, t):
    values = values_at(t)
    forcing = pb.Interpolation(t, values, kind)
    stops = t[(t > 0.0) & (t < 3.0)]

    def integral(forcing):
        problem = pb.ODEProblem(lambda t, y, p: p(t) * jnp.ones_like(y), 0.0, (0.0, 3.0), forcing)
        return pb.solve(problem, pb.Dopri5(), executor, tstops=stops).y_end

    if kind == "cubic":
        expected = CubicSpline(t, values).integrate(0.0, 3.0)
    else:
        grid = np.unique(np.concatenate([[0.0, 3.0], stops]))
        expected = np.trapezoid(np.interp(grid, t, values), grid)
    # Between the knots the method is exact, as far as its steps end there.
    np.testing.assert_allclose(integral(forcing), expected, atol=1e-12)
    slope = jax.grad(lambda v: integral(pb.Interpolation(t, v, kind)))(jnp.asarray(values))
    np.testing.assert_allclose(jnp.sum(slope * values), expected, atol=1e-11)


@each_executor
def test_one_for_each_trajectory_and_closed_over(executor):
    shared = pb.Interpolation(EVEN, EVEN, kind="cubic")
    values = jnp.stack([jnp.zeros(9), jnp.ones(9), 2.0 * jnp.ones(9)])
    own = jax.vmap(lambda v: pb.Interpolation(EVEN, v))(values)
    one = pb.Interpolation(jnp.asarray(EVEN), values[0])
    problem = pb.ODEProblem(
        lambda t, y, p: (p["own"](t) + shared(t)) * jnp.ones_like(y), 0.0, (0.0, 2.0),
        {"own": jax.tree.map(lambda x: x[0], own)},
    )  # fmt: skip
    assert own.is_uniform and one.is_uniform
    ensemble = pb.EnsembleProblem(problem, params={"own": own})
    sol = pb.solve(ensemble, pb.Dopri5(), executor)
    np.testing.assert_allclose(sol.y_end, [2.0, 4.0, 6.0], rtol=1e-12)


def test_single_precision():
    forcing = pb.Interpolation(np.float32(EVEN), np.float32(EVEN**2), "cubic")
    assert forcing(np.float32(0.3)).dtype == forcing.derivative(0.3).dtype == jnp.float32
    np.testing.assert_allclose(forcing(np.float32(0.3)), 0.09, atol=1e-5)
    assert forcing.is_uniform


@pytest.mark.parametrize(
    ("t", "values", "error", "text"),
    [
        ([0.0, 2.0, 1.0], [1.0, 1.0, 1.0], ValueError, "must increase, but entry 2 is 1, after 2"),
        ([0.0, 1.0, 1.0], [1.0, 1.0, 1.0], ValueError, "must increase, but entry 2 is 1, after 1"),
        ([0.0], [1.0], ValueError, r"at least two times .* shape \(1,\) arrived"),
        ([0.0, 1.0], [1.0, np.nan], ValueError, "`values` .* finite, but entry 1 is nan; leave"),
        ([0.0, np.inf], [1.0, 2.0], ValueError, "`t` of Interpolation must be finite"),
        ([0.0, 1.0], [1.0, 2.0, 3.0], ValueError, r"each of the 2 times .* shape \(3,\) arrived"),
        ([0.0, 1.0], ["a", "b"], TypeError, "`values` of Interpolation must be real numbers"),
    ],
)
def test_errors(t, values, error, text):
    with pytest.raises(error, match=text):
        pb.Interpolation(t, values)


def test_errors_of_options():
    with pytest.raises(ValueError, match=r"`kind` must be one of .*, but 'spline' arrived"):
        pb.Interpolation(EVEN, EVEN, kind="spline")
    with pytest.raises(ValueError, match=r"`extrapolate` must be one of .*, but 'error' arrived"):
        pb.Interpolation(EVEN, EVEN, extrapolate="error")


def test_what_it_looks_like():
    forcing = pb.Interpolation(EVEN, np.zeros((9, 2)), kind="cubic")
    assert repr(forcing) == "Interpolation(cubic, 9 times, values of shape (2,))"
    leaves, tree = jax.tree.flatten(forcing)
    assert jax.tree.unflatten(tree, leaves)(0.5).shape == (2,)
