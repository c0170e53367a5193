"""Solves of one trajectory from a few keywords, and the problems that several tests share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback import native
from pullback.ode import (
    DiscreteAdjoint,
    LaneSolution,
    PIController,
    SolveOperands,
    SolveSpec,
    Tsit5,
    solve_lanes,
    trace_vector_field,
)

BACKENDS = ("array", "cpu") if native.is_supported() else ("array",)
# XLA takes seconds to compile what the kernel compiler does in a fraction of one.
FAST = BACKENDS[-1]


def make_solve(
    vector_field: Any,
    y0: Any,
    params: Any = None,
    t_span: Any = (0.0, 1.0),
    *,
    method: Any = None,
    rtol: Any = 1e-6,
    atol: Any = 1e-6,
    dt: Any = None,
    dt_max: Any = None,
    saveat: Any = None,
    n_steps_saved: int | None = None,
    max_steps: int = 4_000,
    adjoint: DiscreteAdjoint | None = None,
    first_dt: Any = None,
) -> tuple[SolveSpec, SolveOperands]:
    """Build spec and operands; `dt` asks for fixed steps, `first_dt` only for the first one."""
    method = Tsit5() if method is None else method
    traced = trace_vector_field(vector_field, y0, params)
    dtype = traced.layout.dtype
    adaptive = dt is None

    def cast(value: Any) -> jax.Array:
        return jnp.asarray(value, dtype)

    times = cast(jnp.zeros((0,)) if saveat is None else saveat)
    save, n_saves = "final", 1
    if saveat is not None:
        save, n_saves = "times", times.shape[0]
    elif n_steps_saved is not None:
        save, n_saves = "steps", n_steps_saved
    spec = SolveSpec(
        field=traced.field,
        method=method,
        adaptive=adaptive,
        controller=PIController(),
        max_steps=max_steps,
        save=save,
        n_saves=n_saves,
        dtype=dtype,
        adjoint=DiscreteAdjoint() if adjoint is None else adjoint,
        automatic_dt=adaptive,
        limit_dt=dt_max is not None,
    )
    step = first_dt if adaptive else dt
    operands = SolveOperands(
        y0=traced.y0,
        t0=cast(t_span[0]),
        t1=cast(t_span[1]),
        saveat=times,
        dt=cast(np.nan if step is None else step),
        rtol=cast(rtol),
        atol=cast(atol),
        dt_max=cast(np.inf if dt_max is None else dt_max),
        dt_min=cast(0.0),
        probe=jnp.zeros(3, dtype),
        theta=traced.theta,
    )
    return spec, operands


def solve(*args: Any, backend: str = FAST, **kwargs: Any) -> LaneSolution:
    """Solve one trajectory."""
    return solve_lanes(*make_solve(*args, **kwargs), backend)


def decay(t: Any, y: Any, p: Any) -> Any:
    """y' = -p y cos t, with y(t) = y0 exp(-p (sin t - sin t0))."""
    return -p * y * jnp.cos(t)


def decay_exact(y0: Any, t0: Any, t: Any, p: Any) -> Any:
    """Return the solution of `decay`."""
    return y0 * jnp.exp(-p * (jnp.sin(t) - jnp.sin(t0)))


def lotka_volterra(t: Any, y: Any, p: Any) -> Any:
    """Prey and predator."""
    return jnp.stack([p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]])


LV_Y0 = np.array([1.0, 1.0])
LV_PARAMS = np.array([1.5, 1.0, 1.0, 3.0])
