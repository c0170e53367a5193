"""`reduce`: an ensemble solved block by block, of which only a summary is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core import Status
from pullback.core.fingerprint import open_jaxpr_key
from pullback.core.typing import Array
from pullback.ensemble.batches import Batching, balanced, in_blocks
from pullback.ensemble.blocks import BlockArrays, BlockPlan, Maker, Tally
from pullback.ensemble.cast_members import cast_members
from pullback.ensemble.ensemble_problem import EnsembleProblem
from pullback.ensemble.frozen_mesh import refuse_watched
from pullback.ensemble.leaf import Leaf, Members, is_traced
from pullback.ensemble.members import checked_count, checked_key, resolve_members
from pullback.ensemble.prob_func import members_from_prob_func
from pullback.ensemble.probe import make_probe, recording
from pullback.ensemble.progress_bar import finished, refuse_traced_progress, with_progress
from pullback.ensemble.quantiles import Quantiles
from pullback.ensemble.reduction import Mean, MeanVar, Reduction
from pullback.ensemble.run import RunArrays, RunPlan, run
from pullback.ensemble.summary import Summary
from pullback.ensemble.traced_reduction import trace_look

# Enough to keep every core busy, few enough that their rows are no burden.
_BLOCK = 4096
_NAMED: dict[str, type[Reduction]] = {"mean_var": MeanVar, "quantiles": Quantiles}

Prepare = Callable[..., tuple[RunPlan, RunArrays]]


class Source(NamedTuple):
    """Where the trajectories come from: what was given to `solve`."""

    problem: Any
    trajectories: Any
    key: Any
    saveat: Any


def summarise(reduce: Any, source: Source, prepare: Prepare, how: Batching) -> Summary:
    """Return the summary of an ensemble.

    Args:
        reduce: the option of `solve`.
        source: where the trajectories come from.
        prepare: makes plan and arrays of a run of given trajectories.
        how: how the ensemble is divided.
    """
    reduction = checked_reduction(reduce)
    n_traj, whole = _count(source)
    refuse_watched("reduce")
    n_blocks, size = balanced(max(n_traj, 1), how.checked(n_traj, _BLOCK) or _BLOCK)
    moving = _moving(source, whole, n_traj)
    plan, maker, fixed, consts = _trace_block(source, prepare, whole, moving, size)
    look, look_consts = trace_look(reduction.of, plan)
    ids = np.arange(n_blocks * size, dtype=np.int32).reshape(n_blocks, size)
    arrays = BlockArrays(
        fixed=fixed,
        consts=consts,
        look_consts=look_consts,
        ids=np.minimum(ids, max(n_traj - 1, 0)),
        is_real=ids < n_traj,
        moving=tuple(in_blocks(x, n_blocks, size) for x in moving),
        tally=None,
        before=None,
    )
    if how.is_shown:
        refuse_traced_progress(arrays)
    static = BlockPlan(plan, maker, look, replace(reduction, of=None))
    still = jax.tree.map(_still, arrays)
    for _ in range(reduction.n_passes - 1):
        still = still._replace(before=_one_pass(static, still, how, n_traj).state)
    tally = _one_pass(static, arrays._replace(before=still.before), how, n_traj)
    status = {s.name: tally.status[i] for i, s in enumerate(Status)}
    n_ok = tally.status[0] + tally.status[1]
    times = _common_times(plan, maker, fixed, source.saveat)
    return Summary(times, reduction.finish(tally.state), n_ok, status)


def _one_pass(static: BlockPlan, arrays: BlockArrays, how: Batching, n_traj: int) -> Tally:
    if not how.is_shown:
        return run(static, arrays, how.may_fall_back)
    n_blocks, size = arrays.ids.shape
    sizes = [min(size, n_traj - i * size) for i in range(n_blocks)]
    for i in with_progress(range(n_blocks), sizes, is_shown=True):
        one = [jax.tree.map(lambda x, i=i: x[i : i + 1], part) for part in arrays[3:6]]
        block = arrays._replace(ids=one[0], is_real=one[1], moving=one[2])
        tally = finished(run(static, block, how.may_fall_back), is_shown=True)
        arrays = arrays._replace(tally=tally)
    return arrays.tally


def _still(x: Any) -> Any:
    return jax.lax.stop_gradient(x) if is_traced(x) else x


def checked_reduction(reduce: Any) -> Reduction:
    """Return the reduction that `reduce` names.

    Raises:
        TypeError: it is none.
    """
    if isinstance(reduce, Reduction):
        return reduce
    if isinstance(reduce, str) and reduce in _NAMED:
        return _NAMED[reduce]()
    if callable(reduce) and not isinstance(reduce, type):
        return Mean(reduce)
    hint = f"; write pb.{reduce.__name__}()" if isinstance(reduce, type) else ""
    raise TypeError(
        f"`reduce` must be one of {', '.join(map(repr, _NAMED))}, a function of one trajectory's "
        f"solution, or a pb.Reduction, but {reduce!r} arrived{hint}."
    )


def _count(source: Source) -> tuple[int, Members | None]:
    """Return the number of trajectories; of an ensemble given by leaves, all of them."""
    problem = source.problem
    if not isinstance(problem, EnsembleProblem):
        resolve_members(problem, source.trajectories, source.key)
        raise ValueError(
            "`reduce` summarises an ensemble, but a single problem arrived; solve "
            "pb.EnsembleProblem(problem, ...), or leave `reduce` out."
        )
    if problem.prob_func is not None and source.trajectories is not None:
        return checked_count(source.trajectories), None
    members = cast_members(resolve_members(problem, source.trajectories, source.key))
    assert members.n_traj is not None
    return members.n_traj, members


def _moving(source: Source, whole: Members | None, n_traj: int) -> list[Any]:
    """Return what has a trajectory axis: leaves of the ensemble, and its save times."""
    found = [] if whole is None else [leaf.value for leaf in _leaves(whole) if leaf.batched]
    if _has_own_times(source.saveat):
        if np.shape(source.saveat)[0] != n_traj:
            raise ValueError(
                f"trajectory counts disagree: `saveat` has {np.shape(source.saveat)[0]} rows, but "
                f"there are {n_traj} trajectories; give one row per trajectory, or one for all."
            )
        found.append(source.saveat)
    return [jnp.asarray(x) for x in found]


def _has_own_times(saveat: Any) -> bool:
    return not isinstance(saveat, str) and saveat is not None and np.ndim(saveat) == 2


def _leaves(members: Members) -> list[Leaf]:
    return [*members.y0, *members.t_span, *members.params]


def _trace_block(
    source: Source, prepare: Prepare, whole: Members | None, moving: list[Any], size: int
) -> tuple[RunPlan, Maker, tuple[Any, ...], tuple[Any, ...]]:
    """Trace how the arrays of a block are made.

    Returns:
        The plan of a block, the maker, the arrays that all blocks share, and what it closes over.
    """
    plans: list[RunPlan] = []
    parts: list[Any] = []

    def make(ids: Array, *moving: Array) -> list[Array]:
        given = iter(moving)
        if whole is None:
            key = checked_key(source.key)
            members = members_from_prob_func(source.problem, size, key, ids)
        else:
            members = _with_values(whole, size, given)
        saveat = next(given) if _has_own_times(source.saveat) else source.saveat
        with recording(False):
            plan, arrays = prepare(members, saveat, ids)
        leaves, tree = jax.tree.flatten(arrays)
        is_made = tuple(map(is_traced, leaves))
        plans[:] = [plan]
        parts[:] = [tree, is_made, [x for x, m in zip(leaves, is_made, strict=True) if not m]]
        return [x for x, m in zip(leaves, is_made, strict=True) if m]

    ids = jax.ShapeDtypeStruct((size,), np.int32)
    shapes = [jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype) for x in moving]
    closed = jax.make_jaxpr(make)(ids, *shapes)
    tree, is_made, fixed = parts
    maker = Maker(open_jaxpr_key(closed.jaxpr), tree, is_made, closed.jaxpr)
    plan = plans[0]
    return plan, maker, _with_probe(maker, fixed, plan), tuple(closed.consts)


def _with_probe(maker: Maker, fixed: list[Any], plan: RunPlan) -> tuple[Any, ...]:
    """Return the fixed arrays with a probe of their own, which may be recorded."""
    fields = jax.tree.unflatten(maker.tree, range(len(maker.is_made)))
    place = sum(not flag for flag in maker.is_made[: fields.probe])
    assert not maker.is_made[fields.probe]
    return (*fixed[:place], make_probe(plan.spec.dtype), *fixed[place + 1 :])


def _with_values(whole: Members, size: int, values: Any) -> Members:
    """Return the trajectories of a block, whose leaves have the next of `values`."""

    def one(leaf: Leaf) -> Leaf:
        return replace(leaf, value=next(values)) if leaf.batched else leaf

    return replace(
        whole,
        y0=[one(leaf) for leaf in whole.y0],
        t_span=tuple(one(leaf) for leaf in whole.t_span),
        params=[one(leaf) for leaf in whole.params],
        n_traj=size,
    )


def _common_times(plan: RunPlan, maker: Maker, fixed: tuple[Any, ...], saveat: Any) -> Any:
    """Return the times of the rows where all trajectories have the same; None otherwise."""
    mode, batched = plan.spec.save, plan.batched
    if mode == "steps" or (batched.saveat if mode == "times" else batched.t1):
        return None
    fields = jax.tree.unflatten(maker.tree, range(len(maker.is_made)))
    place = fields.saveat if mode == "times" else fields.t1
    if not maker.is_made[place]:
        return jnp.atleast_1d(fixed[sum(not flag for flag in maker.is_made[:place])])
    is_given = mode == "times" and np.ndim(saveat) == 1
    return jnp.asarray(saveat).astype(plan.spec.dtype) if is_given else None
