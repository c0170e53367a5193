"""The mathematics of binomial checkpointing: counts, costs and the best place to split.

With `c` snapshots and at most `r` repetitions of any step, `beta(c, r)` steps can be reversed.
"""

from __future__ import annotations

from math import comb

__all__ = ["beta", "forward_steps", "repetition", "split"]


def beta(n_snapshots: int, n_repeats: int) -> int:
    """Return the largest number of steps that can be reversed: a binomial coefficient."""
    if n_snapshots < 0 or n_repeats < 0:
        return 0
    return comb(n_snapshots + n_repeats, n_snapshots)


def repetition(n_steps: int, n_snapshots: int) -> int:
    """Return the least `r` with `n_steps <= beta(n_snapshots, r)`."""
    return _repetition(n_steps, n_snapshots)[0]


def forward_steps(n_steps: int, n_snapshots: int) -> int:
    """Return the least number of plain steps that reverse `n_steps` steps.

    Example:
        >>> forward_steps(50, 7)
        105
    """
    if n_steps <= 1:
        return 0
    r = repetition(n_steps, n_snapshots)
    return r * n_steps - beta(n_snapshots + 1, r - 1)


def split(n_steps: int, n_snapshots: int) -> int:
    """Return how far to advance before the next snapshot.

    Of all splits with the fewest forward steps it is one that leads to the fewest snapshots.

    Args:
        n_steps: Steps from the state in hand to the end, at least 2.
        n_snapshots: Snapshots in all: the free ones, and the one of the state in hand.

    References:
        Griewank and Walther, Algorithm 799: revolve, ACM Trans. Math. Softw. 26 (2000).
    """
    c, n = n_snapshots, n_steps
    r, largest = _repetition(n, c)
    beta_1 = largest * r // (c + r)  # beta(c, r - 1)
    beta_2 = beta_1 * c // (c + r - 1) if c > 1 else 1  # beta(c - 1, r - 1)
    beta_3 = _scaled(beta_2, c - 1, c + r - 2, c)  # beta(c - 2, r - 1)
    beta_4 = beta_2 * (r - 1) // c  # beta(c, r - 2)
    beta_5 = 0 if c < 3 else _scaled(beta_3, c - 2, r, c - 1)  # beta(c - 3, r)
    if n <= beta_1 + beta_3:
        return max(beta_4, 1)
    return beta_1 if n >= largest - beta_5 else n - beta_2 - beta_3


def _repetition(n_steps: int, n_snapshots: int) -> tuple[int, int]:
    r, largest = 0, 1
    while largest < n_steps:
        r += 1
        largest = largest * (r + n_snapshots) // r
    return r, largest


def _scaled(value: int, numerator: int, denominator: int, c: int) -> int:
    # One neighbour of a binomial coefficient from another, with its two boundary values.
    if c < 2:
        return 0
    return value * numerator // denominator if c > 2 else 1
