"""One initial value problem: what to integrate, from where, over which times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
from jax.core import Tracer

from pullback.core.user_function import require_function
from pullback.ensemble.abstract_problem import (
    AbstractProblem,
    PyTree,
    split_t_span,
)
from pullback.ensemble.event import Event, PresetTimes, checked_events

__all__ = ["ODEProblem", "split_t_span", "static_matrix"]


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False, init=False, repr=False)
class ODEProblem(AbstractProblem):
    """The initial value problem M y' = vector_field(t, y, params), y(t0) = y0, on (t0, t1).

    A problem is a pytree with the leaves of `y0`, `t_span` and `params`, so it passes through
    `jax.jit`, `jax.grad` and `jax.vmap`. A vector field that is itself a pytree (an Equinox module,
    a `jax.tree_util.Partial`) contributes its own leaves; a plain function is static.

    Args:
        vector_field: `vector_field(t, y, params)` returns the time derivative, with the structure,
            shapes and dtypes of `y`. Written for one trajectory, in `jax.numpy`, without side
            effects. It may close over arrays, also traced ones.
        y0: initial state, any pytree of real floating arrays or Python floats.
        t_span: `(t0, t1)`, an array of the two also. `t1 < t0` integrates backward.
        params: any pytree, given to `vector_field` as it is.
        events: `pb.Event` and `pb.PresetTimes` objects, in the order in which simultaneous ones
            happen.
        mass_matrix: the constant matrix M, `(n, n)` numbers for the ravelled state of n components
            or `(n,)` for a diagonal one; None is the identity. Rows of zeros make the equation an
            algebraic one. Needs a method that takes it, such as `pb.Rodas5P()`.
        jac: `jac(t, y, params)` returns the Jacobian of the vector field, `(n, n)` for the ravelled
            state of n components, or `(*shape, *shape)` for a state that is one array; None derives
            it. Methods for stiff problems use it. It must be the derivative and not something near
            it: `solve` compares the two once, where the numbers are known.

    Example:
        >>> import pullback as pb
        >>> decay = pb.ODEProblem(lambda t, y, rate: -rate * y, 1.0, (0.0, 2.0), 0.5)
        >>> decay.replace(params=0.25).params
        0.25
    """

    function_names: ClassVar[tuple[str, ...]] = ("vector_field", "jac")
    static_names: ClassVar[tuple[str, ...]] = ("mass_matrix", "events")

    vector_field: Callable[..., Any]
    y0: PyTree
    t_span: Any
    params: PyTree = None
    mass_matrix: Any = None
    events: tuple[Event | PresetTimes, ...] = ()
    jac: Callable[..., Any] | None = None

    def __init__(
        self,
        vector_field: Callable[..., Any],
        y0: PyTree,
        t_span: Any,
        params: PyTree = None,
        *,
        events: Any = (),
        mass_matrix: Any = None,
        jac: Callable[..., Any] | None = None,
    ) -> None:
        todo = "pass the function first, then `y0`"
        require_function("vector_field", vector_field, "t, y, params", todo)
        if jac is not None:
            require_function("jac", jac, "t, y, params", "leave it out to have it derived")
        self._set(
            vector_field=vector_field,
            y0=y0,
            t_span=split_t_span(t_span),
            params=params,
            mass_matrix=static_matrix(mass_matrix),
            events=checked_events(events),
            jac=jac,
        )


def static_matrix(matrix: Any) -> Any:
    """Return a constant matrix as nested tuples, which compare by content."""
    if matrix is None:
        return None
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(matrix)):
        raise TypeError(
            "`mass_matrix` must be known numbers, but a traced array arrived; it is part of the "
            "compiled program. Put what varies into `params` and `vector_field`."
        )
    numbers = np.asarray(matrix)
    if numbers.dtype.kind not in "fiu" or numbers.ndim not in (1, 2):
        raise TypeError(
            "`mass_matrix` must be real numbers of shape (n, n) or (n,), but "
            f"{numbers.dtype} of shape {numbers.shape} arrived."
        )
    if numbers.ndim == 1:
        return tuple(map(float, numbers))
    return tuple(tuple(map(float, row)) for row in numbers)
