"""Events that are looked at where an accepted step has ended, and nowhere else."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from pullback.core.typing import Array
from pullback.ode.flat_function import FlatFunction

__all__ = ["Steadiness", "StepEvent"]


@dataclasses.dataclass(frozen=True)
class Steadiness:
    """The condition that the vector field is small: rms of f / (atol + rtol |y|) is at most one.

    Attributes:
        rtol: Largest rate of change relative to the state, per unit of time.
        atol: Largest rate of change, per unit of time.
    """

    rtol: float
    atol: float

    def holds(self, y: Array, field: Array) -> Array:
        """Return whether it holds where the state is y and the vector field is `field`."""
        tiny = float(jnp.finfo(y.dtype).tiny)
        relative = field / jnp.maximum(self.atol + self.rtol * jnp.abs(y), tiny)
        return jnp.sum(relative * relative) <= y.shape[0]


@dataclasses.dataclass(frozen=True)
class StepEvent:
    """An event that happens at the end of an accepted step where a condition holds.

    Attributes:
        condition: A boolean of (t, y), or that the vector field is small.
        affect: The state behind the event; None leaves it as it is.
        terminate: Whether the trajectory ends.
    """

    condition: FlatFunction | Steadiness
    affect: FlatFunction | None
    terminate: bool
