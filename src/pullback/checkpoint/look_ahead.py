"""Which snapshot a schedule restores next, told before the U-turn that comes first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from pullback.checkpoint.schedules import Action, Free, Restore, UTurn

__all__ = ["look_ahead"]


def look_ahead(actions: Iterable[Action], hint: Callable[[int], None]) -> Iterator[Action]:
    """Yield the actions; before a U-turn, name the slot that is restored right after it.

    The storage may read it while the U-turn is computed.
    """
    coming = iter(actions)
    seen: deque[Action] = deque()
    while (action := seen.popleft() if seen else next(coming, None)) is not None:
        if isinstance(action, UTurn):
            while not seen or isinstance(seen[-1], Free):
                following = next(coming, None)
                if following is None:
                    break
                seen.append(following)
            if seen and isinstance(seen[-1], Restore):
                hint(seen[-1].slot)
        yield action
