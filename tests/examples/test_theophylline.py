"""One compartment fitted to real people."""

import numpy as np
import pytest
from scipy.optimize import least_squares

from pullback.data import load_theophylline
from pullback.testing import assert_close


@pytest.fixture(scope="module")
def result(example, tmp_path_factory):
    path = tmp_path_factory.mktemp("theophylline") / "out.png"
    result = example("theophylline").main(n_subjects=4, n_adam=150, n_lbfgs=40, picture=path)
    assert path.read_bytes().startswith(b"\x89PNG")
    return result


def fitted_by_scipy(subject: int) -> np.ndarray:
    """Fit the closed solution: ka, ke, V."""
    data = load_theophylline()
    dose, time = data.dose[subject], data.time[subject]

    def residual(log_rates):
        ka, ke, volume = np.exp(log_rates)
        curve = dose / volume * ka / (ka - ke) * (np.exp(-ke * time) - np.exp(-ka * time))
        return curve - data.concentration[subject]

    start = np.log([1.5, 0.1, 0.5])
    return np.exp(least_squares(residual, start, xtol=1e-12, ftol=1e-12, gtol=1e-12).x)


def test_agrees_with_a_fit_of_the_closed_solution(result):
    for i in range(4):
        found = np.array([result.ka[i], result.ke[i], result.volume[i]])
        # Both stop where the sum of squares is flat: parameters to the root of its accuracy.
        assert_close(found, fitted_by_scipy(i), rtol=1e-5, atol=0.0, err_msg=f"subject {i + 1}")


def test_agrees_with_published_values(result):
    # R's nlsList(SSfol) of the first four subjects: log ke, log ka, log clearance.
    published = np.array([
        [-2.919614, 0.5751612, -3.915857],
        [-2.286108, 0.6640567, -3.106326],
        [-2.508073, 0.8975422, -3.229962],
        [-2.436494, 0.1583638, -3.286078],
    ])  # fmt: skip
    found = np.log(np.stack([result.ke, result.ka, result.clearance], axis=1))
    # R stops at a relative change of 1e-5 or so.
    assert_close(found, published, rtol=0.0, atol=2e-4)


def test_trajectories_are_exact_and_the_fit_has_converged(result):
    assert result.closed_form_error < 1e-6  # mg/L; the solver's tolerance is 1e-8
    assert result.gradient_norm < 1e-4
    assert np.all(result.residual < 1.2)
    assert_close(result.clearance, result.ke * result.volume, rtol=1e-12, atol=0.0)
