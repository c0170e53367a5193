"""Quantiles of an ensemble that is never stored."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor
from pullback.testing import assert_close
from quick import quick_compilation  # noqa: F401

STILL = pb.ODEProblem(lambda t, y, p: jnp.zeros_like(y), np.zeros(2), (0.0, 1.0))
Q = (0.0, 0.1, 0.5, 0.75, 1.0)


def of(values, executor=ANY, **options):
    """The quantiles of given numbers, which nothing happens to."""
    reduce = pb.Quantiles(lambda sol: sol.y_end, **({"q": Q} | options))
    ensemble = pb.EnsembleProblem(STILL, y0=jnp.asarray(values))
    return pb.solve(ensemble, pb.Euler(), executor, dt=1.0, reduce=reduce, batch_size=40).value


def exact(values, q=Q):
    return np.quantile(values, q, axis=0, method="inverted_cdf")


def samples(kind, n=150):
    rng = np.random.default_rng(1)
    return {
        "normal": rng.normal(size=(n, 2)),
        "heavy": rng.standard_cauchy(size=(n, 2)),
        "ties": np.round(rng.normal(size=(n, 2))),
        "equal": np.full((n, 2), 0.1),
        "tiny": 1.0 + 1e-15 * rng.integers(0, 9, (n, 2)),
    }[kind]


@pytest.mark.parametrize("kind", ["normal", "heavy", "ties", "equal", "tiny"])
@pytest.mark.parametrize(("bins", "passes"), [(8, 2), (8, 4), (256, 3)])
def test_within_the_stated_error(kind, bins, passes):
    values = samples(kind)
    found = of(values, bins=bins, passes=passes)
    span = values.max(0) - values.min(0)
    # Rounding of sums of distances, beside the width of a bin.
    rounding = 1e-13 * span + 1e-15 * np.abs(values).max(0)
    error, bound = np.abs(found.value - exact(values)), np.asarray(found.error)
    assert (error <= bound + rounding).all()
    assert (bound <= span / bins ** (passes - 1) * (1 + 1e-9)).all()


@each_executor
def test_executors_agree(executor):
    values = samples("normal")
    assert_close(of(values, executor).value, of(values).value, rtol=0.0, atol=1e-14)


def test_exact_where_a_bin_holds_one_value():
    values = samples("normal")
    found = of(values, bins=64, passes=5)
    assert (np.asarray(found.error) == 0.0).all()
    np.testing.assert_allclose(found.value, exact(values), rtol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 100])
def test_small_ensembles_and_whole_products(n):
    # 0.1 * 10 is one value, and not two because of rounding.
    values = np.arange(2.0 * n).reshape(n, 2)
    q = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
    found = of(values, q=q, bins=256, passes=3)
    np.testing.assert_allclose(found.value, exact(values, q), atol=1e-12)


def test_derivative_is_that_of_the_trajectory_there():
    values = jnp.asarray(samples("normal"))
    scale = jnp.linspace(1.0, 2.0, values.shape[0])[:, None]

    def quantile(a):
        return of(values + a * scale, q=(0.3,), bins=512, passes=3).value[0]

    place = [int(np.argmin(np.abs(values[:, i] - quantile(0.0)[i]))) for i in range(2)]
    assert_close(jax.jacfwd(quantile)(0.0), scale[np.array(place), 0], rtol=1e-12, atol=0.0)
    by_values = jax.grad(lambda v: jnp.sum(of(v, q=(0.3,), bins=512, passes=3).value))(values)
    expected = np.zeros_like(values)
    expected[place, [0, 1]] = 1.0
    assert_close(by_values, expected, rtol=0.0, atol=1e-12)


def test_derivative_of_a_wide_bin_is_a_mean():
    # In a shifted and stretched ensemble, quantiles move as they should.
    values = jnp.asarray(samples("normal", 4000))
    slopes = jax.jacfwd(lambda a: of(a[0] + a[1] * values, q=(0.2, 0.8)).value)(
        jnp.array([0.0, 1.0])
    )
    np.testing.assert_allclose(slopes[..., 0], 1.0, rtol=1e-9)
    np.testing.assert_allclose(slopes[..., 1], exact(values, (0.2, 0.8)), atol=1e-3)


def test_failed_trajectories_are_left_out():
    problem = pb.ODEProblem(lambda t, y, p: y**2, 0.5, (0.0, 0.1))
    y0 = np.append(np.linspace(0.1, 1.0, 20), [50.0, 60.0])
    ensemble = pb.EnsembleProblem(problem, y0=y0)
    summary = pb.solve(ensemble, pb.Tsit5(), ANY, reduce="quantiles", batch_size=8)
    good = pb.solve(pb.EnsembleProblem(problem, y0=y0[:20]), pb.Tsit5(), ANY)
    assert int(summary.n_ok) == 20
    expected = exact(good.y, pb.Quantiles().q)
    assert (np.abs(summary.value.value - expected) <= summary.value.error + 1e-14).all()


def test_single_precision():
    values = samples("normal").astype(np.float32)
    problem = pb.ODEProblem(STILL.vector_field, np.zeros(2, "float32"), (0.0, 1.0))
    ensemble = pb.EnsembleProblem(problem, y0=values)
    found = pb.solve(ensemble, pb.Euler(), ANY, dt=1.0, reduce="quantiles").value
    assert found.value.dtype == jnp.float32
    expected = exact(values, pb.Quantiles().q)
    assert (np.abs(found.value[:, 0] - expected) <= found.error[:, 0] + 1e-6).all()


def test_errors():
    with pytest.raises(ValueError, match="`q` of Quantiles must hold numbers between 0 and 1, but"):
        pb.Quantiles(q=[0.1, 1.5])
    with pytest.raises(ValueError, match="`bins` of Quantiles must be an integer of at least 2"):
        pb.Quantiles(bins=1)
    with pytest.raises(ValueError, match="`passes` of Quantiles must be an integer of at least 2"):
        pb.Quantiles(passes=1)
    with pytest.raises(
        TypeError, match="`of` of Quantiles must return floating numbers, but int32"
    ):
        pb.solve(
            pb.EnsembleProblem(STILL, y0=np.zeros((3, 2))), pb.Tsit5(), ANY,
            reduce=pb.Quantiles(lambda s: s.n_saved),
        )  # fmt: skip
