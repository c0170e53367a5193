"""pow for any exponent, and integer_pow by repeated multiplication.

x^y = 2^(y·log2 x): log2 x is formed as a pair with about eleven bits more than the format, its
product with y is exact, and only the fraction goes through the exponential.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.lanes.elementary.arithmetic import (
    clamp,
    constants_of,
    fast_two_sum,
    fitted,
    round_to_integer,
    scale_by_power_of_two,
    two_product,
    two_sum,
)
from pullback.lanes.elementary.constants import INF, NAN
from pullback.lanes.elementary.exponential import exp2_fraction
from pullback.lanes.elementary.logarithm import split_exponent

if TYPE_CHECKING:
    from pullback.lanes.float_view import FloatView
    from pullback.lanes.values import Value

_EXPONENT_LIMIT = {"f64": 1100.0, "f32": 160.0}


def pow(b: FloatView, x: Value, y: Value) -> Value:
    """Return x^y with the special cases of IEEE 754."""
    size = b.abs(x)
    regular = b.mand(b.lt(size, INF), b.gt(size, 0.0))
    log2_high, log2_low = _log2_pair(b, b.select(regular, size, 1.0))
    power = _exp2_of_product(b, y, log2_high, log2_low)
    return _power_edges(b, x, y, size, b.select(regular, power, _power_of_zero(b, size, y)))


def _log2_pair(b: FloatView, x: Value) -> tuple[Value, Value]:
    """Return log2(x) as a pair with a relative error near 2^-64 (f64) or 2^-35 (f32).

    s = f/(2 + f) is a pair; log2(1 + f) = s·(c1 + z·(c3 + z·Q(z))) with c1, c3 as pairs.
    """
    c1, c3 = constants_of(b).two_log2_e, constants_of(b).two_thirds_log2_e
    e, m = split_exponent(b, x)
    f = b.sub(m, 1.0)  # exact
    d, d_low = two_sum(b, m, 1.0)
    s = b.div(f, d)
    minus_s = b.neg(s)
    s_low = b.div(b.fma(minus_s, d_low, b.fma(minus_s, d, f)), d)
    z, z_low = two_product(b, s, s)
    z_low = b.fma(b.add(s, s), s_low, z_low)
    t, t_low = fast_two_sum(b, c3[0], b.mul(z, fitted(b, "pow", z)))
    t_low = b.add(t_low, c3[1])
    u, u_low = two_product(b, z, t)
    u_low = b.fma(z, t_low, b.fma(z_low, t, u_low))
    v, v_low = fast_two_sum(b, c1[0], u)
    v_low = b.add(v_low, b.add(u_low, c1[1]))
    w, w_low = two_product(b, s, v)
    w_low = b.fma(s, v_low, b.fma(s_low, v, w_low))
    high, low = fast_two_sum(b, e, w)  # e is 0 or |e| >= 1 > |w|
    return fast_two_sum(b, high, b.add(low, w_low))


def _exp2_of_product(b: FloatView, y: Value, high: Value, low: Value) -> Value:
    """Return 2^(y·(high + low))."""
    limit = _EXPONENT_LIMIT[b.dtype]
    p, p_low = two_product(b, y, high)
    p_low = b.fma(y, low, p_low)
    p_low = b.select(b.lt(b.abs(p), limit), p_low, 0.0)
    p = clamp(b, p, -limit, limit)
    k_float, k = round_to_integer(b, p)
    # p_low reaches 2^-44 and must join the fraction before the polynomial, not after it
    r, r_low = two_sum(b, b.sub(p, k_float), p_low)
    return scale_by_power_of_two(b, exp2_fraction(b, r, r_low), k)


def _power_of_zero(b: FloatView, size: Value, y: Value) -> Value:
    """Return |x|^y where |x| is 0 or infinite."""
    negative = b.lt(y, 0.0)
    of_zero, of_infinity = b.select(negative, INF, 0.0), b.select(negative, 0.0, INF)
    return b.select(b.eq(size, 0.0), of_zero, of_infinity)


def _power_edges(b: FloatView, x: Value, y: Value, size: Value, result: Value) -> Value:
    """Apply the sign of x, infinite exponents, NaN, and the two cases that are always 1."""
    integral = b.eq(b.rint_native(y), y)
    half_y = b.mul(y, 0.5)
    odd = b.mand(integral, b.ne(b.rint_native(half_y), half_y))
    result = b.select(b.mand(b.ineg(b.bits(x)), odd), b.neg(result), result)
    no_real_power = b.mand(b.mand(b.lt(x, 0.0), b.mnot(integral)), b.lt(size, INF))
    result = b.select(no_real_power, NAN, result)
    positive = b.gt(y, 0.0)
    of_large, of_small = b.select(positive, INF, 0.0), b.select(positive, 0.0, INF)
    of_infinite_y = b.select(b.gt(size, 1.0), of_large, of_small)
    of_infinite_y = b.select(b.eq(size, 1.0), 1.0, of_infinite_y)
    result = b.select(b.eq(b.abs(y), INF), of_infinite_y, result)
    result = b.select(b.mor(b.isnan(x), b.isnan(y)), NAN, result)
    return b.select(b.mor(b.eq(x, 1.0), b.eq(y, 0.0)), 1.0, result)


def integer_pow(b: FloatView, x: Value, n: int) -> Value:
    """Return x^n for a constant integer by squaring, in the order `jax.lax.integer_pow` uses.

    A negative exponent is the reciprocal of the positive power. The error grows with the number of
    products: up to about |n| rounding errors.
    """
    remaining = abs(n)
    result, square = None, x
    while remaining:
        if remaining & 1:
            result = square if result is None else b.mul(result, square)
        remaining >>= 1
        if remaining:
            square = b.mul(square, square)
    if result is None:
        return b.c(1.0)
    return b.div(1.0, result) if n < 0 else result
