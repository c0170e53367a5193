"""What every checkpointing scheme promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from pullback.checkpoint.schedules.actions import Action
from pullback.checkpoint.schedules.simulator import ScheduleCost, simulate

__all__ = ["AbstractScheme", "check_count"]


class AbstractScheme(ABC):
    """A way to place snapshots. A subclass is a frozen dataclass.

    1. `actions(n_steps)` is lazy, deterministic and uses integers only: it may look at neither
       clocks nor free memory, so that all ranks of a parallel run do the same.
    2. What it yields passes `simulate` for every `n_steps >= 0`.
    3. A "step" of a schedule is a block of the loop's steps, as many as `block` says.
    """

    @abstractmethod
    def actions(self, n_steps: int) -> Iterator[Action]:
        """Yield the actions that reverse `n_steps` steps."""

    def cost(self, n_steps: int) -> ScheduleCost:
        """Predict the cost of reversing `n_steps` steps."""
        return simulate(self.actions(n_steps), n_steps)


def check_count(name: str, value: int, least: int) -> None:
    """Raise an error that names the argument unless `value` is an integer, at least `least`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"`{name}`: expected an integer, got {value!r}. Give an int.")
    if value < least:
        raise ValueError(
            f"`{name}`: expected at least {least}, got {value}. Give a larger integer."
        )
