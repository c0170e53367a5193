"""What a sweep with a tangent carries from step to step, and what one attempt of it leaves."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from pullback.core.status import Status
from pullback.core.typing import Array, MaybeArray
from pullback.ode.auto_switch import Switch
from pullback.ode.event_step import Met
from pullback.ode.events import EventState
from pullback.ode.mesh import Mesh, MeshState
from pullback.ode.method import Step

__all__ = ["Attempt", "Control", "Seed", "SweepState", "ends_with_event"]


class Seed(NamedTuple):
    """Tangents of a solve's inputs; None where zero.

    Attributes:
        y0: Of the initial state.
        t0: Of the initial time.
        theta: Of the entries of theta.
    """

    y0: MaybeArray
    t0: MaybeArray
    theta: tuple[MaybeArray, ...]

    @property
    def is_zero(self) -> bool:
        """Whether nothing moves."""
        return self.y0 is None and self.t0 is None and all(d is None for d in self.theta)


class Control(NamedTuple):
    """Control of a tangent's error.

    Attributes:
        floor: Absolute tolerance of the tangent.
        weight: Of its squared error norm against the state's: 1 / slack**2.
        is_all: Whether the tangent is there for control only and has no derivative.
    """

    floor: Array
    weight: Array | float
    is_all: bool


class SweepState(NamedTuple):
    """What a sweep carries.

    Attributes:
        mesh: The mesh.
        y: State.
        k1: First stage of the next step; None unless FSAL.
        v: Tangent of y; None without a tangent.
        k1_dot: Tangent of k1.
        largest: Running maximum of |v| by component; None without control.
        is_controlled: Whether the tangent still has a say in the step size; None without control.
        t_dot: Tangent of the time, which events move; None without events or tangent.
        events: What is known of events; None without.
        last_kind: Which event the last accepted step met, 0 if none; None without events.
        switch: Which of two methods takes the next step; None where there is one.
    """

    mesh: MeshState
    y: Array
    k1: MaybeArray
    v: MaybeArray
    k1_dot: MaybeArray
    largest: MaybeArray
    is_controlled: MaybeArray
    t_dot: MaybeArray = None
    events: EventState | None = None
    last_kind: MaybeArray = None
    switch: Switch | None = None


class Attempt(NamedTuple):
    """One attempt of a sweep.

    Attributes:
        t: Where it starts.
        h: Its size.
        t_dot: Tangent of t; None if it does not move.
        step: The step.
        dot: Its tangent, a `Step`; None without a tangent.
        accept: Whether it counts.
        is_last: Whether it aims at the end.
        h_dot: Tangent of h; None if it does not move.
        met: The events in it; None without events.
    """

    t: Array
    h: Array
    t_dot: MaybeArray
    step: Step
    dot: Any
    accept: Array
    is_last: Array
    h_dot: MaybeArray = None
    met: Met | None = None


def ends_with_event(mesh: Mesh, end: SweepState) -> tuple[Array, Array]:
    """Return whether a trajectory ended with an event that has a time of its own; and if at t1.

    A step event that ends the trajectory at t1 has no time of its own: t1 it is.
    """
    assert end.events is not None
    is_ended = end.events.verdict == int(Status.terminated)
    reached = mesh.has_reached_end(end.mesh)
    met_one = end.last_kind > 0
    is_event = jnp.where(reached, met_one & (is_ended | (end.events.verdict == 0)), is_ended)
    return is_event, is_ended & reached & ~met_one
