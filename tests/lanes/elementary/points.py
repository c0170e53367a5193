"""Where the elementary functions are tested: the whole range mixed with the critical regions."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import mpmath as mp
import numpy as np

from lanes.elementary.builder import NUMPY

Sampler = Callable[[np.random.Generator, int, bool], np.ndarray]


def uniform(low: float, high: float, low32: float | None = None, high32: float | None = None):
    """Sample evenly; the last two bounds are those of float32, where they differ."""

    def sample(rng: np.random.Generator, n: int, wide: bool) -> np.ndarray:
        a = low if wide or low32 is None else low32
        z = high if wide or high32 is None else high32
        return rng.uniform(a, z, n)

    return sample


def magnitudes(low: float, high: float, *, signed: bool = True) -> Sampler:
    """Sample magnitudes 2^low .. 2^high evenly in the exponent."""

    def sample(rng: np.random.Generator, n: int, _: bool) -> np.ndarray:
        sizes = np.exp2(rng.uniform(low, high, n))
        return sizes * rng.choice([-1.0, 1.0], n) if signed else sizes

    return sample


def whole_range(*, signed: bool = True) -> Sampler:
    """Sample all exponents, subnormal numbers included."""
    bounds = {True: (-1074.0, 1023.99), False: (-149.0, 127.99)}

    def sample(rng: np.random.Generator, n: int, wide: bool) -> np.ndarray:
        return magnitudes(*bounds[wide], signed=signed)(rng, n, wide)

    return sample


def around(centres: Callable[[np.random.Generator, int, bool], np.ndarray], finest: float = -50):
    """Sample at distances 2^finest .. 1/8 of the centres."""

    def sample(rng: np.random.Generator, n: int, wide: bool) -> np.ndarray:
        return centres(rng, n, wide) + magnitudes(finest if wide else -24, -3)(rng, n, wide)

    return sample


def at(*values: float) -> Sampler:
    """Sample from these values."""
    return lambda rng, n, _: rng.choice(np.array(values), n)


def quarter_turns(bits: int, bits32: int) -> Sampler:
    """Sample the numbers nearest to multiples of pi/2, up to 2^bits of them."""

    def sample(rng: np.random.Generator, n: int, wide: bool) -> np.ndarray:
        k = np.exp2(rng.uniform(0, bits if wide else bits32, n)).astype(np.int64)
        with mp.workprec(160):
            return np.array([float(int(i) * mp.pi / 2) for i in k])

    return sample


def integers(low: int, high: int) -> Sampler:
    """Sample integers."""
    return lambda rng, n, _: rng.integers(low, high, n).astype(float)


_TINY = magnitudes(-60, 1)
_TRIG = (_TINY, uniform(-10, 10), uniform(-1e5, 1e5), whole_range(), quarter_turns(30, 17))
_POSITIVE = (whole_range(signed=False), magnitudes(-1, 1, signed=False), around(at(1.0)))
_GAMMA = (
    whole_range(signed=False),
    uniform(0, 12),
    around(at(1.0, 2.0, 3.0, 1.4616321449683622, 0.8125)),
    magnitudes(-8, 30, signed=False),
)

UNARY: dict[str, tuple[Sampler, ...]] = {
    "exp": (uniform(-746, 710, -104, 89), uniform(-3, 3), _TINY),
    "exp2": (uniform(-1076, 1024, -151, 128), uniform(-3, 3), _TINY),
    "expm1": (uniform(-40, 710, -18, 89), uniform(-3, 3), _TINY),
    "logistic": (uniform(-746, 40, -104, 18), uniform(-3, 3), _TINY),
    "log": _POSITIVE,
    "log2": _POSITIVE,
    "log1p": (whole_range(signed=False), magnitudes(-60, -0.001), uniform(-0.999, 1)),
    "sin": _TRIG,
    "cos": _TRIG,
    "tan": _TRIG,
    "asin": (uniform(-1, 1), magnitudes(-60, 0), around(at(-0.5, 0.5))),
    "acos": (uniform(-1, 1), magnitudes(-60, 0), around(at(-0.5, 0.5))),
    "atan": (whole_range(), uniform(-3, 3), magnitudes(-20, 20)),
    "sinh": (uniform(-711, 711, -90, 90), uniform(-3, 3), _TINY),
    "cosh": (uniform(-711, 711, -90, 90), uniform(-3, 3), _TINY),
    "tanh": (uniform(-20, 20, -9.5, 9.5), uniform(-3, 3), _TINY, whole_range()),
    "asinh": (whole_range(), uniform(-3, 3), magnitudes(-30, 40)),
    "acosh": (magnitudes(0, 1000 / 8, signed=False), uniform(1, 8), around(at(1.125))),
    "atanh": (uniform(-1, 1), magnitudes(-60, -0.001), around(at(-0.875, 0.875))),
    "sqrt": _POSITIVE,
    "rsqrt": _POSITIVE,
    "cbrt": (whole_range(), magnitudes(-3, 3), magnitudes(-40, 40)),
    "erf": (uniform(-6, 6, -4, 4), uniform(-1.5, 1.5), _TINY),
    "erfc": (uniform(-6, 27.2, -4, 10.05), uniform(-1.5, 1.5), _TINY),
    "lgamma": _GAMMA,
    "digamma": _GAMMA,
}


def seeded(name: str, dtype: str) -> np.random.Generator:
    """Return the generator of a function's points."""
    return np.random.default_rng(zlib.crc32(f"{name} {dtype}".encode()))


def points(name: str, dtype: str, n: int) -> tuple[np.ndarray, ...]:
    """Return about n arguments (or pairs) for the function `name`."""
    rng, wide = seeded(name, dtype), dtype == "f64"
    if name in BINARY:
        pairs = [draw(rng, n // len(BINARY[name]) + 1, wide) for draw in BINARY[name]]
        columns = [np.concatenate(column) for column in zip(*pairs, strict=True)]
        return tuple(_rounded(column, dtype) for column in columns)
    samplers = UNARY[name]
    drawn = [draw(rng, n // len(samplers) + 1, wide) for draw in samplers]
    return (_rounded(np.concatenate(drawn), dtype),)


def _rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(NUMPY[dtype])


# Pairs: pow with results over the whole range, atan2 with all ratios.


def _power_pairs(bases: Sampler):
    def sample(rng: np.random.Generator, n: int, wide: bool) -> tuple[np.ndarray, np.ndarray]:
        x = np.abs(bases(rng, n, wide)).astype(np.float64 if wide else np.float32)
        x[x <= 0] = 1.5
        exponent = np.log2(x.astype(np.float64))
        exponent[exponent == 0] = 1.0
        limits = (-1076, 1024) if wide else (-150, 128)
        y = rng.uniform(*limits, n) / exponent
        top = 1e300 if wide else 1e37
        return x, np.clip(y, -top, top)

    return sample


def _integral_power_pairs(rng: np.random.Generator, n: int, wide: bool):
    x, y = _power_pairs(magnitudes(-3, 3))(rng, n, wide)
    return x * rng.choice([-1, 1], n), np.rint(y)


def _plain_power_pairs(rng: np.random.Generator, n: int, _: bool):
    return rng.uniform(0.01, 20, n), rng.uniform(-5, 5, n)


def _angle_pairs(rng: np.random.Generator, n: int, wide: bool):
    y = magnitudes(-40, 40)(rng, n, wide)
    return y, y * magnitudes(-30, 30)(rng, n, wide)


def _wide_angle_pairs(rng: np.random.Generator, n: int, wide: bool):
    return whole_range()(rng, n, wide), whole_range()(rng, n, wide)


BINARY = {
    "pow": (
        _power_pairs(whole_range()),
        _power_pairs(magnitudes(-1, 1)),
        _power_pairs(around(at(1.0))),
        _integral_power_pairs,
        _plain_power_pairs,
    ),
    "atan2": (_angle_pairs, _wide_angle_pairs),
}
