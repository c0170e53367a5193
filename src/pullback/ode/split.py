"""A vector field that is the sum of two parts, one of which is stiff."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from pullback.core.fingerprint import ContentKey
from pullback.core.typing import Array, PyTree
from pullback.ode.field import FlatField
from pullback.ode.flat_function import FlatFunction, trace_function
from pullback.ode.ravel import StateLayout, state_layout

__all__ = ["SplitParts", "TracedSplit", "trace_split"]


@dataclasses.dataclass(frozen=True)
class SplitParts:
    """The two parts, static and equal by content.

    Attributes:
        explicit: The part that is not stiff.
        implicit: The stiff part, the only one whose Jacobian an additive method uses.
    """

    explicit: FlatFunction
    implicit: FlatFunction


class TracedSplit(NamedTuple):
    """What tracing the two parts gives.

    Attributes:
        field: Their sum, static.
        parts: The parts, static.
        hoisted: The arrays that they close over, which follow the parameters in theta.
        layout: How the state vector and the user's state belong together.
    """

    field: FlatField
    parts: SplitParts
    hoisted: tuple[Array, ...]
    layout: StateLayout


def trace_split(
    explicit: Callable[[Any, Any, Any], Any],
    implicit: Callable[[Any, Any, Any], Any],
    y0: PyTree,
    params: PyTree,
) -> TracedSplit:
    """Trace `explicit(t, y, params)` and `implicit(t, y, params)` once, for one trajectory.

    Raises:
        TypeError: A result has another structure or dtype than the state.
        ValueError: A result has another shape than the state, or there are side effects.
    """
    layout = state_layout(y0)
    leaves = jax.tree.leaves(params)
    hoisted: tuple[Array, ...] = ()
    parts: list[FlatFunction] = []
    for role, function in (("explicit", explicit), ("implicit", implicit)):
        name = getattr(function, "__name__", type(function).__name__)
        finish = functools.partial(layout.ravel_derivative, name=name, role=role)
        part, more = trace_function(function, layout, params, len(leaves) + len(hoisted), finish)
        parts.append(part)
        hoisted += more
    n_params = len(leaves)
    avals = [*parts[0].jaxpr.in_avals[2 : 2 + n_params], *map(jax.typeof, hoisted)]
    return TracedSplit(_sum(parts, layout, avals), SplitParts(*parts), hoisted, layout)


def _sum(parts: list[FlatFunction], layout: StateLayout, avals: list[Any]) -> FlatField:
    def of_operands(t: Array, y: Array, *theta: Array) -> Array:
        a, b = (
            jex.jaxpr_as_fun(part.jaxpr)(t, y, *(theta[i] for i in part.places))[0]
            for part in parts
        )
        return a + b

    scalar = jax.ShapeDtypeStruct((), layout.dtype)
    vector = jax.ShapeDtypeStruct((layout.n,), layout.dtype)
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    return FlatField(
        key=ContentKey(tuple((part.key, part.places) for part in parts)),
        jaxpr=jax.make_jaxpr(of_operands)(scalar, vector, *shapes),
        name=" + ".join(part.name for part in parts),
        n=layout.n,
        floating=tuple(jnp.issubdtype(a.dtype, np.floating) for a in avals),
    )
