"""sin, cos and tan, and the sine and cosine of pi times a number.

After the reduction, with u = r² and w = 1 - u/2, sin r = r + (r³·S(u) + r_low) and
cos r = w + (u²·C(u) + (1 - w - u/2 - r·r_low)); the quadrant chooses between them and gives the
signs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.lanes.elementary.argument_reduction import reduce_quadrant
from pullback.lanes.elementary.arithmetic import constants_of, fitted, flip_sign, sign_of

if TYPE_CHECKING:
    from pullback.lanes.float_view import FloatView
    from pullback.lanes.values import Value


def sin(b: FloatView, x: Value) -> Value:
    """Return the sine."""
    k, sine, cosine = _quadrant_and_pair(b, x)
    sign = b.ixor(_second_bit_as_sign(b, k), sign_of(b, x))
    return flip_sign(b, b.select(_is_even(b, k), sine, cosine), sign)


def cos(b: FloatView, x: Value) -> Value:
    """Return the cosine."""
    k, sine, cosine = _quadrant_and_pair(b, x)
    sign = _second_bit_as_sign(b, b.iadd(k, 1))
    return flip_sign(b, b.select(_is_even(b, k), cosine, sine), sign)


def tan(b: FloatView, x: Value) -> Value:
    """Return the tangent."""
    k, sine, cosine = _quadrant_and_pair(b, x)
    even = _is_even(b, k)
    quotient = b.div(b.select(even, sine, cosine), b.select(even, cosine, sine))
    odd_sign = b.shl(k, constants_of(b).width - 1)
    return flip_sign(b, quotient, b.ixor(odd_sign, sign_of(b, x)))


def _quadrant_and_pair(b: FloatView, x: Value) -> tuple[Value, Value, Value]:
    k, r, r_low = reduce_quadrant(b, b.abs(x))
    return k, *_sin_cos_reduced(b, r, r_low)


def _sin_cos_reduced(b: FloatView, r: Value, r_low: Value) -> tuple[Value, Value]:
    """Return sin(r + r_low), cos(r + r_low) for |r| <= pi/4."""
    u = b.mul(r, r)
    sine = b.add(r, b.fma(b.mul(r, u), fitted(b, "sin", u), r_low))
    half_u = b.mul(u, 0.5)
    w = b.sub(1.0, half_u)
    error = b.fma(b.neg(r), r_low, b.sub(b.sub(1.0, w), half_u))
    cosine = b.add(w, b.fma(b.mul(u, u), fitted(b, "cos", u), error))
    return sine, cosine


def _is_even(b: FloatView, k: Value) -> Value:
    return b.ieq0(b.iand(k, 1))


def _second_bit_as_sign(b: FloatView, k: Value) -> Value:
    return b.iand(b.shl(k, constants_of(b).width - 2), constants_of(b).sign_bit)


def sin_cos_pi(b: FloatView, a: Value) -> tuple[Value, Value]:
    """Return |sin(pi·a)|/pi and |cos(pi·a)| times the sign of sin·cos, for a >= 0.

    The distance of `a` to the next integer is exact, so the relative accuracy holds everywhere.
    """
    pi = constants_of(b).pi
    distance = b.sub(a, b.rint_native(a))
    size = b.abs(distance)
    far = b.gt(size, 0.25)
    near = b.select(far, b.sub(0.5, size), size)  # exact
    u = b.mul(b.mul(near, near), pi[0] * pi[0])
    sine = b.fma(b.mul(near, u), fitted(b, "sin", u), near)
    half_u = b.mul(u, 0.5)
    cosine = b.fma(b.mul(u, u), fitted(b, "cos", u), b.sub(1.0, half_u))
    scaled_sine = b.select(far, b.mul(cosine, 1.0 / pi[0]), sine)
    cosine = b.select(far, b.mul(sine, pi[0]), cosine)
    return scaled_sine, flip_sign(b, cosine, sign_of(b, distance))
