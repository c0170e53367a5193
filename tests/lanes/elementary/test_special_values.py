"""Zeros with their signs, infinities, NaN, poles, domain edges and subnormal numbers: exactly."""

import math

import numpy as np
import pytest
import scipy.special

from lanes.elementary.builder import NUMPY, compiled

INF, NAN = math.inf, math.nan
PI = math.pi

# name: (argument(s), result) in pairs; results are rounded to the dtype.
EXACT = {
    "exp": [(-0.0, 1), (0.0, 1), (-INF, 0.0), (INF, INF), (1e4, INF), (-1e4, 0.0)],
    "exp2": [(-0.0, 1), (-INF, 0.0), (INF, INF), (5.0, 32), (-7.0, 2.0**-7), (2e3, INF)],
    "expm1": [(-0.0, -0.0), (0.0, 0.0), (-INF, -1), (INF, INF), (1e4, INF), (-1e4, -1)],
    "logistic": [(-0.0, 0.5), (0.0, 0.5), (-INF, 0.0), (INF, 1), (1e4, 1), (-1e4, 0.0)],
    "log": [(-0.0, -INF), (0.0, -INF), (1.0, 0.0), (-INF, NAN), (INF, INF), (-1.0, NAN)],
    "log2": [(-0.0, -INF), (0.0, -INF), (1.0, 0.0), (8.0, 3), (-INF, NAN), (INF, INF), (-1.0, NAN)],
    "log1p": [(-0.0, -0.0), (0.0, 0.0), (-1.0, -INF), (-1.5, NAN), (-INF, NAN), (INF, INF)],
    "sin": [(-0.0, -0.0), (0.0, 0.0), (-INF, NAN), (INF, NAN)],
    "cos": [(-0.0, 1), (0.0, 1), (-INF, NAN), (INF, NAN)],
    "tan": [(-0.0, -0.0), (0.0, 0.0), (-INF, NAN), (INF, NAN)],
    "asin": [(-0.0, -0.0), (0.0, 0.0), (1.0, PI / 2), (-1.0, -PI / 2), (1.5, NAN), (INF, NAN)],
    "acos": [(0.0, PI / 2), (-0.0, PI / 2), (1.0, 0.0), (-1.0, PI), (-1.5, NAN), (-INF, NAN)],
    "atan": [(-0.0, -0.0), (0.0, 0.0), (-INF, -PI / 2), (INF, PI / 2), (1.0, PI / 4)],
    "sinh": [(-0.0, -0.0), (0.0, 0.0), (-INF, -INF), (INF, INF), (1e4, INF)],
    "cosh": [(-0.0, 1), (0.0, 1), (-INF, INF), (INF, INF), (-1e4, INF)],
    "tanh": [(-0.0, -0.0), (0.0, 0.0), (-INF, -1), (INF, 1), (1e30, 1), (-1e30, -1)],
    "asinh": [(-0.0, -0.0), (0.0, 0.0), (-INF, -INF), (INF, INF)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-0.0, NAN), (-3.0, NAN), (-INF, NAN), (INF, INF)],
    "atanh": [(-0.0, -0.0), (0.0, 0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN), (-INF, NAN)],
    "sqrt": [(-0.0, -0.0), (0.0, 0.0), (4.0, 2), (-1.0, NAN), (INF, INF), (-INF, NAN)],
    "rsqrt": [(-0.0, -INF), (0.0, INF), (4.0, 0.5), (-1.0, NAN), (INF, 0.0), (-INF, NAN)],
    "cbrt": [(-0.0, -0.0), (0.0, 0.0), (-27.0, -3), (INF, INF), (-INF, -INF)],
    "erf": [(-0.0, -0.0), (0.0, 0.0), (-INF, -1), (INF, 1), (10.0, 1)],
    "erfc": [(-0.0, 1), (0.0, 1), (-INF, 2), (INF, 0.0), (30.0, 0.0), (-10.0, 2)],
    "erf_inv": [(-0.0, -0.0), (0.0, 0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (-INF, NAN)],
    "lgamma": [(1.0, 0.0), (2.0, 0.0), (0.0, INF), (-0.0, INF), (-3.0, INF), (-1e30, INF),
               (INF, INF), (-INF, INF)],
    "digamma": [(0.0, NAN), (-0.0, NAN), (-2.0, NAN), (-1e30, NAN), (INF, INF), (-INF, NAN)],
    "atan2": [((0.0, 0.0), 0.0), ((-0.0, 0.0), -0.0), ((0.0, -0.0), PI), ((-0.0, -0.0), -PI),
              ((INF, INF), PI / 4), ((-INF, INF), -PI / 4), ((INF, -INF), 3 * PI / 4),
              ((1.0, INF), 0.0), ((-1.0, INF), -0.0), ((1.0, -INF), PI), ((INF, 1.0), PI / 2),
              ((1.0, 0.0), PI / 2), ((-1.0, -0.0), -PI / 2), ((0.0, NAN), NAN), ((NAN, 1.0), NAN)],
    "pow": [((1.0, NAN), 1), ((NAN, 0.0), 1), ((NAN, -0.0), 1), ((NAN, 1.0), NAN),
            ((2.0, NAN), NAN), ((-1.0, INF), 1), ((-1.0, -INF), 1), ((0.5, INF), 0.0),
            ((0.5, -INF), INF),
            ((2.0, INF), INF), ((2.0, -INF), 0.0), ((-2.0, 3.0), -8), ((-2.0, 0.5), NAN),
            ((-0.0, 3.0), -0.0), ((-0.0, 2.0), 0.0), ((-0.0, -3.0), -INF), ((-0.0, -2.0), INF),
            ((0.0, 0.5), 0.0), ((-0.0, 0.5), 0.0), ((0.0, -0.5), INF), ((INF, -2.0), 0.0),
            ((-INF, 3.0), -INF), ((-INF, 2.0), INF), ((-INF, -3.0), -0.0), ((-INF, 0.5), INF),
            ((3.0, 1.0), 3), ((10.0, -1e6), 0.0), ((10.0, 1e6), INF), ((0.1, -1e6), INF)],
}  # fmt: skip


def same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Equal, the signs of zeros included; any NaN is as good as another."""
    equal = (got == want) & (np.signbit(got) == np.signbit(want))
    return equal | (np.isnan(got) & np.isnan(want))


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("name", EXACT)
def test_table(name, dtype):
    arguments = [a if isinstance(a, tuple) else (a,) for a, _ in EXACT[name]]
    columns = [np.array(column, NUMPY[dtype]) for column in zip(*arguments, strict=True)]
    want = np.array([float(w) for _, w in EXACT[name]], np.float64).astype(NUMPY[dtype])
    got = compiled(name, dtype)(*columns)
    wrong = [(arguments[i], got[i], want[i]) for i in np.flatnonzero(~same(got, want))]
    assert wrong == []
    if len(columns) == 1:
        assert np.isnan(compiled(name, dtype)(np.array([NAN, -NAN], NUMPY[dtype]))).all()


# A grid of critical values against NumPy and SciPy in double precision, which are right to a few
# units in the last place there; signs of zeros, infinities, NaN and gradual underflow must agree.

REFERENCE = {
    "logistic": scipy.special.expit,
    "erf": np.vectorize(math.erf),
    "erfc": np.vectorize(math.erfc),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
}
# erf_inv: its own definition; lgamma, digamma: other conventions at the poles, see test_gamma
ON_GRID = sorted(set(EXACT) - {"erf_inv", "lgamma", "digamma"})
REFERENCE_ULPS = 4  # ours up to 4, and SciPy's expit and NumPy's vector loops up to 4 of their own


def grid(dtype: str) -> np.ndarray:
    """Return zeros, infinities, NaN, subnormal and extreme numbers and thresholds of overflow."""
    info = np.finfo(NUMPY[dtype])
    least, tiny, eps = float(info.smallest_subnormal), float(info.tiny), float(info.eps)
    sizes = [0.0, INF, 1, 2, 0.5, 3, 1.5, least, 3 * least, tiny, float(info.max), 100.0, 7.0]
    others = [NAN, 1e-3, 1e10 if dtype == "f64" else 1e5, 2.0**53, 2.0**53 - 1, 2.0**24]
    edges = [1 - 2.0**24, 1 + eps, 1 - eps / 2, 709.9, 710.2, 711.0, -745.2, -746.0]
    edges32 = [88.8, 89.3, 90.0, -103.9, -104.5]
    return np.array(sizes + [-x for x in sizes] + others + edges + edges32, NUMPY[dtype])


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("name", ON_GRID)
def test_grid(name, dtype):
    x = grid(dtype)
    columns = [c.ravel() for c in np.meshgrid(x, x)] if name in ("pow", "atan2") else [x]
    reference = REFERENCE.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        wide = reference(*(c.astype(np.float64) for c in columns))
        want = wide.astype(NUMPY[dtype])
        got = compiled(name, dtype)(*columns)
        off = np.abs(got.astype(np.float64) - wide) / np.spacing(np.abs(want)).astype(np.float64)
    near = np.isfinite(want) & np.isfinite(got) & (off <= REFERENCE_ULPS)
    near &= np.signbit(got) == np.signbit(want)
    wrong = np.flatnonzero(~(same(got, want) | near))
    shown = [(*(c[i] for c in columns), got[i], want[i]) for i in wrong[:5]]
    assert shown == []
