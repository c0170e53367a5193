"""The demo: fits of the lynx and hare data from many starts."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

import pullback as pb
from pullback import demo
from pullback.data import load_lynx_hare
from pullback.demo import model, summary
from pullback.testing import assert_close

# The optimum, to which SciPy leads too: see `test_no_better_fit_is_near`.
BEST = np.array([0.54001, 0.027156, 0.79660, 0.023702, 34.599, 5.8437])
BEST_LOSS = -4.1451


def scipy_loss(log_unknowns: np.ndarray) -> float:
    """Negative log-likelihood by another solver and from the plain equations."""
    data = load_lynx_hare()
    alpha, beta, gamma, delta, *start = np.exp(log_unknowns)

    def rates(t, z):
        return [(alpha - beta * z[1]) * z[0], (delta * z[0] - gamma) * z[1]]

    years = data.year - data.year[0]
    sol = solve_ivp(rates, (0, 20), start, "DOP853", years, rtol=1e-10, atol=1e-10)
    residual = np.log(sol.y) - np.log([data.hare, data.lynx])
    variance = np.mean(residual**2, axis=1)
    return float(np.sum(21 / 2 * (np.log(2 * np.pi * variance) + 1)))


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "out.png"


@pytest.fixture(scope="module")
def result(example, picture):
    return example("lynx_hare").main(64, 300, picture=picture, progress=False)


def test_finds_the_best_fit_from_most_starts(result):
    # Parameters to the root of the accuracy of a loss that is flat at its minimum.
    assert_close(result.best.unknowns, BEST, rtol=1e-3, atol=0.0)
    assert abs(result.best.loss - BEST_LOSS) < 1e-3
    assert abs(result.best.period - 10.29) < 0.02
    assert result.n_converged > 0.8 * 64
    assert result.n_converged <= result.best.n_starts
    assert result.n_failed == 0
    assert sum(fit.n_starts for fit in result.fits) == 64


def test_no_better_fit_is_near(result):
    start = np.log(result.best.unknowns)
    # The solver's tolerance of 1e-6 in 42 residuals of 0.2, over variances of 0.05, and then some.
    assert abs(scipy_loss(start) - result.best.loss) < 1e-3
    options = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 250}
    better = minimize(scipy_loss, start, method="Nelder-Mead", options=options)
    assert scipy_loss(start) - better.fun < 1e-3


def test_uncertainty_agrees_with_published_intervals(result):
    low, high = np.quantile(result.refits[:, :4], (0.1, 0.9), axis=0)
    for i, (name, (mean, published_low, published_high)) in enumerate(summary.PUBLISHED.items()):
        assert low[i] < mean < high[i], name
        # Another statistical method, and quantiles of 64: widths agree to a third.
        assert 0.66 < (high[i] - low[i]) / (published_high - published_low) < 1.5, name
    assert len(result.refits) == 64
    assert np.nanstd(result.refit_period) < 0.5


def test_report_and_picture(result, picture):
    report = result.report()
    assert f"{result.n_converged} of 64 starts found the best fit" in report
    assert "26 880 solves and 26 880 gradients" in report  # 64 (300 + 120)
    assert "trajectories per second" in report
    assert "published mean" in report
    assert result.picture == picture
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 100_000


def test_same_seed_same_answer(result):
    again = demo.run(64, 300, picture=None, progress=False)
    np.testing.assert_array_equal(again.unknowns, result.unknowns)
    np.testing.assert_array_equal(again.refits, result.refits)
    assert again.picture is None


def test_a_failed_trajectory_neither_counts_nor_disturbs_others():
    data = load_lynx_hare()
    log_counts = np.log(np.stack([data.hare, data.lynx], axis=-1))
    # Hares that nothing eats grow beyond the largest number within a year.
    hopeless = np.log([1e6, 1e-300, 1.0, 1.0, 1.0, 1.0])
    rows = jnp.asarray(np.stack([np.log(BEST), hopeless, np.log(BEST) + 0.1]))
    targets = jnp.broadcast_to(log_counts, (3, *log_counts.shape))
    times = data.year - data.year[0]

    def losses(rows, targets):
        score = model.evaluate(rows, targets, jnp.ones(21), times, pb.EnsembleKernel())
        return jnp.sum(score.log_loss), score

    (_, score), gradient = jax.value_and_grad(losses, has_aux=True)(rows, targets)
    np.testing.assert_array_equal(score.ok, [True, False, True])
    np.testing.assert_array_equal(gradient[1], np.zeros(6))
    alone, _ = jax.grad(losses, has_aux=True)(rows[::2], targets[::2])
    np.testing.assert_array_equal(gradient[::2], alone)
    assert np.linalg.norm(gradient[2]) > 1.0


def test_periods_are_measured():
    times = np.linspace(0.0, 40.0, 401)
    waves = np.stack([np.sin(2 * np.pi * times / 7.0 - 1.0), np.full(401, 2.0), -times])
    found = model.periods(np.zeros((3, 6)), times, waves)
    # The curvature within a tenth of a year, which straight lines between points leave out.
    assert abs(found[0] - 7.0) < 1e-3
    assert np.isnan(found[1:]).all()


def test_distinct_fits_differ_in_loss_or_period():
    loss = np.array([1.2, np.inf, 1.0, 1.1, 9.0, 1.3])
    period = np.array([10.0, np.nan, 10.1, 5.0, np.nan, 5.01])
    groups = summary.distinct_fits(loss, period)
    assert [group.tolist() for group in groups] == [[2, 0], [3, 5], [4]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_starts": 0}, "`n_starts` must be a positive whole number, but 0 arrived"),
        ({"n_iterations": 2.5}, "`n_iterations` must be a positive whole number, but 2.5 arrived"),
        ({"picture": "no/such/folder/x.png"}, "`picture` must name a file in a folder that exists"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        demo.run(**arguments)


@pytest.mark.parametrize(("module", "extra"), [("optax", "demo"), ("matplotlib.figure", "plot")])
def test_a_missing_extra_is_named(monkeypatch, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'pullback\[{extra}\]'"):
        demo.run(4, 1, progress=False)
