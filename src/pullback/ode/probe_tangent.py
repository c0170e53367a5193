"""The tangent of random signs that the adjoint's forward sweep carries, and what it tells.

Control of this one tangent controls a random projection of the gradient's error on the mesh, so
that the mesh resolves the gradient; and `sum lam . ve` over the steps, with `ve` the tangent's
embedded error and `lam` the adjoint variable, estimates that error (small-sample condition
estimation). Signs depend on the component's index only: an ensemble equals its single solves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.core.typing import Array, MaybeArray
from pullback.ode.mesh import frozen
from pullback.ode.spec import DiscreteAdjoint, SolveOperands
from pullback.ode.sweep import Seed, natural_unit

__all__ = ["UNRESOLVED", "Estimate", "control_slack", "random_signs", "sign_seed"]

UNRESOLVED = 1e-2
"""Estimated relative error of a gradient above which it counts as unresolved."""


class Estimate(NamedTuple):
    """How good a gradient is, all squared.

    Attributes:
        error2: Square of the estimated error of the gradient's projection on the signs.
        scale2: Square of what it is to be compared with.
    """

    error2: Array
    scale2: Array

    @property
    def is_unresolved(self) -> Array:
        """Whether the error is large or not finite."""
        return ~(self.error2 <= UNRESOLVED**2 * self.scale2) | ~jnp.isfinite(self.error2)


def control_slack(adjoint: DiscreteAdjoint, operands: SolveOperands) -> Array | float:
    """Return how much larger than the tolerance the carried tangent's error may be."""
    if adjoint.slack is not None:
        return adjoint.slack
    rtol = frozen(operands.rtol)
    smallest = jnp.maximum(jnp.min(rtol), float(jnp.finfo(rtol.dtype).tiny))
    return jnp.clip(1e-4 / smallest, 1.0, 10.0)


def sign_seed(operands: SolveOperands, moves_y0: bool, moves_theta: Sequence[bool]) -> Seed:
    """Return a seed with each active input moving by its own size, up or down."""
    y0 = None
    if moves_y0:
        y0 = frozen(operands.y0)
        y0 = random_signs(y0.shape, 0, y0.dtype) * (jnp.abs(y0) + natural_unit(operands))
    theta: list[MaybeArray] = []
    for i, (value, moves) in enumerate(zip(operands.theta, moves_theta, strict=True)):
        signs = random_signs(value.shape, i + 1, value.dtype) if moves else None
        theta.append(None if signs is None else signs * jnp.abs(frozen(value)))
    return Seed(y0, None, tuple(theta))


def random_signs(shape: tuple[int, ...], stream: int, dtype: np.dtype) -> Array:
    """Return signs that depend on the index and the stream only.

    References:
        The mixing function is "lowbias32" of [Wel18].
    """
    bits = lax.iota(jnp.uint32, math.prod(shape)) + np.uint32((stream * 0x9E3779B9) % 2**32)
    bits = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * np.uint32(0x846CA68B)
    bits = bits ^ (bits >> 16)
    return jnp.where((bits & 1) == 0, 1.0, -1.0).astype(dtype).reshape(shape)
