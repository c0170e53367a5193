"""A method that is two: an explicit one, and one for stiff problems where stability asks for it.

Which of them takes a step is part of the solve's state, is written on the tape, and is given to the
maps of that step; so a derivative is that of the steps that were taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from pullback.core.typing import Array, MaybeArray
from pullback.ode.mesh import MeshState, frozen
from pullback.ode.method import Method, Step
from pullback.ode.methods import ExplicitRungeKutta, Tsit5
from pullback.ode.rosenbrock import Rodas5P
from pullback.ode.stability import stability_length, stage_pair, step_stiffness

__all__ = ["AutoSwitch", "Switch", "first_switch", "next_switch", "turn"]


class Switch(NamedTuple):
    """Which method takes the next step.

    Attributes:
        is_stiff: Whether it is the one for stiff problems.
        streak: How many of the last steps spoke for the other one.
    """

    is_stiff: Array
    streak: Array


@dataclasses.dataclass(frozen=True)
class AutoSwitch(Method):
    """An explicit method that hands over to an implicit one while the problem is stiff.

    The explicit steps estimate the largest eigenvalue from two of their stages, the others from
    the norm of the Jacobian. When the step size has been at the explicit method's limit of
    stability `max_stiff` times, the stiff method takes over; when it has been inside
    `max_nonstiff` times, the explicit one.

    Attributes:
        nonstiff: An explicit Runge-Kutta method with two stages at the same time (`Tsit5`,
            `Dopri5`, `Vern7`, `Vern9`).
        stiff: An implicit method.
        stiff_first: Whether to begin with the stiff one.
        max_stiff: Steps at the limit before the stiff method takes over.
        max_nonstiff: Steps inside the limit before the explicit method takes over.
        tolerance: Part of the stability interval that counts as its limit.
        dt_factor: Factor of the step size when the stiff method takes over, its inverse when the
            explicit one does.

    References:
        [HW96] section IV.2 for the detection; the counting follows SciML's `AutoTsit5`.
    """

    nonstiff: ExplicitRungeKutta = dataclasses.field(default_factory=Tsit5)
    stiff: Method = dataclasses.field(default_factory=Rodas5P)
    stiff_first: bool = False
    max_stiff: int = 10
    max_nonstiff: int = 3
    tolerance: float = 0.9
    dt_factor: float = 2.0

    def __post_init__(self) -> None:
        is_explicit = isinstance(self.nonstiff, ExplicitRungeKutta)
        if not is_explicit or stage_pair(self.nonstiff.tableau) is None:
            raise ValueError(
                "`nonstiff` of AutoSwitch must be an explicit method with two stages at the same "
                f"time, such as pb.Tsit5(), pb.Vern7() or pb.Vern9(), but {self.nonstiff!r} "
                "arrived."
            )
        if not self.nonstiff.has_error_estimate:
            raise ValueError(
                "`nonstiff` of AutoSwitch must be a method with an error estimate, such as "
                f"pb.Tsit5(), but {self.nonstiff!r} arrived."
            )
        if not isinstance(self.stiff, Method) or not self.stiff.is_implicit:
            raise ValueError(
                "`stiff` of AutoSwitch must be a method for stiff problems, such as pb.Rodas5P() "
                f"or pb.Kvaerno5(), but {self.stiff!r} arrived."
            )
        if min(self.max_stiff, self.max_nonstiff) < 1:
            raise ValueError(
                "`max_stiff` and `max_nonstiff` must be at least 1, but "
                f"{self.max_stiff!r} and {self.max_nonstiff!r} arrived."
            )
        if not (self.tolerance > 0 and self.dt_factor > 0):
            raise ValueError(
                "`tolerance` and `dt_factor` must be positive, but "
                f"{self.tolerance!r} and {self.dt_factor!r} arrived."
            )

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"AutoSwitch({self.nonstiff.name}, {self.stiff.name})"

    @property
    def order(self) -> int:
        """The lower of the two orders."""
        return min(self.nonstiff.order, self.stiff.order)

    @property
    def error_order(self) -> int:
        """Exponent of the local error, the lower of the two."""
        return min(self.nonstiff.error_order, self.stiff.error_order)

    @property
    def has_error_estimate(self) -> bool:
        """Whether both can choose their step size."""
        return self.nonstiff.has_error_estimate and self.stiff.has_error_estimate

    @property
    def n_stages(self) -> int:
        """The larger number of stages."""
        return max(self.nonstiff.n_stages, self.stiff.n_stages)

    @property
    def n_row_evaluations(self) -> int:
        """The larger of the two numbers."""
        return max(self.nonstiff.n_row_evaluations, self.stiff.n_row_evaluations)

    @property
    def n_evaluations(self) -> int:
        """The larger of the two numbers; which one it is varies."""
        return max(self.nonstiff.n_stages, self.stiff.n_evaluations)

    @property
    def is_implicit(self) -> bool:
        """Some steps solve equations."""
        return True

    @property
    def takes_mass(self) -> bool:
        """The explicit method cannot."""
        return False

    def step(self, system: Any, t: Array, y: Array, h: Array, k1: MaybeArray) -> Step:
        """Try a step of size h from (t, y) with the method whose turn it is."""
        del k1

        def explicit() -> Step:
            step = self.nonstiff.step(system, t, y, h, None)
            stiffness = step_stiffness(self.nonstiff.tableau, step.stages)
            return self._alike(y, step, stiffness)

        def implicit() -> Step:
            rows = sum(jnp.abs(frozen(column)) for column in system.jacobian(t, y))
            limit = 1.0 / stability_length(self.nonstiff.tableau)
            stiffness = jnp.abs(frozen(h)) * jnp.max(jnp.asarray(rows)) * limit
            return self._alike(y, self.stiff.step(system, t, y, h, None), stiffness)

        return self._by_turn(system, implicit, explicit)

    def advance(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return only the state at the end of a step."""
        return self._by_turn(
            system,
            lambda: self.stiff.advance(system, t, y, h),
            lambda: self.nonstiff.advance(system, t, y, h),
        )

    def row(
        self, system: Any, t: Array, y: Array, h: Array, stages: Sequence[Array], time: Array
    ) -> Array:
        """Return the state at `time` inside a step."""
        return self._by_turn(
            system,
            lambda: self.stiff.row(system, t, y, h, stages[: self.stiff.n_stages], time),
            lambda: self.nonstiff.row(system, t, y, h, stages[: self.nonstiff.n_stages], time),
        )

    def _by_turn(
        self, system: Any, implicit: Callable[[], Any], explicit: Callable[[], Any]
    ) -> Any:
        assert system.is_stiff is not None
        # A reverse step repeats its branch: nothing but its operands is carried from one to the
        # other, least of all the factors of a matrix.
        return lax.cond(system.is_stiff, jax.checkpoint(implicit), jax.checkpoint(explicit))

    def _alike(self, y: Array, step: Step, stiffness: Array) -> Step:
        """Return a step with as many stages as the other method's, and the same parts."""
        missing = (jnp.zeros_like(y),) * (self.n_stages - len(step.stages))
        failed = jnp.zeros((), bool) if step.failed is None else step.failed
        err = jnp.zeros_like(y) if step.err is None else step.err
        return Step(step.y1, err, (*step.stages, *missing), failed, None, frozen(stiffness))


def first_switch(method: Method) -> Switch | None:
    """Return which method takes the first step; None for a method that is only one."""
    if not isinstance(method, AutoSwitch):
        return None
    return Switch(jnp.asarray(method.stiff_first), jnp.zeros((), jnp.int32))


def turn(switch: Switch | None) -> MaybeArray:
    """Return whether it is the stiff method's turn; None for a method that is only one."""
    return None if switch is None else switch.is_stiff


def next_switch(
    method: Method, switch: Switch | None, step: Step, after: MeshState, accept: Array
) -> tuple[Switch | None, MeshState]:
    """Return which method takes the next step, and the mesh with the step size for it."""
    if switch is None or not isinstance(method, AutoSwitch):
        return switch, after
    is_beyond = frozen(step.stiffness) > method.tolerance
    speaks_against = is_beyond != switch.is_stiff
    streak = jnp.where(speaks_against, switch.streak + 1, jnp.maximum(switch.streak - 1, 0))
    limit = jnp.where(switch.is_stiff, method.max_nonstiff, method.max_stiff)
    turns = accept & (streak >= limit)
    if after.h is not None:
        factor = jnp.where(switch.is_stiff, 1.0 / method.dt_factor, method.dt_factor)
        after = after._replace(h=jnp.where(turns, after.h * factor.astype(after.h.dtype), after.h))
    streak = jnp.where(accept, jnp.where(turns, 0, streak), switch.streak).astype(jnp.int32)
    return Switch(switch.is_stiff ^ turns, streak), after
