"""What happens at the end of an attempt: the first event in it, if there is one.

An accepted step in which a root event lies is taken again, to the event; a step that aims at a
preset time ends there. Step events are looked at behind these. What is carried on from there, and
the verdict on the trajectory, is in `event_after`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pullback.core.status import Status
from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_if, lane_while
from pullback.ode.event_after import counted, ends_at, rearmed
from pullback.ode.event_grazing import is_grazing
from pullback.ode.event_look import look
from pullback.ode.event_maps import EventMaps
from pullback.ode.event_search import NODES, Crossing, find_crossing
from pullback.ode.events import EventState
from pullback.ode.mesh import Mesh, MeshState, Stop, frozen
from pullback.ode.method import Step

__all__ = ["Attempted", "Met", "after_event", "meet", "next_stop"]

_REFINEMENTS = 3
# Root events at times that differ by so many roundings are simultaneous.
_TIE = 4.0
_NON_FINITE = int(Status.non_finite)


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
        steps: Which step events happened behind these, `(step,)`.
        jumps: Whether the state behind the step is another one than before its events.
        h: Size of the step.
        t1: The time of the events.
        reached: The time at which the next step begins.
        y1: State there, behind the events.
        stages: Stages of the step.
        slope: y' behind the events; anything where there are none.
        state: What is carried on.
        grazes: Whether a root event is nearly tangential; None where nobody asks.
    """

    kind: Array
    hits: Array
    steps: Array
    jumps: Array
    h: Array
    t1: Array
    reached: Array
    y1: Array
    stages: tuple[Array, ...]
    slope: Array
    state: EventState
    grazes: MaybeArray


class _Root(NamedTuple):
    fired: Array
    which: Array
    fraction: Array
    low: Array
    high: Array


def next_stop(maps: EventMaps, state: EventState, theta: tuple[Array, ...]) -> Stop:
    """Return where the next step must end: at the end, or at a preset time before it."""
    mesh = maps.mesh
    time = mesh.t1
    for preset in maps.next_times(state.cursor, theta):
        is_before = mesh.sign * (frozen(preset) - time) < 0
        time = jnp.where(is_before, frozen(preset), time)
    return Stop(time, state.cuts)


def after_event(maps: EventMaps, after: MeshState, met: Met) -> MeshState:
    """Return the mesh after an attempt and its events."""
    mesh: Mesh = maps.mesh
    cut = mesh.interrupted(after, met.reached, met.state.verdict > 0)
    is_preset = met.kind == maps.events.preset_kind
    cut = cut._replace(done=cut.done | (is_preset & (met.t1 == mesh.t1)))
    after = jax.tree.map(lambda a, b: jnp.where(met.kind > 0, a, b), cut, after)
    if maps.events.steps:
        after = after._replace(done=after.done | (met.state.verdict > 0))
    return after


def meet(
    maps: EventMaps,
    state: EventState,
    made: Attempted,
    theta: tuple[Array, ...],
    *,
    tells_grazing: bool = False,
) -> Met:
    """Find the first event of an attempt and return what it makes of it.

    Args:
        maps: Maps of the events.
        state: What is carried along.
        made: The attempt.
        theta: Arrays of all functions.
        tells_grazing: Whether to tell which root events are nearly tangential.
    """
    # With t0 == t1 nothing is integrated, so nothing happens.
    made = made._replace(accept=made.accept & (maps.mesh.t0 != maps.mesh.t1))
    heights, crossings = _crossings(maps, state, made, theta)
    root = _first(crossings, made)
    h, rate = _refined(maps, root, made, theta)
    before, stages = _taken(maps, root, h, made, theta)
    t1 = jnp.where(root.fired, made.t + h, jnp.where(made.aims, made.target, made.t + made.h))
    hits = _hits(maps, state, made, root.fired, theta)
    y1 = before
    for i in range(len(maps.events.roots)):
        fires = root.fired & (root.which == i)
        y1 = jnp.where(fires, maps.affect_root(i, t1, before, *theta), y1)
    y1 = maps.affect_presets(hits, t1, y1, *theta)
    ends = ends_at(maps, root.fired, root.which, hits)
    steps, y1 = look(maps, made.accept & ~ends, t1, y1, stages, theta)
    has_hit = jnp.any(hits) if hits.size else jnp.zeros((), bool)
    jumps = root.fired | has_hit | maps.jumps(steps)
    reached = jnp.where(has_hit, maps.behind_stop(hits, t1), t1)
    slope = lane_if(jumps, lambda: maps.maps.slope(reached, y1, *theta), jnp.zeros_like(y1))
    kind = jnp.where(has_hit, maps.events.preset_kind, 0)
    kind = jnp.where(root.fired, root.which + 1, kind)
    end = (t1, before, y1, slope)
    accept, start = made.accept, made.t
    armed = rearmed(maps, state, crossings, root.fired, root.which, accept, start, end, theta)
    is_cut = jnp.where(root.fired, h != made.h, made.accept & made.aims & made.is_short)
    what = (root.fired, root.which, hits, steps, ends)
    after = counted(maps, armed, *what, t1, h == 0, is_cut)
    for height in heights:
        is_lost = made.accept & ~root.fired & jnp.isnan(height[-1])
        after = after._replace(verdict=jnp.where(is_lost, _NON_FINITE, after.verdict))
    grazes = None
    if tells_grazing:
        place = (root.which, root.fraction, rate * made.h, (t1, before), theta)
        grazes = lane_if(root.fired, lambda: is_grazing(maps, heights, *place), jnp.zeros((), bool))
    return Met(kind, hits, steps, jumps, h, t1, reached, y1, stages, slope, after, grazes)


def _crossings(
    maps: EventMaps, state: EventState, made: Attempted, theta: tuple[Array, ...]
) -> tuple[list[list[Array]], list[Crossing]]:
    """Return each condition at the nodes of the step, and where it vanishes first."""

    def row(x: Array) -> Array:
        time = made.t + x * made.h
        return maps.maps.row(time, made.t, made.y, made.h, *made.step.stages, *theta)

    if not maps.events.roots:
        return [], []
    inner = [row(jnp.asarray(x, made.t.dtype)) for x in NODES[1:-1]]
    states = [made.y, *inner, made.step.y1]
    every, found = [], []
    for i in range(len(maps.events.roots)):
        side = state.side[i]

        def height(x: Array, y: MaybeArray = None, i: int = i, side: Array = side) -> Array:
            y = row(x) if y is None else y
            return side * maps.condition(i, made.t + x * made.h, y, *theta)

        heights = [
            height(jnp.asarray(x, made.t.dtype), y) for x, y in zip(NODES, states, strict=True)
        ]
        every.append(heights)
        rate = state.rate[i] * made.h
        found.append(
            find_crossing(height, heights, state.armed[i], state.surface[i], rate, made.accept)
        )
    return every, found


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


def _refined(
    maps: EventMaps, root: _Root, made: Attempted, theta: tuple[Array, ...]
) -> tuple[Array, Array]:
    """Return the size of the step to a root event, where the state after the step is on it.

    And the rate of change of its condition with that size.
    """

    def gap(h: Array) -> Array:
        y = maps.leave(made.t, made.y, h, *theta)
        value = jnp.zeros_like(h)
        for i in range(len(maps.events.roots)):
            here = maps.condition(i, made.t + h, y, *theta)
            value = jnp.where(root.which == i, here, value)
        return value

    low, high = root.low * made.h, root.high * made.h
    least, most = jnp.minimum(low, high), jnp.maximum(low, high)

    def body(s: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        h, _, count = s
        value, rate = jax.jvp(gap, (h,), (jnp.ones_like(h),))
        better = h - value / jnp.where(rate == 0, 1.0, rate)
        is_inside = (better >= least) & (better <= most) & (rate != 0)
        return jnp.where(is_inside, better, h), rate, count + 1

    begin = jnp.where(root.fired, root.fraction * made.h, made.h)
    start = (begin, jnp.zeros_like(begin), jnp.zeros((), jnp.int32))
    if not maps.events.roots:
        return begin, start[1]
    h, rate, _ = lane_while(lambda s: root.fired & (s[2] < _REFINEMENTS), body, start)
    return h, rate


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
    maps: EventMaps, state: EventState, made: Attempted, fired: Array, theta: tuple[Array, ...]
) -> Array:
    """Return which preset events happen at the end of an attempt."""
    times = maps.next_times(state.cursor, theta)
    if not times:
        return jnp.zeros((0,), bool)
    is_there = made.accept & made.aims & ~fired
    hits = [is_there & (frozen(time) == made.target) for time in times]
    for j in range(maps.events.n_told, len(hits)):
        hits[j] = hits[j] & (made.target != maps.mesh.t1)  # where the trajectory ends anyway
    return jnp.stack(hits)
