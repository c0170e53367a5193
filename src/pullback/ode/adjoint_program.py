"""Reverse mode: the adjoint of a solve as a lane program.

A forward sweep writes the accepted steps to a tape; a backward sweep pulls cotangents back
through them, one `jax.vjp` of ONE step each. It is the exact transpose of the tangent program on
the mesh of its own forward sweep, which a carried tangent of random signs makes fine enough for
the gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

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
from pullback.ode.sweep import Seed, SweepState, make_sweep
from pullback.ode.tape import Tape, TapeCursor, make_tape
from pullback.ode.unresolved import report_unresolved

__all__ = ["AdjointProgram", "transpose_tangent"]

_PROBE_PLACE = SolveOperands._fields.index("probe")


@dataclasses.dataclass(frozen=True)
class AdjointProgram(LaneProgram):
    """Cotangents of a solve's active operands, then its probe's.

    Operands are those of the solve, then the cotangents of `y_end` and `y_rows` as far as they
    are not zero. Results are in the order of the operands.

    Attributes:
        spec: What is solved.
        active: Which operands of the solve want a cotangent.
        has_end: Whether `y_end` has a cotangent.
        has_rows: Whether `y_rows` has a cotangent.
        moving: By which times the program itself is to be differentiated.
    """

    spec: SolveSpec
    active: tuple[bool, ...]
    has_end: bool
    has_rows: bool
    moving: MovingTimes = NO_TIMES

    def __call__(self, *flat: Array) -> tuple[Array, ...]:
        """Return the cotangents of one trajectory."""
        n = len(self.active)
        cotangents = [frozen(bar) for bar in flat[n:]]
        return self.run(flat, _any_nonzero(cotangents))

    def run(self, flat: Sequence[Array], is_live: Array) -> tuple[Array, ...]:
        """Run one trajectory; one that is not live is skipped and gets exact zeros."""
        if not (self._is_controlled and self.spec.adjoint.on_unresolved == "refine"):
            return self._run_once(flat, is_live, 1.0)
        return self._refine(flat, is_live)

    @property
    def _is_controlled(self) -> bool:
        # Rows after every step are rows of the solve's own mesh, which control would change.
        spec = self.spec
        return spec.adaptive and spec.adjoint.resolve and spec.save != "steps"

    def _refine(self, flat: Sequence[Array], is_live: Array) -> tuple[Array, ...]:
        """Run a trajectory a second time, with a tenth of the slack, if it is unresolved."""

        def is_pending(carry: tuple[Array, tuple[Array, ...]]) -> Array:
            n_runs, outs = carry
            return (n_runs == 0) | ((n_runs == 1) & (outs[-1][0] > 0))

        def body(carry: tuple[Array, tuple[Array, ...]]) -> tuple[Array, tuple[Array, ...]]:
            n_runs, _ = carry
            tightening = jnp.where(n_runs == 0, 1.0, 0.1)
            return n_runs + 1, self._run_once(flat, is_live, tightening)

        probe = _PROBE_PLACE
        inputs = [
            x for i, x in enumerate(flat[: len(self.active)]) if self.active[i] and i != probe
        ]
        zeros = tuple(jnp.zeros_like(x) for x in (*inputs, flat[probe]))
        return lane_while(is_pending, body, (jnp.zeros((), jnp.int32), zeros))[1]

    def _run_once(
        self, flat: Sequence[Array], is_live: Array, tightening: Array | float
    ) -> tuple[Array, ...]:
        operands, end_bar, rows_bar = self._unpack(flat)
        flags = unflatten_operands(self.active)
        tape, end, cursor = self._forward(operands, flags, is_live, tightening)
        backward = BackwardSweep(
            tape=tape,
            flags=flags,
            rows_bar=rows_bar,
            moving=self.moving,
            splits_end=self.has_end and bool(flags.t1 or self.moving.t1),
        )
        bars, estimate = backward.run(end, cursor, end_bar, is_live)
        return self._pack(bars, estimate, is_live)

    def _unpack(self, flat: Sequence[Array]) -> tuple[SolveOperands, Array, MaybeArray]:
        n = len(self.active)
        operands = unflatten_operands(flat[:n])
        cotangents = iter(flat[n:])
        end_bar = next(cotangents) if self.has_end else jnp.zeros_like(operands.y0)
        rows_bar = next(cotangents) if self.has_rows else None
        return operands, end_bar, rows_bar

    def _forward(
        self,
        operands: SolveOperands,
        flags: Any,
        is_live: Array,
        tightening: Array | float,
    ) -> tuple[Tape, SweepState, TapeCursor]:
        spec = self.spec
        seed = Seed(None, None, (None,) * len(operands.theta))
        slack = None
        if self._is_controlled:
            seed = sign_seed(operands, flags.y0, flags.theta)
            slack = control_slack(spec.adjoint, operands) * tightening
        t0_shift = operands.t0 - frozen(operands.t0) if self.moving.t0 else None
        sweep, start = make_sweep(spec, operands, seed, slack, t0_shift, done=~is_live)
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
    present = tuple(type(bar) is not Zero for bar in cotangents)
    bars = [bar for bar, p in zip(cotangents, present, strict=True) if p]
    has_trajectories = tuple(
        call.n_traj is not None and not r for r, p in zip(call.reduced, present, strict=True) if p
    )
    program = AdjointProgram(spec, active, present[0], len(present) > 1 and present[1])
    wanted = [i for i, a in enumerate(active) if a]
    returned = [k for k, i in enumerate(wanted) if i != _PROBE_PLACE]
    # A tangent without trajectory axis gets the sum over trajectories.
    reduced = [not call.batched[n + k] for k in returned]
    has_probe = active[_PROBE_PLACE]
    probe_batched = has_probe and call.batched[n + wanted.index(_PROBE_PLACE)]
    outs = call.bind(
        program,
        [*primals, *bars],
        call.batched[:n] + has_trajectories,
        (*reduced, not probe_batched),
    )
    report_unresolved(outs[-1][..., 0], spec.adjoint.on_unresolved)
    found = dict(zip(returned, outs[:-1], strict=True))
    if has_probe:
        found[wanted.index(_PROBE_PLACE)] = outs[-1]
    return [None] * n + [
        found[k] if isinstance(x, UndefinedPrimal) else None for k, x in enumerate(tangents)
    ]
