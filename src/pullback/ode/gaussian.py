"""Normal numbers from random words, the same on every executor.

Elementary functions differ between executors in the last digits, so the logarithm and the cosine
are polynomials here. No sum here has two products, so that it is clear which one is fused with
the addition: the bits are the same wherever products are fused at all, as they are by default, and
elsewhere equal up to rounding.

Two words make a pair of numbers, one its radius and one its angle. No number exceeds 6.8 (float64)
or 5.8 (float32); beyond that lies one normal number in 10^11 (10^8). The approximations are as
accurate as the grid of the words is fine: 1e-11 (float64) and 1e-7 (float32), absolute.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.core.typing import Array

__all__ = ["normal_pair"]


@dataclasses.dataclass(frozen=True)
class _Format:
    """How a floating dtype is taken apart, and how many terms its precision asks for.

    Attributes:
        word: Unsigned integer of the same size.
        mantissa: Bits of the mantissa.
        bias: Of the exponent.
        base: Bits of the power of two whose unit in the last place is one.
        drop: Lowest bits of a random word that are dropped, for the rest to be exact.
        atanh: Coefficients of (atanh(s) - s) / s^3 in s^2, for |s| <= 3 - 2 sqrt(2).
        cosine: Coefficients of cos(pi v) in v^2, for |v| <= 1.
        sine: Coefficients of sin(pi v) / v, likewise.
    """

    word: Any
    mantissa: int
    bias: int
    base: int
    drop: int
    atanh: tuple[float, ...]
    cosine: tuple[float, ...]
    sine: tuple[float, ...]


# Polynomials that interpolate at Chebyshev points; a test compares them with the functions.
_FORMATS = {
    np.dtype(np.float64): _Format(
        word=np.uint64,
        mantissa=52,
        bias=1023,
        base=0x4330000000000000,
        drop=0,
        atanh=(0.33333333277248545, 0.2000006091990308, 0.14275410407979341, 0.11665233608171159),
        cosine=(
            0.9999999999990582,
            -4.934802200392079,
            4.0587121223440645,
            -1.335262726975054,
            0.23533041442363942,
            -0.025806265062695788,
            0.001928504576766218,
            -0.00010356823827835376,
            3.719325496998705e-06,
        ),
        sine=(
            3.141592653589636,
            -5.167712780024454,
            2.5501640391963964,
            -0.599264522319693,
            0.08214585052180447,
            -0.007370326308576967,
            0.0004661242037813419,
            -2.1736923658198412e-05,
            6.980649174625925e-07,
        ),
    ),
    np.dtype(np.float32): _Format(
        word=np.uint32,
        mantissa=23,
        bias=127,
        base=0x4B000000,
        drop=9,
        atanh=(0.3333174972747205, 0.20429134680734065),
        cosine=(
            0.9999999889445764,
            -4.934801116644035,
            4.058694745521659,
            -1.3351580223047832,
            0.23502902262484676,
            -0.025358285754567757,
            0.0015936782136601385,
        ),
        sine=(
            3.1415926512342907,
            -5.1677125491229825,
            2.550160337848261,
            -0.5992422309233395,
            0.08208174119070055,
            -0.007275184783557536,
            0.0003952368269095054,
        ),
    ),
}
_SQRT_HALF = math.sqrt(0.5)


def normal_pair(
    first: Array, second: Array, variance: Array, count: int = 2, one: Array | float = 1.0
) -> tuple[Array, ...]:
    """Return two independent normal numbers, or only one of them, of two uint32 words.

    Args:
        first: A random word, of any shape.
        second: Another one, of that shape.
        variance: Positive scalar whose dtype is that of the result.
        count: How many to return: 1 or 2.
        one: The number one; what is divided by it is meant to be computed once.

    Differentiation:
        With respect to `variance`, at fixed words.

    References:
        [BM58], the transformation by the cosine and sine of a random angle.
    """
    dtype = variance.dtype
    form = _FORMATS[np.dtype(dtype)]
    # One square root also where the variance is not one.
    radius = jnp.sqrt((4.0 * variance) * _minus_half_log(form, first, one, dtype))
    # The angle in half turns: -1 < v < 1.
    v = _centred(second, form, dtype) * 2.0 ** (form.drop - 31) / one
    square = v * v
    cosine = radius * _polynomial(form.cosine, square) / one
    if count == 1:
        return (cosine,)
    return cosine, radius * (v * _polynomial(form.sine, square)) / one


def _centred(word: Array, form: _Format, dtype: Any) -> Array:
    """Return the word as a signed number plus one half, without its lowest bits; exact."""
    signed = lax.bitcast_convert_type(word, np.int32)
    if form.drop:
        signed = signed >> np.int32(form.drop)
    return signed.astype(dtype) + 0.5


def _minus_half_log(form: _Format, word: Array, one: Any, dtype: Any) -> Array:
    """Return -log(u) / 2 for u in (0, 1), where u is the word plus one half, scaled.

    References:
        [CW80] chapter 5: u = 2^e m, log(m) = 2 atanh((m - 1) / (m + 1)).
    """
    n_bits = 32 - form.drop
    x = _centred(word ^ jnp.asarray(np.uint32(1 << 31)), form, dtype) + 2.0 ** (n_bits - 1)
    x = x / one
    unit = int(np.asarray(1.0, dtype).view(form.word))
    lowest = int(np.asarray(_SQRT_HALF, dtype).view(form.word))

    def constant(bits: int) -> Array:
        return jnp.asarray(form.word(bits))

    shifted = lax.bitcast_convert_type(x, form.word) + constant(unit - lowest)
    # An integer that is small becomes a float without a conversion, which AVX2 lacks for 64 bits.
    biased = lax.bitcast_convert_type(
        (shifted >> constant(form.mantissa)) | constant(form.base), dtype
    )
    exponent = biased - (2.0**form.mantissa + form.bias + n_bits)
    mantissa = (shifted & constant((1 << form.mantissa) - 1)) + constant(lowest)
    m = lax.bitcast_convert_type(mantissa, dtype)
    # With the sign of -log(m): 1 - m is exact.
    s = (1.0 - m) / (1.0 + m)
    square = s * s
    rest = (s * square) * _polynomial(form.atanh, square) + s
    return exponent * (-0.5 * math.log(2.0)) + rest


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    total: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total
