"""The family of methods for stochastic differential equations, all with steps of fixed size.

A method adds to the state what drift and noise do in a step. Rows inside a step lie on the line
between its ends, where they are exact: what the path does in between is not known to the method.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pullback.core.typing import Array, MaybeArray
from pullback.ode.method import Method, Step
from pullback.ode.noise import NOISE_KINDS, NoiseKind

__all__ = ["Calculus", "StochasticMethod"]

Calculus = Literal["Ito", "Stratonovich"]


@dataclasses.dataclass(frozen=True)
class StochasticMethod(Method):
    """A method for dy = f(t, y) dt + g(t, y) dW; a subclass states what it is for.

    A system has `system.increments(h)` for the Wiener processes over the step, `system.diffusion`
    for g, and `system.spread(g, dw)` for what they do to the state together.

    Attributes:
        calculus: How the integral by dW is meant.
        noise_kinds: Which kinds of noise it takes.
        is_additive_only: Whether the diffusion must not depend on the state.
        strong_order: Order of the expected error of a path.
        weak_order: Order of the error of an expectation.
        n_drifts: How often a step evaluates the drift.
        reference: Source of the formula.
    """

    calculus: ClassVar[Calculus] = "Ito"
    noise_kinds: ClassVar[tuple[NoiseKind, ...]] = NOISE_KINDS
    is_additive_only: ClassVar[bool] = False
    strong_order: ClassVar[float]
    weak_order: ClassVar[float]
    n_drifts: ClassVar[int]
    reference: ClassVar[str]

    @abc.abstractmethod
    def increment(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return by how much the state changes in a step of size h from (t, y)."""

    @property
    def name(self) -> str:
        """Name for messages."""
        return type(self).__name__

    @property
    def order(self) -> int:
        """Weak order, rounded down."""
        return int(self.weak_order)

    @property
    def error_order(self) -> int:
        """Nothing estimates the error, so nothing depends on this."""
        return self.order + 1

    @property
    def has_error_estimate(self) -> bool:
        """Steps have a fixed size."""
        return False

    @property
    def n_stages(self) -> int:
        """The increment, from which rows inside a step are made."""
        return 1

    @property
    def n_evaluations(self) -> int:
        """How often a step evaluates the drift."""
        return self.n_drifts

    def step(self, system: Any, t: Array, y: Array, h: Array, k1: MaybeArray) -> Step:
        """Take a step of size h from (t, y)."""
        del k1
        increment = self.increment(system, t, y, h)
        return Step(y + increment, None, (increment,))

    def advance(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return only the state at the end of a step."""
        return y + self.increment(system, t, y, h)

    def row(
        self, system: Any, t: Array, y: Array, h: Array, stages: Sequence[Array], time: Array
    ) -> Array:
        """Return the state at `time` inside a step, on the line between its ends."""
        return y + ((time - t) / h) * stages[0]
