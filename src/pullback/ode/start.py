"""What happens before the first step: checking traced input, choosing the first step size."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array, MaybeArray
from pullback.ode.controller import fast_power
from pullback.ode.maps import StepMaps
from pullback.ode.mesh import Mesh, fixed_step_count, frozen
from pullback.ode.norm import mean_square, outside_norm
from pullback.ode.spec import SolveOperands, SolveSpec

__all__ = ["controller_memory", "first_step", "is_valid_input", "make_mesh", "tolerances"]

# Bounds of the automatic first step, [HNW93] section II.4.
_SMALL_NORM = 1e-10
_SMALL_STEP = 1e-6


def tolerances(operands: SolveOperands) -> tuple[Array, Array]:
    """Return rtol and atol; atol is kept above zero so that a zero error divided by it is zero."""
    tiny = float(jnp.finfo(operands.atol.dtype).tiny)
    return frozen(operands.rtol), jnp.maximum(frozen(operands.atol), tiny)


def make_mesh(spec: SolveSpec, operands: SolveOperands, max_attempts: int | None = None) -> Mesh:
    """Return the constants of the mesh of one trajectory."""
    t0, t1 = frozen(operands.t0), frozen(operands.t1)
    t1 = jnp.where(is_valid_input(spec, operands), t1, np.nan)
    span = t1 - t0
    sign = jnp.where(span < 0, -1.0, 1.0).astype(spec.dtype)
    eps = float(jnp.finfo(spec.dtype).eps)
    dt = n_steps = times = None
    if spec.mesh == "given":
        times = frozen(operands.dt)
    elif not spec.adaptive:
        dt = sign * jnp.abs(_step_size(spec, operands))
        n_steps = fixed_step_count(span, dt)
    return Mesh(
        t0=t0,
        t1=t1,
        sign=sign,
        dt=dt,
        n_steps=n_steps,
        times=times,
        h_floor=jnp.abs(span) * eps**2,
        dt_max=jnp.abs(frozen(operands.dt_max)) if spec.limit_dt else None,
        dt_min=jnp.abs(frozen(operands.dt_min)) if spec.floor_dt else None,
        controller=spec.controller if spec.adaptive else None,
        error_order=spec.method.error_order,
        max_attempts=spec.max_steps if max_attempts is None else max_attempts,
        max_accepted=spec.n_saves if spec.save == "steps" else None,
        solves_equations=spec.method.is_implicit,
        outside=None if spec.domain is None else outside_norm(spec.dtype),
    )


def _step_size(spec: SolveSpec, operands: SolveOperands) -> Array:
    """Return the size of fixed steps, or of the first attempt."""
    dt = frozen(operands.dt)
    return dt[0] if spec.resumes else dt


def controller_memory(spec: SolveSpec, operands: SolveOperands) -> MaybeArray:
    """Return the memory with which a part of a solve starts; None with that of every solve."""
    if not (spec.resumes and spec.adaptive):
        return None
    like = spec.controller.initial_memory(spec.dtype)
    return frozen(operands.dt)[1:].reshape(like.shape)


def is_valid_input(spec: SolveSpec, operands: SolveOperands) -> Array:
    """Return whether times, step sizes and tolerances are what they must be."""
    t0, t1 = frozen(operands.t0), frozen(operands.t1)
    valid = jnp.isfinite(t0) & jnp.isfinite(t1) & jnp.isfinite(t1 - t0)
    if spec.adaptive:
        for tolerance in (operands.rtol, operands.atol):
            valid &= jnp.all(frozen(tolerance) >= 0)
        if spec.limit_dt:
            valid &= frozen(operands.dt_max) > 0
        if spec.floor_dt:
            valid &= frozen(operands.dt_min) > 0
    if spec.mesh == "chosen":
        dt = _step_size(spec, operands)
        may_be_nan = spec.adaptive and spec.automatic_dt
        is_step = (dt > 0) & (dt < np.inf)
        valid &= (is_step | jnp.isnan(dt)) if may_be_nan else is_step
    if spec.save == "times" and not spec.resumes:  # a part ends before some of them
        valid &= _are_sorted_inside(frozen(operands.saveat), t0, t1)
    return valid


def _are_sorted_inside(saveat: Array, t0: Array, t1: Array) -> Array:
    """Whether save times are ordered from t0 to t1; computed ends may be off by rounding."""
    sign = jnp.where(t1 < t0, -1.0, 1.0).astype(saveat.dtype)
    slack = 4.0 * float(jnp.finfo(saveat.dtype).eps) * jnp.maximum(jnp.abs(t0), jnp.abs(t1))
    is_inside = jnp.all((sign * (saveat - t0) >= -slack) & (sign * (saveat - t1) <= slack))
    return is_inside & jnp.all(sign * (saveat[1:] - saveat[:-1]) >= 0)


def first_step(
    maps: StepMaps,
    operands: SolveOperands,
    mesh: Mesh,
    k1: Array,
) -> Array:
    """Return the signed size of the first attempt of an adaptive solve.

    A vector field that is not finite at the start gives NaN, which ends the trajectory at once.

    References:
        [HNW93] section II.4, "Starting step size", with squared norms and a rough root.
    """
    spec = maps.spec
    given = jnp.abs(_step_size(spec, operands))
    k1 = frozen(k1)
    h = given
    if spec.automatic_dt:
        h = jnp.where(jnp.isnan(given), _automatic(maps, operands, mesh, k1), given)
    if mesh.dt_min is not None:
        h = jnp.maximum(h, mesh.dt_min)
    if mesh.dt_max is not None:
        h = jnp.minimum(h, mesh.dt_max)
    is_finite = jnp.isfinite(jnp.sum(jnp.abs(k1)))
    return mesh.sign * jnp.where(is_finite & ~jnp.isnan(mesh.t1), h, np.nan)


def _automatic(maps: StepMaps, operands: SolveOperands, mesh: Mesh, k1: Array) -> Array:
    y0 = frozen(operands.y0)
    rtol, atol = tolerances(operands)
    inverse = 1.0 / (atol + rtol * jnp.abs(y0))
    d0, d1 = mean_square(y0 * inverse), mean_square(k1 * inverse)  # squared
    is_small = (d0 < _SMALL_NORM) | (d1 < _SMALL_NORM)
    span = jnp.abs(mesh.t1 - mesh.t0)
    rough = jnp.where(is_small, _SMALL_STEP, 0.01 * jnp.sqrt(d0 / d1))
    room = 16.0 * mesh.resolution(mesh.t0)
    rough = jnp.minimum(jnp.maximum(rough, room), span)
    signed = mesh.sign * rough
    k2 = frozen(maps.slope(mesh.t0 + signed, y0 + signed * k1, *operands.theta))
    d2 = mean_square((k2 - k1) * inverse) / (rough * rough)
    largest = jnp.maximum(d1, d2)
    # h^k max(d1, d2) = 0.01 with k the order of the local error; the norms are squared.
    refined = fast_power(largest * 1e4, -0.5 / maps.spec.method.error_order)
    cautious = jnp.maximum(_SMALL_STEP, rough * 1e-3)
    refined = jnp.where(largest <= 1e-30, cautious, refined)
    h = jnp.minimum(jnp.maximum(jnp.minimum(100.0 * rough, refined), room), span)
    # A trial evaluation outside the field's domain leaves the rough guess.
    return jnp.where(jnp.isfinite(d2), h, rough)
