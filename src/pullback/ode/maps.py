"""A step and what hangs on it, as functions of everything they depend on.

These are the maps that forward and reverse mode differentiate, one step at a time; nothing else
in a solve has a derivative.
"""

from __future__ import annotations

import dataclasses

from pullback.core.typing import Array, MaybeArray
from pullback.ode.mesh import frozen, frozen_float
from pullback.ode.method import Step
from pullback.ode.slope import slope
from pullback.ode.spec import SolveSpec
from pullback.ode.system import System

__all__ = ["StepMaps"]


@dataclasses.dataclass(frozen=True)
class StepMaps:
    """The maps of one solve.

    Attributes:
        spec: What is solved.
        rtol: Relative tolerance, for equations inside a step.
        atol: Absolute tolerance, likewise.
        index: Number of the step, from 0; None outside a step.
        is_stiff: Whether the stiff one of two methods takes it; None where there is one.
    """

    spec: SolveSpec
    rtol: Array
    atol: Array
    index: MaybeArray = None
    is_stiff: MaybeArray = None

    def at(self, index: MaybeArray, is_stiff: MaybeArray = None) -> StepMaps:
        """Return the maps of step number `index`, which the noise of a step depends on."""
        return dataclasses.replace(self, index=index, is_stiff=is_stiff)

    def slope(self, t: Array, y: Array, *theta: Array) -> Array:
        """Return y'."""
        return slope(self.system(theta), t, y)

    def step(self, t: Array, y: Array, h: Array, k1: MaybeArray, *theta: Array) -> Step:
        """Take one step, from a known first stage if there is one."""
        step = self.spec.method.step(self.system(theta), t, y, h, k1)
        domain = self.spec.domain
        if domain is None:
            return step
        end = frozen(t + h), frozen(step.y1)
        return step._replace(outside=domain(*end, tuple(map(frozen_float, theta))) == 0)

    def arrive(self, t: Array, y: Array, h: Array, *theta: Array) -> Array:
        """Return only the state at the end of a step."""
        return self.spec.method.advance(self.system(theta), t, y, h)

    def arrive_with_stages(
        self, t: Array, y: Array, h: Array, *theta: Array
    ) -> tuple[Array, tuple[Array, ...]]:
        """Return the state at the end of a step, and its stages."""
        step = self.step(t, y, h, None, *theta)
        return step.y1, step.stages

    def row(self, time: Array, t: Array, y: Array, h: Array, *rest: Array) -> Array:
        """Return the state at `time` inside a step; the rest is its stages, then theta."""
        n = self.spec.method.n_stages
        return self.spec.method.row(self.system(rest[n:]), t, y, h, rest[:n], time)

    def end_row(self, time: Array, y: Array, *theta: Array) -> Array:
        """Return the state at the end of a step as it moves along the field with its time."""
        return y + (time - frozen(time)) * self.slope(time, y, *theta)

    def system(self, theta: tuple[Array, ...]) -> System:
        """Return the right-hand side, bound to its arrays."""
        spec = self.spec
        return System(
            spec.field,
            theta,
            spec.mass,
            self.rtol,
            self.atol,
            self.index,
            spec.noise,
            is_stiff=self.is_stiff,
            jac=spec.jac,
            split=spec.split,
        )
