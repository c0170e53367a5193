"""A consistent start of a differential-algebraic equation."""

from __future__ import annotations

import jax.numpy as jnp

from pullback.core.status import Status
from pullback.core.typing import Array
from pullback.ode.algebraic import consistent
from pullback.ode.spec import SolveOperands, SolveSpec
from pullback.ode.system import System

__all__ = ["consistent_start"]


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
    rtol, atol = operands.rtol, operands.atol
    system = System(spec.field, operands.theta, spec.mass, rtol, atol, jac=spec.jac)
    yes, only_checks = jnp.ones((), bool), spec.initialization == "check"
    found = consistent(system, operands.t0, operands.y0, yes, only_checks=only_checks)
    status = jnp.where(found.is_found, Status.success, Status.inconsistent_initial)
    status = jnp.where(found.is_singular, Status.singular_dae, status)
    return found.y, status.astype(jnp.int32)
