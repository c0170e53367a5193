"""What happens at the end of an attempt: the first event in it, if there is one.

An accepted step in which a root event lies is taken again, to the event; a step that aims at a
preset time ends there. Step events are looked at behind these. What is carried on from there, and
the verdict on the trajectory, is in `event_after`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pullback.core.status import Status
from pullback.core.typing import Array, MaybeArray
from pullback.lanes.loop import lane_if
from pullback.ode.event_after import counted, ends_at, rearmed
from pullback.ode.event_grazing import is_grazing
from pullback.ode.event_look import look
from pullback.ode.event_maps import EventMaps
from pullback.ode.event_root import Attempted, Root, crossings, first_root, refined, taken
from pullback.ode.events import EventState
from pullback.ode.mesh import Mesh, MeshState, Stop, frozen

__all__ = ["Met", "after_event", "meet", "next_stop"]


class Met(NamedTuple):
    """The attempt after its events.

    Attributes:
        kind: 0 without an event, 1 + i for root event i, 1 + number of roots for preset ones.
        hits: Which preset events happened, `(preset,)`.
        steps: Which step events happened behind these, `(step,)`.
        jumps: Whether the state behind the step is another one than before its events.
        lost: Whether what lies behind its events is no number, or not consistent: the attempt does
            not count, and the trajectory ends at its start.
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
    lost: Array
    h: Array
    t1: Array
    reached: Array
    y1: Array
    stages: tuple[Array, ...]
    slope: Array
    state: EventState
    grazes: MaybeArray


def next_stop(maps: EventMaps, state: EventState, theta: tuple[Array, ...]) -> Stop:
    """Return where the next step must end: at the end, or at a preset time before it."""
    mesh = maps.mesh
    time = mesh.t1
    for preset in maps.next_times(state.cursor, theta):
        is_before = mesh.sign * (frozen(preset) - time) < 0
        time = jnp.where(is_before, frozen(preset), time)
    return Stop(time, state.cuts)


def after_event(maps: EventMaps, before: MeshState, after: MeshState, met: Met) -> MeshState:
    """Return the mesh after an attempt and its events."""
    mesh: Mesh = maps.mesh
    cut = mesh.interrupted(after, met.reached, met.state.verdict > 0)
    is_preset = met.kind == maps.events.preset_kind
    cut = cut._replace(done=cut.done | (is_preset & (met.t1 == mesh.t1)))
    after = jax.tree.map(lambda a, b: jnp.where(met.kind > 0, a, b), cut, after)
    if maps.events.steps:
        after = after._replace(done=after.done | (met.state.verdict > 0))
    # The last good point is the start of an attempt whose end is lost.
    stays = before._replace(done=jnp.ones((), bool), n_attempts=after.n_attempts)
    return jax.tree.map(lambda a, b: jnp.where(met.lost, a, b), stays, after)


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
    hits = _hits(maps, state, made, theta)
    told = hits[: maps.events.n_told]
    lands = jnp.any(told) if told.size else jnp.zeros((), bool)
    heights, found = crossings(maps, state, made, lands, theta)
    root = first_root(found, made)
    hits = hits & ~root.fired
    h, rate = refined(maps, root, made, theta)
    before, stages = taken(maps, root, h, made, theta)
    t1 = jnp.where(root.fired, made.t + h, jnp.where(made.aims, made.target, made.t + made.h))
    y1, failure = _behind(maps, root, hits, t1, before, theta)
    ends = ends_at(maps, root.fired, root.which, hits)
    steps, y1, late_failure = look(maps, made.accept & ~ends, t1, y1, stages, theta)
    has_hit = jnp.any(hits) if hits.size else jnp.zeros((), bool)
    jumps = root.fired | has_hit | maps.jumps(steps)
    reached = jnp.where(has_hit, maps.behind_stop(hits, steps, t1), t1)
    slope = lane_if(jumps, lambda: maps.maps.slope(reached, y1, *theta), jnp.zeros_like(y1))
    kind = jnp.where(has_hit, maps.events.preset_kind, 0)
    kind = jnp.where(root.fired, root.which + 1, kind)
    end = (t1, before, y1, slope)
    accept, start = made.accept, made.t
    armed = rearmed(maps, state, found, root.fired, root.which, accept, start, end, theta)
    is_cut = jnp.where(root.fired, h != made.h, made.accept & made.aims & made.is_short)
    what = (root.fired, root.which, hits, steps, ends)
    after = counted(maps, armed, *what, t1, h == 0, is_cut)
    grazes = None
    if tells_grazing:
        place = (root.which, root.fraction, rate * made.h, (t1, before), theta)
        grazes = lane_if(root.fired, lambda: is_grazing(maps, heights, *place), jnp.zeros((), bool))
    failure = jnp.where(failure > 0, failure, late_failure)
    failure = jnp.where(failure > 0, failure, _broken(before, y1, root, heights))
    failure = jnp.where(made.accept, failure, 0)
    met = Met(
        kind, hits, steps, jumps, failure > 0, h, t1, reached, y1, stages, slope, after, grazes
    )
    return _unless_lost(met, state._replace(verdict=failure))


def _behind(
    maps: EventMaps,
    root: Root,
    hits: Array,
    t1: Array,
    before: Array,
    theta: tuple[Array, ...],
) -> tuple[Array, Array]:
    """Return the state behind root and preset events, and why there is none, if there is none."""
    y1, changes = before, jnp.zeros((), bool)
    for i, event in enumerate(maps.events.roots):
        if event.affect is not None:
            fires = root.fired & (root.which == i)
            y1 = jnp.where(fires, event.affect(t1, before, theta), y1)
            changes = changes | fires
    for j, preset in enumerate(maps.events.presets):
        if preset.affect is not None:
            y1 = jnp.where(hits[j], preset.affect(t1, y1, theta), y1)
            changes = changes | hits[j]
    return maps.found_consistent(changes, t1, y1, theta)


def _broken(before: Array, y1: Array, root: Root, heights: list[list[Array]]) -> Array:
    """Return the status of a state behind events, or of a condition, that is no number; else 0."""
    is_broken = jnp.any(jnp.isfinite(before) & ~jnp.isfinite(y1))
    for height in heights:
        is_broken = is_broken | (~root.fired & jnp.isnan(height[-1]))
    return jnp.where(is_broken, jnp.int32(Status.non_finite), jnp.int32(0))


def _unless_lost(met: Met, state: EventState) -> Met:
    """Return what an attempt met: nothing, and `state` is carried on, where its end is lost."""

    def nothing(x: Array) -> Array:
        return jnp.where(met.lost, jnp.zeros_like(x), x)

    return met._replace(
        kind=nothing(met.kind),
        hits=nothing(met.hits),
        steps=nothing(met.steps),
        jumps=nothing(met.jumps),
        grazes=None if met.grazes is None else nothing(met.grazes),
        state=jax.tree.map(lambda a, b: jnp.where(met.lost, a, b), state, met.state),
    )


def _hits(maps: EventMaps, state: EventState, made: Attempted, theta: tuple[Array, ...]) -> Array:
    """Return which preset events happen at the end of an attempt, if no root event does."""
    times = maps.next_times(state.cursor, theta)
    if not times:
        return jnp.zeros((0,), bool)
    is_there = made.accept & made.aims
    hits = [is_there & (frozen(time) == made.target) for time in times]
    for j in range(maps.events.n_told, len(hits)):
        hits[j] = hits[j] & (made.target != maps.mesh.t1)  # where the trajectory ends anyway
    return jnp.stack(hits)
