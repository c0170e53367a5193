"""The truth: mpmath in many digits, and errors in units of its last place."""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np

# Bits: 53 for the result, as many for cancellation next to a zero of the function, and some more.
PRECISION = 180

# Functions that mpmath spells differently; the others have our names there.
_SPELT: dict[str, Callable[..., mp.mpf]] = {
    "exp2": lambda x: mp.power(2, x),
    "logistic": lambda x: 1 / (1 + mp.exp(-x)),
    "log2": lambda x: mp.log(x) / mp.log(2),
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "lgamma": lambda x: mp.re(mp.loggamma(x)),
    "pow": mp.power,
}


def ulp_errors(name: str, got: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
    """Return |got - exact| in units of the last place of the exact result, rounded to the format.

    Where the exact result overflows the format, the error is 0 if `got` is that infinity, else inf.
    """
    columns = [x.astype(np.float64).tolist() for x in arrays]
    with mp.workprec(PRECISION), np.errstate(all="ignore"):
        pairs = [_rounded(name, got.dtype, *arguments) for arguments in zip(*columns, strict=True)]
        rounded, remainder = (np.array(column) for column in zip(*pairs, strict=True))
        units = np.spacing(np.abs(rounded).astype(got.dtype)).astype(np.float64)
        errors = np.abs((got.astype(np.float64) - rounded) / units - remainder)
    errors = np.where(~np.isfinite(rounded) & (got == rounded), 0.0, errors)
    return np.where(np.isnan(errors), np.inf, errors)


def _rounded(name: str, dtype: np.dtype, *arguments: float) -> tuple[float, float]:
    """Return the exact value rounded to the format, and what is left in units of its last place."""
    function = _SPELT.get(name) or getattr(mp, name)
    exact = function(*map(mp.mpf, arguments))
    nearest = dtype.type(float(exact))
    if not np.isfinite(nearest):
        return float(nearest), 0.0
    unit = float(np.spacing(np.abs(nearest)))
    return float(nearest), float((exact - mp.mpf(float(nearest))) / unit)


def describe(name: str, errors: np.ndarray, *arrays: np.ndarray) -> str:
    """Say where the largest error is."""
    i = int(np.argmax(errors))
    where = ", ".join(f"{x[i]!r} = {float(x[i]).hex()}" for x in arrays)
    return f"{name}: {errors[i]:.3f} ulp at {where}"
