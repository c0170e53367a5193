"""The literals of `constants` and `coefficients` are what they say they are."""

import importlib.util
import struct
import sys
from pathlib import Path
from types import ModuleType

import mpmath as mp
import pytest

from pullback.lanes.elementary.argument_reduction import quadrant_table
from pullback.lanes.elementary.coefficients import POLYNOMIALS, RATIONALS
from pullback.lanes.elementary.constants import CONSTANTS, TWO_OVER_PI, TWO_OVER_PI_DIGITS

PRECISION = {"f64": 53, "f32": 24}
WIDE = 400  # bits, for constants of three parts


def load_tool() -> ModuleType:
    """Import tools/fit_elementary.py, which is not part of the package."""
    path = Path(__file__).parents[3] / "tools" / "fit_elementary.py"
    spec = importlib.util.spec_from_file_location("fit_elementary", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()
FITS = {(fit.name, fit.dtype): fit for fit in TOOL.fits()}


def split(value: mp.mpf, parts: int, dtype: str) -> tuple[float, ...]:
    """Return `value` as an unevaluated sum of numbers of the format."""
    found = []
    for _ in range(parts):
        with mp.workprec(PRECISION[dtype]):
            found.append(float(+value))
        value = value - mp.mpf(found[-1])
    return tuple(found)


@pytest.mark.parametrize("dtype", PRECISION)
def test_constants(dtype):
    with mp.workprec(WIDE):
        log2_e = 1 / mp.log(2)
        exact = {
            "ln_2": mp.log(2),
            "log2_e": log2_e,
            "pi": +mp.pi,
            "half_pi": mp.pi / 2,
            "quarter_pi": mp.pi / 4,
            "two_over_pi": 2 / mp.pi,
            "sqrt_half": mp.sqrt(mp.mpf(1) / 2),
            "two_log2_e": 2 * log2_e,
            "two_thirds_log2_e": 2 * log2_e / 3,
            "stirling": mp.log(2 * mp.pi) / 2 - mp.mpf(1) / 2,
            "digamma_zero": mp.findroot(mp.digamma, 1.46) - 1,
        }
        for name, value in exact.items():
            literal = getattr(CONSTANTS[dtype], name)
            parts = literal if isinstance(literal, tuple) else (literal,)
            assert parts == split(value, len(parts), dtype), name


@pytest.mark.parametrize("dtype", PRECISION)
def test_layout(dtype):
    f = CONSTANTS[dtype]
    code = "<d" if dtype == "f64" else "<f"
    assert f.bits(f.max_finite) + 1 == f.bits(float("inf"))
    assert f.bits(f.min_normal) == 1 << f.mantissa_bits
    assert f.bits(-0.0) == f.sign_bit
    assert struct.unpack(code, struct.pack(code, f.round_magic))[0] == f.round_magic


def test_two_over_pi():
    with mp.workprec(TWO_OVER_PI_DIGITS + 64):
        assert int(mp.floor(mp.ldexp(2 / mp.pi, TWO_OVER_PI_DIGITS))) == TWO_OVER_PI


@pytest.mark.parametrize("dtype", PRECISION)
def test_quadrant_table(dtype):
    f = CONSTANTS[dtype]
    table = quadrant_table(dtype)
    assert len(table) == f.exponent_bias + 1
    for e in (0, 1, 37, f.mantissa_bits, 100, f.exponent_bias):
        with mp.workprec(TWO_OVER_PI_DIGITS + 64):
            turns = mp.fmod(mp.ldexp(2 / mp.pi, e - f.mantissa_bits), 4)
            error = abs(turns - sum(mp.mpf(float(part)) for part in table[e]))
            assert error < mp.mpf(2) ** (2 - 4 * PRECISION[dtype])


@pytest.mark.parametrize(("name", "dtype"), FITS)
def test_coefficients_fit(name, dtype):
    """The tabulated coefficients reach the accuracy that the rest of the error budget assumes."""
    fit = FITS[name, dtype]
    rational = name in RATIONALS
    numerator, denominator = (
        RATIONALS[name][dtype] if rational else (POLYNOMIALS[name][dtype], (1.0,))
    )
    assert (len(numerator) - 1, len(denominator) - 1) == fit.degrees
    with mp.workdps(TOOL.DIGITS):
        table = TOOL.Fitted(tuple(map(mp.mpf, numerator)), tuple(map(mp.mpf, denominator)), 0)
        sample = [u for u in fit.grid[:: max(1, len(fit.grid) // 25)]]
        error = max(abs(fit.weight(u) * (table(u) - fit.function(u))) for u in sample)
    # below 0.3 rounding units; cbrt is only the start of an iteration
    budget = mp.mpf(2) ** (-8 if name == "cbrt" else -PRECISION[dtype] - 1.75)
    assert error < budget


@pytest.mark.parametrize("name", ["tanh", "stirling"])
def test_fit_is_reproduced(name):
    """The tool makes the tabulated numbers again, to the bit (two cheap fits of them)."""
    fit = FITS[name, "f32"]
    fitted = TOOL.rounded(fit, TOOL.minimax(fit))
    numerator = tuple(map(float, fitted.numerator))
    if name in POLYNOMIALS:
        assert numerator == POLYNOMIALS[name]["f32"]
    else:
        assert (numerator, tuple(map(float, fitted.denominator))) == RATIONALS[name]["f32"]
