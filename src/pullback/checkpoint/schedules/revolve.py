"""Binomial checkpointing of a loop of known length: the optimum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pullback.checkpoint.schedules.actions import Action, Store
from pullback.checkpoint.schedules.binomial import forward_steps, split
from pullback.checkpoint.schedules.reverse_sweep import binomial_sweep
from pullback.checkpoint.schedules.scheme import AbstractScheme, check_count
from pullback.checkpoint.schedules.simulator import ScheduleCost

__all__ = ["Revolve"]


@dataclass(frozen=True)
class Revolve(AbstractScheme):
    """The fewest forward steps that a given number of snapshots allows.

    Among the schedules with the fewest forward steps it is one with the fewest stores.

    Attributes:
        n_snapshots: Snapshots, the one of the initial state included.

    References:
        Griewank and Walther, Algorithm 799: revolve, ACM Trans. Math. Softw. 26 (2000).

    Example:
        >>> cost = Revolve(7).cost(50)
        >>> cost.forward_steps, cost.stores
        (105, 28)
    """

    n_snapshots: int

    def __post_init__(self) -> None:
        check_count("n_snapshots", self.n_snapshots, least=1)

    def actions(self, n_steps: int) -> Iterator[Action]:
        """Yield the actions that reverse `n_steps` steps."""
        check_count("n_steps", n_steps, least=0)
        if n_steps == 0:
            return
        first = Store(0, 0)
        yield first
        yield from binomial_sweep([first], list(range(self.n_snapshots - 1, 0, -1)), 0, n_steps)

    def cost(self, n_steps: int) -> ScheduleCost:
        """Predict the cost in closed form: no action is generated."""
        check_count("n_steps", n_steps, least=0)
        if n_steps == 0:
            return ScheduleCost(0, 0, 0, 0, 0, 0, 0)
        return ScheduleCost(
            n_steps=n_steps,
            forward_steps=forward_steps(n_steps, self.n_snapshots),
            stores=1 + _further_stores(n_steps, self.n_snapshots),
            restores=n_steps - 1,
            peak_ram=max(1, min(self.n_snapshots, n_steps - 1)),
            peak_disk=0,
            peak_tape=1,
        )


def _further_stores(n_steps: int, n_snapshots: int) -> int:
    """Count the stores after the first: over the tree of splits, each distinct node once."""
    children: dict[tuple[int, int], tuple[tuple[int, int], tuple[int, int]]] = {}
    todo = [(n_steps, n_snapshots)]
    while todo:
        n, c = node = todo.pop()
        if n <= 2 or c == 1 or node in children:
            continue
        m = split(n, c)
        children[node] = (m, c), (n - m, c - 1)
        todo.extend(children[node])
    count: dict[tuple[int, int], int] = {}
    for node in sorted(children):
        left, right = children[node]
        count[node] = (right[0] > 1) + count.get(left, 0) + count.get(right, 0)
    return count.get((n_steps, n_snapshots), 0)
