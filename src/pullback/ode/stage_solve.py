"""Linear equations with W = M / (gamma h) - J, and a derivative that never differentiates J.

The solution of W x = b has the derivative dx with W dx = db + d(J x) - d(1 / (gamma h)) M x, where
x is held fixed in `J x`: one more solve with the same factors, and the derivative of one product of
J with a vector. Its transpose, which reverse mode uses, solves with the transposed factors.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from pullback.core.typing import Array, MaybeArray
from pullback.lanes.linalg import Factors, factorise, solve
from pullback.ode.field import FlatField
from pullback.ode.flat_function import FlatFunction
from pullback.ode.mass import MassMatrix
from pullback.ode.mesh import frozen
from pullback.ode.partial_ad import push_forward
from pullback.ode.system import System

__all__ = [
    "StageMatrix",
    "Static",
    "constraint_matrix",
    "is_unstable",
    "known",
    "stage_matrix",
]

# An elimination without pivoting loses a digit for each factor of ten in the growth of its
# multipliers; so much must be left below the tolerance.
_SPARE = 1e-3
# Up to so many components a product with a given Jacobian is written out.
_LARGEST_UNROLLED = 64


class Static(NamedTuple):
    """The part of a system that is known while it is traced, equal by content.

    Attributes:
        field: The vector field.
        mass: The mass matrix; None for the identity.
        of_constraints: Whether W has the rows of J that belong to algebraic equations only.
        jac: The Jacobian that a user gave; None where it is derived from the field.
    """

    field: FlatField | FlatFunction
    mass: MassMatrix | None
    of_constraints: bool = False
    jac: FlatFunction | None = None

    @classmethod
    def of(cls, system: System, of_constraints: bool = False) -> Static:
        """Return the static part of `system`."""
        return cls(system.field, system.mass, of_constraints, system.jac)

    def product(self, t: Array, y: Array, x: Array, theta: tuple[Array, ...]) -> Array:
        """Return J(t, y, theta) x, in the rows that W has of J.

        A step with a Jacobian of the user's is a function of that one, so this is what is
        differentiated.
        """
        if self.jac is not None:
            return self.restricted(matrix_times(self.jac(t, y, theta), x))
        return self.restricted(jax.jvp(lambda v: self.field(t, v, theta), (y,), (x,))[1])

    def restricted(self, x: Array) -> Array:
        """Return the rows of a product with J that W has."""
        if self.mass is None or not self.of_constraints:
            return x
        return jnp.where(jnp.asarray(self.mass.algebraic), x, 0.0)

    def mass_times(self, x: Array) -> Array:
        """Return M x."""
        return x if self.mass is None else self.mass.times(x)


class StageMatrix(NamedTuple):
    """W of one step, factorised.

    Attributes:
        system: The right-hand side.
        t: Time at which J is taken.
        y: State at which J is taken.
        inverse: 1 / (gamma h).
        factors: The factors of W.
        of_constraints: Whether W has only the rows of J that belong to algebraic equations.
    """

    system: System
    t: Array
    y: Array
    inverse: Array
    factors: Factors
    of_constraints: bool = False

    def solve(self, b: Array) -> Array:
        """Return the solution x of W x = b."""
        s = self.system
        static = Static.of(s, self.of_constraints)
        return _solve(static, self.factors, self.inverse, self.t, self.y, s.theta, b)


def stage_matrix(system: System, t: Array, y: Array, h: Array, gamma: float) -> StageMatrix:
    """Return M / (gamma h) - J(t, y), factorised."""
    inverse = 1.0 / (gamma * h)
    mass = system.mass_columns(inverse, y.shape[0])
    columns = [m - j for m, j in zip(mass, system.jacobian(t, y), strict=True)]
    has_constraints = system.mass is not None and any(system.mass.algebraic)
    factors = factorise(columns, pivot="pivoted" if has_constraints else "auto")
    return StageMatrix(system, t, y, inverse, factors)


def constraint_matrix(system: System, t: Array, y: Array) -> StageMatrix:
    """Return M with the rows of -J(t, y) where M has zero rows, factorised."""
    static = Static.of(system, of_constraints=True)
    one = jnp.ones((), y.dtype)
    mass = system.mass_columns(one, y.shape[0])
    jacobian = map(static.restricted, system.jacobian(t, y))
    factors = factorise([m - j for m, j in zip(mass, jacobian, strict=True)], pivot="pivoted")
    return StageMatrix(system, t, y, one, factors, of_constraints=True)


def is_unstable(matrix: StageMatrix) -> Array:
    """Whether an elimination without pivoting has lost too many digits for the tolerance."""
    eps = float(jnp.finfo(matrix.y.dtype).eps)
    limit = jnp.min(frozen(matrix.system.rtol)) * (_SPARE / eps)
    return frozen(matrix.factors.growth) > jnp.maximum(limit, 1.0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solve(
    static: Static,
    factors: Factors,
    inverse: Array,
    t: Array,
    y: Array,
    theta: tuple[Array, ...],
    b: Array,
) -> Array:
    del static, inverse, t, y, theta
    return solve(factors, b)


@functools.partial(_solve.defjvp, symbolic_zeros=True)
def _solve_jvp(static: Static, primals: Any, tangents: Any) -> tuple[Array, Array]:
    factors, inverse, t, y, theta, b = primals
    inverse_dot, t_dot, y_dot, b_dot = map(known, (*tangents[1:4], tangents[5]))
    theta_dot = tuple(map(known, tangents[4]))
    x = _solve(static, factors, inverse, t, y, theta, b)

    def product(t: Array, y: Array, *theta: Array) -> Array:
        return static.product(t, y, x, theta)

    total = b_dot
    moving = (t_dot, y_dot, *theta_dot)
    if any(dot is not None for dot in moving):
        moved = push_forward(product, (t, y, *theta), moving)[1]
        total = moved if total is None else total + moved
    if inverse_dot is not None:
        moved = inverse_dot * static.mass_times(x)
        total = -moved if total is None else total - moved
    if total is None:
        return x, jnp.zeros_like(x)
    return x, solve(factors, total)


def matrix_times(matrix: Array, x: Array) -> Array:
    """Return `matrix @ x`, column by column where there are few: lanes keep those in registers."""
    n = x.shape[0]
    if n > _LARGEST_UNROLLED:
        return matrix @ x
    total = matrix[:, 0] * x[0]
    for j in range(1, n):
        total = total + matrix[:, j] * x[j]
    return total


def known(tangent: Any) -> MaybeArray:
    """Return a tangent of a rule; None where it is zero by structure."""
    is_zero = isinstance(tangent, SymbolicZero) or tangent.dtype == jax.dtypes.float0
    return None if is_zero else tangent
