"""Steps that end at an event, as functions of everything they depend on.

These are the maps that forward and reverse mode differentiate, beside those of `maps`. A root
event moves with the state: its step has the size that solves condition = 0, and Newton's iteration
taken at the solution gives that size its derivative without moving its value. With the affect
behind it, the map's derivative is the saltation matrix in discrete form.

References:
    [BRKS16] section 2, for the saltation matrix.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from pullback.core.typing import Array
from pullback.ode.events import EventSpec
from pullback.ode.maps import StepMaps
from pullback.ode.mesh import frozen

__all__ = ["EventMaps"]


@dataclasses.dataclass(frozen=True)
class EventMaps:
    """The maps of one solve with events.

    Attributes:
        maps: The maps of its ordinary steps.
        events: The events.
    """

    maps: StepMaps
    events: EventSpec

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
        moved = y + h * self.maps.slope(t, y, *theta)
        return jnp.where(is_empty, moved, self.maps.arrive(t, y, some, *theta))

    def arrive_at_root(
        self, root: int, t: Array, y: Array, h: Array, *theta: Array
    ) -> tuple[Array, Array]:
        """Return the time of a root event and the state behind it.

        Args:
            root: Which event.
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
        return t + h, self.affect_root(root, t + h, self.leave(t, y, h, *theta), *theta)

    def arrive_at_preset(self, hits: Array, t: Array, y: Array, end: Array, *theta: Array) -> Array:
        """Return the state behind the preset events at `end`, where a step from (t, y) ends.

        Args:
            hits: Which preset events happen there, `(preset,)`.
            t: Start of the step.
            y: State there.
            end: End of the step.
            theta: Arrays of all functions.
        """
        return self.affect_presets(hits, end, self.leave(t, y, end - t, *theta), *theta)

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

    def hit_time(self, hits: Array, cursor: Array, theta: Sequence[Array]) -> Array:
        """Return the time of the preset events that happen, of the first in the list."""
        end = jnp.zeros((), self.maps.spec.dtype)
        taken = jnp.zeros((), bool)
        for j, time in enumerate(self._times(cursor, theta)):
            end = jnp.where(hits[j] & ~taken, time, end)
            taken = taken | hits[j]
        return end

    def preset_time(self, cursor: Array, theta: tuple[Array, ...], sign: Array) -> list[Array]:
        """Return the next time of each preset event; infinity behind the last."""
        return [
            jnp.where(cursor[j] < event.n, time, sign * jnp.inf)
            for j, (event, time) in enumerate(
                zip(self.events.presets, self._times(cursor, theta), strict=True)
            )
        ]

    def _times(self, cursor: Array, theta: Sequence[Array]) -> list[Array]:
        times = []
        spec = self.maps.spec
        # Times are functions of the parameters alone.
        nowhere = jnp.zeros((), spec.dtype), jnp.zeros((spec.field.n,), spec.dtype)
        for j, event in enumerate(self.events.presets):
            values = event.times(*nowhere, tuple(theta))
            index = jnp.minimum(cursor[j], event.n - 1)
            times.append(jax.lax.dynamic_index_in_dim(values, index, keepdims=False))
        return times
