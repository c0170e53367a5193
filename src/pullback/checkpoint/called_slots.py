"""Snapshots of a compiled loop in a storage of Python's, which compiled code calls.

A run of the loop is known by a number, which takes the place of the buffer: the first `put` gives
it, and passing it on keeps calls in order. The snapshots of a run are used up by its reverse
sweep. Where a derivative is pulled back again, or so many runs were begun that this one's
snapshots had to go, `begin_reverse` says that the forward sweep has to be repeated.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from pullback.checkpoint.leaves import Leaves
from pullback.checkpoint.mode import CheckpointModeError
from pullback.checkpoint.schedules.actions import TIERS
from pullback.checkpoint.storage import AbstractStorage, StorageError
from pullback.core.keys import is_key, without_keys
from pullback.core.typing import Array

__all__ = ["CalledSlots", "CalledStorage"]

# A forward sweep whose derivative is never asked for leaves its snapshots behind.
_MOST_RUNS = 64
_NO_RUN = -1
_NUMBER = jax.ShapeDtypeStruct((), np.int32)
_FLAG = jax.ShapeDtypeStruct((), np.bool_)

_run_numbers = itertools.count()
# One for all: storages may be shared, and are not made for several threads.
_lock = threading.RLock()


@dataclasses.dataclass
class _Run:
    """The storage's slot of each of the loop's, and whether the reverse sweep has begun."""

    slots: dict[int, int] = dataclasses.field(default_factory=dict)
    is_reversing: bool = False


class CalledStorage:
    """What compiled code calls; arrays arrive as, and leave as, plain memory."""

    def __init__(self, storage: AbstractStorage, n_slots: int) -> None:
        """Let a loop with `n_slots` snapshots use a storage."""
        self._storage, self._n_slots = storage, n_slots
        self._runs: dict[int, _Run] = {}

    def put(self, number: Any, slot: Any, tier: Any, *leaves: Any) -> np.int32:
        """Keep a state; return the number of the run, a new one for the first state."""
        with _lock:
            number, slot = int(number), int(slot)
            if number == _NO_RUN:
                number = self._begin()
            run = self._runs.get(number)
            if run is not None and slot < self._n_slots:
                if slot not in run.slots:
                    run.slots[slot] = self._storage.reserve()
                # A copy, because the memory is used again as soon as this returns.
                arrays = tuple(np.array(leaf) for leaf in leaves)
                self._storage.put_in_tier(TIERS[int(tier)], run.slots[slot], arrays)
            return np.int32(number)

    def get(self, number: Any, slot: Any, following: Any, is_last: Any) -> tuple[Any, ...]:
        """Return the number of the run, and a state."""
        with _lock:
            run = self._runs.get(int(number))
            if run is None:
                raise StorageError(
                    f"`storage`: the snapshots of a loop in {self._storage!r} were dropped while"
                    f" it was reversed, because {2 * _MOST_RUNS} others were begun. Use a storage"
                    " for each."
                )
            arrays = self._storage.get(run.slots[int(slot)])
            if int(following) in run.slots:
                self._storage.prefetch(run.slots[int(following)])
            if is_last:
                self._drop(int(number))
            return (np.int32(number), *map(np.asarray, arrays))

    def begin_reverse(self, number: Any) -> tuple[np.int32, np.bool_]:
        """Return the number of a run for the reverse sweep, and whether its snapshots are there."""
        with _lock:
            number = int(number)
            run = self._runs.get(number)
            is_whole = run is not None and not run.is_reversing
            if not is_whole:
                number = self._begin()
            self._runs[number].is_reversing = True
            return np.int32(number), np.bool_(is_whole)

    def _begin(self) -> int:
        waiting = [number for number, run in self._runs.items() if not run.is_reversing]
        if len(waiting) >= _MOST_RUNS:
            self._drop(waiting[0])
        if len(self._runs) >= 2 * _MOST_RUNS:  # sweeps that were interrupted
            self._drop(next(iter(self._runs)))
        number = next(_run_numbers) % np.iinfo(np.int32).max
        self._runs[number] = _Run()
        return number

    def _drop(self, number: int) -> None:
        for slot in self._runs.pop(number).slots.values():
            self._storage.release(slot)


@dataclasses.dataclass(frozen=True)
class CalledSlots:
    """Slots in a storage that Python keeps.

    Attributes:
        storage: Compares by identity.
        n_slots: Their number.
        calls: What compiled code calls: that of the first loop that was compiled.
    """

    storage: AbstractStorage
    n_slots: int
    calls: CalledStorage = dataclasses.field(compare=False, repr=False)

    def start(self, state: Leaves) -> Leaves:
        """Return the number of no run."""
        del state
        return (jnp.int32(_NO_RUN),)

    def put(self, buffer: Leaves, slot: Any, state: Leaves, tier: Any = 0) -> Leaves:
        """Give a state to the storage; slot `n_slots` is for what need not be kept."""
        leaves = tuple(map(without_keys, state))
        return (_put(self, buffer[0], jnp.int32(slot), jnp.int32(tier), leaves),)

    def get(
        self, buffer: Leaves, slot: Any, like: Leaves, following: Any = -1, is_last: Any = False
    ) -> tuple[Leaves, Leaves]:
        """Return a state like another, and the number of the run.

        `following` is the slot that is likely to be asked for next; `is_last` says that none is.
        """
        numbers = buffer[0], jnp.int32(slot), jnp.int32(following), jnp.asarray(is_last)
        number, leaves = _get(self, *numbers, tuple(map(without_keys, like)))
        return tuple(map(_with_keys, like, leaves)), (number,)

    def for_reverse(self, buffer: Leaves, again: Callable[[Leaves], Leaves]) -> Leaves:
        """Return the number of a run whose snapshots are there, put there `again` if need be."""
        number, is_whole = jax.pure_callback(
            self.calls.begin_reverse, (_NUMBER, _FLAG), buffer[0], vmap_method="sequential"
        )
        return lax.cond(is_whole, lambda buffer: buffer, again, (number,))


def _put(slots: CalledSlots, *operands: Any) -> Array:
    def call(number: Array, slot: Array, tier: Array, leaves: Leaves) -> Array:
        return jax.pure_callback(slots.calls.put, _NUMBER, number, slot, tier, *leaves)

    return _refusing(slots, call, False)(*operands)


def _get(slots: CalledSlots, *operands: Any) -> tuple[Array, Leaves]:
    def call(*operands: Any) -> tuple[Array, Leaves]:
        *numbers, like = operands
        shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in like]
        number, *leaves = jax.pure_callback(slots.calls.get, [_NUMBER, *shapes], *numbers)
        return number, tuple(leaves)

    return _refusing(slots, call, (False, tuple(True for _ in operands[-1])))(*operands)


def _refusing(slots: CalledSlots, call: Callable[..., Any], out_batched: Any) -> Any:
    """Return a call, numbers first and leaves last, with its rules for `vmap` and derivatives.

    Under `vmap` all trajectories' states are kept as one.
    """
    batched = custom_vmap(call)
    whole = jax.custom_jvp(batched)

    @batched.def_vmap
    def rule(size: int, is_batched: Sequence[Any], *operands: Any) -> Any:
        *numbers, leaves = operands
        if any(is_batched[:-1]):
            _refuse(slots, "`jax.vmap` of a loop of unknown length")
        leaves = tuple(
            leaf if b else jnp.broadcast_to(leaf, (size, *leaf.shape))
            for leaf, b in zip(leaves, is_batched[-1], strict=True)
        )
        return whole(*numbers, leaves), out_batched

    @whole.defjvp
    def jvp(primals: Any, tangents: Any) -> NoReturn:
        del primals, tangents
        _refuse(slots, "forward mode over the gradient")

    return whole


def _refuse(slots: CalledSlots, what: str) -> NoReturn:
    raise CheckpointModeError(
        f"`storage`: {what} needs snapshots in memory, but {slots.storage!r} keeps them elsewhere."
        " Use storage=RAM()."
    )


def _with_keys(like: Array, leaf: Array) -> Array:
    return jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(like)) if is_key(like) else leaf
