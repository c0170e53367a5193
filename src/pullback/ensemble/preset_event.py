"""Events at times that are known: those of a list, and those that recur."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.core import Tracer

from pullback.core.user_function import require_function
from pullback.ensemble.event_checks import Function, check_parts, checked_time

__all__ = ["PeriodicEvent", "PresetTimes"]


@dataclass(frozen=True)
class PresetTimes:
    """An event at given times, at which a step ends exactly: doses, switches.

    Times before the start are past; one at the start happens there, without being recorded; one at
    the end happens there. Those that differ from the start or the end by rounding only are meant
    to be these. A row saved at such a time holds the state behind the event.

    Args:
        times: the times, in any order, each counted once; or a function `times(params)` that
            returns them, so that they may differ between trajectories. Times beyond the end do not
            happen, which makes room for trajectories that have fewer of them.
        affect: `affect(t, y, params)` returns the state behind the event.
        terminate: whether the trajectory ends at the first of them.

    Differentiation:
        By the times too, where they are traced or come from `params`. A time at the very start
        counts as one just behind it, a time at the very end as one just before it.
    """

    times: Any
    affect: Function | None = None
    terminate: bool = False

    def __post_init__(self) -> None:
        check_parts(self.affect, self.terminate)
        if isinstance(self.times, Tracer):
            return
        if callable(self.times):
            require_function("times", self.times, "params")
            return
        numbers = np.atleast_1d(np.asarray(self.times))
        if numbers.ndim != 1 or numbers.dtype.kind not in "fiu" or not np.isfinite(numbers).all():
            raise ValueError(
                "`times` must be a 1-D array of finite times or a function of `params`, but "
                f"{self.times!r} arrived."
            )
        # As numbers, so that equal events compare equal.
        object.__setattr__(self, "times", tuple(map(float, numbers)))


@dataclass(frozen=True)
class PeriodicEvent:
    """An event that recurs: at start, start + period, start + 2 period and so on, up to the end.

    A step ends exactly at each of these times, which are otherwise as those of
    :class:`PresetTimes`. Backward in time they go down: start, start - period and so on.

    Args:
        period: the time between two of them, positive; a number or a function `period(params)`.
        affect: `affect(t, y, params)` returns the state behind the event.
        start: the first of them, a number or a function `start(params)`; None for one period after
            t0. Those before t0 are past, and one at t0 happens there.
        terminate: whether the trajectory ends at the first of them.

    Differentiation:
        By period and start too, where they are traced or come from `params`, and by t0 where
        the first one follows it.

    Example:
        >>> import jax.numpy as jnp, pullback as pb
        >>> doses = pb.PeriodicEvent(2.0, lambda t, y, p: y + 1.0, start=0.0)
        >>> decay = pb.ODEProblem(lambda t, y, p: -y, jnp.zeros(1), (0.0, 5.0), events=[doses])
        >>> sol = pb.solve(decay, pb.Tsit5(), pb.EnsembleArray())
        >>> [float(t) for t in sol.events.t[:2]]  # the one at t0 happens before the first step
        [2.0, 4.0]
    """

    period: Any
    affect: Function | None = None
    start: Any = None
    terminate: bool = False

    def __init__(
        self,
        period: Any,
        affect: Function | None = None,
        *,
        start: Any = None,
        terminate: bool = False,
    ) -> None:
        check_parts(affect, terminate)
        period = checked_time("period", period, is_length=True)
        if start is not None:
            start = checked_time("start", start, is_length=False)
        parts = {"period": period, "affect": affect, "start": start, "terminate": terminate}
        for name, part in parts.items():
            object.__setattr__(self, name, part)
