"""sqrt, rsqrt and cbrt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.lanes.elementary.arithmetic import (
    constants_of,
    fitted,
    flip_sign,
    power_of_two,
    round_to_integer,
    sign_of,
    small_integer,
    two_product,
)
from pullback.lanes.elementary.constants import INF

if TYPE_CHECKING:
    from pullback.lanes.float_view import FloatView
    from pullback.lanes.values import Value

# Subnormal arguments are scaled by 2^(3n) before, the result by 2^-n after.
_SUBNORMAL_THIRDS = {"f64": 18.0, "f32": 8.0}


def sqrt(b: FloatView, x: Value) -> Value:
    """Return the correctly rounded square root."""
    return b.sqrt(x)


def rsqrt(b: FloatView, x: Value) -> Value:
    """Return 1/sqrt(x)."""
    return b.div(1.0, b.sqrt(x))


def cbrt(b: FloatView, x: Value) -> Value:
    """Return the real cube root: |x| = 2^(3q)·w, w in [1, 8), and w^(1/3) by iteration."""
    size = b.abs(x)
    thirds = _SUBNORMAL_THIRDS[b.dtype]
    subnormal = b.lt(size, constants_of(b).min_normal)
    normal = b.select(subnormal, b.mul(size, 2.0 ** (3.0 * thirds)), size)
    q, m, j = _split_thirds(b, normal)
    root = _root_of_scaled(b, m, j)
    q = b.select(subnormal, b.sub(q, thirds), q)
    result = b.mul(root, power_of_two(b, b.bits(b.add(q, constants_of(b).round_magic))))
    itself = b.mor(b.eq(size, 0.0), b.mnot(b.lt(size, INF)))
    return flip_sign(b, b.select(itself, size, result), sign_of(b, x))


def _split_thirds(b: FloatView, x: Value) -> tuple[Value, Value, Value]:
    """Return (q, m, j) as floats with x = 2^(3q + j)·m, m in [1, 2), j in 0, 1, 2."""
    f = constants_of(b)
    i = b.bits(x)
    biased = small_integer(b, b.lshr(i, f.mantissa_bits))
    e = b.sub(biased, f.integer_base + f.exponent_bias)
    m = b.fl(b.ior(b.iand(i, f.mantissa_mask), f.bits(1.0)))
    q, _ = round_to_integer(b, b.sub(e, 1.0), 1.0 / 3.0)  # floor(e/3)
    return q, m, b.fma(q, -3.0, e)


def _root_of_scaled(b: FloatView, m: Value, j: Value) -> Value:
    """Return (m·2^j)^(1/3), right to half a unit in the last place."""
    one, two = b.gt(j, 0.5), b.gt(j, 1.5)
    w = b.mul(m, b.select(two, 4.0, b.select(one, 2.0, 1.0)))
    factor = b.select(two, 2.0 ** (-2.0 / 3.0), b.select(one, 2.0 ** (-1.0 / 3.0), 1.0))
    y = b.mul(fitted(b, "cbrt", m), factor)  # w^(-1/3), roughly
    # one step of fourth order: y(1 - h)^(-1/3) with h = 1 - w y³
    h = b.fma(b.mul(b.mul(y, y), b.neg(w)), y, 1.0)
    series = b.fma(h, b.fma(h, 14.0 / 81.0, 2.0 / 9.0), 1.0 / 3.0)
    y = b.fma(b.mul(y, h), series, y)
    # c = w y² is the root; its residual, with the square exact, removes the last rounding errors
    y_squared = b.mul(y, y)
    c = b.mul(w, y_squared)
    square, square_low = two_product(b, c, c)
    minus_c = b.neg(c)
    residual = b.fma(square_low, minus_c, b.fma(square, minus_c, w))
    return b.fma(b.mul(residual, y_squared), 1.0 / 3.0, c)
