"""Building blocks of the elementary functions: error-free sums, polynomials, bits and exponents.

Everything is written for a float view `b` of a lane builder (:mod:`pullback.lanes.float_view`) and
relies on each operation being rounded once and never rearranged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pullback.lanes.elementary.coefficients import POLYNOMIALS, RATIONALS
from pullback.lanes.elementary.constants import CONSTANTS, FloatConstants

if TYPE_CHECKING:
    from pullback.lanes.float_view import FloatView
    from pullback.lanes.values import Value

    Float = Value | float


def constants_of(b: FloatView) -> FloatConstants:
    """Return the constants of the view's dtype."""
    return CONSTANTS[b.dtype]


# Sums and products together with their rounding errors [Dek71].


def two_sum(b: FloatView, x: Float, y: Float) -> tuple[Value, Value]:
    """Return `s + e == x + y` exactly, `s` the rounded sum."""
    s = b.add(x, y)
    t = b.sub(s, x)
    return s, b.add(b.sub(x, b.sub(s, t)), b.sub(y, t))


def fast_two_sum(b: FloatView, x: Float, y: Float) -> tuple[Value, Value]:
    """Return `s + e == x + y` exactly, for |x| >= |y| or x a multiple of y's last digit."""
    s = b.add(x, y)
    return s, b.sub(y, b.sub(s, x))


def two_product(b: FloatView, x: Float, y: Float) -> tuple[Value, Value]:
    """Return `p + e == x * y` exactly, `p` the rounded product."""
    p = b.mul(x, y)
    return p, b.fma(x, y, b.neg(p))


# Polynomials.


def estrin(b: FloatView, x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate a polynomial, lowest degree first, as a tree: depth log2 of the degree."""
    terms: list[Float] = list(coefficients)
    power = x
    while len(terms) > 1:
        pairs = [b.fma(terms[i + 1], power, terms[i]) for i in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[len(terms) & ~1 :]
        if len(terms) > 1:
            power = b.mul(power, power)
    return b.c(terms[0])


def horner(b: FloatView, x: Value, coefficients: Sequence[float], first: Float) -> Value:
    """Continue `first` with one multiply-add for each coefficient, lowest degree first."""
    result = b.c(first)
    for c in reversed(coefficients):
        result = b.fma(result, x, c)
    return result


def fitted(b: FloatView, name: str, x: Value) -> Value:
    """Evaluate the fitted polynomial `name` of the view's dtype."""
    return estrin(b, x, POLYNOMIALS[name][b.dtype])


def fitted_ratio(b: FloatView, name: str, x: Value, last: int = 0) -> tuple[Value, Value]:
    """Evaluate numerator and denominator of the fitted rational function `name`.

    The `last` lowest coefficients are added one by one: for small x a tree would round the leading
    term once on every level.
    """
    numerator, denominator = (
        horner(b, x, coefficients[:last], estrin(b, x, coefficients[last:]))
        for coefficients in RATIONALS[name][b.dtype]
    )
    return numerator, denominator


# Ranges and signs.


def clamp(b: FloatView, x: Value, low: float, high: float) -> Value:
    """Return `x` limited to [low, high]; NaN stays NaN."""
    return at_most(b, b.select(b.lt(x, low), low, x), high)


def at_most(b: FloatView, x: Value, high: float) -> Value:
    """Return the smaller of `x` and `high`; NaN stays NaN."""
    return b.select(b.gt(x, high), high, x)


def sign_of(b: FloatView, x: Value) -> Value:
    """Return the sign bit of `x`, all other bits zero."""
    return b.iand(b.bits(x), constants_of(b).sign_bit)


def flip_sign(b: FloatView, x: Float, sign: Value) -> Value:
    """Return `x` with its sign changed where the bit `sign` is set."""
    return b.fl(b.ixor(b.bits(x), sign))


def not_finite_or(b: FloatView, x: Value, result: Value) -> Value:
    """Return `result`, but `x` itself where it is +inf or NaN."""
    return b.select(b.lt(x, float("inf")), result, x)


# Integers held in floats, and exponents. No integer multiplication, conversion or arithmetic shift
# is used: not every target has the 64-bit forms.


def round_to_integer(b: FloatView, x: Value, scale: float = 1.0) -> tuple[Value, Value]:
    """Return k = round(x·scale) as a float, and an integer whose low bits are those of k."""
    magic = constants_of(b).round_magic
    shifted = b.add(x, magic) if scale == 1.0 else b.fma(x, scale, magic)
    return b.sub(shifted, magic), b.bits(shifted)


def power_of_two(b: FloatView, k: Value) -> Value:
    """Return 2^k from the low bits of `k`, for a normal result."""
    f = constants_of(b)
    return b.fl(b.iadd(b.shl(k, f.mantissa_bits), f.bits(1.0)))


def scale_by_power_of_two(b: FloatView, y: Value, k: Value) -> Value:
    """Return y·2^k for y near 1, rounded once even where the result is subnormal.

    The exponent is split in halves: 2^k itself may over- or underflow when the product does not.
    """
    f = constants_of(b)
    both = b.iadd(k, 2 * f.exponent_bias - f.bits(f.round_magic))
    half = b.lshr(both, 1)
    rest = b.isub(both, half)
    first = b.mul(y, b.fl(b.shl(half, f.mantissa_bits)))
    return b.mul(first, b.fl(b.shl(rest, f.mantissa_bits)))


def small_integer(b: FloatView, i: Value) -> Value:
    """Return 2^mantissa + i as a float, for an integer 0 <= i < 2^mantissa."""
    f = constants_of(b)
    return b.fl(b.ior(i, f.bits(f.integer_base)))
