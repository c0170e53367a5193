"""A step and what hangs on it, as functions of everything they depend on.

These are the maps that forward and reverse mode differentiate, one step at a time; nothing else
in a solve has a derivative.
"""

from __future__ import annotations

import dataclasses

from pullback.core.typing import Array, MaybeArray
from pullback.ode.mesh import frozen
from pullback.ode.spec import SolveSpec
from pullback.ode.step import Field, Step, advance, dense_output, take_step

__all__ = ["StepMaps"]


@dataclasses.dataclass(frozen=True)
class StepMaps:
    """The maps of one solve.

    Attributes:
        spec: What is solved.
    """

    spec: SolveSpec

    def slope(self, t: Array, y: Array, *theta: Array) -> Array:
        """Evaluate the vector field."""
        return self.spec.field(t, y, theta)

    def step(self, t: Array, y: Array, h: Array, k1: MaybeArray, *theta: Array) -> Step:
        """Take one step, from a known first stage if there is one."""
        return take_step(self.spec.method.tableau, self._field(theta), t, y, h, k1)

    def arrive(self, t: Array, y: Array, h: Array, *theta: Array) -> Array:
        """Return only the state at the end of a step."""
        return advance(self.spec.method.tableau, self._field(theta), t, y, h)

    def arrive_with_stages(
        self, t: Array, y: Array, h: Array, *theta: Array
    ) -> tuple[Array, tuple[Array, ...]]:
        """Return the state at the end of a step, and its stages."""
        step = self.step(t, y, h, None, *theta)
        return step.y1, step.stages

    def row(self, time: Array, t: Array, y: Array, h: Array, *rest: Array) -> Array:
        """Return the state at `time` inside a step; the rest is its stages, then theta."""
        n = self.spec.method.tableau.n_stages
        field = self._field(rest[n:])
        return dense_output(self.spec.method.tableau, field, t, y, h, rest[:n], time)

    def end_row(self, time: Array, y: Array, *theta: Array) -> Array:
        """Return the state at the end of a step as it moves along the field with its time."""
        return y + (time - frozen(time)) * self.spec.field(time, y, theta)

    def _field(self, theta: tuple[Array, ...]) -> Field:
        def field(t: Array, y: Array) -> Array:
            return self.spec.field(t, y, theta)

        return field
