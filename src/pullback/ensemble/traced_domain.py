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
from pullback.ode.flat_function import one_flag


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

    def as_number(value: Any) -> Array:
        return one_flag(value, "`is_valid`", "combine several with jnp.all").astype(dtype)

    function, params = example_params(members, is_valid)
    flat, hoisted = trace_function(function, field.layout, params, n_theta, as_number)
    floating = tuple(jnp.issubdtype(x.dtype, np.floating) for x in hoisted)
    return TracedDomain(flat, hoisted, floating)
