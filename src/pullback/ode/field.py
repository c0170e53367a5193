"""The user's vector field as a flat, traced function that compares by content.

`trace_vector_field` ravels the state into one vector and the parameters into a tuple of arrays
`theta`, traces the vector field once, and appends to `theta` every array it closes over, traced
ones included. What is left, `FlatField`, is pure, has no constants of its own, and two fields
are equal when their traces are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from pullback.core.fingerprint import ContentKey, open_jaxpr_key
from pullback.core.keys import is_key
from pullback.core.typing import Array, PyTree
from pullback.ode.index_tables import index_tables
from pullback.ode.ravel import StateLayout, refuse_silent_narrowing, state_layout
from pullback.ode.tidy import tidy

__all__ = ["FlatField", "TracedField", "trace_vector_field"]


@dataclasses.dataclass(frozen=True)
class FlatField:
    """A vector field of one state vector: `field(t, y, theta) -> dy`.

    Attributes:
        key: Equal for equal traces; the only attribute that is compared.
        jaxpr: The trace, of `(t, y, *theta)`.
        name: Name of the user's function, for messages.
        n: Length of the state vector.
        floating: Which entries of `theta` are floating, hence differentiable.
    """

    key: ContentKey
    jaxpr: jex.ClosedJaxpr = dataclasses.field(compare=False, repr=False)
    name: str = dataclasses.field(compare=False)
    n: int = dataclasses.field(compare=False)
    floating: tuple[bool, ...] = dataclasses.field(compare=False)

    @functools.cached_property
    def has_forward_mode(self) -> bool:
        """Whether tangents can be pushed through the field: `custom_vjp` defines none."""
        return not _has_custom_vjp(self.jaxpr.jaxpr)

    def __call__(self, t: Array, y: Array, theta: tuple[Array, ...]) -> Array:
        """Evaluate the field for one trajectory; theta may have further entries behind its own."""
        return _compiled(self)(t, y, *theta[: len(self.floating)])


def _has_custom_vjp(jaxpr: jex.Jaxpr) -> bool:
    return any(
        eqn.primitive.name.startswith("custom_vjp_call")
        or any(map(_has_custom_vjp, jex.jaxprs_in_params(eqn.params)))
        for eqn in jaxpr.eqns
    )


class TracedField(NamedTuple):
    """What tracing a vector field gives.

    Attributes:
        field: The field, static.
        theta: Its arrays: the leaves of the parameters, then what the function closes over.
        y0: The initial state vector.
        layout: How the state vector and the user's state belong together.
    """

    field: FlatField
    theta: tuple[Array, ...]
    y0: Array
    layout: StateLayout


@functools.lru_cache(maxsize=256)
def _compiled(field: FlatField) -> Callable[..., Array]:
    # One jitted function for all equal fields: its own derivatives are then traced once, however
    # many stages and programs use them.
    evaluate = jex.jaxpr_as_fun(field.jaxpr)

    @jax.jit
    def vector_field(*operands: Array) -> Array:
        return evaluate(*operands)[0]

    return vector_field


def trace_vector_field(
    vector_field: Callable[[Any, Any, Any], Any], y0: PyTree, params: PyTree = None
) -> TracedField:
    """Trace `vector_field(t, y, params)` once, for one trajectory.

    Args:
        vector_field: The user's function of plain `jax.numpy`.
        y0: Initial state: a pytree with floating leaves.
        params: Pytree of arrays and scalars.

    Returns:
        The flat field, its operands, the initial state vector and the state's layout.

    Raises:
        TypeError: The state is not real and floating, or the field's result has another
            structure or dtype than the state.
        ValueError: The field's result has another shape than the state, or the field has side
            effects.

    Differentiation:
        Arrays that the function closes over become operands, so derivatives with respect to
        them are right wherever the caller traces them.
    """
    layout = state_layout(y0)
    theta = tuple(_as_operand(leaf, layout.dtype) for leaf in jax.tree.leaves(params))
    name = _name(vector_field)
    traced = trace_flat(vector_field, layout, params, lambda dy: layout.ravel_derivative(dy, name))
    floating = tuple(jnp.issubdtype(a.dtype, np.floating) for a in traced.jaxpr.in_avals[2:])
    field = FlatField(traced.key, traced.jaxpr, name, layout.n, floating)
    return TracedField(field, theta + traced.hoisted, layout.ravel(y0), layout)


class Traced(NamedTuple):
    """A function of `(t, y, params)`, traced for one state vector.

    Attributes:
        key: Equal for equal traces.
        jaxpr: The trace, of `(t, y, *parameters, *hoisted)`.
        hoisted: The arrays that the function closes over.
        name: Its name, for messages.
    """

    key: ContentKey
    jaxpr: jex.ClosedJaxpr
    hoisted: tuple[Array, ...]
    name: str


def trace_flat(
    function: Callable[[Any, Any, Any], Any],
    layout: StateLayout,
    params: PyTree,
    finish: Callable[[Any], Array],
) -> Traced:
    """Trace a function of `(t, y, params)` for one trajectory.

    Args:
        function: The user's function.
        layout: How the state vector and the user's state belong together.
        params: Its parameters.
        finish: Checks what the function returns and makes one array of it.
    """
    leaves, params_tree = jax.tree.flatten(params)
    theta = tuple(_as_operand(leaf, layout.dtype) for leaf in leaves)
    restore = [_restorer(leaf) for leaf in leaves]
    name = _name(function)

    def flat(t: Array, y: Array, *values: Array) -> Array:
        restored = [back(v) for back, v in zip(restore, values, strict=True)]
        state, params = layout.unravel(y), jax.tree.unflatten(params_tree, restored)
        return finish(_called(function, name, t, state, params))

    scalar = jax.ShapeDtypeStruct((), layout.dtype)
    vector = jax.ShapeDtypeStruct((layout.n,), layout.dtype)
    shapes = (jax.ShapeDtypeStruct(v.shape, v.dtype) for v in theta)
    closed = jax.make_jaxpr(flat)(scalar, vector, *shapes)
    _refuse_effects(closed, name)
    tables = index_tables(closed)
    unique, slots = _unique([c for i, c in enumerate(closed.consts) if i not in tables])
    hoisted = tuple(_as_operand(const, layout.dtype) for const in unique)
    jaxpr = tidy(_without_constants(closed, tables, unique, slots, hoisted))
    # The key is of the first trace: tracing again wraps the functions of custom rules once more.
    fixed = tuple((i, v.shape, v.dtype.str, v.tobytes()) for i, v in tables.items())
    key = ContentKey((open_jaxpr_key(closed.jaxpr), slots, fixed))
    return Traced(key, jaxpr, hoisted, name)


def _called(function: Callable[..., Any], name: str, *arguments: Any) -> Any:
    """Call a user's function while it is traced, and say so where it needs what is not known."""
    try:
        return function(*arguments)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise TypeError(
            f"`{name}` needs the value of a number while it is traced, once for all trajectories: "
            "write jnp.where(condition, a, b) for a Python `if`, and jax.numpy for NumPy and math; "
            "JAX's error above tells the line."
        ) from error


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _as_operand(leaf: Any, dtype: np.dtype) -> Array:
    if is_key(leaf):
        return jax.random.key_data(leaf)
    refuse_silent_narrowing(leaf, "params")
    array = jnp.asarray(leaf)
    is_weak_float = array.weak_type and jnp.issubdtype(array.dtype, np.floating)
    return array.astype(dtype if is_weak_float else array.dtype)


def _restorer(leaf: Any) -> Callable[[Array], Any]:
    if not is_key(leaf):
        return lambda value: value
    impl = jax.random.key_impl(leaf)
    return lambda value: jax.random.wrap_key_data(value, impl=impl)


def _refuse_effects(closed: jex.ClosedJaxpr, name: str) -> None:
    if closed.effects:
        effects = ", ".join(sorted(str(e) for e in closed.effects))
        raise ValueError(
            f"`vector_field` {name} has side effects ({effects}), but it is evaluated inside "
            f"compiled loops an unspecified number of times: remove printing, callbacks and "
            f"changes of Refs from it."
        )


def _unique(consts: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Return each array once, and which of them each constant is."""
    position = {id(const): i for i, const in reversed(list(enumerate(consts)))}
    kept = sorted(set(position.values()))
    slots = tuple(kept.index(position[id(const)]) for const in consts)
    return tuple(consts[i] for i in kept), slots


def _without_constants(
    closed: jex.ClosedJaxpr,
    tables: Mapping[int, np.ndarray],
    unique: Sequence[Any],
    slots: Sequence[int],
    hoisted: Sequence[Array],
) -> jex.ClosedJaxpr:
    """Return the trace with its constants, but for `tables`, as further operands."""
    restore = [_restorer(const) for const in unique]
    n_given = len(closed.in_avals)
    given = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in closed.in_avals]
    avals = given + [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in hoisted]

    def evaluate(*values: Array) -> list[Array]:
        back = [r(v) for r, v in zip(restore, values[n_given:], strict=True)]
        others = iter(slots)
        consts = [
            tables[i] if i in tables else back[next(others)] for i in range(len(closed.consts))
        ]
        return jax.core.eval_jaxpr(closed.jaxpr, consts, *values[:n_given])

    return jax.make_jaxpr(evaluate)(*avals)
