"""The integer parts of an online schedule in compiled code: placing, and splitting a gap.

`place` does to arrays what `schedules.online.Placement` does to lists; `split` is
`schedules.binomial.split` from a table. A test compares both with the originals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from pullback.checkpoint.schedules.binomial import beta
from pullback.core.typing import Array

__all__ = ["Entries", "Stack", "no_entries", "place", "remaining", "split", "split_table"]

_LARGEST = np.iinfo(np.int32).max
_TABLE_REPEATS = 64


class Entries(NamedTuple):
    """The snapshots of a forward sweep. All arrays have one place per snapshot.

    Attributes:
        step: Steps of the indispensable entries, increasing; the first `n` places count.
        level: Their levels, never increasing.
        slot: Their slots.
        n: Their number.
        spare_step: Steps of the dispensable entries; the last of `n_spare` is dropped first.
        spare_slot: Their slots.
        n_spare: Their number.
    """

    step: Array
    level: Array
    slot: Array
    n: Array
    spare_step: Array
    spare_slot: Array
    n_spare: Array


def no_entries(size: int) -> Entries:
    """Return the entries when the loop begins: state 0 in slot 0."""
    zeros, zero = jnp.zeros(size, np.int32), jnp.int32(0)
    return Entries(zeros, zeros.at[0].set(_LARGEST), zeros, zero + 1, zeros, zeros, zero)


def place(entries: Entries, step: Any) -> tuple[Array, Entries]:
    """Make state `step` the newest entry; return its slot and the entries."""
    size = entries.step.size
    i = jnp.arange(size, dtype=np.int32)
    n, n_spare = entries.n, entries.n_spare
    has_room = n + n_spare < size
    has_spare = ~has_room & (n_spare > 0)
    replaces = ~has_room & (n_spare == 0)
    last = n - 1
    slot = jnp.where(has_spare, entries.spare_slot[n_spare - 1], entries.slot[last])
    slot = jnp.where(has_room, n + n_spare, slot)
    level = jnp.where(replaces, jnp.minimum(entries.level[last], _LARGEST - 2) + 1, 0)
    n = jnp.where(replaces, last, n)
    n_spare = jnp.where(has_spare, n_spare - 1, n_spare)
    # Entries below the new level become dispensable: places kept, ..., n - 1 move over.
    kept = jnp.sum((i < n) & (entries.level >= level), dtype=np.int32)
    source = jnp.clip(i - n_spare + kept, 0, size - 1)
    moves = (i >= n_spare) & (i < n_spare + n - kept)
    placed = Entries(
        entries.step.at[kept].set(step),
        entries.level.at[kept].set(level),
        entries.slot.at[kept].set(slot),
        kept + 1,
        jnp.where(moves, entries.step[source], entries.spare_step),
        jnp.where(moves, entries.slot[source], entries.spare_slot),
        n_spare + n - kept,
    )
    return slot, placed


class Stack(NamedTuple):
    """Snapshots by increasing step, then the free slots, for the reverse sweep.

    Attributes:
        step: Step of each snapshot that exists.
        slot: Slot of each, then the free slots.
        n: How many exist.
    """

    step: Array
    slot: Array
    n: Array


def remaining(entries: Entries) -> Stack:
    """Sort what a forward sweep has left."""
    size = entries.step.size
    i = jnp.arange(size, dtype=np.int32)
    steps = jnp.concatenate(
        [
            jnp.where(i < entries.n, entries.step, _LARGEST),
            jnp.where(i < entries.n_spare, entries.spare_step, _LARGEST),
        ]
    )
    slots = jnp.concatenate([entries.slot, entries.spare_slot])
    order = jnp.argsort(steps)[:size]
    n = entries.n + entries.n_spare
    used = jnp.zeros(size, bool).at[slots[order]].max(i < n)
    free = jnp.argsort(used, stable=True).astype(np.int32)
    slot = jnp.where(i < n, slots[order], free[jnp.clip(i - n, 0, size - 1)])
    return Stack(steps[order], slot, n)


def split_table(n_snapshots: int) -> np.ndarray:
    """Return `beta(c, r)` for all `c <= n_snapshots`, clipped to 32 bits."""
    return np.array(
        [
            [min(beta(c, r), _LARGEST) for r in range(_TABLE_REPEATS)]
            for c in range(n_snapshots + 1)
        ],
        np.int32,
    )


def split(table: Array, n_steps: Array, n_snapshots: Array) -> Array:
    """Return how far to advance before the next snapshot, for `n_steps > 1`.

    Beyond the table, with few snapshots for very many steps, it is nearly optimal.
    """
    n, c = n_steps, n_snapshots
    row = table[c]
    r = jnp.sum(row < n, dtype=np.int32)

    def at(c: Array, r: Array) -> Array:
        return jnp.where((c >= 0) & (r >= 0), table[jnp.maximum(c, 0), jnp.maximum(r, 0)], 0)

    beta_1, beta_2, beta_3 = at(c, r - 1), at(c - 1, r - 1), at(c - 2, r - 1)
    exact = jnp.where(
        n <= beta_1 + beta_3,
        jnp.maximum(at(c, r - 2), 1),
        jnp.where(n >= at(c, r) - at(c - 3, r), beta_1, n - beta_2 - beta_3),
    )
    # n = beta(c, r) is nearly (r + (c + 1)/2)**c / c!, and beta(c, r - 1) = n r / (c + r).
    c_f, n_f = c.astype(np.float32), n.astype(np.float32)
    r_f = jnp.exp((jnp.log(n_f) + gammaln(c_f + 1)) / c_f) - (c_f + 1) / 2
    rough = jnp.clip((n_f * r_f / (r_f + c_f)).astype(np.int32), 1, n - 1)
    return jnp.where(row[-1] < n, rough, exact)
