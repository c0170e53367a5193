"""Integer powers: the products of `jax.lax.integer_pow`, in its order."""

import numpy as np
import pytest
from jax import lax

from lanes.elementary.builder import NUMPY, Compiled
from pullback.lanes.elementary import integer_pow

EXPONENTS = (0, 1, 2, 3, 5, 6, 7, 13, -1, -2, -3, -6)


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_same_bits_as_jax(exponent, dtype):
    x = np.linspace(-3.3, 3.7, 501).astype(NUMPY[dtype])
    got = Compiled(lambda b, v: integer_pow(b, v, exponent), 1, dtype, 4)(x)
    np.testing.assert_array_equal(got, np.asarray(lax.integer_pow(x, exponent)))


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_special_values(exponent):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0])
    got = Compiled(lambda b, v: integer_pow(b, v, exponent), 1, "f64", 4)(x)
    with np.errstate(divide="ignore"):
        want = x ** float(exponent)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
