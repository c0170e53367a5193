"""`solve_lanes`: bind the solve of one trajectory, to be batched by `jax.vmap`.

The lane program returns only what must come out of its loop. Times of saved rows, the exact end
time and the statistics follow here, in plain JAX, which also gives the times their derivatives.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from pullback.core.status import Status
from pullback.core.typing import Array
from pullback.lanes.primitive import Backend, lane_call
from pullback.ode.event_start import behind_last_event, with_event_times
from pullback.ode.initial import consistent_start
from pullback.ode.mesh import frozen
from pullback.ode.operands import flatten_operands
from pullback.ode.solve_program import SolveProgram, SolveResult, present
from pullback.ode.spec import LaneSolution, SolveOperands, SolveSpec

__all__ = ["solve_lanes"]


def solve_lanes(
    spec: SolveSpec, operands: SolveOperands, backend: Backend = "array"
) -> LaneSolution:
    """Solve one trajectory; under `jax.vmap`, an ensemble in one call of the executor.

    Args:
        spec: What is solved, and how.
        operands: Its arrays, for one trajectory.
        backend: "array" (lock step through XLA) or "cpu" (one kernel).

    Returns:
        The solution. A failed trajectory has its status and its last good point.

    Differentiation:
        jvp and vjp with respect to `y0`, `t0`, `t1`, `saveat` and floating `theta`: the exact
        derivative of the accepted steps with their sizes held fixed. `t1` moves the end only,
        `saveat` its rows only. Second derivatives by forward over reverse.
    """
    start = None
    if spec.events is not None and spec.events.presets:
        operands = with_event_times(spec, operands)
    if spec.mass is not None and spec.mass.is_singular and not spec.resumes:
        y0, start = consistent_start(spec, operands)
        # Without a consistent start nothing is integrated.
        t1 = jnp.where(start == int(Status.success), operands.t1, jnp.nan)
        operands = operands._replace(y0=y0, t1=t1)
    flat = lane_call(SolveProgram(spec), *flatten_operands(operands), backend=backend)
    result = _unflatten(spec, flat)
    if start is not None:
        is_valid = start == int(Status.success)
        result = result._replace(status=jnp.where(is_valid, result.status, start))
    is_success = result.status == int(Status.success)
    if result.ends_at_event is not None:
        happens = result.ends_at_event & is_success
        y_end = behind_last_event(spec, operands, result.t_end, result.y_end, happens)
        result = result._replace(y_end=y_end)
    t_end = jnp.where(is_success, operands.t1, frozen(result.t_end))
    if spec.events is not None and spec.events.tells:
        is_ended = result.status == int(Status.terminated)
        t_end = jnp.where(is_ended, result.t_end, t_end)
    n_saved = is_success.astype(jnp.int32) if result.n_saved is None else result.n_saved
    t_rows, y_rows = _rows(spec, operands, result, t_end)
    return LaneSolution(
        t=t_rows,
        y=y_rows,
        t_end=t_end,
        y_end=result.y_end,
        status=result.status,
        n_saved=n_saved.astype(jnp.int32),
        n_attempts=result.n_attempts,
        n_accepted=result.n_accepted,
        n_rejected=result.n_attempts - result.n_accepted,
        n_rhs=_count_evaluations(spec, operands, result),
        n_events=result.n_events,
        event_times=result.event_times,
        event_indices=result.event_indices,
        n_grazing=result.n_grazing,
        mesh=result.mesh,
    )


def _unflatten(spec: SolveSpec, flat: tuple[Array, ...]) -> SolveResult:
    values = iter(flat)
    parts: list[Any] = [next(values) if there else None for there in present(spec)]
    return SolveResult(*parts)


def _rows(
    spec: SolveSpec, operands: SolveOperands, result: SolveResult, t_end: Array
) -> tuple[Array, Array]:
    if result.y_rows is None:
        return t_end[None], result.y_end[None]
    if result.t_rows is not None:
        return frozen(result.t_rows), result.y_rows
    is_real = jnp.arange(spec.n_saves) < result.n_saved
    return jnp.where(is_real, operands.saveat, frozen(t_end)), result.y_rows


def _count_evaluations(spec: SolveSpec, operands: SolveOperands, result: SolveResult) -> Array:
    method = spec.method
    at_start = int(spec.adaptive or method.is_fsal)
    count = result.n_attempts * method.n_evaluations + at_start
    if spec.adaptive and spec.automatic_dt:
        dt = operands.dt[0] if spec.resumes else operands.dt
        count = count + jnp.isnan(dt).astype(jnp.int32)
    if spec.save == "times":
        count = count + result.n_saved * method.n_row_evaluations
    return count.astype(jnp.int32)
