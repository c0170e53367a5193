"""The first events of a trajectory, kept as they happen."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array
from pullback.lanes.loop import store_row
from pullback.ode.event_step import Met
from pullback.ode.events import EventSpec, EventState

__all__ = ["Record"]


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """The first events of a trajectory.

    Attributes:
        events: All events of the solve.
        time: Ref of their times.
        index: Ref of which they were: root events first, then preset ones, then step events.
    """

    events: EventSpec
    time: Any
    index: Any

    @classmethod
    def empty(cls, events: EventSpec, dtype: np.dtype) -> Record:
        """Return a record without events."""
        shape = (events.max_recorded,)
        return cls(
            events,
            jax.new_ref(jnp.full(shape, np.nan, dtype)),
            # Numbers of another kind would have tangents of a type that no kernel can store.
            jax.new_ref(jnp.full(shape, -1, dtype)),
        )

    def add(self, met: Met, before: EventState) -> None:
        """Record what happened at the end of an attempt, as far as there is room."""
        n_roots, n_told = len(self.events.roots), self.events.n_told
        index = before.n_events
        if n_roots:
            fires = (met.kind > 0) & (met.kind <= n_roots)
            index = self._put(fires, index, met.t1, met.kind - 1)
        for j in range(n_told):
            index = self._put(met.hits[j], index, met.t1, jnp.int32(n_roots + j))
        for k in range(len(self.events.steps)):
            index = self._put(met.steps[k], index, met.t1, jnp.int32(n_roots + n_told + k))

    def _put(self, happens: Array, index: Array, time: Array, which: Array) -> Array:
        place = jnp.minimum(index, self.time.shape[0] - 1)
        has_room = happens & (index < self.time.shape[0])
        store_row(self.time, place, jnp.where(has_room, time, self.time[place]))
        which = which.astype(self.index.dtype)
        store_row(self.index, place, jnp.where(has_room, which, self.index[place]))
        return index + happens.astype(jnp.int32)

    def times(self) -> Array:
        """Return the times, NaN behind the last."""
        return jax.freeze(self.time)

    def indices(self) -> Array:
        """Return which events they were, -1 behind the last."""
        return jax.freeze(self.index).astype(jnp.int32)
