"""Ensembles given by arrays: which leaves carry a leading trajectory axis, and how long it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from pullback.ensemble.ensemble_problem import EnsembleProblem
from pullback.ensemble.leaf import Leaf, Members, is_array, is_weak, make_leaf, members_of
from pullback.ensemble.problem import split_t_span


def members_from_leaves(ensemble: EnsembleProblem, n_traj: int | None) -> Members:
    """Return the trajectories of an ensemble given by batched leaves."""
    own = members_of(ensemble.problem)
    y0 = list(_paired("y0", ensemble.problem.y0, ensemble.y0, own.y0))
    params = list(_paired("params", ensemble.problem.params, ensemble.params, own.params))
    t_span = own.t_span if ensemble.t_span is None else _span_leaves(ensemble.t_span)
    n_traj = _agreed_count([*y0, *params, *t_span], n_traj)
    return replace(own, y0=y0, params=params, t_span=t_span, n_traj=n_traj)


def _is_none(x: Any) -> bool:
    return x is None


def _paired(name: str, base: Any, given: Any, own: list[Leaf]) -> Iterator[Leaf]:
    """Pair the leaves given to EnsembleProblem with the problem's `own`."""
    if given is None:
        yield from own
        return
    base_leaves, base_tree = jax.tree_util.tree_flatten(base, is_leaf=_is_none)
    flat, tree = jax.tree_util.tree_flatten_with_path(given, is_leaf=_is_none)
    if tree != base_tree:
        raise ValueError(
            f"`{name}` of EnsembleProblem must have the structure of the problem's own `{name}`, "
            f"{base_tree}, but {tree} arrived; write None for a leaf that is shared."
        )
    remaining = iter(own)
    for (path, value), base_leaf in zip(flat, base_leaves, strict=True):
        where = name + jax.tree_util.keystr(path)
        if base_leaf is not None:
            yield _given_leaf(where, value, next(remaining))
        elif value is not None:
            raise ValueError(
                f"`{where}` of EnsembleProblem was given, but it is None in the problem itself; "
                "give the problem a value with the shape of one trajectory."
            )


def _given_leaf(path: str, value: Any, own: Leaf) -> Leaf:
    if value is None:
        return own
    if not is_array(value):
        return make_leaf(path, value)
    shape, own_shape = np.shape(value), own.shape
    if shape == own_shape:
        return make_leaf(path, value)
    if len(shape) == len(own_shape) + 1 and shape[1:] == own_shape:
        return Leaf(path, value, batched=True, weak=is_weak(value))
    expected = ", ".join(["trajectory", *map(str, own_shape)]) + ("" if own_shape else ",")
    raise ValueError(
        f"`{path}` of EnsembleProblem must have shape ({expected}), or the problem's own "
        f"{own_shape} to be shared, but an array of shape {shape} arrived."
    )


def _span_leaves(t_span: Any) -> tuple[Leaf, Leaf]:
    ends = _span_columns(t_span)
    for i, end in enumerate(ends):
        if np.ndim(end) > 1:
            raise ValueError(
                "`t_span` of EnsembleProblem must have shape (trajectory, 2), or be a pair of "
                f"scalars and (trajectory,) arrays, but its entry {i} has shape {np.shape(end)}."
            )
    t0, t1 = (
        Leaf(f"t_span[{i}]", end, batched=np.ndim(end) == 1, weak=is_weak(end))
        for i, end in enumerate(ends)
    )
    return t0, t1


def _span_columns(t_span: Any) -> tuple[Any, Any]:
    """Return first and last times from an array with two columns or from a pair."""
    if isinstance(t_span, (tuple, list)):
        if len(t_span) == 2:
            t0, t1 = (np.asarray(e) if isinstance(e, (tuple, list)) else e for e in t_span)
            return t0, t1
        t_span = np.asarray(t_span)
    if np.ndim(t_span) == 2 and t_span.shape[1] == 2:
        return t_span[:, 0], t_span[:, 1]
    return split_t_span(t_span)


def _agreed_count(leaves: list[Leaf], n_traj: int | None) -> int:
    counts = [(f"`{leaf.path}`", np.shape(leaf.value)[0]) for leaf in leaves if leaf.batched]
    if n_traj is not None:
        counts.insert(0, ("`trajectories`", n_traj))
    if not counts:
        raise ValueError(
            "the number of trajectories is unknown: no leaf of the EnsembleProblem has a leading "
            "trajectory axis; pass trajectories=N to solve."
        )
    name, count = counts[0]
    for other, other_count in counts[1:]:
        if other_count != count:
            raise ValueError(
                f"trajectory counts disagree: {name} says {count}, but {other} has {other_count} "
                "along its leading axis; make the leading axes equal."
            )
    return count
