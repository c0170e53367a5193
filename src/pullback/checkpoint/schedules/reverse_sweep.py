"""The reverse sweep that `Revolve` and every scheme built on it share."""

from __future__ import annotations

from collections.abc import Iterator

from pullback.checkpoint.schedules.actions import Action, Advance, Free, Restore, Store, UTurn
from pullback.checkpoint.schedules.binomial import split

__all__ = ["binomial_sweep"]

_MEMO_SIZE = 200_000


def binomial_sweep(
    stack: list[Store], free_slots: list[int], position: int, end: int
) -> Iterator[Action]:
    """Reverse the steps before `end`, down to the state of the lowest snapshot.

    Between two snapshots the free slots are used binomially, so that each gap takes the least
    number of forward steps that they allow.

    Args:
        stack: Snapshots that exist, by increasing step; emptied.
        free_slots: Slots in memory that may be used; the last is used first.
        position: The state in hand, at or after the last snapshot.
        end: One after the last step to reverse.
    """
    memo: dict[tuple[int, int], int] = {}
    while True:
        while end - position > 1:
            if not free_slots:
                yield Advance(position, end - 1)
                position = end - 1
                break
            key = (end - position, len(free_slots) + 1)
            m = memo.get(key)
            if m is None:
                if len(memo) >= _MEMO_SIZE:
                    memo.clear()
                m = memo[key] = split(*key)
            yield Advance(position, position + m)
            position += m
            if end - position > 1:
                stack.append(Store(free_slots.pop(), position))
                yield stack[-1]
        yield UTurn(position, end)
        end = position
        if stack and stack[-1].step == end:
            done = stack.pop()
            yield Free(*done)
            if done.tier == "ram":
                free_slots.append(done.slot)
        if not stack:
            return
        position = stack[-1].step
        yield Restore(*stack[-1])
