"""exp, exp2, expm1 and logistic.

x = k·ln 2 + r with |r| <= ln(2)/2; e^r = 1 + r + r²·q(r); the result is scaled by 2^k in two
factors, so that subnormal results are rounded once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pullback.lanes.elementary.arithmetic import (
    clamp,
    constants_of,
    fitted,
    power_of_two,
    round_to_integer,
    scale_by_power_of_two,
    two_product,
)

if TYPE_CHECKING:
    from pullback.lanes.float_view import FloatView
    from pullback.lanes.values import Value

# Arguments beyond which the result is 0 or infinite (expm1: -1).
_EXP_RANGE = {"f64": (-746.0, 710.0), "f32": (-105.0, 89.0)}
_EXP2_RANGE = {"f64": (-1080.0, 1025.0), "f32": (-155.0, 129.0)}
_EXPM1_LOWEST = {"f64": -45.0, "f32": -20.0}


def exp(b: FloatView, x: Value) -> Value:
    """Return e^x."""
    k, p = reduce_exp(b, clamp(b, x, *_EXP_RANGE[b.dtype]))
    return scale_by_power_of_two(b, b.add(p, 1.0), k)


def reduce_exp(b: FloatView, x: Value) -> tuple[Value, Value]:
    """Return k (in the low bits) and e^r - 1 with x = k·ln 2 + r."""
    ln_2 = constants_of(b).ln_2
    k_float, k = round_to_integer(b, x, constants_of(b).log2_e[0])
    minus_k = b.neg(k_float)
    r = b.fma(minus_k, ln_2[1], b.fma(minus_k, ln_2[0], x))  # the inner step is exact
    return k, b.fma(b.mul(r, r), fitted(b, "exp", r), r)


def exp2(b: FloatView, x: Value) -> Value:
    """Return 2^x."""
    x = clamp(b, x, *_EXP2_RANGE[b.dtype])
    k_float, k = round_to_integer(b, x)
    return scale_by_power_of_two(b, exp2_fraction(b, b.sub(x, k_float)), k)


def exp2_fraction(b: FloatView, r: Value, r_low: Value | None = None) -> Value:
    """Return 2^(r + r_low) for |r| <= 1/2; r·ln 2 is kept as a pair t + t_low."""
    ln_2 = constants_of(b).ln_2
    t, t_low = two_product(b, r, ln_2[0])
    t_low = b.fma(r, ln_2[1], t_low)
    if r_low is not None:
        t_low = b.fma(r_low, ln_2[0], t_low)
        t_low = b.fma(t, t_low, t_low)
    p = b.fma(b.mul(t, t), fitted(b, "exp", t), t_low)
    return b.add(b.add(t, p), 1.0)


def expm1(b: FloatView, x: Value) -> Value:
    """Return e^x - 1."""
    f = constants_of(b)
    y = clamp(b, x, _EXPM1_LOWEST[b.dtype], _EXP_RANGE[b.dtype][1])
    k, r, tail = reduce_expm1(b, y)
    # k may be bias + 1, where 2^k is not a number of the format: a factor 2 is kept apart.
    top = b.gt(y, f.exponent_bias * math.log(2.0))
    scale = power_of_two(b, b.isub(k, b.iselect(top, 1, 0)))
    result = scaled_expm1(b, scale, r, tail, b.select(top, 0.5, 1.0))
    result = b.mul(result, b.select(top, 2.0, 1.0))
    return b.select(b.eq(x, 0.0), x, result)


def reduce_expm1(b: FloatView, x: Value) -> tuple[Value, Value, Value]:
    """Return k, r and a tail with e^r - 1 = r + tail; the tail holds the rounding error of r."""
    ln_2 = constants_of(b).ln_2
    k_float, k = round_to_integer(b, x, constants_of(b).log2_e[0])
    minus_k = b.neg(k_float)
    r_first = b.fma(minus_k, ln_2[0], x)
    r = b.fma(minus_k, ln_2[1], r_first)
    r_low = b.fma(minus_k, ln_2[1], b.sub(r_first, r))
    return k, r, b.fma(b.mul(r, r), fitted(b, "exp", r), r_low)


def scaled_expm1(b: FloatView, scale: Value, r: Value, tail: Value, one: Value | float) -> Value:
    """Return scale·(1 + r + tail) - one, for a power of two `scale`."""
    d = b.sub(scale, one)
    high = b.fma(scale, r, d)
    error = b.fma(scale, r, b.sub(d, high))
    return b.add(high, b.fma(scale, tail, error))


def logistic(b: FloatView, x: Value) -> Value:
    """Return 1/(1 + e^-x), as e^x/(1 + e^x) for negative x."""
    k, p = reduce_exp(b, clamp(b, b.neg(b.abs(x)), _EXP_RANGE[b.dtype][0], 0.0))
    t = scale_by_power_of_two(b, b.add(p, 1.0), k)
    return b.div(b.select(b.lt(x, 0.0), t, 1.0), b.add(t, 1.0))
