"""The five instructions of a checkpointing schedule, on integers only.

State `i` is the state before step `i`; step `i` turns it into state `i + 1`. One state is always
in hand, at first state 0. A schedule never sees an array.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

__all__ = ["TIERS", "Action", "Advance", "Free", "Restore", "Store", "Tier", "UTurn"]

Tier: TypeAlias = Literal["ram", "disk"]
TIERS: tuple[Tier, ...] = get_args(Tier)


class Store(NamedTuple):
    """Copy the state in hand, state `step`, to `slot`. Slot numbers are unique over both tiers."""

    slot: int
    step: int
    tier: Tier = "ram"


class Advance(NamedTuple):
    """Run the steps `start, ..., stop - 1`, so that state `stop` is in hand."""

    start: int
    stop: int


class Restore(NamedTuple):
    """Take the state in `slot`, state `step`, in hand; the slot keeps it."""

    slot: int
    step: int
    tier: Tier = "ram"


class UTurn(NamedTuple):
    """Tape the steps `start, ..., stop - 1` from the state in hand and reverse them at once."""

    start: int
    stop: int


class Free(NamedTuple):
    """Give up the snapshot of state `step` in `slot`."""

    slot: int
    step: int
    tier: Tier = "ram"


Action: TypeAlias = Store | Advance | Restore | UTurn | Free
