"""Gaussian elimination on patterns: which elements become non-zero, in which order to eliminate.

Known while the kernel is built, from the elements that are structurally zero. No numbers are seen
here; see `rules.linalg` for what is emitted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Solves per factorisation that a choice of body assumes: a Rosenbrock step makes 8.
_SOLVES = 8


@dataclass(frozen=True)
class Plan:
    """An order of elimination without exchanges.

    Attributes:
        rows: Row of the matrix that is row i of the eliminated one.
        columns: Its columns, likewise.
        filled: Pattern of the triangular factors, in the order of elimination.
        n_products: Multiply-adds of the factorisation.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    filled: np.ndarray
    n_products: int

    @property
    def cost(self) -> int:
        """Multiply-adds of a factorisation and of the solves that come with it."""
        return self.n_products + _SOLVES * int(self.filled.sum())


def plan_elimination(pattern: np.ndarray) -> Plan | None:
    """Return an order that keeps the factors sparse, None if the pattern is singular.

    Pivots are taken from the diagonal, or from a transversal where an element of that is
    structurally zero, by Markowitz' count: the fewest products first.

    Args:
        pattern: Boolean matrix, False where an element is structurally zero.
    """
    n = len(pattern)
    matched = np.arange(n) if pattern.diagonal().all() else transversal(pattern)
    if matched is None:
        return None
    filled = pattern[matched].copy()
    waiting, order, n_products = np.ones(n, bool), [], 0
    for _ in range(n):
        inside = filled & waiting[:, None] & waiting[None, :]
        counts = (inside.sum(0) - 1) * (inside.sum(1) - 1)
        k = int(np.argmin(np.where(waiting, counts, np.iinfo(counts.dtype).max)))
        waiting[k] = False
        below, right = inside[:, k] & waiting, inside[k] & waiting
        filled |= below[:, None] & right[None, :]
        n_products += int(below.sum()) * int(right.sum())
        order.append(k)
    rows = tuple(int(matched[k]) for k in order)
    return Plan(rows, tuple(order), filled[np.ix_(order, order)], n_products)


def transversal(pattern: np.ndarray) -> np.ndarray | None:
    """Return, for each column, a row of its own with a non-zero there; None if there is none."""
    n = len(pattern)
    row_of = np.full(n, -1)
    column_of = np.full(n, -1)

    def place(column: int, seen: np.ndarray) -> bool:
        # Keep the diagonal where that is possible: it is what methods make large.
        rows = np.flatnonzero(pattern[:, column])
        for row in sorted(rows, key=lambda r: r != column):
            if seen[row]:
                continue
            seen[row] = True
            if column_of[row] < 0 or place(int(column_of[row]), seen):
                row_of[column], column_of[row] = row, column
                return True
        return False

    if all(place(column, np.zeros(n, bool)) for column in range(n)):
        return row_of
    return None
