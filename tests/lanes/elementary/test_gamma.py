"""lgamma and digamma for negative arguments, where the error is absolute, and at their poles."""

import mpmath as mp
import numpy as np
import pytest

from lanes.elementary.builder import NUMPY, compiled
from lanes.elementary.points import seeded

N_POINTS = 2000
# Of the largest term of the reflection formula, in units of the format's epsilon.
TERM_EPS = 3.0


def negatives(name: str, dtype: str) -> np.ndarray:
    """Return negative numbers: everywhere, next to the poles, next to the zeros of lgamma, tiny."""
    rng, n = seeded(name, dtype), N_POINTS // 4
    sizes = np.concatenate(
        [
            rng.uniform(0, 40, n),
            rng.integers(1, 30, n) + np.exp2(rng.uniform(-20, -2, n)) * rng.choice([-1, 1], n),
            np.exp2(rng.uniform(-100, 14, n)),
            rng.choice([2.4570247, 2.7476826, 3.1435808, 3.9552942], n) + rng.normal(0, 1e-3, n),
        ]
    )
    return -sizes.astype(NUMPY[dtype])


def lgamma_terms(x: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """Return lgamma(x), and the size of the largest term it is made of."""
    a = -x
    sine = mp.log(abs(mp.sinpi(a)) * a / mp.pi)
    other = mp.loggamma(a)
    return mp.re(mp.loggamma(x)), max(abs(sine), abs(other), mp.mpf(1))


def digamma_terms(x: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """Return digamma(x), and the size of the largest term it is made of."""
    cotangent = mp.pi * mp.cospi(x) / mp.sinpi(x)
    return mp.digamma(x), max(abs(cotangent), abs(mp.digamma(1 - x)), mp.mpf(1))


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize(("name", "terms"), [("lgamma", lgamma_terms), ("digamma", digamma_terms)])
def test_negative_arguments(name, terms, dtype):
    x = negatives(name, dtype)
    x = x[x != np.rint(x)]
    got = compiled(name, dtype)(x)
    eps = float(np.finfo(NUMPY[dtype]).eps)
    with mp.workprec(180):
        exact = [terms(mp.mpf(float(v))) for v in x]
        errors = np.array([
            float(abs(mp.mpf(float(g)) - value) / (size * eps))
            for g, (value, size) in zip(got, exact, strict=True)
        ])  # fmt: skip
    i = int(np.argmax(errors))
    assert errors[i] <= TERM_EPS, f"{errors[i]:.2f} eps of the largest term at {x[i]!r}"


@pytest.mark.parametrize("dtype", NUMPY)
def test_poles(dtype):
    top = 2.0 ** (52 if dtype == "f64" else 23)  # from here on every number is an integer
    poles = -np.array([0.0, 1, 2, 3, 100, 101, 12345, top, 4 * top], NUMPY[dtype])
    assert (compiled("lgamma", dtype)(poles) == np.inf).all()
    assert np.isnan(compiled("digamma", dtype)(poles)).all()


@pytest.mark.parametrize("dtype", NUMPY)
def test_lgamma_overflows_where_it_should(dtype):
    info = np.finfo(NUMPY[dtype])
    last = mp.mpf({"f64": 2.56e305, "f32": 4.085e36}[dtype])
    for _ in range(20):  # Newton's method: the derivative is log x
        last -= (mp.loggamma(last) - float(info.max)) / mp.log(last)
    x = (float(last) * (1 + np.array([-8, 8]) * float(info.eps))).astype(NUMPY[dtype])
    got = compiled("lgamma", dtype)(x)
    assert np.isfinite(got[0]) and got[0] > info.max * (1 - 32 * info.eps)
    assert got[1] == np.inf
