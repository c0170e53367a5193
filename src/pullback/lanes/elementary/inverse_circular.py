"""asin, acos, atan and atan2.

atan: the quotient of the smaller by the larger magnitude, moved to |z| <= tan(pi/8) by
(min - max)/(min + max), so that there is one division. asin, acos: beyond 1/2 through
asin(x) = pi/2 - 2·asin(sqrt((1 - x)/2)), with the rounding error of the root added.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pullback.lanes.elementary.arithmetic import (
    constants_of,
    fast_two_sum,
    fitted,
    flip_sign,
    sign_of,
    two_sum,
)
from pullback.lanes.elementary.constants import INF

if TYPE_CHECKING:
    from pullback.lanes.float_view import FloatView
    from pullback.lanes.values import Value


def atan(b: FloatView, x: Value) -> Value:
    """Return the arc tangent."""
    high, low = _angle_of(b, b.abs(x), b.c(1.0))
    return flip_sign(b, b.add(high, low), sign_of(b, x))


def atan2(b: FloatView, y: Value, x: Value) -> Value:
    """Return the angle of the point (x, y), with all of IEEE 754's special cases."""
    size_y, size_x = _scaled_sizes(b, b.abs(y), b.abs(x))
    high, low = _angle_of(b, size_y, size_x)
    pi = constants_of(b).pi
    turned, turned_low = fast_two_sum(b, pi[0], b.neg(high))
    turned_low = b.add(turned_low, b.sub(pi[1], low))
    left = b.ineg(b.bits(x))
    angle = b.select(left, b.add(turned, turned_low), b.add(high, low))
    return flip_sign(b, angle, sign_of(b, y))


def _scaled_sizes(b: FloatView, y: Value, x: Value) -> tuple[Value, Value]:
    """Scale both so that their sum cannot overflow nor lose digits; inf/inf becomes 1/1."""
    f = constants_of(b)
    both_infinite = b.mand(b.eq(y, INF), b.eq(x, INF))
    y, x = b.select(both_infinite, 1.0, y), b.select(both_infinite, 1.0, x)
    large, tiny = f.max_finite / 4, 4 * f.min_normal
    is_large = b.mor(b.gt(y, large), b.gt(x, large))
    is_tiny = b.mand(b.lt(y, tiny), b.lt(x, tiny))
    factor = b.select(is_large, 0.25, b.select(is_tiny, 2.0 ** (f.mantissa_bits + 2), 1.0))
    return b.mul(y, factor), b.mul(x, factor)


def _angle_of(b: FloatView, y: Value, x: Value) -> tuple[Value, Value]:
    """Return atan(y/x) in [0, pi/2] as a pair, for y, x >= 0."""
    f = constants_of(b)
    steep = b.gt(y, x)
    larger, smaller = b.select(steep, y, x), b.select(steep, x, y)
    diagonal = b.gt(smaller, b.mul(larger, math.sqrt(2.0) - 1.0))
    top = b.select(diagonal, b.sub(smaller, larger), smaller)
    bottom = b.select(diagonal, b.add(smaller, larger), larger)
    z = b.div(top, b.select(b.eq(bottom, 0.0), 1.0, bottom))
    u = b.mul(z, z)
    rest = b.mul(b.mul(z, u), fitted(b, "atan", u))
    base = b.select(diagonal, f.quarter_pi[0], b.select(steep, f.half_pi[0], 0.0))
    base_low = b.select(diagonal, f.quarter_pi[1], b.select(steep, f.half_pi[1], 0.0))
    sign = b.iselect(steep, f.sign_bit, 0)
    high, low = two_sum(b, base, flip_sign(b, z, sign))
    return high, b.add(low, b.add(flip_sign(b, rest, sign), base_low))


def asin(b: FloatView, x: Value) -> Value:
    """Return the arc sine."""
    half_pi = constants_of(b).half_pi
    outer, s, s_low, q = _arc_sine_parts(b, x)
    twice = b.add(s, s)
    high, low = fast_two_sum(b, half_pi[0], b.neg(twice))
    from_top = b.add(high, b.add(low, b.fma(b.add(q, s_low), -2.0, half_pi[1])))
    return flip_sign(b, b.select(outer, from_top, b.add(s, q)), sign_of(b, x))


def acos(b: FloatView, x: Value) -> Value:
    """Return the arc cosine."""
    f = constants_of(b)
    outer, s, s_low, q = _arc_sine_parts(b, x)
    sign = sign_of(b, x)
    high, low = fast_two_sum(b, f.half_pi[0], b.neg(flip_sign(b, s, sign)))
    inner = b.add(high, b.add(low, b.sub(f.half_pi[1], flip_sign(b, q, sign))))
    q = b.add(q, s_low)
    near_one = b.mul(b.add(s, q), 2.0)
    high, low = fast_two_sum(b, f.pi[0], b.mul(s, -2.0))
    near_minus_one = b.add(high, b.add(low, b.fma(q, -2.0, f.pi[1])))
    return b.select(outer, b.select(b.lt(x, 0.0), near_minus_one, near_one), inner)


def _arc_sine_parts(b: FloatView, x: Value) -> tuple[Value, Value, Value, Value]:
    """Return (|x| > 1/2, s, s_low, q): asin(s + s_low) = s + s_low + q, s = |x| or the root."""
    size = b.abs(x)
    outer = b.gt(size, 0.5)
    z = b.select(outer, b.fma(size, -0.5, 0.5), b.mul(size, size))
    s = b.select(outer, b.sqrt(z), size)
    q = b.mul(b.mul(s, z), fitted(b, "asin", z))
    twice = b.add(b.add(s, s), constants_of(b).min_normal)  # not 0
    return outer, s, b.div(b.fma(b.neg(s), s, z), twice), q
