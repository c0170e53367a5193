"""Events that are looked at where a step has ended, and steady states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.core.user_function import require_function
from pullback.ensemble.event_checks import Function, check_parts

__all__ = ["SteadyState", "StepEvent"]


@dataclass(frozen=True)
class StepEvent:
    """An event that happens at the end of a step where a condition is true: no search, no cut.

    The condition is looked at after every accepted step, also one that another event cut short,
    and behind the root and preset events at its end; several step events in the order of the list,
    each behind the one before. After an event that ended the trajectory nothing more is looked at,
    and nothing is looked at before the first step.

    Args:
        condition: `condition(t, y, params)` returns one boolean.
        affect: `affect(t, y, params)` returns the state behind the event, with the structure of
            `y`; None leaves it as it is.
        terminate: whether the trajectory ends, with the status `terminated`.

    Differentiation:
        The affect is differentiated. Whether and when the event happens is not: it belongs to the
        mesh, which is frozen. What should happen when the state gets somewhere is a `pb.Event`.
    """

    condition: Function
    affect: Function | None = None
    terminate: bool = False

    def __init__(
        self, condition: Function, affect: Function | None = None, *, terminate: bool = False
    ) -> None:
        require_function("condition", condition)
        check_parts(affect, terminate)
        parts = {"condition": condition, "affect": affect, "terminate": terminate}
        for name, part in parts.items():
            object.__setattr__(self, name, part)


@dataclass(frozen=True)
class SteadyState:
    """The end of a trajectory that does not change any more, with the status `terminated`.

    It is a step event: after each accepted step the root mean square of
    f(t, y, params) / (atol + rtol |y|) is looked at, f being the vector field, and the trajectory
    ends where it is at most one.

    Args:
        rtol: rate of change relative to the state, per unit of time.
        atol: rate of change, per unit of time.

    Differentiation:
        `sol.y_end` has the derivative of the executed steps. It tends to that of the steady
        state as fast as the trajectory tends to it.

    Example:
        >>> import jax.numpy as jnp, pullback as pb
        >>> tank = pb.ODEProblem(
        ...     lambda t, y, p: 2.0 - y, jnp.zeros(1), (0.0, 1e6), events=[pb.SteadyState()]
        ... )
        >>> sol = pb.solve(tank, pb.Tsit5(), pb.EnsembleArray(), rtol=1e-6)
        >>> bool(sol.ok), bool(sol.t_end < 100), f"{float(sol.y_end[0]):.4f}"
        (True, True, '2.0000')
    """

    rtol: float = 1e-6
    atol: float = 1e-8

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            value: Any = getattr(self, name)
            number = np.asarray(value)
            is_number = number.shape == () and number.dtype.kind in "fiu"
            if not (is_number and np.isfinite(number) and number >= 0):
                raise ValueError(
                    f"`{name}` of SteadyState must be a number of at least zero, but {value!r} "
                    "arrived."
                )
            object.__setattr__(self, name, float(number))
        if self.rtol == 0 and self.atol == 0:
            raise ValueError("one of `rtol` and `atol` of SteadyState must be positive.")
