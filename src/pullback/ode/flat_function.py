"""Further functions of (t, y, params) beside the vector field, traced like it.

A condition or an affect of an event sees the same parameters as the vector field and may close
over arrays of its own. All of them share one tuple theta: the parameters first, then what each
function closes over.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jex

from pullback.core.fingerprint import ContentKey
from pullback.core.typing import Array, PyTree
from pullback.ode.field import trace_flat
from pullback.ode.ravel import StateLayout

__all__ = ["FlatFunction", "as_array", "inputs_read", "one_flag", "one_number", "trace_function"]


@dataclasses.dataclass(frozen=True)
class FlatFunction:
    """A function of one state vector: `function(t, y, theta)`, equal by content.

    Attributes:
        key: Equal for equal traces.
        places: Which entries of theta it takes.
        jaxpr: The trace, of `(t, y, *taken)`.
        name: Name of the user's function, for messages.
    """

    key: ContentKey
    places: tuple[int, ...]
    jaxpr: jex.ClosedJaxpr = dataclasses.field(compare=False, repr=False)
    name: str = dataclasses.field(compare=False)

    def __call__(self, t: Array, y: Array, theta: tuple[Array, ...]) -> Array:
        """Evaluate it for one trajectory."""
        return _compiled(self)(t, y, *(theta[i] for i in self.places))

    def where(self, happens: Array, t: Array, y: Array, theta: tuple[Array, ...]) -> Array:
        """Return the function of the state where something happens, elsewhere the state itself.

        Differentiation:
            Where nothing happens the function has no part in the derivative, NaN or not.
        """

        def gated(x: Array) -> Array:
            return jnp.where(happens, x, lax.stop_gradient(x)) if _is_floating(x) else x

        taken = list(theta)
        for place, is_read in zip(self.places, inputs_read(self.jaxpr)[2:], strict=True):
            if is_read:
                taken[place] = gated(taken[place])
        return jnp.where(happens, self(gated(t), gated(y), tuple(taken)), y)


def inputs_read(jaxpr: jex.ClosedJaxpr) -> list[bool]:
    """Return which inputs of a trace are mentioned in it."""
    inner = jaxpr.jaxpr
    # Literals cannot be hashed, and are nobody's input.
    mentioned = {id(atom) for eqn in inner.eqns for atom in eqn.invars}
    mentioned |= {id(atom) for atom in inner.outvars}
    return [id(variable) in mentioned for variable in inner.invars]


@functools.lru_cache(maxsize=256)
def _compiled(function: FlatFunction) -> Callable[..., Array]:
    evaluate = jex.jaxpr_as_fun(function.jaxpr)

    @jax.jit
    def flat_function(*operands: Array) -> Array:
        return evaluate(*operands)[0]

    return flat_function


def trace_function(
    function: Callable[[Any, Any, Any], Any],
    layout: StateLayout,
    params: PyTree,
    n_theta: int,
    finish: Callable[[Any], Array],
) -> tuple[FlatFunction, tuple[Array, ...]]:
    """Trace `function(t, y, params)` once, for one trajectory.

    Args:
        function: The user's function.
        layout: Layout of the state.
        params: Parameters, like the vector field's.
        n_theta: Length of theta so far; what the function closes over is to follow.
        finish: Checks what the function returns and makes one array of it.

    Returns:
        The flat function, and the arrays that it closes over.
    """
    n_params = len(jax.tree.leaves(params))
    traced = trace_flat(function, layout, params, finish)
    places = (*range(n_params), *range(n_theta, n_theta + len(traced.hoisted)))
    return FlatFunction(traced.key, places, traced.jaxpr, traced.name), traced.hoisted


def as_array(value: Any, wanted: str) -> Array:
    """Return what a user's function returned as an array.

    Args:
        value: What it returned.
        wanted: What it should have returned, up to "but it returned".

    Raises:
        TypeError: It is no array.
    """
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError) as error:
        what = "None" if value is None else f"an object of class {type(value).__name__}"
        raise TypeError(f"{wanted} {what}.") from error


def one_flag(value: Any, name: str, hint: str) -> Array:
    """Return what a function returned as one boolean.

    Args:
        value: What it returned.
        name: The function, for messages.
        hint: What to do with something else.

    Raises:
        TypeError: It is not one boolean.
    """
    wanted = f"{name} must return one boolean, but it returned"
    flag = as_array(value, wanted)
    if flag.shape != () or flag.dtype != bool:
        raise TypeError(f"{wanted} {flag.dtype} of shape {flag.shape}; {hint}.")
    return flag


def one_number(value: Any, name: str) -> Array:
    """Return what a condition returned as one real number.

    Raises:
        TypeError: It is not one real floating number.
    """
    wanted = (
        f"`condition` {name} must return one real number whose zero is the event, but it returned"
    )
    array = as_array(value, wanted)
    if array.shape != () or not _is_floating(array):
        is_flag = array.dtype == bool
        hint = "; return how far it is from happening, not whether it does" if is_flag else ""
        raise TypeError(f"{wanted} {array.dtype} of shape {array.shape}{hint}.")
    return array


def _is_floating(array: Array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating)
