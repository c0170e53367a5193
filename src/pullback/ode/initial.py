"""A consistent start of a differential-algebraic equation.

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
from jax import lax

from pullback.core.status import Status
from pullback.core.typing import Array
from pullback.lanes.linalg import factorise, solve
from pullback.ode.mass import MassMatrix
from pullback.ode.mesh import frozen, frozen_float
from pullback.ode.norm import mean_square
from pullback.ode.spec import SolveOperands, SolveSpec
from pullback.ode.system import System

__all__ = ["consistent_start"]

_MOST_TRIPS = 20
# The algebraic equations hold when a step of Newton's iteration is this part of the tolerance.
_KAPPA = 1e-2


class _Trip(NamedTuple):
    y: Array
    norm2: Array
    n_trips: Array


def consistent_start(spec: SolveSpec, operands: SolveOperands) -> tuple[Array, Array]:
    """Return a state that satisfies the algebraic equations, and the status of finding it.

    Args:
        spec: What is solved; its mass matrix is singular.
        operands: Its arrays, for one trajectory.

    Returns:
        The state, and `success`, `inconsistent_initial` or `singular_dae`.

    Differentiation:
        By the implicit function theorem, to second order.
    """
    assert spec.mass is not None
    system = System(
        spec.field, operands.theta, spec.mass, operands.rtol, operands.atol, jac=spec.jac
    )
    constraints = _Constraints(system, spec.mass)
    y0, t0 = operands.y0, operands.t0
    fixed = dataclasses.replace(system, theta=tuple(map(frozen_float, operands.theta)))
    still = _Constraints(fixed, spec.mass)
    weight = frozen(1.0 / (operands.atol + operands.rtol * jnp.abs(y0)))
    start, yes = frozen(y0), jnp.ones((), bool)

    def body(s: _Trip) -> _Trip:
        y = s.y + still.correction(frozen(t0), s.y, s.y, yes)
        return _Trip(y, mean_square((y - s.y) * weight), s.n_trips + 1)

    def is_open(s: _Trip) -> Array:
        is_far = ~(s.norm2 <= _KAPPA**2) & ~jnp.isnan(s.norm2)
        return is_far & (s.n_trips < _MOST_TRIPS)

    far = jnp.asarray(np.inf, y0.dtype)
    if spec.initialization == "check":
        end = body(_Trip(start, far, jnp.zeros((), jnp.int32)))._replace(y=start)
    else:
        end = lax.while_loop(is_open, body, _Trip(start, far, jnp.zeros((), jnp.int32)))
    is_found = end.norm2 <= _KAPPA**2
    status = jnp.where(is_found, Status.success, Status.inconsistent_initial)
    is_singular = jnp.isnan(end.norm2) & (end.n_trips == 1)  # later ones are Newton's own doing
    status = jnp.where(is_singular, Status.singular_dae, status).astype(jnp.int32)
    found = jnp.where(is_found, end.y, start)
    # The value stays, and two chord steps carry its derivatives to second order.
    y = jnp.where(constraints.is_variable, found, y0)
    for _ in range(2):
        y = y + constraints.correction(t0, y, found, is_found)
    y = jnp.where(constraints.is_variable, y - frozen(y) + found, y0)
    return y, status


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
