"""erf, erfc and erf_inv.

erf(x) = x + x·P(x²) up to 1, then 1 - e^H(x) with a polynomial for H = log(erfc x).
erfc(x) = e^(-x²)/(1 + x)·(3/4 + P(x)/Q(x)) for x >= 0, with x² as a pair. erf_inv follows the
definition that JAX and XLA use, the polynomials of [Gil12] in log(1 - x²) with x² rounded, and
inherits its accuracy, which is poor next to 1: it is there so that `jax.random.normal` gives the
same numbers to a few units in the last place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.lanes.elementary.arithmetic import (
    at_most,
    fitted,
    fitted_ratio,
    flip_sign,
    horner,
    power_of_two,
    scale_by_power_of_two,
    sign_of,
    two_product,
)
from pullback.lanes.elementary.constants import INF
from pullback.lanes.elementary.exponential import reduce_exp
from pullback.lanes.elementary.giles import CENTRE, TAILS
from pullback.lanes.elementary.logarithm import log1p

if TYPE_CHECKING:
    from pullback.lanes.float_view import FloatView
    from pullback.lanes.values import Value

# Where erf rounds to 1, and beyond where erfc underflows.
_ERF_LIMIT = {"f64": 5.9375, "f32": 3.9375}
_ERFC_LIMIT = {"f64": 28.0, "f32": 10.5}
_ERFC_CENTRE = 0.75


def erf(b: FloatView, x: Value) -> Value:
    """Return the error function."""
    a = at_most(b, b.abs(x), _ERF_LIMIT[b.dtype])
    inner = b.fma(a, fitted(b, "erf", b.mul(a, a)), a)
    k, p = reduce_exp(b, fitted(b, "log_erfc", a))
    scale = power_of_two(b, k)
    outer = b.sub(1.0, b.fma(scale, p, scale))
    return flip_sign(b, b.select(b.gt(a, 1.0), outer, inner), sign_of(b, x))


def erfc(b: FloatView, x: Value) -> Value:
    """Return 1 - erf(x), with relative accuracy down to subnormal results.

    The factor 3/4 + P/Q is formed as (3/4·Q + P)/Q, so that the rounding errors of Q cancel but for
    the small part P, and there is one division.
    """
    a = at_most(b, b.abs(x), _ERFC_LIMIT[b.dtype])
    square, square_low = two_product(b, a, a)
    k, p = reduce_exp(b, b.neg(square))
    p = b.fma(b.neg(square_low), b.add(p, 1.0), p)
    numerator, denominator = fitted_ratio(b, "erfc", a, last=2)
    numerator = b.fma(_ERFC_CENTRE, denominator, numerator)
    quotient = b.div(numerator, b.fma(denominator, a, denominator))
    result = scale_by_power_of_two(b, b.fma(p, quotient, quotient), k)
    return b.select(b.lt(x, 0.0), b.sub(2.0, result), result)


def erf_inv(b: FloatView, x: Value) -> Value:
    """Return the inverse of erf as JAX defines it: x·p(w), w = -log(1 - x²), x² rounded.

    A polynomial in w serves the centre (99.7 % of uniform arguments or more), one or two in sqrt(w)
    the tails, behind a branch that is taken only if a lane needs it.
    """
    w = b.neg(log1p(b, b.neg(b.mul(x, x))))
    bound, shift, coefficients = CENTRE[b.dtype]
    central = _polynomial(b, b.sub(w, shift), coefficients)
    p = b.when_any(b.ge(w, bound), lambda: _tails(b, w), central)
    return b.mul(x, b.select(b.eq(b.abs(x), 1.0), INF, p))


def _tails(b: FloatView, w: Value) -> Value:
    root = b.sqrt(w)
    *inner, (_, shift, coefficients) = TAILS[b.dtype]
    result = _polynomial(b, b.sub(root, shift), coefficients)
    for bound, shift, coefficients in reversed(inner):
        result = b.select(b.lt(w, bound), _polynomial(b, b.sub(root, shift), coefficients), result)
    return result


def _polynomial(b: FloatView, x: Value, coefficients: tuple[float, ...]) -> Value:
    return horner(b, x, coefficients[:-1], coefficients[-1])
