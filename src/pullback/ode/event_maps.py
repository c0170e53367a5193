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

from pullback.core.typing import Array
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
        return self.behind_stop(hits, end), y

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
        return y if affect is None else affect(t, y, theta)

    def affect_presets(self, hits: Array, t: Array, y: Array, *theta: Array) -> Array:
        """Return the state behind preset events, one after the other."""
        for j, event in enumerate(self.events.presets):
            if event.affect is not None:
                y = jnp.where(hits[j], event.affect(t, y, theta), y)
        return y

    def affect_steps(self, steps: Array, t: Array, y: Array, *theta: Array) -> Array:
        """Return the state behind step events, one after the other."""
        for k, event in enumerate(self.events.steps):
            if event.affect is not None:
                y = jnp.where(steps[k], event.affect(t, y, theta), y)
        return y

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

    def behind_stop(self, hits: Array, time: Array) -> Array:
        """Return where a step begins behind preset events: a silent one is just passed."""
        n_told, n = self.events.n_told, len(self.events.presets)
        if n_told == n:
            return time
        is_silent = jnp.any(hits[n_told:])
        if n_told:
            is_silent = is_silent & ~jnp.any(hits[:n_told])
        is_silent = is_silent & (frozen(time) != self.mesh.t1)
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
