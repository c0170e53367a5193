"""What happens at the end of an attempt: the first event in it, if there is one.

An accepted step in which a root event lies is taken again, to the event; a step that aims at a
preset time ends there. The state behind the event, what is armed for the next one, and the
verdict on a trajectory that ends, chatters or accumulates events follow.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.status import Status
from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_if, lane_while, store_row
from pullback.ode.event_maps import EventMaps
from pullback.ode.event_search import NODES, Crossing, find_crossing
from pullback.ode.events import EventSpec, EventState, arm
from pullback.ode.mesh import Mesh, MeshState, Stop, frozen
from pullback.ode.method import Step

__all__ = ["Attempted", "Met", "Record", "after_event", "meet", "next_stop"]

_REFINEMENTS = 3
# Root events at times that differ by so many roundings are simultaneous.
_TIE = 4.0
_MOST_EMPTY = 3
_MOST_SHRINKS = 8
_ACCUMULATION = 1e-6


class Attempted(NamedTuple):
    """An attempt as it was made.

    Attributes:
        t: Start.
        y: State there.
        h: Size.
        k1: First stage; None unless known.
        step: What the method returned.
        accept: Whether it counts.
        target: The time at which the next step must end at the latest.
        aims: Whether the attempt ends there.
        is_short: Whether it would have been longer without it.
    """

    t: Array
    y: Array
    h: Array
    k1: MaybeArray
    step: Step
    accept: Array
    target: Array
    aims: Array
    is_short: Array


class Met(NamedTuple):
    """The attempt after its events.

    Attributes:
        kind: 0 without an event, 1 + i for root event i, 1 + number of roots for preset ones.
        hits: Which preset events happened, `(preset,)`.
        h: Size of the step.
        t1: Its end.
        before: State there, before the event.
        y1: State there, behind the event.
        stages: Stages of the step.
        slope: y' behind the event; None unless needed.
        state: What is carried on.
    """

    kind: Array
    hits: Array
    h: Array
    t1: Array
    before: Array
    y1: Array
    stages: tuple[Array, ...]
    slope: MaybeArray
    state: EventState


class _Root(NamedTuple):
    fired: Array
    which: Array
    fraction: Array
    low: Array
    high: Array


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """The first events of a trajectory.

    Attributes:
        time: Ref of their times.
        index: Ref of which they were: root events first, then preset ones.
    """

    time: Any
    index: Any

    @classmethod
    def empty(cls, events: EventSpec, dtype: np.dtype) -> Record:
        """Return a record without events."""
        shape = (events.max_recorded,)
        return cls(
            jax.new_ref(jnp.full(shape, np.nan, dtype)),
            jax.new_ref(jnp.full(shape, -1, jnp.int32)),
        )

    def add(self, met: Met, before: EventState) -> None:
        """Record what happened at the end of an attempt, as far as there is room."""
        n_roots = before.side.shape[0]
        index = before.n_events
        fires = (met.kind > 0) & (met.kind <= n_roots)
        index = self._put(fires, index, met.t1, met.kind - 1)
        for j in range(met.hits.shape[0]):
            index = self._put(met.hits[j], index, met.t1, jnp.int32(n_roots + j))

    def _put(self, happens: Array, index: Array, time: Array, which: Array) -> Array:
        place = jnp.minimum(index, self.time.shape[0] - 1)
        has_room = happens & (index < self.time.shape[0])
        store_row(self.time, place, jnp.where(has_room, time, self.time[place]))
        store_row(self.index, place, jnp.where(has_room, which, self.index[place]))
        return index + happens.astype(jnp.int32)

    def times(self) -> Array:
        """Return the times, NaN behind the last."""
        return jax.freeze(self.time)

    def indices(self) -> Array:
        """Return which events they were, -1 behind the last."""
        return jax.freeze(self.index)


def next_stop(maps: EventMaps, mesh: Mesh, state: EventState, theta: tuple[Array, ...]) -> Stop:
    """Return where the next step must end: at the end, or at a preset time before it."""
    time = mesh.t1
    for preset in maps.preset_time(state.cursor, theta, mesh.sign):
        is_before = mesh.sign * (frozen(preset) - time) < 0
        time = jnp.where(is_before, frozen(preset), time)
    return Stop(time, state.cuts)


def after_event(maps: EventMaps, mesh: Mesh, after: MeshState, met: Met) -> MeshState:
    """Return the mesh after an attempt and its events."""
    cut = mesh.interrupted(after, met.t1, met.state.verdict > 0)
    is_preset = met.kind == len(maps.events.roots) + 1
    cut = cut._replace(done=cut.done | (is_preset & (met.t1 == mesh.t1)))
    return jax.tree.map(lambda a, b: jnp.where(met.kind > 0, a, b), cut, after)


def meet(
    maps: EventMaps, mesh: Mesh, state: EventState, made: Attempted, theta: tuple[Array, ...]
) -> Met:
    """Find the first event of an attempt and return what it makes of it."""
    crossings = _crossings(maps, state, made, theta)
    root = _first(crossings, made)
    h = _refined(maps, root, made, theta)
    step_y1, stages = _taken(maps, root, h, made, theta)
    is_preset = made.accept & made.aims & ~root.fired
    t1 = jnp.where(root.fired, made.t + h, jnp.where(made.aims, made.target, made.t + made.h))
    hits = _hits(maps, state, mesh, is_preset, made, theta)
    y1 = step_y1
    for i in range(len(maps.events.roots)):
        fires = root.fired & (root.which == i)
        y1 = jnp.where(fires, maps.affect_root(i, t1, step_y1, *theta), y1)
    y1 = maps.affect_presets(hits, t1, y1, *theta)
    has_hit = jnp.any(hits) if hits.size else jnp.zeros((), bool)
    happens = root.fired | has_hit
    slope = _slope_behind(maps, happens, t1, y1, theta)
    n_roots = len(maps.events.roots)
    kind = jnp.where(root.fired, root.which + 1, jnp.where(has_hit, n_roots + 1, 0))
    armed = _rearmed(maps, mesh, state, crossings, root, made, (t1, step_y1, y1, slope), theta)
    after = _counted(maps, mesh, armed, root, hits, h, t1, made)
    return Met(kind, hits, h, t1, step_y1, y1, stages, slope, after)


def _crossings(
    maps: EventMaps, state: EventState, made: Attempted, theta: tuple[Array, ...]
) -> list[Crossing]:
    def row(x: Array) -> Array:
        time = made.t + x * made.h
        return maps.maps.row(time, made.t, made.y, made.h, *made.step.stages, *theta)

    if not maps.events.roots:
        return []
    inner = [row(jnp.asarray(x, made.t.dtype)) for x in NODES[1:-1]]
    states = [made.y, *inner, made.step.y1]
    found = []
    for i in range(len(maps.events.roots)):
        side = state.side[i]

        def height(x: Array, y: MaybeArray = None, i: int = i, side: Array = side) -> Array:
            y = row(x) if y is None else y
            return side * maps.condition(i, made.t + x * made.h, y, *theta)

        heights = [
            height(jnp.asarray(x, made.t.dtype), y) for x, y in zip(NODES, states, strict=True)
        ]
        rate = state.rate[i] * made.h
        found.append(
            find_crossing(height, heights, state.armed[i], state.surface[i], rate, made.accept)
        )
    return found


def _first(crossings: list[Crossing], made: Attempted) -> _Root:
    """Return the earliest crossing; of simultaneous ones, the first in the list."""
    zero = jnp.zeros_like(made.t)
    best = _Root(jnp.zeros((), bool), jnp.zeros((), jnp.int32), zero + 2.0, zero, zero)
    eps = float(jnp.finfo(made.t.dtype).eps)
    size = jnp.where(made.h == 0, 1.0, jnp.abs(made.h))
    tie = _TIE * eps * (1.0 + jnp.abs(made.t) / size)
    for i, c in enumerate(crossings):
        is_earlier = c.found & (c.root < best.fraction - tie)
        new = _Root(c.found, jnp.asarray(i, jnp.int32), c.root, c.low, c.high)
        best = _Root(*(jnp.where(is_earlier, x, y) for x, y in zip(new, best, strict=True)))
    return best


def _refined(maps: EventMaps, root: _Root, made: Attempted, theta: tuple[Array, ...]) -> Array:
    """Return the size of the step to a root event, where the state after the step is on it."""

    def gap(h: Array) -> Array:
        y = maps.leave(made.t, made.y, h, *theta)
        value = jnp.zeros_like(h)
        for i in range(len(maps.events.roots)):
            here = maps.condition(i, made.t + h, y, *theta)
            value = jnp.where(root.which == i, here, value)
        return value

    low, high = root.low * made.h, root.high * made.h
    least, most = jnp.minimum(low, high), jnp.maximum(low, high)

    def body(s: tuple[Array, Array]) -> tuple[Array, Array]:
        h, count = s
        value, rate = jax.jvp(gap, (h,), (jnp.ones_like(h),))
        better = h - value / jnp.where(rate == 0, 1.0, rate)
        is_inside = (better >= least) & (better <= most) & (rate != 0)
        return jnp.where(is_inside, better, h), count + 1

    start = (jnp.where(root.fired, root.fraction * made.h, made.h), jnp.zeros((), jnp.int32))
    if not maps.events.roots:
        return start[0]
    return lane_while(lambda s: root.fired & (s[1] < _REFINEMENTS), body, start)[0]


def _taken(
    maps: EventMaps, root: _Root, h: Array, made: Attempted, theta: tuple[Array, ...]
) -> tuple[Array, tuple[Array, ...]]:
    """Return the end and the stages of the step to the event, or of the attempt without one."""
    plain = (made.step.y1, made.step.stages)
    if not maps.events.roots:
        return plain

    def again() -> Any:
        is_empty = h == 0
        size = jnp.where(is_empty, 1.0, h) if maps.maps.spec.method.is_implicit else h
        step = maps.maps.step(made.t, made.y, size, made.k1, *theta)
        y1 = jnp.where(is_empty, made.y, step.y1)
        return y1, step.stages

    return lane_if(root.fired, again, plain)


def _hits(
    maps: EventMaps,
    state: EventState,
    mesh: Mesh,
    is_preset: Array,
    made: Attempted,
    theta: tuple[Array, ...],
) -> Array:
    times = maps.preset_time(state.cursor, theta, mesh.sign)
    if not times:
        return jnp.zeros((0,), bool)
    return jnp.stack([is_preset & (frozen(time) == made.target) for time in times])


def _slope_behind(
    maps: EventMaps, happens: Array, t: Array, y: Array, theta: tuple[Array, ...]
) -> Array:
    """Return y' behind an event; anything where there is none."""
    return lane_if(happens, lambda: maps.maps.slope(t, y, *theta), jnp.zeros_like(y))


def _rearmed(
    maps: EventMaps,
    mesh: Mesh,
    state: EventState,
    crossings: list[Crossing],
    root: _Root,
    made: Attempted,
    end: tuple[Array, Array, Array, Array],
    theta: tuple[Array, ...],
) -> EventState:
    """Arm the event that fired anew; the others keep their side, and know what they have seen."""
    t1, before, y1, slope = end
    span = jnp.abs(mesh.t1 - mesh.t0)
    rows: list[tuple[Array, ...]] = []
    for i, (event, c) in enumerate(zip(maps.events.roots, crossings, strict=True)):
        side, armed = state.side[i], state.armed[i]
        fires = root.fired & (root.which == i)
        seen = armed | (side * maps.condition(i, t1, before, *theta) > 0)
        kept_armed = jnp.where(root.fired, seen, jnp.where(made.accept, c.armed, armed))
        flips = made.accept & ~root.fired & c.lost & (event.direction == 0)
        kept_surface = state.surface[i] & ~(made.accept & (t1 != made.t))
        kept = (jnp.where(flips, -side, side), kept_armed, kept_surface, state.rate[i])
        new = arm(event, t1, y1, slope, theta, span)
        rows.append(tuple(jnp.where(fires, a, b) for a, b in zip(new, kept, strict=True)))
    if not rows:
        return state
    side, armed, surface, rate = (jnp.stack(x) for x in zip(*rows, strict=True))
    return state._replace(side=side, armed=armed, surface=surface, rate=rate)


def _counted(
    maps: EventMaps,
    mesh: Mesh,
    state: EventState,
    root: _Root,
    hits: Array,
    h: Array,
    t1: Array,
    made: Attempted,
) -> EventState:
    """Count the events and judge the trajectory."""
    events = maps.events
    n_hits = jnp.sum(hits, dtype=jnp.int32) if hits.size else jnp.zeros((), jnp.int32)
    fired = root.fired
    count = state.n_events + fired.astype(jnp.int32) + n_hits
    is_empty = fired & (h == 0) & (root.which == state.last)
    streak = jnp.where(fired, jnp.where(is_empty, state.streak + 1, 0), state.streak)
    gap = jnp.abs(t1 - state.time)
    ratio = gap / jnp.where(state.gap > 0, state.gap, 1.0)
    shrinks = jnp.where(ratio < 1.0, state.shrinks + 1, 0)
    left = gap * ratio / jnp.maximum(1.0 - ratio, 1e-3)
    is_zeno = (shrinks >= _MOST_SHRINKS) & (left < _ACCUMULATION * jnp.abs(mesh.t1 - mesh.t0))
    chatters = (count > events.max_events) | (streak >= _MOST_EMPTY)
    ends = jnp.zeros((), bool)
    for i, event in enumerate(events.roots):
        if event.terminate:
            ends = ends | (fired & (root.which == i))
    for j, preset in enumerate(events.presets):
        if preset.terminate:
            ends = ends | hits[j]
    verdict = jnp.where(fired & is_zeno, _code(Status.zeno), 0)
    verdict = jnp.where(fired & chatters, _code(Status.event_chatter), verdict)
    verdict = jnp.where(ends, _code(Status.terminated), verdict)
    is_cut = jnp.where(fired, h != made.h, made.accept & made.aims & made.is_short)
    return state._replace(
        cursor=state.cursor + hits.astype(jnp.int32),
        n_events=count,
        cuts=state.cuts + is_cut.astype(jnp.int32),
        last=jnp.where(fired, root.which, state.last),
        streak=streak,
        time=jnp.where(fired, t1, state.time),
        gap=jnp.where(fired, gap, state.gap),
        shrinks=jnp.where(fired, shrinks, state.shrinks),
        verdict=verdict.astype(jnp.int32),
    )


def _code(status: Status) -> Array:
    return jnp.asarray(status.value, jnp.int32)
