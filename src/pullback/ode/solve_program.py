"""The solve of one trajectory as a lane program.

Its results are the end state, the raw time reached, status and counts, and the saved rows. What
follows from them by arithmetic (times of rows, statistics) is left to `solve_lanes`, outside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.core.compat import Zero, zero_tangent
from pullback.core.status import Status
from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_while
from pullback.lanes.program import LaneCall, LaneProgram
from pullback.ode.auto_switch import Switch, first_switch, next_switch, turn
from pullback.ode.event_maps import EventMaps
from pullback.ode.event_record import Record
from pullback.ode.event_root import Attempted
from pullback.ode.event_step import after_event, meet, next_stop
from pullback.ode.events import EventState, start_events
from pullback.ode.maps import StepMaps
from pullback.ode.mesh import Mesh, MeshState
from pullback.ode.methods import ExplicitRungeKutta
from pullback.ode.norm import attempt_norm
from pullback.ode.operands import differentiable, unflatten_operands
from pullback.ode.rows import StepRows, TimeRows
from pullback.ode.spec import SolveOperands, SolveSpec
from pullback.ode.stability import decay_reach, stability_length
from pullback.ode.start import controller_memory, first_step, make_mesh, tolerances
from pullback.ode.tangent_program import TangentProgram

__all__ = ["SolveProgram", "SolveResult", "present"]

_T1 = SolveOperands._fields.index("t1")

# Part of the stability interval that a step must use to be held by it: a rejected attempt, or one
# that was cut, leaves a smaller one.
_NEAR_LIMIT = 0.7


class SolveResult(NamedTuple):
    """What the lane program returns, in order.

    Attributes:
        y_end: State at the last good point.
        t_end: Its time.
        status: Status code.
        n_attempts: Tried steps.
        n_accepted: Accepted steps.
        n_saved: Real rows; None when only the end is saved.
        y_rows: Saved states; None when only the end is saved.
        t_rows: Their times; None unless every step is saved.
        mesh: Step size and controller's memory at the end; None unless this is a part of a solve.
        n_events: Events; None where there can be none.
        event_times: When the recorded ones were, NaN behind the last.
        event_indices: Which they were, -1 behind the last.
        n_grazing: How many were nearly tangential; None where none can be.
        ends_at_event: Whether an event lies at t1 itself; None where none can.
    """

    y_end: Array
    t_end: Array
    status: Array
    n_attempts: Array
    n_accepted: Array
    n_saved: MaybeArray
    y_rows: MaybeArray
    t_rows: MaybeArray
    mesh: MaybeArray
    n_events: MaybeArray
    event_times: MaybeArray
    event_indices: MaybeArray
    n_grazing: MaybeArray
    ends_at_event: MaybeArray


def present(spec: SolveSpec) -> tuple[bool, ...]:
    """Return which parts of `SolveResult` there are."""
    has_rows = spec.save != "final"
    has_events = spec.events is not None and spec.events.tells
    has_times = spec.save == "steps"
    has_roots = spec.events is not None and bool(spec.events.roots)
    may_end = spec.events is not None and spec.events.n_told > 0
    rows, events = (has_rows, has_rows, has_times), (has_events,) * 3
    return (*(True,) * 5, *rows, spec.resumes, *events, has_roots, may_end)


def differentiated(spec: SolveSpec) -> tuple[int, ...]:
    """Return which results have tangents, in the order of the tangent program's results."""
    names = ["y_end"] if spec.save == "final" else ["y_end", "y_rows"]
    if spec.events is not None and spec.events.tells:
        names += ["t_end", "event_times"]
    there = [n for n, is_there in zip(SolveResult._fields, present(spec), strict=True) if is_there]
    return tuple(there.index(name) for name in names)


_T_END = SolveResult._fields.index("t_end")


class _State(NamedTuple):
    mesh: MeshState
    y: Array
    k1: MaybeArray
    cursor: Any
    events: EventState | None
    switch: Switch | None
    n_grazing: MaybeArray = None
    ends_at_event: MaybeArray = None


@dataclasses.dataclass(frozen=True)
class SolveProgram(LaneProgram):
    """Solve one trajectory.

    Attributes:
        spec: What is solved, and how.
    """

    spec: SolveSpec

    def __call__(self, *operands: Array) -> tuple[Array, ...]:
        """Return the parts of `SolveResult` that there are."""
        result = _solve(self.spec, unflatten_operands(operands))
        return tuple(value for value in result if value is not None)

    def jvp(
        self, call: LaneCall, primals: Sequence[Array], tangents: Sequence[Any]
    ) -> tuple[list[Array], list[Any]]:
        """Return the plain solve, and the tangents from a sweep of their own.

        The value never depends on whether it is differentiated.
        """
        outs = call.bind(self, primals, call.batched, call.reduced)
        dots: list[Any] = [zero_tangent(jax.typeof(out)) for out in outs]
        allowed = differentiable(self.spec)
        active = tuple(a and type(t) is not Zero for a, t in zip(allowed, tangents, strict=True))
        if any(active):
            places = differentiated(self.spec)
            primals, batched = list(primals), list(call.batched)
            if self.spec.resumes:
                # A tangent's own mesh must end where this part did.
                primals[_T1], batched[_T1] = outs[_T_END], call.n_traj is not None
            moving = [i for i, a in enumerate(active) if a]
            found = call.bind(
                TangentProgram(self.spec, active),
                [*primals, *(tangents[i] for i in moving)],
                (*batched, *(call.batched[i] for i in moving)),
                tuple(call.reduced[place] for place in places),
            )
            for place, dot in zip(places, found, strict=True):
                dots[place] = dot
        return outs, dots


def _solve(spec: SolveSpec, operands: SolveOperands) -> SolveResult:
    is_fsal = spec.method.is_fsal
    mesh = make_mesh(spec, operands)
    rtol, atol = tolerances(operands)
    rows = _make_rows(spec, operands, mesh)

    maps = StepMaps(spec, rtol, atol)
    if spec.events is not None:
        return _solve_with_events(maps, operands, mesh, rows)

    def body(s: _State) -> _State:
        h, is_last = mesh.propose(s.mesh)
        here = maps.at(s.mesh.n_accepted, turn(s.switch))
        step = here.step(s.mesh.t, s.y, h, s.k1, *operands.theta)
        after, accept = mesh.decide(s.mesh, h, is_last, attempt_norm(spec, s.y, step, rtol, atol))
        switch, after = next_switch(spec.method, s.switch, step, after, accept)
        y = jnp.where(accept, step.y1, s.y)
        k1 = jnp.where(accept, step.stages[-1], s.k1) if is_fsal else None
        cursor = s.cursor
        if isinstance(rows, TimeRows):

            def row_of(time: Array, index: Array) -> tuple[Array, Array, Array]:
                rest = (*step.stages, *operands.theta)
                return here.row(time, s.mesh.t, s.y, h, *rest), y, y

            cursor = rows.save(s.cursor, after, row_of)
        elif rows is not None:
            rows.save(s.mesh, after, (y, after.t), (y, after.t))
        return _State(after, y, k1, cursor, None, switch)

    init = _init(maps, operands, mesh, rows)
    end = lane_while(lambda s: ~s.mesh.done, body, init)
    return _result(maps, operands, mesh, rows, end)


def _solve_with_events(
    maps: StepMaps, operands: SolveOperands, mesh: Mesh, rows: Any
) -> SolveResult:
    spec, theta = maps.spec, operands.theta
    assert spec.events is not None
    record = Record.empty(spec.events, spec.dtype) if spec.events.tells else None

    def body(s: _State) -> _State:
        assert s.events is not None and spec.events is not None
        here = maps.at(s.mesh.n_accepted, turn(s.switch))
        event_maps = EventMaps(here, spec.events, mesh)
        stop = next_stop(event_maps, s.events, theta)
        h, aims = mesh.propose(s.mesh, stop)
        t = s.mesh.t
        step = here.step(t, s.y, h, s.k1, *theta)
        norm = attempt_norm(spec, s.y, step, maps.rtol, maps.atol)
        after, accept = mesh.decide(s.mesh, h, aims, norm, stop)
        switch, after = next_switch(spec.method, s.switch, step, after, accept)
        is_short = mesh.is_short(s.mesh, stop)
        made = Attempted(t, s.y, h, s.k1, step, accept, stop.time, aims, is_short)
        met = meet(event_maps, s.events, made, theta, tells_grazing=s.n_grazing is not None)
        after, accept = after_event(event_maps, s.mesh, after, met), accept & ~met.lost
        y = jnp.where(accept, met.y1, s.y)
        k1 = None
        if spec.method.is_fsal:
            k1 = jnp.where(met.jumps, met.slope, met.stages[-1])
            k1 = jnp.where(accept, k1, s.k1)
        if record is not None:
            record.add(met, s.events)
        cursor = s.cursor
        if isinstance(rows, TimeRows):

            def row_of(time: Array, index: Array) -> tuple[Array, Array, Array]:
                del index
                rest = (*met.stages, *theta)
                return here.row(time, t, s.y, met.h, *rest), y, y

            cursor = rows.save(s.cursor, after, row_of)
        elif rows is not None:
            rows.save(s.mesh, after, (y, after.t), (y, after.t))
        n_grazing = s.n_grazing
        if n_grazing is not None and met.grazes is not None:
            n_grazing = n_grazing + met.grazes.astype(jnp.int32)
        is_last = (met.kind == spec.events.preset_kind) & (met.t1 == mesh.t1)
        return _State(after, y, k1, cursor, met.state, switch, n_grazing, is_last)

    init = _init(maps, operands, mesh, rows)
    slope = maps.slope(mesh.t0, operands.y0, *theta)
    span = mesh.t1 - mesh.t0
    start = start_events(spec.events, mesh.t0, operands.y0, slope, theta, span)
    n_grazing = jnp.zeros((), jnp.int32) if spec.events.roots else None
    nothing = jnp.zeros((), bool)
    init = init._replace(events=start, n_grazing=n_grazing, ends_at_event=nothing)
    end = lane_while(lambda s: ~s.mesh.done, body, init)
    result = _result(maps, operands, mesh, rows, end)
    if record is None:
        return result._replace(n_events=None)
    told = {"event_times": record.times(), "event_indices": record.indices()}
    if present(spec)[-1]:
        told["ends_at_event"] = end.ends_at_event
    return result._replace(n_grazing=end.n_grazing, **told)


def _make_rows(spec: SolveSpec, operands: SolveOperands, mesh: Mesh) -> Any:
    shape = (spec.n_saves, spec.field.n)
    if spec.save == "times":
        return TimeRows(mesh, operands.saveat, jax.new_ref(lax.empty(shape, spec.dtype)))
    if spec.save == "steps":
        y_rows = jax.new_ref(lax.empty(shape, spec.dtype))
        return StepRows((y_rows, jax.new_ref(lax.empty(shape[:1], spec.dtype))))
    return None


def _init(maps: StepMaps, operands: SolveOperands, mesh: Mesh, rows: Any) -> _State:
    spec = maps.spec
    h: MaybeArray = None
    k1: MaybeArray = None
    if spec.adaptive or spec.method.is_fsal:
        k1 = maps.slope(mesh.t0, operands.y0, *operands.theta)
    if spec.adaptive:
        h = first_step(maps, operands, mesh, k1)
    if not spec.method.is_fsal:
        k1 = None
    cursor = rows.start() if isinstance(rows, TimeRows) else None
    start = mesh.start(h, memory=controller_memory(spec, operands))
    return _State(start, operands.y0, k1, cursor, None, first_switch(spec.method))


def _told_stiff(maps: StepMaps, operands: SolveOperands, end: _State, status: Array) -> Array:
    """Return the status; `looks_stiff` where stability has held the steps of an explicit method."""
    spec, method = maps.spec, maps.spec.method
    if spec.resumes or not (spec.adaptive and isinstance(method, ExplicitRungeKutta)):
        return status

    def slope(y: Array) -> Array:
        return maps.slope(end.mesh.t, y, *operands.theta)

    is_out = status == int(Status.max_steps_reached)
    unit = maps.atol + maps.rtol * jnp.abs(end.y)
    reach = decay_reach(slope, end.y, end.mesh.h, unit, is_out)
    is_stiff = reach > _NEAR_LIMIT * stability_length(method.tableau)
    return jnp.where(is_stiff, np.int32(Status.looks_stiff), status)


def _result(
    maps: StepMaps, operands: SolveOperands, mesh: Mesh, rows: Any, end: _State
) -> SolveResult:
    spec = maps.spec
    # With t0 == t1 the one pass through the loop is not a step, and cannot fail.
    is_empty = mesh.t0 == mesh.t1
    counts = jnp.where(is_empty | jnp.isnan(mesh.t1), np.int32(0), np.int32(1))
    status = jnp.where(is_empty, np.int32(Status.success), mesh.status(end.mesh))
    status = _told_stiff(maps, operands, end, status)
    n_saved = y_rows = t_rows = None
    if isinstance(rows, TimeRows):
        n_saved = jnp.where(is_empty, np.int32(spec.n_saves), end.cursor.n_saved)
        y_rows = jax.freeze(rows.ref)
    elif rows is not None:
        n_saved = end.mesh.n_accepted * counts
        y_rows, t_rows = (jax.freeze(ref) for ref in rows.refs)
    n_events = None
    if end.events is not None:
        n_events = end.events.n_events
        status = jnp.where(end.events.verdict > 0, end.events.verdict, status)
    return SolveResult(
        y_end=end.y,
        t_end=end.mesh.t,
        status=status,
        n_attempts=end.mesh.n_attempts * counts,
        n_accepted=end.mesh.n_accepted * counts,
        n_saved=n_saved,
        y_rows=y_rows,
        t_rows=t_rows,
        n_events=n_events,
        event_times=None,
        event_indices=None,
        n_grazing=None,
        ends_at_event=None,
        mesh=_carried(spec, operands, end.mesh) if spec.resumes else None,
    )


def _carried(spec: SolveSpec, operands: SolveOperands, mesh: MeshState) -> Array:
    """Return the step size and the controller's memory that the next part starts with."""
    if not spec.adaptive:
        return operands.dt
    assert mesh.h is not None and mesh.memory is not None
    return jnp.concatenate([mesh.h[None], jnp.ravel(mesh.memory)])
