"""The flat operand list of the lane programs of one solve, and which entries have derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pullback.core.typing import Array
from pullback.ode.spec import SolveOperands, SolveSpec

__all__ = [
    "NO_TIMES",
    "MovingTimes",
    "differentiable",
    "flatten_operands",
    "moving_times",
    "unflatten_operands",
]

_N_FIXED = len(SolveOperands._fields) - 1  # all but `theta`
# With the mesh frozen, nothing depends on tolerances and step sizes.
_DIFFERENTIABLE = frozenset({"y0", "t0", "t1", "saveat", "probe"})


def flatten_operands(operands: SolveOperands) -> tuple[Array, ...]:
    """Return the operands as one tuple."""
    fixed: Any = operands[:_N_FIXED]
    return (*fixed, *operands.theta)


def unflatten_operands(flat: Sequence[Any]) -> Any:
    """Return `SolveOperands` of anything: arrays, tangents or None, flags."""
    return SolveOperands(*flat[:_N_FIXED], theta=tuple(flat[_N_FIXED:]))


def differentiable(spec: SolveSpec) -> tuple[bool, ...]:
    """Return which operands results depend on differentiably."""
    fixed = [name in _DIFFERENTIABLE for name in SolveOperands._fields[:_N_FIXED]]
    return (*fixed, *spec.field.floating, *spec.more_floating)


class MovingTimes(NamedTuple):
    """By which times a derivative program is itself to be differentiated.

    A derivative program takes the tangents of times by formula and holds the times themselves
    fixed; for a second derivative it must depend on them as well.
    """

    t0: bool = False
    t1: bool = False
    saveat: bool = False


NO_TIMES = MovingTimes()


def moving_times(active: Sequence[bool]) -> MovingTimes:
    """Return which times are among the active operands of a solve."""
    flags = unflatten_operands(active)
    return MovingTimes(flags.t0, flags.t1, flags.saveat)
