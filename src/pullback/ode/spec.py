"""What one solve is: the static description, the traced operands and the result of one trajectory.

`SolveSpec` holds everything a lane program is specialised for and is hashable by content, so that
two solves of the same problem share one compiled program. `SolveOperands` are its arrays.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from pullback.core.typing import Array, MaybeArray
from pullback.ode.controller import StepController
from pullback.ode.events import EventSpec
from pullback.ode.field import FlatField
from pullback.ode.flat_function import FlatFunction
from pullback.ode.mass import MassMatrix
from pullback.ode.method import Method
from pullback.ode.noise import NoiseSpec
from pullback.ode.split import SplitParts

__all__ = ["DiscreteAdjoint", "LaneSolution", "SaveMode", "SolveOperands", "SolveSpec"]

SaveMode = Literal["final", "times", "steps"]
_ON_UNRESOLVED = ("warn", "error", "nan", "refine", "ignore")
_SAVE_MODES = ("final", "times", "steps")


@dataclass(frozen=True)
class DiscreteAdjoint:
    """Reverse mode by the exact adjoint of the executed steps, with control of the mesh for it.

    Attributes:
        resolve: Carry one tangent in the adjoint's forward sweep and control its error too, so
            that the mesh resolves the gradient and not only the state.
        slack: How much larger than the tolerance the tangent's error may be; None chooses
            `clip(1e-4 / rtol, 1, 10)`.
        on_unresolved: What to do when the gradient's estimated error is above one per cent:
            "warn" (once for all trajectories), "error", "nan" (make this trajectory's gradient
            NaN), "refine" (run its adjoint again with a tenth of the slack), or "ignore".
            `value_and_grad` reports it in any case.
        tape: Rows of accepted steps kept per trajectory in flight; longer runs are recomputed in
            segments of this length. None keeps every step.
        scheme: Makes the solve in parts of `tape` attempts and keeps the state between some of
            them, as this scheme of checkpointed loops says (`pb.Online(64)`), for runs whose
            snapshots alone would not fit. Reverse mode only.
        storage: Where those states are kept: `pb.RAM()`, `pb.Disk(path)` and the like.
    """

    resolve: bool = True
    slack: float | None = None
    on_unresolved: Literal["warn", "error", "nan", "refine", "ignore"] = "warn"
    tape: int | None = 1024
    scheme: Any = None
    storage: Any = None

    def __post_init__(self) -> None:
        if self.on_unresolved not in _ON_UNRESOLVED:
            raise ValueError(
                f"`on_unresolved` must be one of {', '.join(map(repr, _ON_UNRESOLVED))}, "
                f"got {self.on_unresolved!r}."
            )
        if not isinstance(self.resolve, bool):
            raise TypeError(f"`resolve` must be True or False, got {self.resolve!r}.")
        if self.slack is not None and not (_is_number(self.slack, float) and self.slack > 0):
            raise ValueError(f"`slack` must be a positive number or None, got {self.slack!r}.")
        if self.tape is not None and not (_is_number(self.tape, int) and self.tape > 0):
            raise ValueError(
                f"`tape` must be a positive whole number of rows or None for an unbounded tape, "
                f"got {self.tape!r}."
            )


def _is_number(value: Any, kind: type) -> bool:
    allowed = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    return isinstance(value, allowed) and not isinstance(value, bool)


@dataclass(frozen=True)
class SolveSpec:
    """Everything static about the solve of one trajectory.

    Attributes:
        field: The traced vector field.
        method: The method.
        adaptive: Whether the step size follows the error estimate; needs an estimate.
        controller: Step-size controller of adaptive solves.
        max_steps: Bound on attempts.
        save: "final" (one row, the end), "times" (rows at `saveat`), "steps" (accepted steps).
        n_saves: Rows of the saved arrays; 1 for "final".
        dtype: Floating dtype of state and time.
        adjoint: Options of reverse mode.
        automatic_dt: Whether a NaN in `dt` selects the automatic first step. With False the
            code for it is left out and `dt` must be finite.
        limit_dt: Whether `dt_max` is applied. With False the code for it is left out.
        floor_dt: Whether `dt_min` is applied, likewise.
        domain: Where a state is valid, real function of (t, y) that is one there and zero
            elsewhere; None for everywhere.
        mass: Mass matrix; None for the identity.
        events: Its events; None without.
        more_floating: Which entries of theta behind the field's own are floating: arrays that
            events, or the noise, close over.
        noise: How noise enters; None for an ordinary equation.
        jac: The Jacobian of the vector field, where a user gave it; None derives it.
        split: The two parts of the vector field; None where it is not split.
        initialization: How algebraic variables start: "brown" solves for them, "check" wants them
            consistent as they are.
        resumes: Whether this is a part of a solve: `dt` then holds the step size and the
            controller's memory that the part before left, and a tangent ends where the part did.
        mesh: "chosen" by the controller or by `dt`; "given" takes the steps of another solve,
            whose first one starts at t0 and whose last one ends at t1.
    """

    field: FlatField
    method: Method
    adaptive: bool
    controller: StepController
    max_steps: int
    save: SaveMode
    n_saves: int
    dtype: np.dtype
    adjoint: DiscreteAdjoint = dataclasses.field(default_factory=DiscreteAdjoint)
    automatic_dt: bool = True
    limit_dt: bool = False
    floor_dt: bool = False
    domain: FlatFunction | None = None
    mass: MassMatrix | None = None
    jac: FlatFunction | None = None
    split: SplitParts | None = None
    initialization: Literal["brown", "check"] = "brown"
    more_floating: tuple[bool, ...] = ()
    noise: NoiseSpec | None = None
    events: EventSpec | None = None
    mesh: Literal["chosen", "given"] = "chosen"
    resumes: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        if self.save not in _SAVE_MODES:
            raise ValueError(f"`save` must be one of {_SAVE_MODES}, got {self.save!r}.")
        if self.save == "final" and self.n_saves != 1:
            raise ValueError(f"`n_saves` must be 1 when only the end is saved, got {self.n_saves}.")
        if self.max_steps < 1:
            raise ValueError(f"`max_steps` must be at least 1, got {self.max_steps}.")
        if self.mesh == "given" and self.adaptive:
            raise ValueError('`adaptive` must be False with `mesh` "given", got True.')
        if self.mesh == "given" and self.events is not None:
            raise NotImplementedError(
                "the steps of another solve cannot be repeated where there are events, which cut "
                "steps: compare the gradient with differences at a tight tolerance instead."
            )
        if self.adaptive and not self.method.has_error_estimate:
            raise ValueError(
                f"`method` {self.method.name} has no error estimate, so it cannot choose "
                f"its step size: give `dt`, or use a method that has one (Tsit5)."
            )

    @property
    def may_refine(self) -> bool:
        """Whether a derivative may take smaller steps than the solve, to be accurate.

        Rows after every step are rows of the solve's own mesh, and a step event happens once a
        step: of other steps it would make another trajectory.
        """
        has_step_events = self.events is not None and bool(self.events.steps)
        return self.adaptive and self.save != "steps" and not has_step_events


class SolveOperands(NamedTuple):
    """The arrays of one solve, for one trajectory (a leading axis under `jax.vmap`).

    Attributes:
        y0: Initial state, `(n,)`.
        t0: Initial time.
        t1: Final time; may be smaller than `t0`.
        saveat: Save times in the direction of integration, `(n_saves,)`; empty `(0,)` unless the
            spec saves at "times".
        dt: Step size of a fixed-step solve or first step of an adaptive one (magnitude; the sign
            is taken from `t1 - t0`); NaN selects the automatic first step. With a given mesh:
            where its steps end, `(n,)`, NaN from the last one on; n is at least their number.
            In a part of a solve: the step size, then the controller's memory, `(1 + m,)`.
        rtol: Relative tolerance, `()` or `(n,)`.
        atol: Absolute tolerance, `()` or `(n,)`.
        dt_max: Largest step (magnitude); used where the spec limits the step.
        dt_min: Smallest step (magnitude); used where the spec says so.
        probe: Three zeros. Its cotangent carries out of a reverse pass, summed over trajectories:
            how many gradients are unresolved, the squared estimated error, the squared scale.
        theta: Parameter leaves and arrays the vector field closes over.
    """

    y0: Array
    t0: Array
    t1: Array
    saveat: Array
    dt: Array
    rtol: Array
    atol: Array
    dt_max: Array
    dt_min: Array
    probe: Array
    theta: tuple[Array, ...]


class LaneSolution(NamedTuple):
    """The result of one trajectory (a leading axis under `jax.vmap`).

    Attributes:
        t: Times of the saved rows, `(n_saves,)`; rows beyond the last good point repeat it.
        y: Saved states, `(n_saves, n)`.
        t_end: Time of the last good point.
        y_end: State at the last good point, `(n,)`.
        status: `Status` code.
        n_saved: How many rows are real.
        n_attempts: Tried steps.
        n_accepted: Accepted steps.
        n_rejected: Rejected steps.
        n_rhs: Evaluations of the vector field.
        n_events: Events; None where the spec has none.
        event_times: When the recorded ones were, NaN behind the last.
        event_indices: Which they were, -1 behind the last.
        n_grazing: How many were nearly tangential; None where none can be.
        mesh: What the next part of a solve starts with; None unless this is a part.
    """

    t: Array
    y: Array
    t_end: Array
    y_end: Array
    status: Array
    n_saved: Array
    n_attempts: Array
    n_accepted: Array
    n_rejected: Array
    n_rhs: Array
    n_events: MaybeArray = None
    event_times: MaybeArray = None
    event_indices: MaybeArray = None
    n_grazing: MaybeArray = None
    mesh: MaybeArray = None
