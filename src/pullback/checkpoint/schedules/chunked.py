"""Schemes of loops within loops, whose innermost loop is taped as a whole.

They need no blocks: a step of the schedule is a step of the loop. As nested `jax.checkpoint` they
also have forward mode and reverse mode over reverse mode.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from pullback.checkpoint.schedules.actions import Action, Advance, Free, Restore, Store, UTurn
from pullback.checkpoint.schedules.scheme import AbstractScheme, check_count

__all__ = ["AbstractChunked", "Nested", "Periodic", "StoreAll"]


class AbstractChunked(AbstractScheme):
    """A scheme that cuts the loop into chunks, each of them again, and tapes the smallest."""

    @abstractmethod
    def chunk_sizes(self, n_steps: int) -> tuple[int, ...]:
        """Return the lengths of the chunks, outermost first; the last is the length of a tape."""

    def actions(self, n_steps: int) -> Iterator[Action]:
        """Yield the actions that reverse `n_steps` steps."""
        check_count("n_steps", n_steps, least=0)
        if n_steps:
            yield from _actions(0, n_steps, self.chunk_sizes(n_steps), 0)


def _actions(start: int, stop: int, sizes: tuple[int, ...], slot: int) -> Iterator[Action]:
    if not sizes:
        yield UTurn(start, stop)
        return
    size = sizes[0]
    # What does not fill a chunk comes last and is cut by the smaller sizes.
    starts = range(start, stop - size + 1, size)
    for i, at in enumerate(starts):
        yield Store(slot + i, at)
        yield Advance(at, at + size)
    rest = start + len(starts) * size
    if rest < stop:
        yield from _actions(rest, stop, sizes[1:], slot + len(starts))
    for i in reversed(range(len(starts))):
        yield Restore(slot + i, starts[i])
        yield from _actions(starts[i], starts[i] + size, sizes[1:], slot + len(starts))
        yield Free(slot + i, starts[i])


@dataclass(frozen=True)
class StoreAll(AbstractChunked):
    """Tape every step: no step is run twice, memory grows with the length."""

    def chunk_sizes(self, n_steps: int) -> tuple[int, ...]:
        """Return no chunks."""
        return ()


@dataclass(frozen=True)
class Periodic(AbstractChunked):
    """Store every `period`-th state, then tape one period at a time.

    Attributes:
        period: Steps from one snapshot to the next; the square root of the length needs least
            memory.
    """

    period: int

    def __post_init__(self) -> None:
        check_count("period", self.period, least=1)

    def chunk_sizes(self, n_steps: int) -> tuple[int, ...]:
        """Return one level of chunks."""
        return (self.period,)


@dataclass(frozen=True)
class Nested(AbstractChunked):
    """Cut the loop evenly on several levels: `levels` sweeps, memory like the `levels`-th root.

    Attributes:
        levels: Number of nested loops; 1 tapes everything.
    """

    levels: int

    def __post_init__(self) -> None:
        check_count("levels", self.levels, least=1)

    def chunk_sizes(self, n_steps: int) -> tuple[int, ...]:
        """Return powers of the least integer whose `levels`-th power reaches `n_steps`."""
        root = max(2, round(n_steps ** (1 / self.levels)) - 1)
        while root**self.levels < n_steps:
            root += 1
        sizes = (root**power for power in range(self.levels - 1, 0, -1))
        return tuple(size for size in sizes if size < n_steps)
