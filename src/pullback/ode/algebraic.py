"""The algebraic variables of a differential-algebraic equation, from its algebraic equations.

The differential variables are kept and the algebraic ones are found by Newton's iteration on the
algebraic equations g = 0. The derivative is that of the implicit function: it comes from steps of
the iteration taken once more at the solution, which do not move its value.

References:
    [BHP98] section 2, the first of the two problems considered there.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array
from pullback.lanes.linalg import factorise, solve
from pullback.lanes.loop import lane_while
from pullback.ode.mass import MassMatrix
from pullback.ode.mesh import frozen, frozen_float
from pullback.ode.norm import mean_square
from pullback.ode.system import System

__all__ = ["Consistent", "consistent"]

_MOST_TRIPS = 20
# The algebraic equations hold when a step of Newton's iteration is this part of the tolerance.
_KAPPA = 1e-2


class Consistent(NamedTuple):
    """What was found.

    Attributes:
        y: The state; as it was given where nothing was found.
        is_found: Whether it satisfies the algebraic equations, or nobody wanted it to.
        is_singular: Whether they do not determine the algebraic variables.
    """

    y: Array
    is_found: Array
    is_singular: Array


class _Trip(NamedTuple):
    y: Array
    norm2: Array
    n_trips: Array


def consistent(
    system: System, t: Array, y: Array, wanted: Array, *, only_checks: bool
) -> Consistent:
    """Return the state with the differential variables of `y` that satisfies the equations.

    Args:
        system: The equation; its mass matrix is singular.
        t: Time.
        y: A state, whose algebraic variables are the first guess.
        wanted: Whether to do anything.
        only_checks: Whether the algebraic variables must be right as they are.

    Differentiation:
        By the implicit function theorem, to second order.
    """
    assert system.mass is not None
    equations = _Constraints(system, system.mass)
    fixed = dataclasses.replace(system, theta=tuple(map(frozen_float, system.theta)))
    still = _Constraints(fixed, system.mass)
    weight = frozen(1.0 / (system.atol + system.rtol * jnp.abs(y)))
    start, yes = frozen(y), jnp.ones((), bool)

    def body(s: _Trip) -> _Trip:
        y = s.y + still.correction(frozen(t), s.y, s.y, yes)
        return _Trip(y, mean_square((y - s.y) * weight), s.n_trips + 1)

    def is_open(s: _Trip) -> Array:
        is_far = ~(s.norm2 <= _KAPPA**2) & (jnp.isfinite(s.norm2) | (s.n_trips == 0))
        return is_far & (s.n_trips < _MOST_TRIPS)

    far = jnp.where(wanted, np.inf, 0.0).astype(y.dtype)
    begin = _Trip(start, far, jnp.zeros((), jnp.int32))
    if only_checks:
        end = body(begin)._replace(y=start)
    else:
        end = lane_while(is_open, body, begin)
    is_found = (end.norm2 <= _KAPPA**2) | ~wanted
    # A later one is Newton's own doing.
    is_singular = ~jnp.isfinite(end.norm2) & (end.n_trips == 1)
    found = jnp.where(is_found, end.y, start)
    # The value stays, and two chord steps carry its derivatives to second order.
    moves = is_found & wanted
    there = jnp.where(equations.is_variable, found, y)
    for _ in range(2):
        there = there + equations.correction(t, there, found, moves)
    there = jnp.where(equations.is_variable, there - frozen(there) + found, y)
    return Consistent(jnp.where(wanted, there, y), is_found, is_singular & wanted)


class _Constraints:
    """The algebraic equations g(t, y) = 0 and variables of a system."""

    def __init__(self, system: System, mass: MassMatrix) -> None:
        rows = np.asarray(mass.rows)
        self.system = system
        self.equations = np.flatnonzero(~rows.any(axis=1))
        self.variables = np.flatnonzero(~rows.any(axis=0))
        self.is_variable = jnp.asarray(~rows.any(axis=0))

    def correction(self, t: Array, y: Array, at: Any, wanted: Array) -> Array:
        """Return the Newton step at `y` with the Jacobian at the fixed state `at`.

        Unless it is wanted, the step is zero, and its derivatives are finite all the same.
        """
        columns = self.system.jacobian(frozen(t), frozen(at))
        square = [frozen(columns[j][self.equations]) for j in self.variables]
        unit = jnp.eye(len(square), dtype=y.dtype)
        square = [jnp.where(wanted, c, unit[i]) for i, c in enumerate(square)]
        right = jnp.where(wanted, -self.system(t, y)[self.equations], 0.0)
        step = solve(factorise(square, pivot="pivoted"), right)
        return jnp.zeros_like(y).at[self.variables].set(step)
