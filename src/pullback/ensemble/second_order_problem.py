"""One initial value problem of second order, as mechanics writes it."""

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
from pullback.ode import Method, Symplectic


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False, init=False, repr=False)
class SecondOrderODEProblem(AbstractProblem):
    """x'' = acceleration(t, x, x', params), (x, x')(t0) = y0, on (t0, t1).

    The state is the pair (x, v) of positions and velocities, v = x'. Every method solves it as
    the system x' = v, v' = acceleration; `pb.VelocityVerlet()` and `pb.Yoshida4()` need it in this
    form, and an acceleration that does not use v.

    Args:
        acceleration: `acceleration(t, x, v, params)` returns x'', with the structure, shapes and
            dtypes of x. Written for one trajectory, in `jax.numpy`, without side effects.
        y0: the pair (x, v) at t0; both any pytree of real floating arrays or Python floats, of one
            structure and the same shapes.
        t_span: `(t0, t1)`, an array of the two also. `t1 < t0` integrates backward.
        params: any pytree, given to `acceleration` as it is.
        events: `pb.Event` and `pb.PresetTimes` objects; their functions get (x, v) as `y`.

    Example:
        >>> import pullback as pb
        >>> spring = pb.SecondOrderODEProblem(
        ...     lambda t, x, v, k: -k * x, (1.0, 0.0), (0.0, 2.0), 4.0
        ... )
        >>> x, v = pb.solve(spring, pb.VelocityVerlet(), dt=1e-3).y_end
        >>> round(float(x), 3)
        -0.654
    """

    function_names: ClassVar[tuple[str, ...]] = ("acceleration",)
    static_names: ClassVar[tuple[str, ...]] = ("events",)

    acceleration: Callable[..., Any]
    y0: PyTree
    t_span: Any
    params: PyTree = None
    events: tuple[Event | PresetTimes, ...] = ()

    def __init__(
        self,
        acceleration: Callable[..., Any],
        y0: PyTree,
        t_span: Any,
        params: PyTree = None,
        *,
        events: Any = (),
    ) -> None:
        todo = "write pb.SecondOrderODEProblem(acceleration, (x0, v0), t_span, params)"
        require_function("acceleration", acceleration, "t, x, v, params", todo)
        self._set(
            acceleration=acceleration,
            y0=_checked_pair(y0),
            t_span=split_t_span(t_span),
            params=params,
            events=checked_events(events),
        )


def _checked_pair(y0: Any) -> tuple[Any, Any]:
    if not isinstance(y0, (tuple, list)) or len(y0) != 2:
        kind = type(y0).__name__
        got = f"a {kind} of {len(y0)} entries" if isinstance(y0, (tuple, list)) else f"a {kind}"
        raise ValueError(
            "`y0` of SecondOrderODEProblem must be the pair (x, v) of positions and velocities, "
            f"but {got} arrived; write y0=(x0, v0)."
        )
    x, v = y0
    trees = jax.tree.structure(x), jax.tree.structure(v)
    if trees[0] != trees[1]:
        raise ValueError(
            "`y0` of SecondOrderODEProblem must hold positions and velocities of one structure, "
            f"but {trees[0]} and {trees[1]} arrived."
        )
    return x, v


def check_mechanical(method: Method, problem: Any) -> None:
    """Raise where a symplectic method meets a problem that is not of second order."""
    is_problem = isinstance(problem, AbstractProblem)
    is_mechanical = isinstance(problem, SecondOrderODEProblem)
    if isinstance(method, Symplectic) and is_problem and not is_mechanical:
        kind = type(problem).__name__
        raise TypeError(
            f"`method` {method.name} is for problems of second order, but a problem of class "
            f"{kind} arrived; write pb.SecondOrderODEProblem(acceleration, (x0, v0), t_span, "
            "params), or use pb.Tsit5()."
        )


def check_acceleration(method: Method, uses_velocity: bool | None, name: str) -> None:
    """Raise where a symplectic method meets an acceleration that depends on the velocity."""
    if isinstance(method, Symplectic) and uses_velocity:
        raise ValueError(
            f"`method` {method.name} is for accelerations that do not depend on the velocity, but "
            f"`acceleration` {name} uses `v`; use a method for any problem, such as pb.Vern7()."
        )
