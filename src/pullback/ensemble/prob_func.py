"""Ensembles given by `prob_func`: traced once, evaluated for all trajectories together."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import eval_jaxpr
from jax.extend import core as jex

from pullback.core.fingerprint import ContentKey, open_jaxpr_key
from pullback.ensemble.dependence import dependent_outputs
from pullback.ensemble.ensemble_problem import EnsembleProblem, TrajectoryContext
from pullback.ensemble.kept import Kept
from pullback.ensemble.leaf import Leaf, Members, is_array, members_of
from pullback.ensemble.purity import fingerprint, frozen_copy, trace_settings
from pullback.ensemble.sde_problem import Problem, SDEProblem, functions_of


class Traced(NamedTuple):
    """A traced `prob_func`.

    Attributes:
        closed: its trace, of the problem's arrays, `sim_id` and the key, if there is one.
        leaves: the leaves of the problem that it returned; the arrays among them are traced.
        tree: structure of that problem.
    """

    closed: jex.ClosedJaxpr
    leaves: list[Any]
    tree: Any


_kept: Kept[Traced] = Kept()


@dataclass(frozen=True)
class _Program:
    """What is evaluated for all trajectories; equal for equal traces."""

    key: ContentKey
    computed: tuple[int, ...]
    flags: tuple[bool, ...]
    jaxpr: jex.Jaxpr = field(compare=False, repr=False)


def members_from_prob_func(
    ensemble: EnsembleProblem, n_traj: int | None, key: Any, sim_ids: Any = None
) -> Members:
    """Return the trajectories that `prob_func` makes of the ensemble's problem.

    Args:
        ensemble: the ensemble.
        n_traj: number of trajectories.
        key: the ensemble's random key; None without.
        sim_ids: which trajectories, `(n_traj,)`; None for the first ones.
    """
    if n_traj is None:
        raise ValueError(
            "`trajectories` is missing: an ensemble made by `prob_func` does not know how many "
            "trajectories there are; pass trajectories=N to solve."
        )
    leaves, treedef = jax.tree_util.tree_flatten(ensemble.problem)
    arrays = [leaf for leaf in leaves if is_array(leaf)]
    traced = _traced(ensemble, leaves, treedef, key)
    if sim_ids is None:
        sim_ids = np.arange(n_traj, dtype=np.int32)
    results = _evaluate(traced.closed, [*arrays, None, *_keys(key)], len(arrays), sim_ids)
    problem = jax.tree_util.tree_unflatten(traced.tree, _refill(traced.leaves, results))
    return replace(members_of(problem), problem=ensemble.problem, n_traj=n_traj)


def _keys(key: Any) -> list[Any]:
    return [] if key is None else [key]


def _refill(leaves: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    """Return `leaves` with its arrays replaced, in order."""
    new = iter(arrays)
    return [next(new) if is_array(leaf) else leaf for leaf in leaves]


def _traced(ensemble: EnsembleProblem, leaves: list[Any], treedef: Any, key: Any) -> Traced:
    """Trace `prob_func`, or return its trace while nothing that it can see has changed."""
    cache_key = _cache_key(ensemble, leaves, treedef, key)
    traced = _kept.get(cache_key)
    if traced is None:
        traced = _trace(ensemble, leaves, treedef, key)
        if cache_key is not None:
            consts = frozen_copy(traced.closed.consts)
            traced = traced._replace(closed=jex.ClosedJaxpr(traced.closed.jaxpr, consts))
            _kept.put(cache_key, traced)
    return traced


def _cache_key(ensemble: EnsembleProblem, leaves: Any, treedef: Any, key: Any) -> Hashable | None:
    function = fingerprint(ensemble.prob_func)
    if function is None or not all(map(is_array, leaves)):
        return None
    avals = tuple(_aval(leaf) for leaf in (*leaves, *_keys(key)))
    return (function, treedef, avals, key is None, trace_settings())


def _aval(leaf: Any) -> Hashable:
    # A Python number and a NumPy one are not promoted alike.
    kind = "array" if isinstance(leaf, (jax.Array, np.ndarray)) else type(leaf)
    return (kind, str(jax.typeof(leaf)))


def _trace(ensemble: EnsembleProblem, leaves: list[Any], treedef: Any, key: Any) -> Traced:
    returned: list[Any] = []

    def one(arrays: list[Any], sim_id: jax.Array, *keys: Any) -> list[Any]:
        given = jax.tree_util.tree_unflatten(treedef, _refill(leaves, arrays))
        context = TrajectoryContext(sim_id, *keys)
        problem = ensemble.prob_func(given, context)  # pyright: ignore[reportOptionalCall]
        _check_returned(problem, given)
        out, tree = jax.tree_util.tree_flatten(problem)
        # Only which leaves are arrays matters later on; a tracer must not outlive its trace.
        returned[:] = [[0.0 if is_array(leaf) else leaf for leaf in out], tree]
        return [leaf for leaf in out if is_array(leaf)]

    arrays = [leaf for leaf in leaves if is_array(leaf)]
    closed = jax.make_jaxpr(one)(arrays, np.int32(0), *_keys(key))
    return Traced(closed, *returned)


def _evaluate(closed: jex.ClosedJaxpr, inputs: list[Any], where: int, sim_ids: Any) -> list[Leaf]:
    """Evaluate what depends on the trajectory for all of them, and the rest once.

    `where` is the position of `sim_id` in `inputs`.
    """
    jaxpr = closed.jaxpr
    flags = dependent_outputs(jaxpr, [i == where for i in range(len(inputs))])
    # What passes through unchanged stays the object it was: NumPy's numbers stay known.
    known = {v: x for i, (v, x) in enumerate(zip(jaxpr.invars, inputs, strict=True)) if i != where}
    values: dict[int, Any] = {}
    for i, var in enumerate(jaxpr.outvars):
        if isinstance(var, jex.Literal):
            values[i] = var.val
        elif var in known:
            values[i] = known[var]
    computed = tuple(i for i in range(len(flags)) if i not in values)
    if computed:
        program = _Program(
            open_jaxpr_key(jaxpr), computed, tuple(flags[i] for i in computed), jaxpr
        )
        results = _run_all(program, closed.consts, inputs[:where], sim_ids, inputs[where + 1 :])
        values.update(zip(computed, results, strict=True))
    return [
        Leaf("", values[i], batched=flag, weak=bool(getattr(var.aval, "weak_type", False)))
        for i, (var, flag) in enumerate(zip(jaxpr.outvars, flags, strict=True))
    ]


@functools.partial(jax.jit, static_argnums=0)
def _run_all(
    program: _Program, consts: Any, before: list[Any], sim_ids: Any, after: list[Any]
) -> list[Any]:
    def one(sim_id: jax.Array) -> list[Any]:
        out = eval_jaxpr(program.jaxpr, consts, *before, sim_id, *after)
        return [out[i] for i in program.computed]

    axes = [0 if flag else None for flag in program.flags]
    return jax.vmap(one, out_axes=axes)(sim_ids)


def _check_returned(problem: Any, given: Problem) -> None:
    kind = type(given).__name__
    if type(problem) is not type(given):
        raise TypeError(
            f"`prob_func` must return an {kind}, but it returned a {type(problem).__name__}; end "
            "it with `return problem.replace(...)`."
        )
    before, before_tree = jax.tree_util.tree_flatten(functions_of(given))
    after, after_tree = jax.tree_util.tree_flatten(functions_of(problem))
    same = before_tree == after_tree and all(
        a is b or (not is_array(a) and a == b) for a, b in zip(before, after, strict=True)
    )
    if not same:
        role = " or ".join(f"`{name}`" for name in given.function_names)
        raise ValueError(
            "`prob_func` may change y0, params and t_span, but it returned a problem with another "
            f"{role}; put what differs between trajectories into params."
        )
    if isinstance(given, SDEProblem) and isinstance(problem, SDEProblem):
        noise, returned = ((p.noise, p.n_noise) for p in (given, problem))
        if noise != returned:
            raise ValueError(
                f"`prob_func` must keep `noise` and `n_noise`, {noise}, but it returned a problem "
                f"with {returned}."
            )
