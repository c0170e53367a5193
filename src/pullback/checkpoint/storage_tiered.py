"""Two storages for the two tiers of a schedule."""

from __future__ import annotations

from pullback.checkpoint.schedules import Tier
from pullback.checkpoint.storage import AbstractStorage
from pullback.core.typing import PyTree

__all__ = ["Tiered"]


class Tiered(AbstractStorage):
    """Keep what a schedule calls `"ram"` in one storage and what it calls `"disk"` in another.

    For `TwoLevel`, `Multistage` and `HRevolve`; every other scheme uses memory only. Closing it
    closes both.

    Args:
        ram: For instance `RAM()`.
        disk: For instance `Disk(path)`.
    """

    def __init__(self, ram: AbstractStorage, disk: AbstractStorage) -> None:
        for name, storage in (("ram", ram), ("disk", disk)):
            if not isinstance(storage, AbstractStorage):
                raise TypeError(
                    f"`{name}`: expected a storage, got {storage!r}."
                    " Pass Tiered(RAM(), Disk(path))."
                )
        self._tiers: dict[Tier, AbstractStorage] = {"ram": ram, "disk": disk}
        # Where the content of a slot is. The tiers have the same slot numbers as this storage.
        self._tier_of: dict[int, Tier] = {}
        self.survives_power_loss = disk.survives_power_loss

    def __repr__(self) -> str:
        return f"Tiered({self._tiers['ram']!r}, {self._tiers['disk']!r})"

    def put_in_tier(self, tier: Tier, slot: int, tree: PyTree) -> None:
        """Keep a pytree where the schedule wants it."""
        self._tiers[tier].put(slot, tree)
        before = self._tier_of.get(slot, tier)
        self._tier_of[slot] = tier
        if before != tier:
            self._tiers[before].discard(slot)

    def put(self, slot: int, tree: PyTree) -> None:
        """Keep a pytree in memory."""
        self.put_in_tier("ram", slot, tree)

    def get(self, slot: int) -> PyTree:
        """Return what the slot holds."""
        return self._tiers[self._tier_of[slot]].get(slot)

    def discard(self, slot: int) -> None:
        """Forget what the slot holds, if anything."""
        tier = self._tier_of.pop(slot, None)
        if tier is not None:
            self._tiers[tier].discard(slot)

    def prefetch(self, slot: int) -> None:
        """Pass the hint on."""
        tier = self._tier_of.get(slot)
        if tier is not None:
            self._tiers[tier].prefetch(slot)

    def flush(self) -> None:
        """Wait for both."""
        for storage in self._tiers.values():
            storage.flush()

    def recover(self, slot: int, like: PyTree) -> bool:
        """Take over what is left on disk."""
        is_there = self._tiers["disk"].recover(slot, like)
        if is_there:
            self._tier_of[slot] = "disk"
        return is_there

    def set_aside(self, slot: int) -> None:
        """Tell the one that has it."""
        tier = self._tier_of.pop(slot, None)
        if tier is not None:
            self._tiers[tier].set_aside(slot)

    def preserve(self, whether: bool) -> None:
        """Tell both."""
        for storage in self._tiers.values():
            storage.preserve(whether)

    def bytes_on_disk(self) -> int:
        """Return how much room both take on disk."""
        return sum(storage.bytes_on_disk() for storage in self._tiers.values())

    def close(self) -> None:
        """Close both."""
        for storage in self._tiers.values():
            storage.close()
        self._tier_of.clear()
