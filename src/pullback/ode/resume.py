"""A solve in parts: at most so many attempts at once, from where the last part stopped.

A part is a solve of its own from the state, the step size and the controller's memory that the part
before it left, so the steps are those of one long solve. What lies between two parts is small, and
is all that has to be kept for a gradient: the parts can be run again.

A part that is not the last has no derivative by its end, which is the mesh's. What the end of the
whole solve depends on, its time, is added behind the last part: there, the state moves with t1
along the vector field.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pullback.core.status import Status
from pullback.core.typing import Array, MaybeArray
from pullback.lanes.primitive import Backend
from pullback.ode.initial import consistent_start
from pullback.ode.maps import StepMaps
from pullback.ode.mesh import frozen
from pullback.ode.solve import solve_lanes
from pullback.ode.spec import LaneSolution, SolveOperands, SolveSpec
from pullback.ode.start import is_valid_input, tolerances

__all__ = ["Progress", "advance", "begin", "conclude", "is_pending"]

_PENDING = int(Status.max_steps_reached)


class Progress(NamedTuple):
    """How far one trajectory is.

    Attributes:
        y: State reached, `(n,)`.
        t: Its time.
        mesh: Step size to try next and the controller's memory, `(1 + m,)`.
        status: `max_steps_reached` while there is more to do.
        counts: Attempts, accepted steps, evaluations of the vector field, real rows, `(4,)`.
        rows: Saved rows so far, `(n_saves, n)`; None where only the end is saved.
    """

    y: Array
    t: Array
    mesh: Array
    status: Array
    counts: Array
    rows: MaybeArray


def begin(spec: SolveSpec, operands: SolveOperands) -> Progress:
    """Return the progress of a trajectory before its first part."""
    memory = jnp.zeros((0,), spec.dtype)
    if spec.adaptive:
        memory = jnp.ravel(spec.controller.initial_memory(spec.dtype))
    y, status = operands.y0, jnp.asarray(_PENDING, jnp.int32)
    if spec.mass is not None and spec.mass.is_singular:
        y, start = consistent_start(spec, operands)
        status = jnp.where(start == int(Status.success), status, start)
    is_valid = is_valid_input(spec, operands)
    status = jnp.where(is_valid, status, int(Status.invalid_input)).astype(jnp.int32)
    rows = None
    if spec.save == "times":
        rows = jnp.zeros((spec.n_saves, spec.field.n), spec.dtype)
    return Progress(
        y=y,
        t=operands.t0,
        mesh=jnp.concatenate([operands.dt[None], memory]),
        status=status,
        counts=jnp.zeros((4,), jnp.int32),
        rows=rows,
    )


def is_pending(spec: SolveSpec, progress: Progress) -> Array:
    """Whether there is more to do; works for one trajectory and for many."""
    return (progress.status == _PENDING) & (progress.counts[..., 0] < spec.max_steps)


def advance(
    spec: SolveSpec, operands: SolveOperands, progress: Progress, n_attempts: int, backend: Backend
) -> Progress:
    """Try at most `n_attempts` further steps; a trajectory that has ended stays as it is."""
    is_on = is_pending(spec, progress)
    t1 = frozen(operands.t1)
    sign = jnp.where(t1 < progress.t, -1.0, 1.0).astype(spec.dtype)
    saveat = operands.saveat
    if spec.save == "times":
        # Those that have been passed are saved again where this part begins, and left out.
        is_passed = sign * (saveat - progress.t) < 0
        saveat = jnp.where(is_passed, frozen(progress.t), saveat)
    part = dataclasses.replace(
        spec,
        resumes=True,
        max_steps=n_attempts,
        adjoint=dataclasses.replace(spec.adjoint, scheme=None, storage=None),
    )
    found = solve_lanes(
        part,
        operands._replace(
            y0=progress.y,
            t0=progress.t,
            t1=jnp.where(is_on, t1, frozen(progress.t)),
            saveat=jnp.where(is_on, saveat, frozen(progress.t)) if saveat.size else saveat,
            dt=progress.mesh,
        ),
        backend,
    )
    assert found.mesh is not None
    added = (found.n_attempts, found.n_accepted, found.n_rhs)
    counts = jnp.stack([*(progress.counts[i] + n for i, n in enumerate(added)), found.n_saved])
    rows = progress.rows
    if rows is not None:
        is_old = jnp.arange(spec.n_saves) < progress.counts[3]
        rows = jnp.where(is_old[:, None], rows, found.y)
    after = Progress(
        found.y_end, frozen(found.t_end), found.mesh, found.status, counts.astype(jnp.int32), rows
    )
    return jax.tree.map(lambda new, old: jnp.where(is_on, new, old), after, progress)


def conclude(spec: SolveSpec, operands: SolveOperands, progress: Progress) -> LaneSolution:
    """Return the solution of a trajectory behind its last part."""
    is_success = progress.status == int(Status.success)
    t_end = jnp.where(is_success, operands.t1, progress.t)
    maps = StepMaps(spec, *tolerances(operands))
    late = jnp.where(is_success, operands.t1 - frozen(operands.t1), 0.0)
    y_end = progress.y + late * maps.slope(progress.t, progress.y, *operands.theta)
    n_attempts, n_accepted, n_rhs, n_saved = progress.counts
    t, y = t_end[None], y_end[None]
    if progress.rows is not None:
        is_real = jnp.arange(spec.n_saves) < n_saved
        t = jnp.where(is_real, operands.saveat, frozen(t_end))
        y = progress.rows
    else:
        n_saved = is_success.astype(jnp.int32)
    return LaneSolution(
        t=t,
        y=y,
        t_end=t_end,
        y_end=y_end,
        status=progress.status,
        n_saved=n_saved,
        n_attempts=n_attempts,
        n_accepted=n_accepted,
        n_rejected=n_attempts - n_accepted,
        n_rhs=n_rhs,
    )
