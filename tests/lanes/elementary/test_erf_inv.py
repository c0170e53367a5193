"""erf_inv agrees with JAX's, so that `jax.random.normal` gives the same numbers in lanes."""

import jax
import mpmath as mp
import numpy as np
import pytest
from jax import lax

from lanes.elementary.builder import NUMPY, compiled
from lanes.elementary.points import seeded
from pullback.lanes.elementary.giles import CENTRE, TAILS

N_POINTS = 20_000
JAX_ULPS = 4
# XLA's float64 log1p loses up to 128 ulp between -0.415 and -0.3, where a rational function serves
# beyond its interval: erf_inv differs by up to 21 ulp for these |x|. The error is on XLA's side.
XLA_LOG1P_DEFECT = (0.54, 0.645)


def uniforms(name: str, dtype: str) -> np.ndarray:
    """Return numbers in (-1, 1), half of them near the ends."""
    rng, kind = seeded(name, dtype), NUMPY[dtype]
    ends = 1 - np.exp2(rng.uniform(-52 if dtype == "f64" else -24, -1, N_POINTS // 2))
    x = np.concatenate([rng.uniform(-1, 1, N_POINTS // 2), ends * rng.choice([-1, 1], ends.size)])
    x = x.astype(kind)
    return x[np.abs(x) < 1]


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    return np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want)).astype(np.float64)


@pytest.mark.parametrize("dtype", NUMPY)
def test_agrees_with_jax(dtype):
    x = uniforms("erf_inv", dtype)
    off = ulps(compiled("erf_inv", dtype)(x), np.asarray(lax.erf_inv(x)))
    defect = (np.abs(x) > XLA_LOG1P_DEFECT[0]) & (np.abs(x) < XLA_LOG1P_DEFECT[1])
    if dtype == "f64":
        assert off[defect].max() <= 32
        off = off[~defect]
    assert off.max() <= JAX_ULPS
    assert (off == 0).mean() > 0.9


@pytest.mark.parametrize("dtype", NUMPY)
def test_makes_the_normal_numbers_of_jax(dtype):
    kind = NUMPY[dtype]
    key = jax.random.key(5)
    uniform = jax.random.uniform(key, (4096,), kind, np.nextafter(kind(-1), kind(0)), kind(1))
    normal = kind(np.sqrt(2)) * compiled("erf_inv", dtype)(np.asarray(uniform))
    want = np.asarray(jax.random.normal(key, (4096,), kind))
    # in the format's epsilon, relative: the defect above is 3e-15
    assert np.max(np.abs(normal - want) / np.abs(want)) <= 32 * np.finfo(kind).eps
    assert (normal == want).mean() > 0.85


@pytest.mark.parametrize("dtype", NUMPY)
def test_is_its_definition(dtype):
    """x·p(w) with the published polynomials in exact arithmetic, from the rounded x²."""
    x = uniforms("definition", dtype)[:: N_POINTS // 1000]
    got = compiled("erf_inv", dtype)(x)
    with mp.workprec(120):
        exact = [definition(mp.mpf(float(v)), float(v * v), dtype) for v in x]
        unit = np.spacing(np.abs(got)).astype(np.float64)
        errors = [
            float(abs(mp.mpf(float(g)) - e) / u) for g, e, u in zip(got, exact, unit, strict=True)
        ]
    assert max(errors) <= 4


def definition(x: mp.mpf, square: float, dtype: str) -> mp.mpf:
    """Evaluate Giles' formula in exact arithmetic, with coefficients of the format."""
    w = -mp.log1p(-mp.mpf(square))
    bound, shift, coefficients = CENTRE[dtype]
    variable = w - shift
    if w >= bound:
        bound, shift, coefficients = next(piece for piece in TAILS[dtype] if w < piece[0])
        variable = mp.sqrt(w) - shift
    p = mp.mpf(0)
    for c in reversed(coefficients):
        p = p * variable + float(NUMPY[dtype](c))
    return x * p
