"""What a solve asks of a method: how it steps, and what is known about its steps.

A family of methods (explicit Runge-Kutta, Rosenbrock, diagonally implicit) is a class that derives
from `Method`; a method of a family is its coefficients.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from pullback.core.typing import Array, MaybeArray

__all__ = ["Method", "Step", "TableauMethod"]


class Step(NamedTuple):
    """A tried step.

    Attributes:
        y1: State at its end.
        err: Embedded error estimate; None if the method has none.
        stages: What the method has computed on the way, from which rows inside the step are made.
        failed: Whether an equation inside was not solved, so that the step must not count; None
            for methods that solve none.
        outside: Whether the end is not a valid state, so that the step must not count; None where
            every state is valid.
        stiffness: How far the step reaches towards the stability limit of an explicit method,
            which is at one; None where nobody asks.
    """

    y1: Array
    err: MaybeArray
    stages: tuple[Array, ...]
    failed: MaybeArray = None
    outside: MaybeArray = None
    stiffness: MaybeArray = None


class Method(abc.ABC):
    """A one-step method; subclasses are frozen dataclasses, equal by content.

    A system is called as `system(t, y)` for the vector field; implicit methods ask it for more
    (`pullback.ode.system`).
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name for messages."""

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """Order of the step."""

    @property
    @abc.abstractmethod
    def error_order(self) -> int:
        """Exponent k of the local error estimate, err = O(h^k)."""

    @property
    @abc.abstractmethod
    def has_error_estimate(self) -> bool:
        """Whether the method can choose its own step size."""

    @property
    @abc.abstractmethod
    def n_stages(self) -> int:
        """Number of arrays in `Step.stages`."""

    @property
    def n_row_evaluations(self) -> int:
        """How often a row inside a step, made of its stages, evaluates the vector field besides."""
        return 0

    @property
    @abc.abstractmethod
    def n_evaluations(self) -> int:
        """How often an attempt evaluates the vector field, as far as that is known before."""

    @property
    def is_fsal(self) -> bool:
        """Whether the last stage is the first one of the next step."""
        return False

    @property
    def is_implicit(self) -> bool:
        """Whether a step solves equations with the Jacobian."""
        return False

    @property
    def takes_mass(self) -> bool:
        """Whether the method takes a mass matrix."""
        return self.is_implicit

    @abc.abstractmethod
    def step(self, system: Any, t: Array, y: Array, h: Array, k1: MaybeArray) -> Step:
        """Try a step of size h from (t, y); `k1` is the first stage where it is known."""

    @abc.abstractmethod
    def advance(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return only the state at the end of a step."""

    @abc.abstractmethod
    def row(
        self, system: Any, t: Array, y: Array, h: Array, stages: Sequence[Array], time: Array
    ) -> Array:
        """Return the state at `time` inside a step by the method's interpolant."""


class TableauMethod(Method):
    """A method that is its coefficients; a subclass sets `tableau`."""

    tableau: ClassVar[Any]

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.tableau.name

    @property
    def order(self) -> int:
        """Order of the step."""
        return self.tableau.order

    @property
    def error_order(self) -> int:
        """Exponent k of the local error estimate, err = O(h^k)."""
        tableau = self.tableau
        embedded = tableau.order if tableau.embedded_order is None else tableau.embedded_order
        return min(tableau.order, embedded) + 1

    @property
    def has_error_estimate(self) -> bool:
        """Whether the method can choose its own step size."""
        return self.tableau.embedded_order is not None

    @property
    def n_stages(self) -> int:
        """Number of stages of a step."""
        return self.tableau.n_stages

    @property
    def n_evaluations(self) -> int:
        """One for each stage that is not known yet; Jacobians and iterations are not counted."""
        return self.tableau.n_stages - self.is_fsal
