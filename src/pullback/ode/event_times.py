"""When preset events happen: at the times of a list, or at a start and then with a period.

These times are functions of the parameters alone. `prepared` evaluates them once, in front of the
lane program, and they become an entry of theta like any other; inside, `at` gives occurrence
number k from that entry, and `n_past` says how many are over at some time.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.core.typing import Array
from pullback.ode.flat_function import FlatFunction
from pullback.ode.mesh import frozen

__all__ = ["EventTimes", "ListedTimes", "PeriodicTimes", "never", "time_slack"]

# Times are computed in ways that round: so many roundings beside t0 or t1 are still t0 or t1.
_SLACK_EPS = 8.0


def never(dtype: np.dtype) -> float:
    """Return a time that does not come, finite so that products with zero are zero."""
    return 0.25 * float(jnp.finfo(dtype).max)


def time_slack(t0: Array, t1: Array) -> Array:
    """Return by how much times may differ from t0 and t1 and still be meant to be these."""
    eps = float(jnp.finfo(t0.dtype).eps)
    return (_SLACK_EPS * eps) * jnp.maximum(jnp.abs(t0), jnp.abs(t1))


@dataclasses.dataclass(frozen=True)
class ListedTimes:
    """Times in a list.

    Attributes:
        place: The entry of theta that holds them in the lane program, `(n,)`, ascending.
        n: Their number.
        values: The times as a function of theta, in any order; None where the entry of theta
            already is them.
    """

    place: int
    n: int
    values: FlatFunction | None

    def prepared(self, theta: tuple[Array, ...], t0: Array, sign: Array, y: Array) -> Array:
        """Return the times as the lane program wants them: each once, in ascending order."""
        del sign
        times = theta[self.place] if self.values is None else self.values(t0, y, theta)
        times = times.astype(t0.dtype)
        limit = never(t0.dtype)
        times = jnp.sort(jnp.where(jnp.abs(times) >= limit, limit, times))  # NaN stays
        is_again = jnp.concatenate([jnp.zeros((1,), bool), times[1:] == times[:-1]])
        return jnp.sort(jnp.where(is_again, limit, times))

    def at(self, index: Array, theta: tuple[Array, ...], sign: Array) -> Array:
        """Return the time of occurrence number `index`, counted in the direction of time."""
        times = theta[self.place]
        place = jnp.where(sign > 0, index, self.n - 1 - index)
        time = lax.dynamic_index_in_dim(times, jnp.clip(place, 0, self.n - 1), keepdims=False)
        return jnp.where(index < self.n, time, sign * never(times.dtype))

    def n_past(self, time: Array, theta: tuple[Array, ...], sign: Array, slack: Array) -> Array:
        """Return how many times are over at `time`, or are now."""
        return jnp.sum(sign * (theta[self.place] - time) <= slack, dtype=jnp.int32)

    def is_valid(self, theta: tuple[Array, ...]) -> Array:
        """Whether all times are numbers; infinite ones never come."""
        return ~jnp.any(jnp.isnan(frozen(theta[self.place])))


@dataclasses.dataclass(frozen=True)
class PeriodicTimes:
    """A start, and then one time after each period.

    Attributes:
        place: The entry of theta that holds start and period in the lane program, `(2,)`.
        period: The period as a function of theta.
        start: The first time as a function of theta; None for one period after t0.
    """

    place: int
    period: FlatFunction
    start: FlatFunction | None

    def prepared(self, theta: tuple[Array, ...], t0: Array, sign: Array, y: Array) -> Array:
        """Return start and period; the period is a length, whatever the direction of time."""
        period = self.period(t0, y, theta).astype(t0.dtype)
        if self.start is None:
            return jnp.stack([t0 + sign * period, period])
        return jnp.stack([self.start(t0, y, theta).astype(t0.dtype), period])

    def at(self, index: Array, theta: tuple[Array, ...], sign: Array) -> Array:
        """Return the time of occurrence number `index`, counted in the direction of time."""
        values = theta[self.place]
        return values[0] + (sign * index.astype(values.dtype)) * values[1]

    def n_past(self, time: Array, theta: tuple[Array, ...], sign: Array, slack: Array) -> Array:
        """Return how many times are over at `time`, or are now."""
        start, period = theta[self.place][0], theta[self.place][1]
        ratio = sign * (time - start) / jnp.where(period > 0, period, 1.0)
        # From below, for the quotient rounds.
        guess = jnp.clip(jnp.floor(ratio), 0.0, 2.0**30).astype(jnp.int32)
        for _ in range(2):
            is_past = sign * (self.at(guess, theta, sign) - time) <= slack
            guess = guess + is_past.astype(jnp.int32)
        return guess

    def is_valid(self, theta: tuple[Array, ...]) -> Array:
        """Whether start and period are finite, and the period is positive."""
        values = frozen(theta[self.place])
        return jnp.all(jnp.isfinite(values)) & (values[1] > 0)


EventTimes = ListedTimes | PeriodicTimes
