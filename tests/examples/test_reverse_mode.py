"""The gradient of a sum of final states with fixed steps."""

import numpy as np

from pullback.testing import assert_close, tol

# Twenty steps of six stages with a handful of operations each, forward and backward.
ROUNDING = tol(np.float64, n_ops=20 * 6 * 10)


def test_gradient_is_that_of_the_steps_and_near_the_exact_one(example, capsys):
    result = example("reverse_mode").main(p=(0.2, -0.3, 1.1))
    assert_close(result.kernel, result.of_the_steps, rtol=ROUNDING, atol=0.0)
    assert_close(result.kernel, result.array, rtol=ROUNDING, atol=0.0)
    # The local error of order 6: 20 steps of at most z^6 / 6! with z = 1.1 * 0.05, some of it
    # cancelled by the method's choice of coefficients.
    assert_close(result.kernel, np.exp([0.2, -0.3, 1.1]), rtol=20 * (1.1 * 0.05) ** 6, atol=0.0)
    assert "exp(p)" in capsys.readouterr().out
