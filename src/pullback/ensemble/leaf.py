"""The leaves of a problem: which are shared and which carry the trajectory axis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from pullback.ensemble.sde_problem import Problem


@dataclass(frozen=True)
class Leaf:
    """One leaf of a problem: an array, a Python scalar, or something that is not an array.

    Attributes:
        path: how the user would write it, such as `params['rate']`.
        value: what the user gave, or what `prob_func` returned.
        batched: whether `value` has a leading trajectory axis.
        weak: whether its dtype gives way to its neighbours', as a Python scalar's does.
    """

    path: str
    value: Any
    batched: bool = False
    weak: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape for one trajectory."""
        shape = np.shape(self.value)
        return shape[1:] if self.batched else shape


@dataclass(frozen=True)
class Members:
    """A problem, or an ensemble of them, in leaves.

    Attributes:
        problem: what the trajectories have in common; its functions are the ones to integrate.
        y0: leaves of the initial state.
        y0_tree: structure of the initial state.
        t_span: first and last time.
        params: leaves of the parameters.
        params_tree: structure of the parameters.
        n_traj: number of trajectories; None for a single problem.
    """

    problem: Problem
    y0: list[Leaf]
    y0_tree: Any
    t_span: tuple[Leaf, Leaf]
    params: list[Leaf]
    params_tree: Any
    n_traj: int | None = None

    @property
    def dtype(self) -> np.dtype:
        """Dtype of state and time, once the leaves have been cast."""
        return self.y0[0].value.dtype


def is_array(value: Any) -> bool:
    """Whether JAX can trace `value`."""
    return isinstance(value, (bool, int, float, complex, np.ndarray, np.generic, jax.Array))


def is_traced(value: Any) -> bool:
    """Whether the numbers in `value` are unknown while Python runs."""
    return isinstance(value, Tracer)


def is_weak(value: Any) -> bool:
    """Whether the dtype of `value` gives way to that of what it meets."""
    if isinstance(value, jax.Array):
        return bool(getattr(jax.typeof(value), "weak_type", False))
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


def members_of(problem: Problem) -> Members:
    """Return the leaves of `problem`, whose own leaves may already be of class `Leaf`."""
    y0, y0_tree = named_leaves("y0", problem.y0)
    params, params_tree = named_leaves("params", problem.params)
    t0, t1 = problem.t_span
    t_span = (make_leaf("t_span[0]", t0), make_leaf("t_span[1]", t1))
    return Members(problem, y0, y0_tree, t_span, params, params_tree)


def named_leaves(name: str, tree: Any) -> tuple[list[Leaf], Any]:
    """Return the leaves of `tree`, each with the expression that a user would write for it."""
    flat, treedef = jax.tree_util.tree_flatten_with_path(tree)
    return [make_leaf(name + jax.tree_util.keystr(path), leaf) for path, leaf in flat], treedef


def make_leaf(path: str, value: Any) -> Leaf:
    """Return `value` as a shared leaf; a value that is a `Leaf` keeps what it knows."""
    if isinstance(value, Leaf):
        return replace(value, path=path)
    return Leaf(path, value, weak=is_weak(value))
