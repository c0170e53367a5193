"""Solves in parts, with snapshots between them: gradients of very long runs in bounded memory.

`DiscreteAdjoint(scheme=, storage=)` asks for it. The loop over the parts is a checkpointed one
(`pullback.checkpoint`); a part is at most `tape` attempts of every trajectory, in one call of the
executor, so storage lies between launches and never inside one.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from pullback.checkpoint import Online, checkpointed_while
from pullback.checkpoint.mode import follows_on_host
from pullback.checkpoint.schedules import AbstractScheme
from pullback.checkpoint.storage import AbstractStorage
from pullback.checkpoint.storage_ram import RAM
from pullback.ode import DiscreteAdjoint, LaneSolution, SolveOperands, SolveSpec
from pullback.ode.resume import Progress, advance, begin, conclude, is_pending

__all__ = ["check_parts", "is_in_parts", "runs_eagerly", "solve_in_parts"]

_SNAPSHOTS = 64
# Without a tape of its own a part is so many attempts.
_ATTEMPTS = 1024


def is_in_parts(adjoint: DiscreteAdjoint) -> bool:
    """Whether a solve is to be made in parts."""
    return adjoint.scheme is not None or adjoint.storage is not None


def runs_eagerly(adjoint: DiscreteAdjoint) -> bool:
    """Whether the loop over the parts is made in Python, for a storage that needs it."""
    return adjoint.storage is not None and follows_on_host("auto", adjoint.storage)


def check_parts(spec: SolveSpec) -> None:
    """Raise where a solve cannot be made in parts.

    Raises:
        TypeError: `scheme` or `storage` is of a wrong type.
        NotImplementedError: the problem has events or noise, or every step is saved.
    """
    adjoint = spec.adjoint
    if not is_in_parts(adjoint):
        return
    for name, kind, example in (
        ("scheme", AbstractScheme, "pb.Online(64)"),
        ("storage", AbstractStorage, "pb.Disk(path)"),
    ):
        value = getattr(adjoint, name)
        if value is not None and not isinstance(value, kind):
            raise TypeError(
                f"`{name}` of DiscreteAdjoint must be one such as {example}, but {value!r} arrived."
            )
    what = None
    if spec.events is not None:
        what = "events or tstops"
    elif spec.noise is not None:
        what = "a stochastic problem"
    elif spec.save == "steps":
        what = 'saveat="steps"'
    if what is not None:
        raise NotImplementedError(
            f"`scheme` and `storage` of DiscreteAdjoint are not available with {what}; leave them "
            "out: `tape` bounds the memory of such a run."
        )


def solve_in_parts(
    spec: SolveSpec,
    operands: SolveOperands,
    axes: SolveOperands | None,
    n_traj: int | None,
    backend: Any,
) -> LaneSolution:
    """Solve every trajectory, part by part.

    Args:
        spec: what is solved.
        operands: its arrays.
        axes: for `jax.vmap`: zero where an array has the trajectory axis; None for a single
            problem.
        n_traj: number of trajectories; None for a single problem.
        backend: who runs a part.
    """
    adjoint = spec.adjoint
    size = min(adjoint.tape or _ATTEMPTS, spec.max_steps)
    n_parts = -(-spec.max_steps // size)

    def each(function: Any, *batched: Any) -> Any:
        if axes is None:
            return function(operands, *batched)
        of_all = jax.vmap(function, in_axes=(axes, *(0 for _ in batched)), axis_size=n_traj)
        return of_all(operands, *batched)

    def step(progress: Progress) -> Progress:
        part = functools.partial(advance, spec, n_attempts=size, backend=backend)
        return each(lambda operands, progress: part(operands, progress), progress)

    end = checkpointed_while(
        lambda progress: jnp.any(is_pending(spec, progress)),
        step,
        each(functools.partial(begin, spec)),
        scheme=Online(_SNAPSHOTS) if adjoint.scheme is None else adjoint.scheme,
        storage=RAM() if adjoint.storage is None else adjoint.storage,
        block=1,
        max_steps=n_parts,
        compile_step=None,  # a part is a kernel already
    )
    return each(functools.partial(conclude, spec), end)
