"""Snapshots at fixed distances on disk, and binomial ones in memory between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pullback.checkpoint.schedules.actions import Action, Advance, Restore, Store
from pullback.checkpoint.schedules.reverse_sweep import binomial_sweep
from pullback.checkpoint.schedules.scheme import AbstractScheme, check_count

__all__ = ["TwoLevel"]


@dataclass(frozen=True)
class TwoLevel(AbstractScheme):
    """Store every `period`-th state on disk; reverse each period with `Revolve` in memory.

    Asymptotically the optimum for a disk without limit.

    Attributes:
        period: Steps from one snapshot on disk to the next.
        n_snapshots: Snapshots in memory, besides the one on disk that a period starts from.

    References:
        Aupy and Herrmann, Periodicity in optimal hierarchical checkpointing schemes for adjoint
        computations, Optim. Methods Softw. 32 (2017).
    """

    period: int
    n_snapshots: int

    def __post_init__(self) -> None:
        check_count("period", self.period, least=1)
        check_count("n_snapshots", self.n_snapshots, least=0)

    def actions(self, n_steps: int) -> Iterator[Action]:
        """Yield the actions that reverse `n_steps` steps."""
        check_count("n_steps", n_steps, least=0)
        starts = range(0, n_steps, self.period)
        on_disk = [Store(self.n_snapshots + i, at, "disk") for i, at in enumerate(starts)]
        for snapshot in on_disk:
            yield snapshot
            if snapshot is not on_disk[-1]:
                yield Advance(snapshot.step, snapshot.step + self.period)
        end = n_steps
        for snapshot in reversed(on_disk):
            if end < n_steps:
                yield Restore(*snapshot)
            free_slots = list(range(self.n_snapshots - 1, -1, -1))
            yield from binomial_sweep([snapshot], free_slots, snapshot.step, end)
            end = snapshot.step
