"""Step-size control: controllers whose powers cost a handful of integer operations.

The factor `safety * err**-a * err_old**b` needs no accuracy, only the same bits on every
executor. A float's bit pattern, read as an integer, is its base-two logarithm to within 0.09, so
that the power is one multiply-add between two bit casts; no `pow`, `exp` or `log`.
The error arrives squared (`q2`), which saves the square root.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import numbers

import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.core.typing import Array

__all__ = ["PIController", "PIDController", "StepController", "fast_power"]

# Mean of log2(1 + f) - f over a mantissa f in [0, 1), midway between its extremes 0 and 0.0861.
_MANTISSA = 0.0430
# The controller forgets errors below 1e-4 (squared: 1e-8), [HW96] the code DOPRI5's `facold`.
_SMALLEST_OLD = 1e-8


@dataclasses.dataclass(frozen=True)
class StepController(abc.ABC):
    """Control of the step size by the error of the last attempts; frozen, equal by content.

    Attributes:
        safety: Factor that aims below the tolerance.
        factor_min: Smallest factor from one attempt to the next; also after a non-finite error.
        factor_max: Largest factor.
    """

    safety: float = 0.9
    factor_min: float = 0.2
    factor_max: float = 10.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, numbers.Real):
                raise TypeError(f"`{field.name}` must be a number, got {value!r}.")
        if not 0 < self.safety < 1:
            raise ValueError(f"`safety` must lie between 0 and 1, got {self.safety!r}.")
        if not 0 < self.factor_min < 1 < self.factor_max:
            raise ValueError(
                f"`factor_min` must lie between 0 and 1 and `factor_max` above 1, got "
                f"{self.factor_min!r} and {self.factor_max!r}."
            )

    @abc.abstractmethod
    def initial_memory(self, dtype: np.dtype) -> Array:
        """Return the memory of the first attempt."""

    @abc.abstractmethod
    def factor(self, q2: Array, memory: Array, error_order: int) -> tuple[Array, Array]:
        """Return the factor for the next step size and the memory if this attempt is accepted.

        Args:
            q2: Squared error in units of the tolerance; NaN and infinity give `factor_min`.
            memory: What the last accepted attempt left.
            error_order: Exponent of h in the local error.
        """

    def _limited(self, log_factor: Array) -> Array:
        """Return a factor, within its bounds, from what `_log` would make of it."""
        dtype = log_factor.dtype
        low, high = _log_of(self.factor_min, dtype), _log_of(self.factor_max, dtype)
        return _exp(jnp.minimum(jnp.maximum(log_factor, low), high))


@dataclasses.dataclass(frozen=True)
class PIController(StepController):
    """Proportional-integral control of the step size.

    With k the order of the local error, a step of error `err` (1 is the tolerance) is followed
    by one larger by `safety * err**-((1 - 0.75 beta k) / k) * err_old**beta`.

    Attributes:
        beta: Weight of the previous error; 0 gives integral control.

    References:
        [HNW93] section II.4; [HW96] eq. (IV.2.43). Differs: the previous error also enters after
        a rejection, where it can only make the next attempt smaller.
    """

    beta: float = 0.04

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.beta >= 0:
            raise ValueError(f"`beta` must not be negative, got {self.beta!r}.")

    def initial_memory(self, dtype: np.dtype) -> Array:
        """Return the memory of the first attempt."""
        return jnp.asarray(_log_of(_SMALLEST_OLD, dtype), dtype)

    def factor(self, q2: Array, memory: Array, error_order: int) -> tuple[Array, Array]:
        """Return the factor for the next step size and the memory if this attempt is accepted."""
        dtype = q2.dtype
        old = 0.5 * self.beta
        new = 0.5 * (1.0 / error_order - 0.75 * self.beta)
        offset = _offset(1.0 + new - old, dtype) + math.log2(self.safety) * _unit(dtype)
        log_q2 = _log(lax.abs(q2))
        log_factor = (offset + old * memory) - new * log_q2
        return self._limited(log_factor), jnp.maximum(log_q2, _log_of(_SMALLEST_OLD, dtype))


@dataclasses.dataclass(frozen=True)
class PIDController(StepController):
    """Proportional-integral-derivative control of the step size, for smoother sequences of steps.

    With k the order of the local error and e, e1, e2 the inverse errors of this and the last two
    accepted attempts, a step is followed by one larger by
    `safety * e**((p + i + d) / k) * e1**(-(p + 2 d) / k) * e2**(d / k)`.

    Attributes:
        pcoeff: p, weight of the proportional part.
        icoeff: i, weight of the integral part; must be positive.
        dcoeff: d, weight of the derivative part.

    References:
        [Sod03] for such controllers as digital filters.
    """

    pcoeff: float = 0.3
    icoeff: float = 0.3
    dcoeff: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.icoeff > 0:
            raise ValueError(f"`icoeff` must be positive, got {self.icoeff!r}.")
        if not (math.isfinite(self.pcoeff) and math.isfinite(self.dcoeff)):
            raise ValueError(
                f"`pcoeff` and `dcoeff` must be finite numbers, got {self.pcoeff!r} and "
                f"{self.dcoeff!r}."
            )

    def initial_memory(self, dtype: np.dtype) -> Array:
        """Return the memory of the first attempt: as if the last two had met the tolerance."""
        return jnp.full((2,), _log_of(1.0, dtype), dtype)

    def factor(self, q2: Array, memory: Array, error_order: int) -> tuple[Array, Array]:
        """Return the factor for the next step size and the memory if this attempt is accepted."""
        dtype = q2.dtype
        half = 0.5 / error_order  # the errors are squared
        now = half * (self.pcoeff + self.icoeff + self.dcoeff)
        before = -half * (self.pcoeff + 2.0 * self.dcoeff)
        earlier = half * self.dcoeff
        one, last, earlier_one = _log_of(1.0, dtype), memory[0], memory[1]
        least, most = _log_of(_SMALLEST_OLD, dtype), _log_of(1.0 / _SMALLEST_OLD, dtype)
        log_q2 = _log(lax.abs(q2))
        kept = jnp.minimum(jnp.maximum(log_q2, least), most)
        powers = now * (log_q2 - one) + before * (last - one) + earlier * (earlier_one - one)
        offset = one + math.log2(self.safety) * _unit(dtype)
        log_factor = offset - powers
        # Smooth or not, what follows a rejection must be smaller.
        log_factor = jnp.where(q2 <= 1.0, log_factor, jnp.minimum(log_factor, offset))
        return self._limited(log_factor), jnp.stack([kept, last])


def fast_power(x: Array, exponent: float) -> Array:
    """Return `x**exponent` for x >= 0 and |exponent| <= 1, to a few per cent."""
    offset = _offset(1.0 - exponent, x.dtype)
    return _exp(jnp.maximum(offset + exponent * _log(lax.abs(x)), 0.0))


def _unit(dtype: np.dtype) -> float:
    """What one binary order of magnitude is, in units of the bit pattern's used part."""
    return float(2**20 if dtype == np.float64 else 2**23)


def _offset(weight: float, dtype: np.dtype) -> float:
    bias = 1023 if dtype == np.float64 else 127
    return weight * (bias - _MANTISSA) * _unit(dtype)


def _log_of(value: float, dtype: np.dtype) -> float:
    """`_log` of a number known here."""
    if dtype == np.float64:
        return float(int(np.float64(value).view(np.uint64)) >> 32)
    return float(int(np.float32(value).view(np.uint32)))


def _log(x: Array) -> Array:
    """Return the bit pattern of x >= 0 as a number: the upper half of a float64."""
    if x.dtype == np.float64:
        high = lax.shift_right_logical(lax.bitcast_convert_type(x, jnp.uint64), np.uint64(32))
        return high.astype(jnp.int32).astype(jnp.float64)
    return lax.bitcast_convert_type(x, jnp.int32).astype(jnp.float32)


def _exp(log_x: Array) -> Array:
    """Invert `_log`."""
    bits = log_x.astype(jnp.int32)
    if log_x.dtype == np.float64:
        high = lax.shift_left(bits.astype(jnp.uint64), np.uint64(32))
        return lax.bitcast_convert_type(high, jnp.float64)
    return lax.bitcast_convert_type(bits, jnp.float32)
