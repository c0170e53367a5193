"""lgamma and digamma.

With t = x - 1 (x where x is small, then a term -log x or -1/x is added):

* 0 <= t < 2: lgamma = t·(t - 1)·R(t), digamma = (t - t0)·R(t) with t0 + 1 the zero of digamma and
  R = c + P/Q around a typical value c, formed as (c·Q + P)/Q so that the errors of Q mostly cancel;
* x >= 3: Stirling's formula, lgamma = (x - 1/2)·(log x - 1) + (log(2 pi) - 1)/2 + P(x²)/(x·Q(x²)),
  digamma = log x - P(x)/(x·Q(x));
* x < 0: the reflection formulas, behind a branch that is taken only if a lane needs it.

For x > 0 the relative error is bounded everywhere, the zeros at 1, 2 and 1.4616... included. For
x < 0 the error is at most 3 of the format's epsilon times the largest term of the reflection
formula (or 1): next to the zeros between the poles it is absolute. Poles give inf (lgamma) and NaN
(digamma), as in JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.lanes.elementary.arithmetic import (
    at_most,
    constants_of,
    fast_two_sum,
    fitted_ratio,
    not_finite_or,
    two_product,
)
from pullback.lanes.elementary.circular import sin_cos_pi
from pullback.lanes.elementary.constants import INF, NAN
from pullback.lanes.elementary.logarithm import log_of_sum, log_pair

if TYPE_CHECKING:
    from pullback.lanes.float_view import FloatView
    from pullback.lanes.values import Value

# Where Stirling's formula begins, and where its fitted remainder no longer counts.
_STIRLING_FROM = 3.0
_LGAMMA_LIMIT = {"f64": 2.0**26, "f32": 2.0**13}
_DIGAMMA_LIMIT = {"f64": 2.0**56, "f32": 2.0**26}
# The form of lgamma around its zeros serves down to here; below, -log x is added.
_SHIFT_BELOW = 0.8125
_CENTRE = {"lgamma": 0.46875, "digamma": 0.78125}
_TINY = {"f64": 2.0**-60, "f32": 2.0**-30}


def lgamma(b: FloatView, x: Value) -> Value:
    """Return log|gamma(x)|."""
    a = b.abs(x)
    negative = b.lt(x, 0.0)
    shifted = b.lt(a, b.select(negative, 1.0, _SHIFT_BELOW))
    log_a, log_a_low = log_pair(b, a)
    kept = _lgamma_kept(b, a, shifted, log_a, log_a_low)
    positive = b.select(shifted, b.sub(b.sub(kept, log_a_low), log_a), kept)
    result = b.when_any(negative, lambda: _reflected_lgamma(b, a, shifted, kept), positive)
    result = b.select(b.lt(a, _TINY[b.dtype]), b.neg(log_a), result)
    result = b.select(b.eq(a, 0.0), INF, result)
    return not_finite_or(b, a, result)


def _lgamma_kept(b: FloatView, a: Value, shifted: Value, log_a: Value, log_a_low: Value) -> Value:
    """Return lgamma(a), or lgamma(1 + a) where `shifted`."""
    large = b.ge(a, _STIRLING_FROM)
    t = b.select(shifted, a, b.sub(a, 1.0))
    c = at_most(b, a, _LGAMMA_LIMIT[b.dtype])
    ratio = _shared_quotient(b, large, ("stirling", b.mul(c, c), c), ("lgamma", t))
    around_zeros = b.mul(b.fma(t, t, b.neg(t)), ratio)
    stirling = constants_of(b).stirling
    d, d_low = fast_two_sum(b, log_a, -1.0)
    half_less = b.sub(a, 0.5)
    high, low = two_product(b, half_less, d)
    low = b.fma(half_less, b.add(d_low, log_a_low), low)
    by_stirling = b.add(high, b.add(low, b.add(stirling[0], b.add(ratio, stirling[1]))))
    by_stirling = b.select(b.eq(high, INF), high, by_stirling)
    return b.select(large, by_stirling, around_zeros)


def _shared_quotient(
    b: FloatView,
    large: Value,
    remainder: tuple[str, Value, Value],
    around_zeros: tuple[str, Value],
) -> Value:
    """Divide once: P(v)/(c·Q(v)) of the remainder where `large`, else R(t) around the zeros."""
    name, v, c = remainder
    numerator, denominator = fitted_ratio(b, name, v)
    other, t = around_zeros
    other_numerator, other_denominator = fitted_ratio(b, other, t)
    other_numerator = b.fma(_CENTRE[other], other_denominator, other_numerator)
    top = b.select(large, numerator, other_numerator)
    return b.div(top, b.select(large, b.mul(c, denominator), other_denominator))


def _reflected_lgamma(b: FloatView, a: Value, shifted: Value, kept: Value) -> Value:
    """Return lgamma(-a) = log(pi/(a·|sin(pi·a)|)) - lgamma(a); a is cancelled where `shifted`."""
    sine, _ = sin_cos_pi(b, a)
    log_sine = log_of_sum(b, b.select(shifted, sine, b.mul(sine, a)))
    return b.select(b.eq(sine, 0.0), INF, b.neg(b.add(log_sine, kept)))


def digamma(b: FloatView, x: Value) -> Value:
    """Return the derivative of lgamma."""
    a = b.abs(x)
    negative = b.lt(x, 0.0)
    shifted = b.lt(a, b.select(negative, 2.0, 1.0))
    kept = _digamma_kept(b, a, shifted)
    reciprocal = b.div(1.0, a)
    positive = b.sub(kept, b.select(shifted, reciprocal, 0.0))

    def reflected() -> Value:
        sine, cosine = sin_cos_pi(b, a)
        result = b.add(kept, b.select(shifted, 0.0, reciprocal))
        return b.select(b.eq(sine, 0.0), NAN, b.add(result, b.div(cosine, sine)))

    result = b.when_any(negative, reflected, positive)
    result = b.select(b.eq(a, 0.0), NAN, result)
    return not_finite_or(b, x, result)


def _digamma_kept(b: FloatView, a: Value, shifted: Value) -> Value:
    """Return digamma(a), or digamma(1 + a) where `shifted`."""
    large = b.ge(a, _STIRLING_FROM)
    zero, zero_low = constants_of(b).digamma_zero
    t = b.select(shifted, a, b.sub(a, 1.0))
    c = at_most(b, a, _DIGAMMA_LIMIT[b.dtype])
    ratio = _shared_quotient(b, large, ("digamma_remainder", c, c), ("digamma", t))
    around_zero = b.mul(b.sub(b.sub(t, zero), zero_low), ratio)
    return b.select(large, b.sub(log_of_sum(b, a), ratio), around_zero)
