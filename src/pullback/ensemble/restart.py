"""`restart`: go on from where a solution ended."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.typing import ArrayLike
from pullback.ensemble.ensemble_problem import EnsembleProblem
from pullback.ensemble.leaf import Members, is_array
from pullback.ensemble.members import resolve_members
from pullback.ensemble.solution import Solution


def restart(
    problem: Any, solution: Solution, t1: ArrayLike, *, key: ArrayLike | None = None
) -> Any:
    """Return the problem that goes on from the last good point of `solution` until `t1`.

    Each trajectory goes on from where it ended, with parameters of its own: at the end of its span,
    behind the event that ended it, or where it failed. Step size control begins anew.

    Args:
        problem: the problem that was solved, a single one or an EnsembleProblem.
        solution: its solution.
        t1: new end, one time or one for each trajectory.
        key: the random key that was given to `solve`, needed where `prob_func` uses `ctx.key`. The
            noise of an SDEProblem needs another key for the further solve.

    Returns:
        A problem of the same kind; an EnsembleProblem has batched leaves, whatever `problem` had.

    Raises:
        TypeError: `solution` is not the solution of `problem`.
        ValueError: they have different numbers of trajectories.

    Differentiation:
        Through `solution`: the two halves are differentiated as one whole.

    Example:
        >>> import pullback as pb
        >>> decay = pb.ODEProblem(lambda t, y, rate: -rate * y, 1.0, (0.0, 1.0), 0.5)
        >>> first = pb.solve(decay, pb.Tsit5(), pb.EnsembleArray())
        >>> pb.restart(decay, first, 2.0).t_span[1]
        2.0
    """
    if not isinstance(solution, Solution):
        raise TypeError(
            f"`solution` of restart must be a pb.Solution, but a {type(solution).__name__} arrived."
        )
    axes = jnp.shape(solution.status)
    if not isinstance(problem, EnsembleProblem):
        if axes:
            raise ValueError(
                f"`problem` of restart is a single problem, but `solution` has the axes {axes}; "
                "pass the EnsembleProblem that was solved, or call restart inside jax.vmap."
            )
        return problem.replace(y0=solution.y_end, t_span=(solution.t_end, t1))
    if len(axes) != 1:
        raise ValueError(
            f"`problem` of restart is an EnsembleProblem, but `solution` has the axes {axes} "
            "instead of one of trajectories; pass the solution of that ensemble."
        )
    members = resolve_members(problem, axes[0], key)
    own, given = _params(members)
    first = jax.tree.map(_example, solution.y_end)
    base = problem.problem.replace(y0=first, params=own, t_span=(0.0, 1.0))
    return EnsembleProblem(
        base, y0=solution.y_end, params=given, t_span=(solution.t_end, _ends(t1, axes[0]))
    )


def _params(members: Members) -> tuple[Any, Any]:
    """Return parameters of one trajectory, and those that differ, None for the others."""
    own = [_example(leaf.value) if leaf.batched else leaf.value for leaf in members.params]
    given = [leaf.value if leaf.batched else None for leaf in members.params]
    tree = members.params_tree
    if not any(leaf.batched for leaf in members.params):
        return jax.tree.unflatten(tree, own), None
    return jax.tree.unflatten(tree, own), jax.tree.unflatten(tree, given)


def _example(value: Any) -> Any:
    """Return a value of one trajectory."""
    if value.shape[0]:
        return value[0]
    return np.zeros(value.shape[1:], value.dtype)


def _ends(t1: ArrayLike, n_traj: int) -> Any:
    if not is_array(t1) and not isinstance(t1, (list, tuple)):
        raise TypeError(
            f"`t1` of restart must be one time or one for each trajectory, but {t1!r} arrived."
        )
    shape = jnp.shape(t1)
    if shape not in ((), (n_traj,)):
        raise ValueError(
            f"`t1` of restart must be one time or have shape ({n_traj},), one for each trajectory, "
            f"but shape {shape} arrived."
        )
    return t1 if not shape or not isinstance(t1, (list, tuple)) else np.asarray(t1)
