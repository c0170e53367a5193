"""`batch_size`: an ensemble solved in parts, one after the other.

Every trajectory is solved for itself, so the parts give the same numbers as the whole. Outside a
trace they are calls of their own; inside one they are the trips of a loop.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.typing import PyTree
from pullback.ensemble.frozen_mesh import is_watched, run_on_mesh
from pullback.ensemble.progress_bar import (
    finished,
    is_tracing,
    refuse_traced_progress,
    with_progress,
)
from pullback.ensemble.run import RunArrays, RunPlan, run
from pullback.ensemble.solution import Solution

# Without a size a bar moves so often, unless its batches would be very small.
_MOST_MOVES = 100
_SMALLEST = 1000


class Batching(NamedTuple):
    """How an ensemble is divided.

    Attributes:
        size: the `batch_size` that was given; None without.
        is_shown: whether there is a bar.
        may_fall_back: whether EnsembleArray takes over where the kernel lacks an operation.
    """

    size: Any
    is_shown: bool
    may_fall_back: bool

    def checked(self, n_traj: int | None, default: int | None) -> int | None:
        """Return the size of a batch; None for all trajectories together.

        Raises:
            TypeError, ValueError: it is not a positive integer, or there is no ensemble.
        """
        if not isinstance(self.is_shown, bool):
            raise TypeError(f"`progress` must be True or False, but {self.is_shown!r} arrived.")
        if n_traj is None and (self.size is not None or self.is_shown):
            name = "progress" if self.size is None else "batch_size"
            raise ValueError(
                f"`{name}` divides an ensemble, but a single problem arrived; leave it out."
            )
        if self.size is None:
            return default
        try:
            size = operator.index(self.size)
        except TypeError:
            size = 0
        if isinstance(self.size, bool) or size < 1:
            raise ValueError(
                "`batch_size` must be the number of trajectories that are solved together, an "
                f"integer of at least 1, but {self.size!r} arrived."
            )
        return size


def balanced(n_traj: int, size: int) -> tuple[int, int]:
    """Return number and size of equal batches, of which only the last ones lack a few."""
    n_batches = -(-n_traj // size)
    return n_batches, -(-n_traj // n_batches)


def run_in_batches(plan: RunPlan, arrays: RunArrays, how: Batching) -> Solution:
    """Solve every trajectory, batch by batch where that was asked for."""
    default = None
    if how.is_shown and plan.n_traj is not None:
        default = max(_SMALLEST, -(-plan.n_traj // _MOST_MOVES))
    size = how.checked(plan.n_traj, default)
    if how.is_shown:
        refuse_traced_progress(arrays)
    n_traj = plan.n_traj
    is_one = not n_traj or size is None or (size >= n_traj and not how.is_shown)
    if is_one or not n_traj or size is None or is_watched():
        return run_on_mesh(plan, arrays, how.may_fall_back)
    n_batches, size = balanced(n_traj, size)
    if is_tracing(arrays):
        return run(_Batches(plan, n_batches, size), arrays, how.may_fall_back)
    part = replace(plan, n_traj=size)
    starts = [i * size for i in range(n_batches)]
    sizes = [min(size, n_traj - start) for start in starts]
    solutions = [
        finished(
            run_on_mesh(part, _taken(plan, arrays, start, size), how.may_fall_back), how.is_shown
        )
        for start in with_progress(starts, sizes, how.is_shown)
    ]
    return jax.tree.map(lambda *x: jnp.concatenate(x)[:n_traj], *solutions)


def _taken(plan: RunPlan, arrays: RunArrays, start: int, size: int) -> RunArrays:
    """Return the arrays of a batch; the last trajectory stands for those that it lacks."""
    assert plan.n_traj is not None
    ids = np.minimum(np.arange(start, start + size), plan.n_traj - 1)
    is_whole = start + size <= plan.n_traj

    def take(value: Any, is_batched: bool) -> Any:
        if not is_batched:
            return value
        return value[start : start + size] if is_whole else value[ids]

    return jax.tree.map(take, arrays, plan.batched)


@dataclass(frozen=True)
class _Batches:
    """The batches of one run as a loop.

    Attributes:
        plan: the whole run.
        n_batches: how many batches.
        size: trajectories of each.
    """

    plan: RunPlan
    n_batches: int
    size: int

    @property
    def backend(self) -> Any:
        """Who runs it."""
        return self.plan.backend

    def on(self, backend: Any) -> _Batches:
        """Return the same batches on another back end."""
        return replace(self, plan=self.plan.on(backend))

    def evaluate(self, arrays: RunArrays) -> Solution:
        """Solve every trajectory; to be traced."""
        part = replace(self.plan, n_traj=self.size)
        leaves, tree = jax.tree.flatten(arrays)
        flags = jax.tree.leaves(self.plan.batched)
        moving = [
            in_blocks(x, self.n_batches, self.size) for x, f in zip(leaves, flags, strict=True) if f
        ]

        def one(_: None, moving: list[Any]) -> tuple[None, Solution]:
            new = iter(moving)
            given = [next(new) if f else x for x, f in zip(leaves, flags, strict=True)]
            return None, part.evaluate(jax.tree.unflatten(tree, given))

        # What a batch needs for its derivative is computed again, or all batches would be kept.
        _, batches = jax.lax.scan(jax.checkpoint(one), None, moving, length=self.n_batches)
        return jax.tree.map(self._together, batches)

    def _together(self, x: Any) -> Any:
        return x.reshape(self.n_batches * self.size, *x.shape[2:])[: self.plan.n_traj]


def in_blocks(x: PyTree, n_blocks: int, size: int) -> PyTree:
    """Return an array with a trajectory axis in blocks, the last trajectory again to fill them."""
    missing = n_blocks * size - x.shape[0]
    if not x.shape[0]:
        x = jnp.zeros((missing, *x.shape[1:]), x.dtype)
    elif missing:
        x = jnp.concatenate([x, jnp.broadcast_to(x[-1:], (missing, *x.shape[1:]))])
    return x.reshape(n_blocks, size, *x.shape[1:])
