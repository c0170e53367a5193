"""The trajectories of a problem: where a description becomes arrays.

A leaf that does not differ between trajectories stays shared, so ten thousand trajectories of one
network hold one copy of its weights.
"""

from __future__ import annotations

import operator
from typing import Any

import jax
import numpy as np

from pullback.core.keys import is_key
from pullback.ensemble.abstract_problem import AbstractProblem
from pullback.ensemble.batched_leaves import members_from_leaves
from pullback.ensemble.ensemble_problem import EnsembleProblem
from pullback.ensemble.leaf import Members, members_of
from pullback.ensemble.prob_func import members_from_prob_func


def resolve_members(problem: Any, trajectories: Any, key: Any) -> Members:
    """Return the trajectories of a single problem or of an EnsembleProblem.

    Args:
        problem: what was given to `solve`.
        trajectories: the number of trajectories; None where the problem knows it.
        key: the ensemble's random key; None without.

    Raises:
        TypeError: `problem`, `trajectories` or `key` is of a wrong type.
        ValueError: the number of trajectories is missing or contradictory.
    """
    if isinstance(problem, AbstractProblem):
        if trajectories is not None:
            raise ValueError(
                f"`trajectories`={trajectories!r} arrived with a single "
                f"{type(problem).__name__}; leave it out, "
                "or solve pb.EnsembleProblem(problem, prob_func)."
            )
        return members_of(problem)
    if not isinstance(problem, EnsembleProblem):
        raise TypeError(
            "`problem` must be an ODEProblem, an SDEProblem or an EnsembleProblem, but a "
            f"{type(problem).__name__} arrived; build "
            "pb.ODEProblem(vector_field, y0, t_span, params)."
        )
    n_traj = None if trajectories is None else checked_count(trajectories)
    if problem.prob_func is None:
        return members_from_leaves(problem, n_traj)
    return members_from_prob_func(problem, n_traj, checked_key(key))


def checked_count(trajectories: Any) -> int:
    """Return the number of trajectories."""
    try:
        count = operator.index(trajectories)
    except TypeError:
        count = -1
    if isinstance(trajectories, bool) or count < 0:
        raise TypeError(
            "`trajectories` must be the number of trajectories, an integer of at least 0 that is "
            f"known before tracing, but {trajectories!r} arrived."
        )
    return count


def checked_key(key: Any) -> Any:
    """Return one random key, or None."""
    if key is None:
        return None
    if isinstance(key, (jax.Array, np.ndarray)):
        expected = () if is_key(key) else (2,)
        if (is_key(key) or key.dtype == np.uint32) and key.shape == expected:
            return key
    raise TypeError(
        f"`key` must be one JAX random key, but {key!r} arrived; pass key=jax.random.key(0)."
    )
