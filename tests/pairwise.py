"""Small sets of combinations in which every pair of values of two options occurs."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


def pairwise(
    options: Mapping[str, Sequence[Any]], allowed: Callable[[dict[str, Any]], bool] = lambda c: True
) -> Iterator[dict[str, Any]]:
    """Cover every pair of values that an allowed combination can have, greedily.

    Args:
        options: values of each option.
        allowed: whether a full combination makes sense.
    """
    names = list(options)
    indices = itertools.product(*(range(len(options[name])) for name in names))
    combos = [c for c in indices if allowed(_named(options, c))]
    missing = {pair for combo in combos for pair in _pairs(combo)}
    while missing:
        best = max(combos, key=lambda combo: len(missing & _pairs(combo)))
        missing -= _pairs(best)
        yield _named(options, best)


def _named(options: Mapping[str, Sequence[Any]], combo: Sequence[int]) -> dict[str, Any]:
    return {name: options[name][i] for name, i in zip(options, combo, strict=True)}


def _pairs(combo: Sequence[int]) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    return set(itertools.combinations(enumerate(combo), 2))
