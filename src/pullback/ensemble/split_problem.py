"""One initial value problem whose vector field is the sum of two, of which one is stiff."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax

from pullback.core.user_function import require_function
from pullback.ensemble.abstract_problem import (
    AbstractProblem,
    PyTree,
    split_t_span,
)
from pullback.ensemble.event import Event, PresetTimes, checked_events


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False, init=False, repr=False)
class SplitODEProblem(AbstractProblem):
    """y' = explicit(t, y, params) + implicit(t, y, params), y(t0) = y0, on (t0, t1).

    `pb.KenCarp3()` and `pb.KenCarp4()` solve equations with the Jacobian of `implicit` only;
    every other method takes the sum.

    Args:
        explicit: `explicit(t, y, params)`, the part that is not stiff; returns the structure,
            shapes and dtypes of `y`. Written for one trajectory, in `jax.numpy`, without side
            effects.
        implicit: `implicit(t, y, params)`, the stiff part, likewise.
        y0: initial state, any pytree of real floating arrays or Python floats.
        t_span: `(t0, t1)`, an array of the two also. `t1 < t0` integrates backward.
        params: any pytree, given to both functions as it is.
        events: `pb.Event` and `pb.PresetTimes` objects.

    Example:
        >>> import jax.numpy as jnp
        >>> import pullback as pb
        >>> following = pb.SplitODEProblem(
        ...     lambda t, y, rate: jnp.cos(t), lambda t, y, rate: -rate * y, 0.0, (0.0, 1.0), 1e4
        ... )
        >>> sol = pb.solve(following, pb.KenCarp4())
        >>> round(1e4 * float(sol.y_end), 3)
        0.54
    """

    function_names: ClassVar[tuple[str, ...]] = ("explicit", "implicit")
    static_names: ClassVar[tuple[str, ...]] = ("events",)

    explicit: Callable[..., Any]
    implicit: Callable[..., Any]
    y0: PyTree
    t_span: Any
    params: PyTree = None
    events: tuple[Event | PresetTimes, ...] = ()

    def __init__(
        self,
        explicit: Callable[..., Any],
        implicit: Callable[..., Any],
        y0: PyTree,
        t_span: Any,
        params: PyTree = None,
        *,
        events: Any = (),
    ) -> None:
        todo = "write pb.SplitODEProblem(explicit, implicit, y0, t_span, params)"
        for role, function in (("explicit", explicit), ("implicit", implicit)):
            require_function(role, function, "t, y, params", todo)
        self._set(
            explicit=explicit,
            implicit=implicit,
            y0=y0,
            t_span=split_t_span(t_span),
            params=params,
            events=checked_events(events),
        )
