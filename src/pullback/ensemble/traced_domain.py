"""The domain of a problem: where a state is valid, traced like the vector field."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array
from pullback.core.user_function import require_function
from pullback.ensemble.leaf import Members
from pullback.ensemble.traced_field import Field, example_params
from pullback.ode import FlatFunction, trace_function


class TracedDomain(NamedTuple):
    """A traced domain.

    Attributes:
        function: one where a state is valid, zero elsewhere; None for everywhere.
        hoisted: the arrays that it closes over.
        floating: which of those are floating.
    """

    function: FlatFunction | None
    hoisted: tuple[Array, ...] = ()
    floating: tuple[bool, ...] = ()


def trace_domain(is_valid: Any, members: Members, field: Field, n_theta: int) -> TracedDomain:
    """Trace `is_valid(t, y, params)`.

    Args:
        is_valid: the user's function; None for everywhere.
        members: trajectories whose leaves have been cast.
        field: the traced vector field.
        n_theta: length of theta so far.

    Raises:
        TypeError: it is not a function, or does not return one boolean.
    """
    if is_valid is None:
        return TracedDomain(None)
    require_function("is_valid", is_valid)
    dtype = field.layout.dtype

    def one_flag(value: Any) -> Array:
        if value is None:
            raise TypeError("`is_valid` must return one boolean, but it returned None.")
        flag = jnp.asarray(value)
        if flag.shape != () or flag.dtype != bool:
            raise TypeError(
                f"`is_valid` must return one boolean, but it returned {flag.dtype} of shape "
                f"{flag.shape}; combine several with jnp.all."
            )
        return flag.astype(dtype)

    function, params = example_params(members, is_valid)
    flat, hoisted = trace_function(function, field.layout, params, n_theta, one_flag)
    floating = tuple(jnp.issubdtype(x.dtype, np.floating) for x in hoisted)
    return TracedDomain(flat, hoisted, floating)
