"""One compiled call: arrays of all trajectories in, the solution out."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from pullback import native
from pullback.checkpoint.mode import naming_forward_mode
from pullback.core import UnsupportedPrimitive
from pullback.core.typing import Array, PyTree
from pullback.ensemble.dense import make_dense
from pullback.ensemble.event import Events
from pullback.ensemble.executor import ARRAY, warn_of_fallback
from pullback.ensemble.leaf import is_traced
from pullback.ensemble.parts import is_in_parts, runs_eagerly, solve_in_parts
from pullback.ensemble.probe import recording
from pullback.ensemble.saved_function import SavedFunction
from pullback.ensemble.solution import Solution
from pullback.ode import LaneSolution, SolveOperands, SolveSpec, StateLayout, solve_lanes

STATS = ("n_attempts", "n_accepted", "n_rejected", "n_rhs")


@dataclass(frozen=True)
class RunPlan:
    """The static part of a run.

    Attributes:
        spec: what the lane program is specialised for.
        backend: who runs it.
        layout: structure of the user's state.
        n_traj: number of trajectories; None for a single problem.
        batched: which leaves of the arrays carry the trajectory axis, in `RunArrays`' structure.
        save_fn: what is saved of a state; None for the state itself.
    """

    spec: SolveSpec
    backend: Any
    layout: StateLayout
    n_traj: int | None
    batched: RunArrays
    save_fn: SavedFunction | None = None

    def on(self, backend: Any) -> RunPlan:
        """Return the plan of the same run on another back end."""
        return replace(self, backend=backend)

    @property
    def is_eager(self) -> bool:
        """Whether Python runs the loop over the parts of a solve."""
        return runs_eagerly(self.spec.adjoint)

    def evaluate(self, arrays: RunArrays) -> Solution:
        """Solve every trajectory; to be traced, unless it is eager."""
        return _evaluate(self, arrays)


class RunArrays(NamedTuple):
    """The arrays of a run (or, in a plan, which of them are batched).

    Attributes:
        y0: leaves of the initial state; the rest as in `SolveOperands`.
        n_real: how many save rows each trajectory wants; None means all.
        save_consts: what `save_fn` closes over.
    """

    y0: tuple[Any, ...]
    t0: Any
    t1: Any
    saveat: Any
    dt: Any
    rtol: Any
    atol: Any
    dt_max: Any
    dt_min: Any
    probe: Any
    theta: tuple[Any, ...]
    n_real: Any
    save_consts: tuple[Any, ...]


class Plan(Protocol):
    """The static part of any compiled call that solves trajectories, equal by content."""

    @property
    def backend(self) -> Any:
        """Who runs it."""

    def on(self, backend: Any) -> Any:
        """Return the same plan for another back end."""

    def evaluate(self, arrays: Any) -> Any:
        """Return the results; to be traced."""


def run(plan: Plan, arrays: Any, may_fall_back: bool) -> Any:
    """Return what `plan` makes of its arrays; compiled once per plan and shapes.

    Args:
        plan: the static part, such as a `RunPlan`, whose result is a `Solution`.
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
            return _run(plan.on(ARRAY), arrays)


def _shape_of(value: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


@functools.lru_cache(maxsize=256)
def _compile_flat(plan: Plan, tree: Any, shapes: tuple[jax.ShapeDtypeStruct, ...]) -> None:
    _compiled.lower(plan, jax.tree.unflatten(tree, shapes))


def _compile(plan: Plan, shapes: Any) -> None:
    """Compile now what an outer transformation would only compile when nobody can catch it."""
    leaves, tree = jax.tree.flatten(shapes)
    _compile_flat(plan, tree, tuple(leaves))


@functools.partial(jax.jit, static_argnums=0)
def _compiled(plan: Plan, arrays: Any) -> Any:
    return plan.evaluate(arrays)


def _run(plan: Plan, arrays: Any) -> Any:
    if not isinstance(plan, RunPlan) or not is_in_parts(plan.spec.adjoint):
        return _compiled(plan, arrays)
    with naming_forward_mode("pullback.solve"):
        return plan.evaluate(arrays) if plan.is_eager else _compiled(plan, arrays)


def _evaluate(plan: RunPlan, arrays: RunArrays) -> Solution:
    y0, y0_batched = _state_vectors(arrays.y0, plan.batched.y0)
    if plan.n_traj is None:
        operands = _operands(y0, arrays)
        lanes = _solve(plan, operands, None)
        solution = _solution(plan, lanes, arrays)
        if plan.spec.save != "steps":
            return solution
        rows = None if plan.save_fn is None else lanes.y
        return replace(solution, dense=make_dense(plan.spec, plan.layout, operands, rows))
    batched = _operands(y0_batched, plan.batched)
    if not any(jax.tree.leaves(batched)):
        # `vmap` wants at least one axis, and N equal trajectories are N results all the same.
        y0 = jnp.broadcast_to(y0, (plan.n_traj, *y0.shape))
        batched = batched._replace(y0=True)
    axes = jax.tree.map(lambda flag: 0 if flag else None, batched)
    return _solution(plan, _solve(plan, _operands(y0, arrays), axes), arrays)


def _solve(plan: RunPlan, operands: SolveOperands, axes: SolveOperands | None) -> LaneSolution:
    """Solve every trajectory: in one call, or in parts."""
    if is_in_parts(plan.spec.adjoint):
        return solve_in_parts(plan.spec, operands, axes, plan.n_traj, plan.backend)
    one = functools.partial(solve_lanes, plan.spec, backend=plan.backend)
    if axes is None:
        return one(operands)
    return jax.vmap(one, in_axes=(axes,), axis_size=plan.n_traj)(operands)


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


def _solution(plan: RunPlan, lanes: LaneSolution, arrays: RunArrays) -> Solution:
    t, y, n_saved, n_real = lanes.t, lanes.y, lanes.n_saved, arrays.n_real
    if n_real is not None:
        # Rows that only pad a shorter trajectory hold its end, and nothing flows back from them.
        wanted = jnp.arange(t.shape[-1])[None, :] < n_real[:, None]
        t = jnp.where(wanted, t, jax.lax.stop_gradient(t))
        y = jnp.where(wanted[..., None], y, jax.lax.stop_gradient(y))
        n_saved = jnp.minimum(n_saved, n_real)
    return Solution(
        t=t,
        y=plan.layout.unravel(y) if plan.save_fn is None else _saved(plan, t, y, n_saved, arrays),
        t_end=lanes.t_end,
        y_end=plan.layout.unravel(lanes.y_end),
        status=lanes.status,
        n_saved=n_saved,
        stats={name: getattr(lanes, name) for name in STATS},
        events=_events(lanes),
    )


def _saved(plan: RunPlan, t: Array, y: Array, n_saved: Array, arrays: RunArrays) -> PyTree:
    """Return what `save_fn` makes of the rows."""
    assert plan.save_fn is not None
    has_rows = plan.spec.save != "final"

    def one(t: Array, y: Array, n_saved: Array, theta: tuple[Array, ...]) -> PyTree:
        assert plan.save_fn is not None
        is_real = jnp.arange(t.shape[0]) < n_saved if has_rows else None
        return plan.save_fn.rows(t, y, is_real, (*theta, *arrays.save_consts))

    if plan.n_traj is None:
        return one(t, y, n_saved, arrays.theta)
    axes = tuple(0 if flag else None for flag in plan.batched.theta)
    return jax.vmap(one, in_axes=(0, 0, 0, axes))(t, y, n_saved, arrays.theta)


def _events(lanes: LaneSolution) -> Events | None:
    parts = (lanes.event_times, lanes.event_indices, lanes.n_events)
    if parts[-1] is None:
        return None
    grazing = jnp.zeros_like(parts[-1]) if lanes.n_grazing is None else lanes.n_grazing
    return Events(*parts, grazing=grazing > 0)
