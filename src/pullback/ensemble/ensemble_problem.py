"""An ensemble: one problem and what differs between its trajectories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import jax

from pullback.core.user_function import require_function
from pullback.ensemble.abstract_problem import AbstractProblem, PyTree
from pullback.ensemble.sde_problem import Problem

_MOVING = ("problem", "y0", "params", "t_span")


@dataclass(frozen=True)
class TrajectoryContext:
    """What `prob_func` knows about the trajectory that it prepares.

    Args:
        sim_id: 0-based number of the trajectory, a traced int32.
        ensemble_key: the `key` that was given to `solve`, the same for all trajectories.
    """

    sim_id: jax.Array
    ensemble_key: jax.Array | None = None

    @property
    def key(self) -> jax.Array:
        """Random key of this trajectory: `jax.random.fold_in(key, sim_id)`."""
        if self.ensemble_key is None:
            raise ValueError(
                "`prob_func` uses `ctx.key`, but `solve` was called without `key`; pass "
                "key=jax.random.key(0), or any other random key."
            )
        return jax.random.fold_in(self.ensemble_key, self.sim_id)


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False)
class EnsembleProblem:
    """Many trajectories of one problem.

    Either `prob_func` says how trajectory `ctx.sim_id` differs, or the leaves given by `y0`,
    `params` and `t_span` carry a leading trajectory axis. What does not differ stays shared: it is
    stored once, whatever the number of trajectories.

    Args:
        problem: the problem that all trajectories start from, such as an ODEProblem.
        prob_func: `prob_func(problem, ctx)` returns the problem of one trajectory, usually
            `problem.replace(...)`. It is traced once under `jax.vmap`, not called in a loop, and
            may change `y0`, `params` and `t_span`. `ctx.sim_id` counts from 0; `ctx.key` is a
            random key of the trajectory's own.
        y0: initial states with the structure of `problem.y0`. A leaf with an extra leading axis
            differs between trajectories; a leaf of the problem's shape, or None, is shared.
        params: parameters, by the same rule.
        t_span: array of shape (trajectory, 2), or a pair whose entries are scalars or arrays of
            shape (trajectory,).

    Example:
        >>> import jax.numpy as jnp
        >>> import pullback as pb
        >>> decay = pb.ODEProblem(lambda t, y, rate: -rate * y, 1.0, (0.0, 2.0), 0.5)
        >>> by_function = pb.EnsembleProblem(
        ...     decay, lambda problem, ctx: problem.replace(params=0.1 * ctx.sim_id)
        ... )
        >>> by_leaves = pb.EnsembleProblem(decay, params=jnp.linspace(0.0, 1.0, 5))
    """

    problem: Problem
    prob_func: Callable[[Any, TrajectoryContext], Any] | None = None
    y0: PyTree = None
    params: PyTree = None
    t_span: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.problem, AbstractProblem):
            raise TypeError(
                "`problem` of EnsembleProblem must be an ODEProblem or an SDEProblem, but a "
                f"{type(self.problem).__name__} arrived; build pb.ODEProblem(...) first."
            )
        if self.prob_func is not None:
            hint = "arrays go to y0=, params= or t_span="
            require_function("prob_func", self.prob_func, "problem, ctx", hint)
        given = [n for n in ("y0", "params", "t_span") if getattr(self, n) is not None]
        if self.prob_func is not None and given:
            raise ValueError(
                f"EnsembleProblem takes either `prob_func` or batched leaves, but `prob_func` and "
                f"`{given[0]}` arrived; set `{given[0]}` inside `prob_func` with problem.replace."
            )

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        """Split into leaves with their names and the static part."""
        children = [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in _MOVING]
        return children, self.prob_func

    @classmethod
    def tree_unflatten(cls, prob_func: Any, children: Any) -> Self:
        """Rebuild without checks: the leaves may be anything that JAX puts there."""
        ensemble = object.__new__(cls)
        parts = {"prob_func": prob_func} | dict(zip(_MOVING, children, strict=True))
        for name, part in parts.items():
            object.__setattr__(ensemble, name, part)
        return ensemble
