"""The functions of a problem, traced; kept while nothing that they can see has changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.keys import is_key
from pullback.core.typing import Array
from pullback.ensemble.dependence import dependent_outputs
from pullback.ensemble.given_jacobian import check_jacobian
from pullback.ensemble.kept import Kept
from pullback.ensemble.leaf import Leaf, Members, is_array, is_traced
from pullback.ensemble.problem import ODEProblem
from pullback.ensemble.purity import fingerprint, frozen_copy, trace_settings
from pullback.ensemble.sde_problem import SDEProblem, functions_of
from pullback.ensemble.second_order_problem import SecondOrderODEProblem
from pullback.ensemble.split_problem import SplitODEProblem
from pullback.ode import (
    FlatField,
    FlatFunction,
    NoiseSpec,
    SplitParts,
    StateLayout,
    trace_jacobian,
    trace_second_order,
    trace_split,
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
        jac: the Jacobian that the user gave; None derives it.
        split: the two parts of a split problem.
        uses_velocity: whether the acceleration of a problem of second order depends on the
            velocities; None for other problems.
    """

    flat: FlatField
    hoisted: tuple[Array, ...]
    layout: StateLayout
    noise: NoiseSpec | None = None
    more_floating: tuple[bool, ...] = ()
    jac: FlatFunction | None = None
    split: SplitParts | None = None
    uses_velocity: bool | None = None


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
        # Inside `jax.jit` a NumPy array that the functions close over has become a tracer.
        if key is not None and not any(map(is_traced, field.hoisted)):
            field = field._replace(hoisted=tuple(frozen_copy(field.hoisted)))
            _kept.put(key, field)
    if field.jac is not None:
        check_jacobian(members, field.flat, field.jac, field.hoisted)
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
    problem = members.problem
    trace = next(trace for kind, trace in _TRACERS.items() if isinstance(problem, kind))
    return trace(problem, functions, y0, params)


def _ordinary(problem: ODEProblem, functions: Any, y0: Any, params: Any) -> Field:
    n_params = len(jax.tree.leaves(params))
    traced = trace_vector_field(functions[0], y0, params)
    own = tuple(traced.theta[n_params:])
    if problem.jac is None:
        return Field(traced.field, own, traced.layout)
    jac, more = trace_jacobian(functions[1], traced.layout, params, len(traced.theta))
    floating = tuple(jnp.issubdtype(x.dtype, np.floating) for x in more)
    return Field(traced.field, own + more, traced.layout, more_floating=floating, jac=jac)


def _stochastic(problem: SDEProblem, functions: Any, y0: Any, params: Any) -> Field:
    drift, diffusion = functions
    kind, n_noise = problem.noise, problem.n_noise
    found = trace_stochastic(drift, diffusion, y0, params, kind, n_noise)
    return Field(found.field, found.hoisted, found.layout, found.noise, found.more_floating)


def _second_order(problem: SecondOrderODEProblem, functions: Any, y0: Any, params: Any) -> Field:
    del problem
    found = trace_second_order(functions[0], y0, params)
    jaxpr = found.of_velocity.jaxpr.jaxpr
    depends = dependent_outputs(jaxpr, [i == 1 for i in range(len(jaxpr.invars))])
    return Field(found.field, found.hoisted, found.layout, uses_velocity=any(depends))


def _split(problem: SplitODEProblem, functions: Any, y0: Any, params: Any) -> Field:
    del problem
    explicit, implicit = functions
    found = trace_split(explicit, implicit, y0, params)
    return Field(found.field, found.hoisted, found.layout, split=found.parts)


_TRACERS: dict[type, Callable[..., Field]] = {
    ODEProblem: _ordinary,
    SDEProblem: _stochastic,
    SecondOrderODEProblem: _second_order,
    SplitODEProblem: _split,
}


def _example(leaf: Leaf) -> Any:
    """Return a value of one trajectory with the leaf's shape and dtype."""
    if not leaf.batched:
        return leaf.value
    if is_key(leaf.value):
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

    def of_arrays(*arguments: Any) -> Any:
        *before, arrays = arguments
        new = iter(arrays)
        leaves = [next(new) if is_array(value) else value for value in fixed]
        return function(*before, jax.tree_util.tree_unflatten(members.params_tree, leaves))

    of_arrays.__name__ = getattr(function, "__name__", type(function).__name__)
    return of_arrays


def _cache_key(members: Members) -> Hashable | None:
    if len(parameter_operands(members)) != len(members.params):
        return None
    problem = members.problem
    prints = tuple(map(fingerprint, functions_of(problem)))
    if None in prints:
        return None
    noise = (problem.noise, problem.n_noise) if isinstance(problem, SDEProblem) else None
    kind = (type(problem), noise)
    avals = [(leaf.shape, leaf.value.dtype) for leaf in (*members.y0, *members.params)]
    return (prints, kind, members.y0_tree, members.params_tree, *avals, trace_settings())
