"""One stochastic initial value problem, and what it has in common with an ordinary one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import jax

from pullback.core.user_function import require_function
from pullback.ensemble.abstract_problem import (
    AbstractProblem,
    PyTree,
    split_t_span,
)
from pullback.ode import NOISE_KINDS, NoiseKind


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False, init=False, repr=False)
class SDEProblem(AbstractProblem):
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

    function_names: ClassVar[tuple[str, ...]] = ("drift", "diffusion")
    static_names: ClassVar[tuple[str, ...]] = ("noise", "n_noise")

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
        todo = "write pb.SDEProblem(drift, diffusion, y0, t_span, params)"
        for role, function in (("drift", drift), ("diffusion", diffusion)):
            require_function(role, function, "t, y, params", todo)
        if not (isinstance(events, (tuple, list)) and not events):
            raise NotImplementedError(
                "`events` of SDEProblem: events of stochastic problems are not available; stop at "
                "a known time with `t_span`, or look for the event in saved rows."
            )
        kind, count = _checked_noise(noise, n_noise)
        self._set(
            drift=drift,
            diffusion=diffusion,
            y0=y0,
            t_span=split_t_span(t_span),
            params=params,
            noise=kind,
            n_noise=count,
        )

    def __repr__(self) -> str:
        return f"SDEProblem({self._described()}, noise={self.noise!r})"


Problem = AbstractProblem


def functions_of(problem: Problem) -> tuple[Callable[..., Any], ...]:
    """Return the functions of a problem, which all its trajectories have in common."""
    return problem.functions


def mass_matrix_of(problem: Problem) -> Any:
    """Return the mass matrix of a problem; None where it has none."""
    return getattr(problem, "mass_matrix", None)


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
