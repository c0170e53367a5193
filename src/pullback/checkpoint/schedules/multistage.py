"""Binomial checkpointing with some of the snapshots on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pullback.checkpoint.schedules.actions import Action, Free, Restore, Store, Tier
from pullback.checkpoint.schedules.revolve import Revolve
from pullback.checkpoint.schedules.scheme import AbstractScheme, check_count

__all__ = ["Multistage"]


@dataclass(frozen=True)
class Multistage(AbstractScheme):
    """`Revolve` with `n_ram + n_disk` snapshots, those that are used least on disk.

    The forward steps are the optimum's for all snapshots together; among such schedules the
    fewest reads and writes go to disk.

    Attributes:
        n_ram: Snapshots in memory.
        n_disk: Snapshots on disk.

    References:
        Stumm and Walther, Multistage approaches for optimal offline checkpointing, SIAM J. Sci.
        Comput. 31 (2009).
    """

    n_ram: int
    n_disk: int

    def __post_init__(self) -> None:
        check_count("n_ram", self.n_ram, least=0)
        check_count("n_disk", self.n_disk, least=0)
        check_count("n_ram + n_disk", self.n_ram + self.n_disk, least=1)

    def actions(self, n_steps: int) -> Iterator[Action]:
        """Yield the actions that reverse `n_steps` steps."""
        tiers = self._tiers(n_steps)
        for action in self._binomial().actions(n_steps):
            if isinstance(action, (Store, Restore, Free)):
                yield action._replace(tier=tiers[action.slot])
            else:
                yield action

    def _binomial(self) -> Revolve:
        return Revolve(self.n_ram + self.n_disk)

    def _tiers(self, n_steps: int) -> dict[int, Tier]:
        uses = Counter(
            action.slot
            for action in self._binomial().actions(n_steps)
            if isinstance(action, (Store, Restore))
        )
        by_use = [slot for slot, _ in uses.most_common()]
        return {slot: "ram" if i < self.n_ram else "disk" for i, slot in enumerate(by_use)}
