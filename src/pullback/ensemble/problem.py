"""One initial value problem: what to integrate, from where, over which times.

A problem only holds what the user gave. Its values are checked and cast by :func:`pullback.solve`,
because a problem is also built from tracers, and rebuilt by every transformation of a pytree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Self

import jax
import numpy as np
from jax.core import Tracer

from pullback.ensemble.event import Event, PresetTimes, checked_events

PyTree = Any


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False, init=False, repr=False)
class ODEProblem:
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
        jac: not available yet.

    Example:
        >>> import pullback as pb
        >>> decay = pb.ODEProblem(lambda t, y, rate: -rate * y, 1.0, (0.0, 2.0), 0.5)
        >>> decay.replace(params=0.25).params
        0.25
    """

    vector_field: Callable[..., Any]
    y0: PyTree
    t_span: Any
    params: PyTree = None
    mass_matrix: Any = None
    events: tuple[Event | PresetTimes, ...] = ()

    def __init__(
        self,
        vector_field: Callable[..., Any],
        y0: PyTree,
        t_span: Any,
        params: PyTree = None,
        *,
        events: Any = (),
        mass_matrix: Any = None,
        jac: Any = None,
    ) -> None:
        if not callable(vector_field):
            raise TypeError(
                "`vector_field` must be a function `vector_field(t, y, params)`, but a "
                f"{type(vector_field).__name__} arrived; pass the function first, then `y0`."
            )
        if jac is not None:
            raise NotImplementedError(
                "`jac` of ODEProblem: the Jacobian is always derived from `vector_field`; leave it "
                "out."
            )
        static = (_static_matrix(mass_matrix), checked_events(events))
        self._set(vector_field, y0, split_t_span(t_span), params, *static)

    def _set(self, *parts: Any) -> None:
        for name, part in zip(_PARTS, parts, strict=True):
            object.__setattr__(self, name, part)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with the named parts changed (`remake` in Julia).

        Args:
            changes: any of `vector_field`, `y0`, `t_span`, `params`, `mass_matrix`, `events`.
        """
        unknown = sorted(set(changes) - set(_PARTS))
        if unknown:
            raise TypeError(
                f"`replace` got `{unknown[0]}`, which is no part of an ODEProblem; the parts are "
                f"{', '.join(f'`{name}`' for name in _PARTS)}."
            )
        return type(self)(**({name: getattr(self, name) for name in _PARTS} | changes))

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        """Split into leaves with their names and the static part."""
        static = is_leaf(self.vector_field)
        moving = _MOVING[1:] if static else _MOVING
        children = [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in moving]
        return children, (self.vector_field if static else None, self.mass_matrix, self.events)

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> Self:
        """Rebuild without checks: the leaves may be anything that JAX puts there."""
        problem = object.__new__(cls)
        function, *rest = static
        moving = children if function is None else (function, *children)
        problem._set(*moving, *rest)
        return problem

    def __repr__(self) -> str:
        name = getattr(self.vector_field, "__name__", type(self.vector_field).__name__)
        return f"ODEProblem({name}, y0={self.y0!r}, t_span={self.t_span!r}, params={self.params!r})"


_PARTS = tuple(field.name for field in fields(ODEProblem))
_MOVING = _PARTS[:-2]


def _static_matrix(matrix: Any) -> Any:
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


def is_leaf(tree: Any) -> bool:
    """Whether JAX sees `tree` as one leaf, not as a container."""
    return jax.tree_util.all_leaves([tree])


def split_t_span(t_span: Any) -> tuple[Any, Any]:
    """Return `t_span` as a pair, whether it came as one or as an array with two entries."""
    if isinstance(t_span, (tuple, list)):
        if len(t_span) == 2:
            return (t_span[0], t_span[1])
        got = f"{len(t_span)} entries"
    elif isinstance(t_span, (np.ndarray, jax.Array)):
        if t_span.shape == (2,):
            return (t_span[0], t_span[1])
        got = f"an array of shape {t_span.shape}"
    else:
        got = f"a {type(t_span).__name__}"
    raise ValueError(
        f"`t_span` must be the pair (t0, t1), but {got} arrived; write t_span=(0.0, 1.0). Spans "
        "that differ between trajectories go to EnsembleProblem(problem, t_span=...)."
    )
