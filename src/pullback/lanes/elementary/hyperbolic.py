"""sinh, cosh, tanh and their inverses.

tanh is the most frequent of them in neural networks and has a way of its own, without an
exponential; sinh and cosh use the exponential, the inverses the logarithm.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pullback.lanes.elementary.arithmetic import (
    at_most,
    constants_of,
    fitted,
    flip_sign,
    not_finite_or,
    power_of_two,
    round_to_integer,
    sign_of,
    two_sum,
)
from pullback.lanes.elementary.constants import INF, NAN
from pullback.lanes.elementary.exponential import reduce_expm1, scaled_expm1
from pullback.lanes.elementary.logarithm import log_of_sum

if TYPE_CHECKING:
    from pullback.lanes.float_view import FloatView
    from pullback.lanes.values import Value

# Where tanh rounds to 1; where sinh(x) rounds to x; beyond which asinh and acosh are log(2x).
_TANH_LIMIT = {"f64": 22.0, "f32": 10.0}
_SINH_TINY = {"f64": 2.0**-26, "f32": 2.0**-12}
_LOG_OF_TWICE = {"f64": 2.0**28, "f32": 2.0**13}


def tanh(b: FloatView, x: Value) -> Value:
    """Return the hyperbolic tangent, never beyond 1 in magnitude.

    |x| = k·ln(2)/2 + h. With t = tanh(h) and s = 2^-k the addition theorem gives the quotient of
    (1 - s) + t·(1 + s) by (1 + s) + t·(1 - s): the factors are exact, and k = 0 leaves t itself.
    """
    f = constants_of(b)
    a = at_most(b, b.abs(x), _TANH_LIMIT[b.dtype])
    k_float, k = round_to_integer(b, a, f.two_log2_e[0])
    minus_k = b.neg(k_float)
    h = b.fma(minus_k, f.ln_2[1] / 2, b.fma(minus_k, f.ln_2[0] / 2, a))
    square = b.mul(h, h)
    t = b.fma(b.mul(h, square), fitted(b, "tanh", square), h)
    s = b.fl(b.isub(f.bits(1.0), b.shl(k, f.mantissa_bits)))
    less, more = b.sub(1.0, s), b.add(1.0, s)
    result = b.div(b.fma(t, more, less), b.fma(t, less, more))
    return flip_sign(b, result, sign_of(b, x))


def sinh(b: FloatView, x: Value) -> Value:
    """Return the hyperbolic sine, th + th/(2 th + 1) with th = (e^|x| - 1)/2."""
    size = b.abs(x)
    scale, r, tail, factor = _half_exponential(b, size)
    th = scaled_expm1(b, scale, r, tail, 0.5)
    result = b.mul(b.add(th, b.div(th, b.fma(2.0, th, 1.0))), factor)
    result = b.select(b.lt(size, _SINH_TINY[b.dtype]), size, result)
    return flip_sign(b, result, sign_of(b, x))


def cosh(b: FloatView, x: Value) -> Value:
    """Return the hyperbolic cosine, h + 1/(4 h) with h = e^|x|/2."""
    scale, r, tail, factor = _half_exponential(b, b.abs(x))
    half = b.fma(scale, b.add(r, tail), scale)
    return b.mul(b.add(half, b.div(0.25, half)), factor)


def _half_exponential(b: FloatView, a: Value) -> tuple[Value, Value, Value, Value]:
    """Return scale, r, tail, factor with e^a/2 = factor·scale·(1 + r + tail), for a >= 0.

    The factor is 2 in the last binade, where e^a/2 is finite but its own power of two is not.
    """
    bias = constants_of(b).exponent_bias
    a = at_most(b, a, (bias + 2.4) * math.log(2.0))
    k, r, tail = reduce_expm1(b, a)
    top = b.gt(a, (bias + 0.5) * math.log(2.0))
    scale = power_of_two(b, b.isub(k, b.iselect(top, 2, 1)))
    return scale, r, tail, b.select(top, 2.0, 1.0)


def asinh(b: FloatView, x: Value) -> Value:
    """Return the inverse hyperbolic sine: log1p(a + a²/(1 + sqrt(1 + a²))), a = |x|."""
    a = b.abs(x)
    square = b.mul(a, a)
    z = b.add(a, b.div(square, b.add(b.sqrt(b.add(square, 1.0)), 1.0)))
    result = _log_of_one_plus_or_twice(b, z, a)
    return flip_sign(b, not_finite_or(b, a, result), sign_of(b, x))


def acosh(b: FloatView, x: Value) -> Value:
    """Return the inverse hyperbolic cosine: log1p(t + sqrt(t·(t + 2))), t = x - 1."""
    t = b.sub(x, 1.0)
    z = b.add(t, b.sqrt(b.mul(t, b.add(t, 2.0))))
    result = _log_of_one_plus_or_twice(b, z, x)
    return not_finite_or(b, x, b.select(b.lt(x, 1.0), NAN, result))


def _log_of_one_plus_or_twice(b: FloatView, z: Value, a: Value) -> Value:
    """Return log(1 + z), or log(2a) where `a` is so large that z may have overflowed."""
    large = b.gt(a, _LOG_OF_TWICE[b.dtype])
    u, u_low = two_sum(b, z, 1.0)
    u, u_low = b.select(large, a, u), b.select(large, 0.0, u_low)
    return log_of_sum(b, u, u_low, b.select(large, 1.0, 0.0))


def atanh(b: FloatView, x: Value) -> Value:
    """Return the inverse hyperbolic tangent: log1p(2a/(1 - a))/2, a = |x|."""
    a = b.abs(x)
    z = b.div(b.add(a, a), b.sub(1.0, a))
    result = b.mul(log_of_sum(b, *two_sum(b, z, 1.0)), 0.5)
    result = b.select(b.eq(a, 1.0), INF, result)
    result = b.select(b.mnot(b.le(a, 1.0)), NAN, result)
    return flip_sign(b, result, sign_of(b, x))
