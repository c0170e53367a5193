"""Clocks: rounds in which everyone takes a turn, so that a busy machine disturbs all alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

# Within a round someone quick runs several times, for about so long.
_SHORT_SECONDS = 0.1
_MOST_TURNS = 10
# However slow, so many rounds.
_FEWEST_ROUNDS = 3


class Times(NamedTuple):
    """Seconds of repeated calls.

    Attributes:
        median: the median.
        best: the smallest.
        count: how many calls.
    """

    median: float
    best: float
    count: int


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call takes, and what it returns."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def interleave(
    calls: Mapping[str, Callable[[], Any]], rounds: int, budget: float = math.inf
) -> dict[str, Times]:
    """Time warm calls in turns.

    Args:
        calls: what is called, by name.
        rounds: rounds in which everyone has a turn.
        budget: seconds after which no further round begins, once there were three.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    turns = dict.fromkeys(calls, 1)
    begin = time.perf_counter()
    for done in range(rounds):
        if done >= min(_FEWEST_ROUNDS, rounds) and time.perf_counter() - begin > budget:
            break
        for name, call in calls.items():
            samples[name] += [timed(call)[0] for _ in range(turns[name])]
            turns[name] = _turns(min(samples[name]))
    return {name: summary(taken) for name, taken in samples.items()}


def _turns(seconds: float) -> int:
    return max(1, min(_MOST_TURNS, int(_SHORT_SECONDS / max(seconds, 1e-9))))


def summary(seconds: list[float]) -> Times:
    """Return median and minimum of what was taken."""
    return Times(float(np.median(seconds)), float(min(seconds)), len(seconds))
