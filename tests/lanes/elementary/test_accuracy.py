"""Errors against mpmath, and of every so many float32 numbers against the float64 function."""

import numpy as np
import pytest

from lanes.elementary.builder import NUMPY, compiled
from lanes.elementary.oracle import describe, ulp_errors
from lanes.elementary.points import BINARY, UNARY, points
from pullback.lanes.elementary import FUNCTIONS
from pullback.lanes.elementary.accuracy import MAX_ULP

N_POINTS = 2000
N_POINTS_SLOW = 60_000
# Strides through the bit patterns of float32: primes, so that no mantissa digit is favoured.
STRIDE, STRIDE_SLOW = 401, 17
CHUNK = 1 << 20


def check(name: str, dtype: str, n: int) -> None:
    arguments = points(name, dtype, n)
    got = compiled(name, dtype)(*arguments)
    errors = ulp_errors(name, got, *arguments)
    assert errors.max() <= MAX_ULP[name], describe(name, errors, *arguments)


def test_every_function_has_a_bound_and_points():
    assert set(MAX_ULP) == set(FUNCTIONS) - {"erf_inv"}
    assert set(UNARY) | set(BINARY) == set(MAX_ULP)
    assert max(MAX_ULP.values()) <= 4


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("name", MAX_ULP)
def test_against_mpmath(name, dtype):
    check(name, dtype, N_POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("name", MAX_ULP)
def test_against_mpmath_densely(name, dtype):
    check(name, dtype, N_POINTS_SLOW)


def float32_against_float64(name: str, stride: int) -> tuple[float, float]:
    """Return the largest error in ulp over all float32 numbers, by steps, and where it is."""
    narrow, wide = compiled(name, "f32", 16), compiled(name, "f64")
    worst, where = 0.0, 0.0
    for start in range(0, 1 << 32, CHUNK * stride):
        stop = min(1 << 32, start + CHUNK * stride)
        x = np.arange(start, stop, stride, np.uint64).astype(np.uint32).view(np.float32)
        if name in ("lgamma", "digamma"):
            x = np.abs(x)  # the error is absolute for negative arguments
        with np.errstate(all="ignore"):
            got, exact = narrow(x), wide(x.astype(np.float64))
            nearest = exact.astype(np.float32)
            errors = np.abs(got - exact) / np.spacing(np.abs(nearest)).astype(np.float64)
        same = (got == nearest) | (np.isnan(got) & np.isnan(nearest))
        errors = np.where(same & ~np.isfinite(nearest), 0.0, errors)
        errors = np.where(np.isnan(errors), np.inf, errors)
        i = int(np.argmax(errors))
        if errors[i] > worst:
            worst, where = float(errors[i]), float(x[i])
    return worst, where


@pytest.mark.parametrize("name", [name for name in MAX_ULP if name in UNARY])
def test_float32_against_float64(name):
    worst, where = float32_against_float64(name, STRIDE)
    assert worst <= MAX_ULP[name], f"{worst} ulp at {where!r}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MAX_ULP if name in UNARY])
def test_float32_against_float64_densely(name):
    worst, where = float32_against_float64(name, STRIDE_SLOW)
    assert worst <= MAX_ULP[name], f"{worst} ulp at {where!r}"
