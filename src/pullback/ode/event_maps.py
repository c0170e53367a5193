"""Steps that end at an event, as functions of everything they depend on.

These are the maps that forward and reverse mode differentiate, beside those of `maps`. A root
event moves with the state: its step has the size that solves condition = 0, and Newton's iteration
taken at the solution gives that size its derivative without moving its value. With the affect
behind it, the map's derivative is the saltation matrix in discrete form. A step that ends at a
known time follows that time. One that ended by itself has a frozen size, and at its end the affects
of step events only.

References:
    [BRKS16] section 2, for the saltation matrix.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from pullback.core.status import Status
from pullback.core.typing import Array
from pullback.lanes.loop import lane_if
from pullback.ode.algebraic import Consistent, consistent
from pullback.ode.event_times import time_slack
from pullback.ode.events import EventSpec
from pullback.ode.maps import StepMaps
from pullback.ode.mesh import Mesh, frozen

__all__ = ["EventMaps", "moved"]

# A silent stop is passed by so many roundings, for the vector field may jump there.
_BEYOND_EPS = 4.0


def moved(x: Array) -> Array:
    """Return zero with the derivative of x."""
    return x - frozen(x)


@dataclasses.dataclass(frozen=True, eq=False)
class EventMaps:
    """The maps of one solve with events.

    Attributes:
        maps: The maps of its ordinary steps.
        events: The events.
        mesh: What is constant along its mesh.
    """

    maps: StepMaps
    events: EventSpec
    mesh: Mesh

    def condition(self, root: int, t: Array, y: Array, *theta: Array) -> Array:
        """Evaluate the condition of a root event."""
        return self.events.roots[root].condition(t, y, theta)

    def gap(self, root: int, h: Array, t: Array, y: Array, *theta: Array) -> Array:
        """Evaluate the condition at the end of a step of size h."""
        return self.condition(root, t + h, self.leave(t, y, h, *theta), *theta)

    def leave(self, t: Array, y: Array, h: Array, *theta: Array) -> Array:
        """Return the state at the end of a step that may have no length."""
        method = self.maps.spec.method
        if not method.is_implicit:
            return self.maps.arrive(t, y, h, *theta)
        # An implicit step divides by its size.
        is_empty = frozen(h) == 0
        some = jnp.where(is_empty, 1.0, h)
        short = y + h * self.maps.slope(t, y, *theta)
        return jnp.where(is_empty, short, self.maps.arrive(t, y, some, *theta))

    def arrive_at_root(
        self, root: int, steps: Array, t: Array, y: Array, h: Array, *theta: Array
    ) -> tuple[Array, Array]:
        """Return the time of a root event and the state behind it.

        Args:
            root: Which event.
            steps: Which step events happen behind it, `(step,)`.
            t: Start of the step.
            y: State there.
            h: Size of the step, at which the condition vanishes.
            theta: Arrays of all functions.

        Differentiation:
            To second order, by two steps of Newton's iteration from the solution.
        """

        def newton(h: Array, is_first: bool) -> Array:
            def gap(h: Array) -> Array:
                return self.gap(root, h, t, y, *theta)

            value, rate = jax.jvp(gap, (h,), (jnp.ones_like(h),))
            return h - value / (frozen(rate) if is_first else rate)

        h = newton(newton(frozen(h), is_first=True), is_first=False)
        end = t + h
        y = self.affect_root(root, end, self.leave(t, y, h, *theta), *theta)
        return end, self.affect_steps(steps, end, y, *theta)

    def arrive_at_preset(
        self,
        hits: Array,
        steps: Array,
        cursor: Array,
        t: Array,
        y: Array,
        h: Array,
        *theta: Array,
    ) -> tuple[Array, Array]:
        """Return the time of preset events, at which a step from (t, y) ends, and the state behind.

        Args:
            hits: Which preset events happen there, `(preset,)`.
            steps: Which step events happen behind them, `(step,)`.
            cursor: Their number before the step.
            t: Start of the step.
            y: State there.
            h: Size of the step.
            theta: Arrays of all functions.
        """
        end = self.hit_time(hits, cursor, theta)
        size = frozen(h) + moved(end) - moved(t)
        y = self.affect_presets(hits, end, self.leave(t, y, size, *theta), *theta)
        y = self.affect_steps(steps, end, y, *theta)
        return self.behind_stop(hits, steps, end), y

    def arrive_by_itself(
        self, steps: Array, ends_fixed: Array, t: Array, y: Array, h: Array, *theta: Array
    ) -> tuple[Array, Array]:
        """Return the time at which an ordinary step ends, and the state behind its step events.

        Args:
            steps: Which step events happen there, `(step,)`.
            ends_fixed: Whether the step ends where it ends; otherwise its size is fixed.
            t: Start of the step.
            y: State there.
            h: Size of the step.
            theta: Arrays of all functions.
        """
        size = frozen(h) - jnp.where(ends_fixed, moved(t), 0.0)
        end = t + size
        return end, self.arrive_at_end(steps, t, y, size, *theta)

    def arrive_at_end(self, steps: Array, t: Array, y: Array, h: Array, *theta: Array) -> Array:
        """Return the state at the end of the last step, behind its step events."""
        return self.affect_steps(steps, t + h, self.maps.arrive(t, y, h, *theta), *theta)

    def affect_root(self, root: int, t: Array, y: Array, *theta: Array) -> Array:
        """Return the state behind a root event."""
        affect = self.events.roots[root].affect
        if affect is None:
            return y
        return self.consistent(jnp.ones((), bool), t, affect(t, y, theta), theta).y

    def affect_presets(self, hits: Array, t: Array, y: Array, *theta: Array) -> Array:
        """Return the state behind preset events, one after the other."""
        changes = jnp.zeros((), bool)
        for j, event in enumerate(self.events.presets):
            if event.affect is not None:
                y = event.affect.where(hits[j], t, y, theta)
                changes = changes | hits[j]
        return self.consistent(changes, t, y, theta).y

    def affect_steps(self, steps: Array, t: Array, y: Array, *theta: Array) -> Array:
        """Return the state behind step events, one after the other."""
        for k, event in enumerate(self.events.steps):
            if event.affect is not None:
                y = event.affect.where(steps[k], t, y, theta)
        return self.consistent(self.jumps(steps), t, y, theta).y

    def consistent(self, wanted: Array, t: Array, y: Array, theta: tuple[Array, ...]) -> Consistent:
        """Return the state behind a jump, with algebraic variables that satisfy their equations."""
        spec = self.maps.spec
        if spec.mass is None or not spec.mass.is_singular or not self.events.changes_state:
            return Consistent(y, jnp.ones((), bool), jnp.zeros((), bool))
        system = self.maps.system(theta)
        only_checks = spec.initialization == "check"
        return consistent(system, t, y, wanted, only_checks=only_checks)

    def found_consistent(
        self, wanted: Array, t: Array, y: Array, theta: tuple[Array, ...]
    ) -> tuple[Array, Array]:
        """Return the same state, and the status that says why there is none; 0 if there is one."""
        spec, fine = self.maps.spec, jnp.zeros((), jnp.int32)
        if spec.mass is None or not spec.mass.is_singular or not self.events.changes_state:
            return y, fine

        def find() -> tuple[Array, Array]:
            found = self.consistent(wanted, t, y, theta)
            status = jnp.where(found.is_found, 0, int(Status.inconsistent_initial))
            status = jnp.where(found.is_singular, int(Status.singular_dae), status)
            return found.y, status.astype(jnp.int32)

        return lane_if(wanted, find, (y, fine))

    def jumps(self, steps: Array) -> Array:
        """Return whether step events that happen change the state."""
        jumps = jnp.zeros((), bool)
        for k, event in enumerate(self.events.steps):
            if event.affect is not None:
                jumps = jumps | steps[k]
        return jumps

    def hit_time(self, hits: Array, cursor: Array, theta: Sequence[Array]) -> Array:
        """Return the time of the preset events that happen, of the first in the list."""
        end = jnp.zeros((), self.maps.spec.dtype)
        taken = jnp.zeros((), bool)
        for j, time in enumerate(self.next_times(cursor, theta)):
            end = jnp.where(hits[j] & ~taken, time, end)
            taken = taken | hits[j]
        return end

    def behind_stop(self, hits: Array, steps: Array, time: Array) -> Array:
        """Return where a step begins behind preset events: a silent one is just passed.

        Unless the state changes there: a row saved at that time is the state behind the change.
        """
        n_told, n = self.events.n_told, len(self.events.presets)
        if n_told == n:
            return time
        is_silent = jnp.any(hits[n_told:])
        if n_told:
            is_silent = is_silent & ~jnp.any(hits[:n_told])
        is_silent = is_silent & ~self.jumps(steps) & (frozen(time) != self.mesh.t1)
        eps = _BEYOND_EPS * float(jnp.finfo(time.dtype).eps)
        shift = self.mesh.sign * (eps * jnp.abs(frozen(time)) + self.mesh.h_floor)
        return time + jnp.where(is_silent, shift, 0.0)

    def next_times(self, cursor: Array, theta: Sequence[Array]) -> list[Array]:
        """Return the next time of each preset event; one that is t1 but for rounding is t1."""
        mesh, theta = self.mesh, tuple(theta)
        slack = time_slack(mesh.t0, mesh.t1)
        times = []
        for j, event in enumerate(self.events.presets):
            time = event.times.at(cursor[j], theta, mesh.sign)
            is_end = jnp.abs(frozen(time) - mesh.t1) <= slack
            times.append(time + jnp.where(is_end, frozen(mesh.t1 - time), 0.0))
        return times
