"""log, log2, log1p, and the logarithm of a sum that the inverse hyperbolic functions use.

x = 2^e·(1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); with s = f/(2 + f) and z = s²,
log(1 + f) = f - (f²/2 - s·(f²/2 + z·P(z))).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.lanes.elementary.arithmetic import (
    constants_of,
    fast_two_sum,
    fitted,
    not_finite_or,
    small_integer,
    two_product,
    two_sum,
)
from pullback.lanes.elementary.constants import INF, NAN

if TYPE_CHECKING:
    from pullback.lanes.float_view import FloatView
    from pullback.lanes.values import Value


def split_exponent(b: FloatView, x: Value) -> tuple[Value, Value]:
    """Return (e, m) with x = 2^e·m, m in [sqrt(1/2), sqrt(2)), for positive finite x."""
    f = constants_of(b)
    up = f.mantissa_bits + 2
    subnormal = b.lt(x, f.min_normal)
    x = b.select(subnormal, b.mul(x, 2.0**up), x)
    lowest = f.bits(f.sqrt_half)
    shifted = b.iadd(b.bits(x), f.bits(1.0) - lowest)
    offset = f.integer_base + f.exponent_bias
    biased = small_integer(b, b.lshr(shifted, f.mantissa_bits))
    e = b.sub(biased, b.select(subnormal, offset + up, offset))
    return e, b.fl(b.iadd(b.iand(shifted, f.mantissa_mask), lowest))


def log1p_parts(b: FloatView, f: Value) -> tuple[Value, Value]:
    """Return h = f²/2 and t with log(1 + f) = f - (h - t), for f of `split_exponent`."""
    s = b.div(f, b.add(f, 2.0))
    z = b.mul(s, s)
    h = b.mul(b.mul(f, f), 0.5)
    return h, b.mul(s, b.fma(z, fitted(b, "log", z), h))


def log(b: FloatView, x: Value) -> Value:
    """Return the natural logarithm."""
    return _log_edges(b, x, log_of_sum(b, x))


def log_of_sum(
    b: FloatView, u: Value, low: Value | None = None, extra: Value | None = None
) -> Value:
    """Return log((u + low)·2^extra) for positive finite u and |low| below u's last digit."""
    constants = constants_of(b)
    e, m = split_exponent(b, u)
    f = b.sub(m, 1.0)
    h, t = log1p_parts(b, f)
    if extra is not None:
        e = b.add(e, extra)
    if low is not None:
        t = b.add(t, b.div(low, u))
    rest = b.sub(h, b.fma(e, constants.ln_2[1], t))
    return b.fma(e, constants.ln_2[0], b.sub(f, rest))


def log_pair(b: FloatView, x: Value) -> tuple[Value, Value]:
    """Return log(x) as a sum of two, a few digits better than one; x positive and finite."""
    constants = constants_of(b)
    e, m = split_exponent(b, x)
    f = b.sub(m, 1.0)
    h, t = log1p_parts(b, f)
    product, product_low = two_product(b, e, constants.ln_2[0])
    high, high_low = two_sum(b, product, f)
    small = b.fma(e, constants.ln_2[1], b.add(product_low, t))
    return fast_two_sum(b, high, b.add(high_low, b.sub(small, h)))


def log2(b: FloatView, x: Value) -> Value:
    """Return the binary logarithm."""
    log2_e = constants_of(b).log2_e
    e, m = split_exponent(b, x)
    f = b.sub(m, 1.0)
    h, t = log1p_parts(b, f)
    high, low = fast_two_sum(b, f, b.neg(h))
    h_error = b.fma(b.mul(f, 0.5), f, b.neg(h))
    low = b.add(b.sub(low, h_error), t)
    product, product_low = two_product(b, high, log2_e[0])
    product_low = b.fma(low, log2_e[0], b.fma(high, log2_e[1], product_low))
    total, total_low = two_sum(b, e, product)
    return _log_edges(b, x, b.add(total, b.add(total_low, product_low)))


def _log_edges(b: FloatView, x: Value, result: Value) -> Value:
    result = b.select(b.eq(x, 0.0), -INF, result)
    result = b.select(b.lt(x, 0.0), NAN, result)
    return not_finite_or(b, x, result)


def log1p(b: FloatView, x: Value) -> Value:
    """Return log(1 + x): the rounding error of 1 + x is added to the logarithm."""
    result = log_of_sum(b, *two_sum(b, x, 1.0))
    result = b.select(b.eq(x, 0.0), x, result)
    result = b.select(b.eq(x, -1.0), -INF, result)
    result = b.select(b.lt(x, -1.0), NAN, result)
    return not_finite_or(b, x, result)
