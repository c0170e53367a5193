"""The functions of a problem, traced; kept while nothing that they can see has changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array
from pullback.ensemble.kept import Kept
from pullback.ensemble.leaf import Leaf, Members, is_array
from pullback.ensemble.purity import fingerprint, frozen_copy, trace_settings
from pullback.ensemble.sde_problem import SDEProblem, functions_of
from pullback.ode import (
    FlatField,
    NoiseSpec,
    StateLayout,
    trace_stochastic,
    trace_vector_field,
)


class Field(NamedTuple):
    """The traced functions of a problem.

    Attributes:
        flat: the vector field, or drift, of one state vector, static.
        hoisted: the arrays that the functions close over.
        layout: how the state vector and the user's state belong together.
        noise: how noise enters a stochastic problem; None for an ordinary one.
        more_floating: which entries of theta behind the field's own are floating.
    """

    flat: FlatField
    hoisted: tuple[Array, ...]
    layout: StateLayout
    noise: NoiseSpec | None = None
    more_floating: tuple[bool, ...] = ()


_kept: Kept[Field] = Kept()


def trace_field(members: Members) -> Field:
    """Return the functions of `members`, traced for one trajectory.

    Args:
        members: trajectories whose leaves have been cast.
    """
    key = _cache_key(members)
    field = _kept.get(key)
    if field is None:
        field = _trace(members)
        if key is not None:
            field = field._replace(hoisted=tuple(frozen_copy(field.hoisted)))
            _kept.put(key, field)
    return field


def parameter_operands(members: Members) -> list[Leaf]:
    """Return the leaves of `params` that are arrays, random keys as their bits."""
    return [leaf for leaf in members.params if is_array(leaf.value)]


def _trace(members: Members) -> Field:
    y0 = jax.tree_util.tree_unflatten(members.y0_tree, [_example(x) for x in members.y0])
    arrays = parameter_operands(members)
    functions = functions_of(members.problem)
    if len(arrays) == len(members.params):
        params = jax.tree_util.tree_unflatten(members.params_tree, [_example(x) for x in arrays])
    else:
        functions = tuple(_with_fixed_leaves(members, function) for function in functions)
        params = [_example(x) for x in arrays]
    if isinstance(members.problem, SDEProblem):
        drift, diffusion = functions
        kind, n_noise = members.problem.noise, members.problem.n_noise
        found = trace_stochastic(drift, diffusion, y0, params, kind, n_noise)
        return Field(found.field, found.hoisted, found.layout, found.noise, found.more_floating)
    traced = trace_vector_field(functions[0], y0, params)
    return Field(traced.field, tuple(traced.theta[len(arrays) :]), traced.layout)


def _example(leaf: Leaf) -> Any:
    """Return a value of one trajectory with the leaf's shape and dtype."""
    if not leaf.batched:
        return leaf.value
    if jnp.issubdtype(leaf.value.dtype, jax.dtypes.prng_key):
        return leaf.value[0]
    return np.zeros(leaf.shape, leaf.value.dtype)


def example_params(members: Members, function: Any) -> tuple[Any, Any]:
    """Return a further function of `(t, y, params)` and parameters to trace it with."""
    arrays = parameter_operands(members)
    values = [_example(x) for x in arrays]
    if len(arrays) == len(members.params):
        return function, jax.tree_util.tree_unflatten(members.params_tree, values)
    return _with_fixed_leaves(members, function), values


def _with_fixed_leaves(members: Members, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` of the parameters' arrays; their other leaves are fixed."""
    fixed = [leaf.value for leaf in members.params]

    def of_arrays(t: Any, y: Any, arrays: list[Any]) -> Any:
        new = iter(arrays)
        leaves = [next(new) if is_array(value) else value for value in fixed]
        return function(t, y, jax.tree_util.tree_unflatten(members.params_tree, leaves))

    of_arrays.__name__ = getattr(function, "__name__", type(function).__name__)
    return of_arrays


def _cache_key(members: Members) -> Hashable | None:
    if len(parameter_operands(members)) != len(members.params):
        return None
    problem = members.problem
    prints = tuple(map(fingerprint, functions_of(problem)))
    if None in prints:
        return None
    kind = (problem.noise, problem.n_noise) if isinstance(problem, SDEProblem) else None
    avals = [(leaf.shape, leaf.value.dtype) for leaf in (*members.y0, *members.params)]
    return (prints, kind, members.y0_tree, members.params_tree, *avals, trace_settings())
