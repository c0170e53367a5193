"""What each method can do, told by its class: one source for the documentation and the tests."""

from __future__ import annotations

from typing import NamedTuple

from pullback.ode.method import Method
from pullback.ode.stochastic import StochasticMethod
from pullback.ode.symplectic import Symplectic

__all__ = ["Capabilities", "capabilities"]


class Capabilities(NamedTuple):
    """What a method can do; what it cannot is an error that says so.

    Attributes:
        problems: Kinds of problems that it solves.
        adaptive: Whether it chooses its step size.
        saveat: Whether rows inside a step are made.
        dense: Whether a solution can be evaluated at any time.
        events: Whether it finds events, and stops at given times.
        mass_matrix: Whether it takes a mass matrix, also a singular one.
        is_valid: Whether steps to states that are not valid are rejected.
        parts: Whether a solve is made in parts with snapshots in between.
    """

    problems: str
    adaptive: bool
    saveat: bool
    dense: bool
    events: bool
    mass_matrix: bool
    is_valid: bool
    parts: bool


def capabilities(method: Method) -> Capabilities:
    """Return what a method can do."""
    is_stochastic = isinstance(method, StochasticMethod)
    problems = "ordinary"
    if is_stochastic:
        problems = "stochastic"
    elif isinstance(method, Symplectic):
        problems = "second order"
    return Capabilities(
        problems=problems,
        adaptive=method.has_error_estimate,
        saveat=True,
        dense=True,
        events=not is_stochastic,
        mass_matrix=method.takes_mass and not is_stochastic,
        is_valid=True,
        parts=not is_stochastic,
    )
