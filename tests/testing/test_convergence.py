"""`convergence_order`: exact powers, a real method, and rounding left out."""

import numpy as np
import pytest

from pullback.testing import convergence_order

STEPS = 2.0 ** -np.arange(2, 9)


@pytest.mark.parametrize("order", [1, 2, 4, 5.5])
def test_exact_powers(order):
    # The logarithms are rounded to 1 ulp, the fit divides them by a range of 6.
    assert convergence_order(3e4 * STEPS**order, STEPS) == pytest.approx(order, abs=1e-12)


def test_order_of_steps_does_not_matter(rng):
    shuffled = rng.permutation(STEPS)
    assert convergence_order(shuffled**2, shuffled) == pytest.approx(2.0, abs=1e-12)


def test_trapezoidal_rule_is_of_order_two():
    def error(h):
        x = np.linspace(0.0, 1.0, round(1 / h) + 1)
        return abs(np.trapezoid(np.exp(x), x) - (np.e - 1))

    assert convergence_order([error(h) for h in STEPS], STEPS) == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize(("dtype", "scale"), [("float64", 100.0), ("float32", 1.0)])
def test_rounding_is_left_out(dtype, scale):
    floor = 100 * np.finfo(dtype).eps * scale
    errors = np.maximum(floor * 2.0 ** (4 * np.arange(4, -3, -1.0)) * 1.01, floor / 2)
    assert convergence_order(errors, STEPS, dtype=dtype, scale=scale) == pytest.approx(4.0)


def test_too_few_points_above_rounding():
    with pytest.raises(ValueError, match=r"at least 3 above rounding \(2\.2e-14\), got 2 of 7"):
        convergence_order([1.0, 0.1, *[1e-16] * 5], STEPS)


@pytest.mark.parametrize(
    ("errors", "steps", "message"),
    [
        ([1.0], [1.0, 2.0], "same length, got shapes"),
        ([1.0, np.nan, 0.1], [4.0, 2.0, 1.0], "expected finite numbers and positive steps"),
        ([1.0, 0.5, 0.1], [4.0, 2.0, 0.0], "expected finite numbers and positive steps"),
    ],
)
def test_bad_arguments(errors, steps, message):
    with pytest.raises(ValueError, match=message):
        convergence_order(errors, steps)
