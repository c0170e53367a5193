"""Reverse mode: the adjoint of a solve as a lane program.

A forward sweep writes the accepted steps to a tape; a backward sweep pulls cotangents back
through them, one `jax.vjp` of ONE step each. It is the exact transpose of the tangent program on
the mesh of its own forward sweep, which a carried tangent of random signs makes fine enough for
the gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.core.compat import UndefinedPrimal, Zero
from pullback.core.errors import TransposeUnsupported
from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_while
from pullback.lanes.program import JvpProgram, LaneCall, LaneProgram
from pullback.ode.backward import BackwardSweep, Bars
from pullback.ode.mesh import frozen
from pullback.ode.operands import (
    NO_TIMES,
    MovingTimes,
    flatten_operands,
    moving_times,
    unflatten_operands,
)
from pullback.ode.probe_tangent import Estimate, control_slack, sign_seed
from pullback.ode.spec import SolveOperands, SolveSpec
from pullback.ode.sweep import Seed, SweepState, make_sweep, natural_unit
from pullback.ode.tape import Tape, TapeCursor, make_tape
from pullback.ode.unresolved import report_unresolved, warn_of_custom_vjp

__all__ = ["AdjointProgram", "transpose_tangent"]

_PROBE_PLACE = SolveOperands._fields.index("probe")
# Slack of the second run of an unresolved trajectory, relative to that of the first.
_TIGHTENING = 0.1


@dataclasses.dataclass(frozen=True)
class AdjointProgram(LaneProgram):
    """Cotangents of a solve's active operands, then its probe's.

    Operands are those of the solve, then the cotangents of `y_end` and `y_rows` as far as they
    are not zero. Results are in the order of the operands.

    Where unresolved trajectories are to be refined there are two stages, to be added up: the
    first gives them zero cotangents, the second runs them alone, under tighter control. It has
    one more operand, positive for those.

    Attributes:
        spec: What is solved.
        active: Which operands of the solve want a cotangent.
        has_end: Whether `y_end` has a cotangent.
        has_rows: Whether `y_rows` has a cotangent.
        has_t_end: Whether the time has one at which an event ends the trajectory.
        has_event_times: Whether the recorded events' times have.
        moving: By which times the program itself is to be differentiated.
        stage: "only", or "first" or "second" of two.
    """

    spec: SolveSpec
    active: tuple[bool, ...]
    has_end: bool = False
    has_rows: bool = False
    has_t_end: bool = False
    has_event_times: bool = False
    moving: MovingTimes = NO_TIMES
    stage: Literal["only", "first", "second"] = "only"

    def __call__(self, *flat: Array) -> tuple[Array, ...]:
        """Return the cotangents of one trajectory."""
        n = len(self.active)
        cotangents = [frozen(bar) for bar in flat[n:]]
        return self.run(flat, _any_nonzero(cotangents))

    def run(self, flat: Sequence[Array], is_live: Array) -> tuple[Array, ...]:
        """Run one trajectory; one that is not live is skipped and gets exact zeros."""
        if self.stage == "second":
            is_live = is_live & (frozen(flat[-1]) > 0)
        operands, end_bar, rows_bar, *event_bars = self._unpack(flat)
        flags = unflatten_operands(self.active)
        tape, end, cursor = self._forward(operands, flags, is_live)
        backward = BackwardSweep(
            tape=tape,
            flags=flags,
            rows_bar=rows_bar,
            moving=self.moving,
            splits_end=self.has_end and self._end_is_fixed(flags),
            unit=natural_unit(operands),
            t_end_bar=event_bars[0],
            event_times_bar=event_bars[1],
        )
        bars, estimate = backward.run(end, cursor, end_bar, is_live)
        return self._pack(bars, estimate, is_live)

    @property
    def refines(self) -> bool:
        """Whether unresolved trajectories are to be run again."""
        return self._is_controlled and self.spec.adjoint.on_unresolved == "refine"

    @property
    def _is_controlled(self) -> bool:
        spec = self.spec
        return spec.may_refine and spec.adjoint.resolve and spec.field.has_forward_mode

    def _end_is_fixed(self, flags: Any) -> bool:
        """Whether the last step ends at t1 as something moves that rows do not move with."""
        return bool(flags.t1 or self.moving.t1 or self.spec.events is not None)

    def _unpack(
        self, flat: Sequence[Array]
    ) -> tuple[SolveOperands, Array, MaybeArray, MaybeArray, MaybeArray]:
        n = len(self.active)
        operands = unflatten_operands(flat[:n])
        cotangents = iter(flat[n:])
        end_bar = next(cotangents) if self.has_end else jnp.zeros_like(operands.y0)
        has = (self.has_rows, self.has_t_end, self.has_event_times)
        rows_bar, t_end_bar, times_bar = (next(cotangents) if h else None for h in has)
        return operands, end_bar, rows_bar, t_end_bar, times_bar

    def _forward(
        self,
        operands: SolveOperands,
        flags: Any,
        is_live: Array,
    ) -> tuple[Tape, SweepState, TapeCursor]:
        spec = self.spec
        seed = Seed(None, None, (None,) * len(operands.theta))
        slack = None
        if self._is_controlled:
            seed = sign_seed(operands, flags.y0, flags.theta)
            slack = control_slack(spec.adjoint, operands)
            if self.stage == "second":
                slack = slack * _TIGHTENING
        t0_shift = operands.t0 - frozen(operands.t0) if self.moving.t0 else None
        sweep, start = make_sweep(
            spec,
            operands,
            seed,
            slack,
            t0_shift=t0_shift,
            is_all_control=True,
            done=~is_live,
        )
        tape = make_tape(sweep, start, spec.adjoint.tape)

        def body(s: tuple[SweepState, TapeCursor]) -> tuple[SweepState, TapeCursor]:
            return tape.attempt(*s)[:2]

        end, cursor = lane_while(lambda s: ~s[0].mesh.done, body, (start, tape.start()))
        return tape, end, cursor

    def _pack(self, bars: Bars, estimate: Estimate | None, is_live: Array) -> tuple[Array, ...]:
        dtype = self.spec.dtype
        if estimate is None:
            # Not estimated, except that nothing is wrong with the zeros of a skipped trajectory.
            unknown = jnp.where(is_live, np.nan, 0.0).astype(dtype)
            probe = jnp.stack([jnp.zeros((), dtype), unknown, unknown])
        else:
            is_bad = estimate.is_unresolved & is_live
            probe = jnp.stack([is_bad.astype(dtype), estimate.error2, estimate.scale2])
            probe = jnp.where(is_live, frozen(probe), 0.0)
            if self.spec.adjoint.on_unresolved == "nan":
                bars = bars.poisoned(is_bad)
            if self.stage == "first":
                bars = bars.without(is_bad)
        by_name = unflatten_operands([None] * len(self.active))._replace(**bars._asdict())
        flat = flatten_operands(by_name)
        wanted = [bar for bar, a in zip(flat, self.active, strict=True) if a and bar is not None]
        return (*wanted, probe)

    def jvp(
        self, call: LaneCall, primals: Sequence[Array], tangents: Sequence[Any]
    ) -> tuple[list[Array], list[Any]]:
        """Return the cotangents and their tangents: `jax.jvp` of the program, mesh frozen."""
        outs = call.bind(self, primals, call.batched, call.reduced)
        moves = tuple(type(t) is not Zero for t in tangents)
        program = dataclasses.replace(self, moving=moving_times(moves[: len(self.active)]))
        derivative = _AdjointJvp(program, moves)
        return outs, self._tangent_outs(call, derivative, primals, tangents, outs)


@dataclasses.dataclass(frozen=True)
class _AdjointJvp(JvpProgram):
    """The adjoint's derivative; a trajectory with zero cotangents may have tangents of them."""

    program: AdjointProgram

    def evaluate(self, operands: Sequence[Array], tangents: Sequence[Array]) -> tuple[Array, ...]:
        program = self.program
        n = len(program.active)
        n_moving = sum(self.active[:n])
        moving = [frozen(bar) for bar in (*operands[n:], *tangents[n_moving:])]
        return program.run(operands, _any_nonzero(moving))


def _any_nonzero(arrays: Sequence[Array]) -> Array:
    found = jnp.zeros((), bool)
    for array in arrays:
        found = found | jnp.any(array != 0)
    return found


def transpose_tangent(
    spec: SolveSpec,
    active: tuple[bool, ...],
    call: LaneCall,
    cotangents: Sequence[Any],
    operands: Sequence[Any],
) -> list[Any]:
    """Return the cotangents of the tangent program's operands: None for those of the solve."""
    n = len(active)
    primals, tangents = operands[:n], operands[n:]
    if any(isinstance(x, UndefinedPrimal) for x in primals):
        raise TransposeUnsupported(
            "A solve's tangent is linear in the tangents only: use forward mode over reverse "
            "mode, `jacfwd(grad(f))`, for second derivatives."
        )
    if spec.adaptive and spec.adjoint.resolve and not spec.field.has_forward_mode:
        warn_of_custom_vjp(spec.field.name)
    present = tuple(type(bar) is not Zero for bar in cotangents)
    bars = [bar for bar, p in zip(cotangents, present, strict=True) if p]
    has_trajectories = tuple(
        call.n_traj is not None and not r for r, p in zip(call.reduced, present, strict=True) if p
    )
    names = ["has_end"] if spec.save == "final" else ["has_end", "has_rows"]
    if spec.events is not None and spec.events.tells:
        names += ["has_t_end", "has_event_times"]
    has: dict[str, Any] = dict(zip(names, present, strict=True))
    program = AdjointProgram(spec, active, **has)
    wanted = [i for i, a in enumerate(active) if a]
    returned = [k for k, i in enumerate(wanted) if i != _PROBE_PLACE]
    # A tangent without trajectory axis gets the sum over trajectories.
    reduced = tuple(not call.batched[n + k] for k in returned)
    has_probe = active[_PROBE_PLACE]
    probe_batched = has_probe and call.batched[n + wanted.index(_PROBE_PLACE)]
    arguments = [*primals, *bars], call.batched[:n] + has_trajectories
    reduced = (*reduced, not probe_batched)
    if program.refines:
        outs = _in_two_stages(call, program, *arguments, reduced)
    else:
        outs = call.bind(program, *arguments, reduced)
    report_unresolved(outs[-1][..., 0], spec.adjoint.on_unresolved)
    found = dict(zip(returned, outs[:-1], strict=True))
    if has_probe:
        found[wanted.index(_PROBE_PLACE)] = outs[-1]
    return [None] * n + [
        found[k] if isinstance(x, UndefinedPrimal) else None for k, x in enumerate(tangents)
    ]


def _in_two_stages(
    call: LaneCall,
    program: AdjointProgram,
    operands: list[Array],
    batched: tuple[bool, ...],
    reduced: tuple[bool, ...],
) -> list[Array]:
    """Run all trajectories, then those that are unresolved once more, if there are any.

    Two kernels compile in a tenth of the time of one with both sweeps inside a loop.
    """
    each = (*reduced[:-1], False)  # the probe, whether it is wanted so or not
    *bars, probe = call.bind(dataclasses.replace(program, stage="first"), operands, batched, each)
    is_bad = frozen(probe[..., 0])
    second = dataclasses.replace(program, stage="second")

    def refine() -> list[Array]:
        return call.bind(second, [*operands, is_bad], (*batched, any(batched)), each)

    def leave() -> list[Array]:
        return [jnp.zeros_like(out) for out in (*bars, probe)]

    *more, refined = lax.cond(jnp.any(is_bad > 0), refine, leave)
    probe = jnp.where(is_bad[..., None] > 0, refined, probe)
    if reduced[-1] and any(batched):
        probe = probe.sum(axis=0)
    return [*(a + b for a, b in zip(bars, more, strict=True)), probe]
