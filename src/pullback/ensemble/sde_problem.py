"""One stochastic initial value problem, and what it has in common with an ordinary one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Self, cast

import jax

from pullback.ensemble.problem import ODEProblem, PyTree, is_leaf, split_t_span
from pullback.ode import NOISE_KINDS, NoiseKind


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False, init=False, repr=False)
class SDEProblem:
    """dy = drift(t, y, params) dt + diffusion(t, y, params) dW on (t0, t1), y(t0) = y0.

    W are independent Wiener processes. The equation is meant in the sense of Ito, or of
    Stratonovich where the method given to `solve` says so. Such a problem is solved with a `key`
    and a fixed step `dt`; the same key, step and method give the same path, bit for bit.

    Args:
        drift: `drift(t, y, params)` returns the structure, shapes and dtypes of `y`. Written for
            one trajectory, in `jax.numpy`, without side effects.
        diffusion: `diffusion(t, y, params)`, likewise. With general noise each leaf of what it
            returns has shape `(*state, n_noise)`.
        y0: initial state, any pytree of real floating arrays or Python floats.
        t_span: `(t0, t1)`, an array of the two also.
        params: any pytree, given to `drift` and `diffusion` as it is.
        noise: "diagonal": every component of the state has a Wiener process of its own; "scalar":
            all share one; "general": each component sees `n_noise` of them.
        n_noise: number of Wiener processes; needed with general noise.
        events: not available for stochastic problems.

    Example:
        >>> import pullback as pb
        >>> price = pb.SDEProblem(
        ...     lambda t, y, p: p["drift"] * y,
        ...     lambda t, y, p: p["volatility"] * y,
        ...     1.0,
        ...     (0.0, 1.0),
        ...     {"drift": 0.05, "volatility": 0.2},
        ... )
        >>> price.noise
        'diagonal'
    """

    drift: Callable[..., Any]
    diffusion: Callable[..., Any]
    y0: PyTree
    t_span: Any
    params: PyTree = None
    noise: NoiseKind = "diagonal"
    n_noise: int | None = None

    def __init__(
        self,
        drift: Callable[..., Any],
        diffusion: Callable[..., Any],
        y0: PyTree,
        t_span: Any,
        params: PyTree = None,
        *,
        noise: str = "diagonal",
        n_noise: int | None = None,
        events: Any = (),
    ) -> None:
        for role, function in (("drift", drift), ("diffusion", diffusion)):
            if not callable(function):
                raise TypeError(
                    f"`{role}` must be a function `{role}(t, y, params)`, but a "
                    f"{type(function).__name__} arrived; write "
                    "pb.SDEProblem(drift, diffusion, y0, t_span, params)."
                )
        if not (isinstance(events, (tuple, list)) and not events):
            raise NotImplementedError(
                "`events` of SDEProblem: events of stochastic problems are not available; stop at "
                "a known time with `t_span`, or look for the event in saved rows."
            )
        kind, count = _checked_noise(noise, n_noise)
        self._set(drift, diffusion, y0, split_t_span(t_span), params, kind, count)

    def _set(self, *parts: Any) -> None:
        for name, part in zip(_PARTS, parts, strict=True):
            object.__setattr__(self, name, part)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with the named parts changed (`remake` in Julia).

        Args:
            changes: any of `drift`, `diffusion`, `y0`, `t_span`, `params`, `noise`, `n_noise`.
        """
        unknown = sorted(set(changes) - set(_PARTS))
        if unknown:
            raise TypeError(
                f"`replace` got `{unknown[0]}`, which is no part of an SDEProblem; the parts are "
                f"{', '.join(f'`{name}`' for name in _PARTS)}."
            )
        return type(self)(**({name: getattr(self, name) for name in _PARTS} | changes))

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        """Split into leaves with their names and the static part."""
        static = tuple(f if is_leaf(f) else None for f in (self.drift, self.diffusion))
        moving = [n for n, f in zip(_PARTS, static, strict=False) if f is None] + _MOVING
        children = [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in moving]
        return children, (*static, self.noise, self.n_noise)

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> Self:
        """Rebuild without checks: the leaves may be anything that JAX puts there."""
        problem = object.__new__(cls)
        *functions, noise, n_noise = static
        rest = iter(children)
        functions = [next(rest) if f is None else f for f in functions]
        problem._set(*functions, *rest, noise, n_noise)
        return problem

    def __repr__(self) -> str:
        names = (getattr(f, "__name__", type(f).__name__) for f in (self.drift, self.diffusion))
        return (
            f"SDEProblem({', '.join(names)}, y0={self.y0!r}, t_span={self.t_span!r}, "
            f"params={self.params!r}, noise={self.noise!r})"
        )


_PARTS = tuple(field.name for field in fields(SDEProblem))
_MOVING = ["y0", "t_span", "params"]

Problem = ODEProblem | SDEProblem


def functions_of(problem: Problem) -> tuple[Callable[..., Any], ...]:
    """Return the functions of a problem, which all its trajectories have in common."""
    if isinstance(problem, SDEProblem):
        return (problem.drift, problem.diffusion)
    return (problem.vector_field,)


def mass_matrix_of(problem: Problem) -> Any:
    """Return the mass matrix of a problem; stochastic ones have none."""
    return problem.mass_matrix if isinstance(problem, ODEProblem) else None


def _checked_noise(noise: Any, n_noise: Any) -> tuple[NoiseKind, int | None]:
    if noise not in NOISE_KINDS:
        raise ValueError(
            f"`noise` must be one of {', '.join(map(repr, NOISE_KINDS))}, but {noise!r} arrived."
        )
    kind = cast("NoiseKind", noise)
    if kind != "general":
        if n_noise is not None:
            raise ValueError(
                f"`n_noise`={n_noise!r} arrived with `noise`={noise!r}, whose number of Wiener "
                'processes is known; leave it out, or use noise="general".'
            )
        return kind, None
    try:
        count = operator.index(n_noise)
    except TypeError:
        count = 0
    if isinstance(n_noise, bool) or count < 1:
        raise ValueError(
            '`n_noise` must be the number of Wiener processes with noise="general", an integer '
            f"of at least 1, but {n_noise!r} arrived."
        )
    return kind, count
