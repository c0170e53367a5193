"""Reduction of the arguments of the circular functions modulo pi/2.

Ordinary arguments: three parts of pi/2, each of full width, with fused multiply-add [CW80]. Beyond
`COMMON_LIMIT`: a = m·2^E with an integer m, and the product of m with (2^E·2/pi mod 4), which a
table holds for every exponent E, so that whole turns drop out exactly. Both give the same accuracy.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from pullback.lanes.elementary.arithmetic import (
    constants_of,
    fast_two_sum,
    round_to_integer,
    two_product,
    two_sum,
)
from pullback.lanes.elementary.constants import (
    CONSTANTS,
    INF,
    NAN,
    TWO_OVER_PI,
    TWO_OVER_PI_DIGITS,
)

if TYPE_CHECKING:
    from pullback.lanes.float_view import FloatView
    from pullback.lanes.values import Value

# Up to here k = round(a·2/pi) and its products with the parts of pi/2 are good enough.
COMMON_LIMIT = {"f64": 2.0**45, "f32": 2.0**18}
_PARTS = 4


def reduce_quadrant(b: FloatView, a: Value) -> tuple[Value, Value, Value]:
    """Return k, r, r_low with a = k·pi/2 + r + r_low, |r| <= pi/4, for a >= 0.

    Only the two low bits of k count. Infinities and NaN give NaN. A builder without `gather_row`
    gives NaN beyond `COMMON_LIMIT`.
    """
    k, r, r_low = _reduce_common(b, a)
    huge = b.mand(b.gt(a, COMMON_LIMIT[b.dtype]), b.lt(a, INF))
    if getattr(b, "gather_row", None) is None:
        return k, b.select(huge, NAN, r), r_low
    k, r, r_low = b.when_any(
        huge, lambda: list(b.outlined("reduce_huge", _reduce_huge, a)), [k, r, r_low]
    )
    return k, r, r_low


def _reduce_common(b: FloatView, a: Value) -> tuple[Value, Value, Value]:
    """Reduce with three parts of pi/2.

    The first step is exact. The product with the second part is kept as q + q_low, and its sum with
    the first difference as r + e: the fast sum is valid although |first| may be the smaller, for
    `first` is a multiple of q's last digit. No digit is lost next to multiples of pi/2.
    """
    half_pi = constants_of(b).half_pi
    k_float, k = round_to_integer(b, a, constants_of(b).two_over_pi)
    minus_k = b.neg(k_float)
    first = b.fma(minus_k, half_pi[0], a)
    q, q_low = two_product(b, minus_k, half_pi[1])
    r, e = fast_two_sum(b, first, q)
    return k, r, b.fma(minus_k, half_pi[2], b.add(q_low, e))


def _reduce_huge(b: FloatView, a: Value) -> tuple[Value, Value, Value]:
    """Reduce any finite a >= 1 with the table of `quadrant_table`."""
    f = constants_of(b)
    i = b.bits(a)
    m = b.fl(b.ior(b.iand(i, f.mantissa_mask), f.bits(f.integer_base)))
    row = _clamp_index(b, b.isub(b.lshr(i, f.mantissa_bits), f.exponent_bias), f.exponent_bias)
    parts = b.gather_row(f"quadrants_{b.dtype}", quadrant_table(b.dtype), row)
    products = [two_product(b, m, part) for part in parts]
    k, fraction, fraction_low = _add_quadrants(b, products)
    r, r_low = two_product(b, fraction, f.half_pi[0])
    r_low = b.fma(fraction_low, f.half_pi[0], b.fma(fraction, f.half_pi[1], r_low))
    return k, r, r_low


def _clamp_index(b: FloatView, i: Value, last: int) -> Value:
    i = b.iselect(b.ineg(i), 0, i)
    return b.iselect(b.ineg(b.isub(last, i)), last, i)


def _add_quadrants(b: FloatView, products: list[tuple[Value, Value]]) -> tuple[Value, Value, Value]:
    """Return k, fraction, fraction_low of the sum of products, fraction within 1/2.

    The largest terms give k, whose low bits are all that is wanted; the others join what k leaves.
    """
    (first, second), (third, *_), *_ = products
    *small, _ = [term for product in products for term in product][3:]  # the last is too small
    first = b.sub(first, b.mul(b.rint_native(b.mul(first, 0.25)), 4.0))  # modulo 4, exact
    high, second_error = two_sum(b, first, second)
    high, third_error = two_sum(b, high, third)
    k_float, k = round_to_integer(b, high)
    high = b.sub(high, k_float)  # exact
    low, lowest = b.c(0.0), b.c(0.0)
    for term in (second_error, third_error, *small):
        high, error = two_sum(b, high, term)
        low, error = two_sum(b, low, error)
        lowest = b.add(lowest, error)
    high, low = two_sum(b, high, low)
    return k, *fast_two_sum(b, high, b.add(low, lowest))


@functools.cache
def quadrant_table(dtype: str) -> np.ndarray:
    """Return (2^(e - mantissa bits)·2/pi) mod 4 in four parts, one row per exponent e >= 0."""
    f = CONSTANTS[dtype]
    rows = []
    for e in range(f.exponent_bias + 1):
        shift = e - f.mantissa_bits
        scaled = TWO_OVER_PI << shift if shift >= 0 else TWO_OVER_PI >> -shift
        rows.append(_split_fixed_point(scaled % (4 << TWO_OVER_PI_DIGITS), f.mantissa_bits + 1))
    return np.array(rows)


def _split_fixed_point(number: int, bits: int) -> tuple[float, ...]:
    """Return number/2^TWO_OVER_PI_DIGITS as a sum of floats of `bits` significant bits."""
    parts = []
    for _ in range(_PARTS):
        excess = max(abs(number).bit_length() - bits, 0)
        rounded = (abs(number) + (1 << excess >> 1)) >> excess << excess
        rounded = rounded if number >= 0 else -rounded
        parts.append(math.ldexp(rounded >> excess, excess - TWO_OVER_PI_DIGITS))
        number -= rounded
    return tuple(parts)
