"""The vector field of a problem, traced; kept while nothing that it can see has changed."""

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
from pullback.ode import FlatField, StateLayout, trace_vector_field


class Field(NamedTuple):
    """A traced vector field.

    Attributes:
        flat: the field of one state vector, static.
        hoisted: the arrays that the function closes over.
        layout: how the state vector and the user's state belong together.
    """

    flat: FlatField
    hoisted: tuple[Array, ...]
    layout: StateLayout


_kept: Kept[Field] = Kept()


def trace_field(members: Members) -> Field:
    """Return the vector field of `members`, traced for one trajectory.

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
    function = members.problem.vector_field
    if len(arrays) == len(members.params):
        params = jax.tree_util.tree_unflatten(members.params_tree, [_example(x) for x in arrays])
    else:
        function, params = _with_fixed_leaves(members, function), [_example(x) for x in arrays]
    traced = trace_vector_field(function, y0, params)
    return Field(traced.field, tuple(traced.theta[len(arrays) :]), traced.layout)


def _example(leaf: Leaf) -> Any:
    """Return a value of one trajectory with the leaf's shape and dtype."""
    if not leaf.batched:
        return leaf.value
    if jnp.issubdtype(leaf.value.dtype, jax.dtypes.prng_key):
        return leaf.value[0]
    return np.zeros(leaf.shape, leaf.value.dtype)


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
    function = fingerprint(members.problem.vector_field)
    if function is None:
        return None
    avals = [(leaf.shape, leaf.value.dtype) for leaf in (*members.y0, *members.params)]
    return (function, members.y0_tree, members.params_tree, *avals, trace_settings())
