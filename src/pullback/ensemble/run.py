"""One compiled call: arrays of all trajectories in, the solution out."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pullback import native
from pullback.core import UnsupportedPrimitive
from pullback.core.typing import Array
from pullback.ensemble.event import Events
from pullback.ensemble.executor import ARRAY, warn_of_fallback
from pullback.ensemble.leaf import is_traced
from pullback.ensemble.probe import recording
from pullback.ensemble.solution import Solution
from pullback.ode import LaneSolution, SolveOperands, SolveSpec, StateLayout, solve_lanes

_STATS = ("n_attempts", "n_accepted", "n_rejected", "n_rhs")


@dataclass(frozen=True)
class RunPlan:
    """The static part of a run.

    Attributes:
        spec: what the lane program is specialised for.
        backend: who runs it.
        layout: structure of the user's state.
        n_traj: number of trajectories; None for a single problem.
        batched: which leaves of the arrays carry the trajectory axis, in `RunArrays`' structure.
    """

    spec: SolveSpec
    backend: Any
    layout: StateLayout
    n_traj: int | None
    batched: RunArrays


class RunArrays(NamedTuple):
    """The arrays of a run (or, in a plan, which of them are batched).

    Attributes:
        y0: leaves of the initial state; the rest as in `SolveOperands`.
        n_real: how many save rows each trajectory wants; None means all.
    """

    y0: tuple[Any, ...]
    t0: Any
    t1: Any
    saveat: Any
    dt: Any
    rtol: Any
    atol: Any
    dt_max: Any
    probe: Any
    theta: tuple[Any, ...]
    n_real: Any


def run(plan: RunPlan, arrays: RunArrays, may_fall_back: bool) -> Solution:
    """Solve every trajectory; compiled once per plan and shapes.

    Args:
        plan: the static part.
        arrays: the numbers.
        may_fall_back: whether EnsembleArray takes over where the kernel lacks an operation.
    """
    with recording(False), native.translate_errors():
        if not may_fall_back or plan.backend == ARRAY:
            return _run(plan, arrays)
        try:
            if any(map(is_traced, jax.tree.leaves(arrays))):
                _compile(plan, jax.tree.map(_shape_of, arrays))
            return _run(plan, arrays)
        except UnsupportedPrimitive as error:
            warn_of_fallback(str(error))
            return _run(replace(plan, backend=ARRAY), arrays)


def _shape_of(value: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


@functools.lru_cache(maxsize=256)
def _compile_flat(plan: RunPlan, tree: Any, shapes: tuple[jax.ShapeDtypeStruct, ...]) -> None:
    _run.lower(plan, jax.tree.unflatten(tree, shapes))


def _compile(plan: RunPlan, shapes: RunArrays) -> None:
    """Compile now what an outer transformation would only compile when nobody can catch it."""
    leaves, tree = jax.tree.flatten(shapes)
    _compile_flat(plan, tree, tuple(leaves))


@functools.partial(jax.jit, static_argnums=0)
def _run(plan: RunPlan, arrays: RunArrays) -> Solution:
    y0, y0_batched = _state_vectors(arrays.y0, plan.batched.y0)
    one = functools.partial(solve_lanes, plan.spec, backend=plan.backend)
    if plan.n_traj is None:
        return _solution(plan, one(_operands(y0, arrays)), arrays.n_real)
    batched = _operands(y0_batched, plan.batched)
    if not any(jax.tree.leaves(batched)):
        # `vmap` wants at least one axis, and N equal trajectories are N results all the same.
        y0 = jnp.broadcast_to(y0, (plan.n_traj, *y0.shape))
        batched = batched._replace(y0=True)
    axes = jax.tree.map(lambda flag: 0 if flag else None, batched)
    lanes = jax.vmap(one, in_axes=(axes,), axis_size=plan.n_traj)(_operands(y0, arrays))
    return _solution(plan, lanes, arrays.n_real)


def _operands(y0: Any, rest: RunArrays) -> SolveOperands:
    return SolveOperands(y0, **{name: getattr(rest, name) for name in SolveOperands._fields[1:]})


def _state_vectors(leaves: Sequence[Array], batched: Sequence[bool]) -> tuple[Array, bool]:
    """Ravel the state; a shared leaf is only repeated if another one differs."""
    if not any(batched):
        return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves]), False
    count = next(leaf.shape[0] for leaf, flag in zip(leaves, batched, strict=True) if flag)
    full = [
        leaf if flag else jnp.broadcast_to(leaf, (count, *jnp.shape(leaf)))
        for leaf, flag in zip(leaves, batched, strict=True)
    ]
    rows = [leaf.reshape(count, math.prod(leaf.shape[1:])) for leaf in full]
    return jnp.concatenate(rows, axis=1), True


def _solution(plan: RunPlan, lanes: LaneSolution, n_real: Array | None) -> Solution:
    t, y, n_saved = lanes.t, lanes.y, lanes.n_saved
    if n_real is not None:
        # Rows that only pad a shorter trajectory hold its end, and nothing flows back from them.
        wanted = jnp.arange(t.shape[-1])[None, :] < n_real[:, None]
        t = jnp.where(wanted, t, jax.lax.stop_gradient(t))
        y = jnp.where(wanted[..., None], y, jax.lax.stop_gradient(y))
        n_saved = jnp.minimum(n_saved, n_real)
    return Solution(
        t=t,
        y=plan.layout.unravel(y),
        t_end=lanes.t_end,
        y_end=plan.layout.unravel(lanes.y_end),
        status=lanes.status,
        n_saved=n_saved,
        stats={name: getattr(lanes, name) for name in _STATS},
        events=_events(lanes),
    )


def _events(lanes: LaneSolution) -> Events | None:
    parts = (lanes.event_times, lanes.event_indices, lanes.n_events)
    return None if parts[-1] is None else Events(*parts)
