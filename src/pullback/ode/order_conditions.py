"""Rooted-tree order conditions of Runge-Kutta methods, in exact arithmetic.

Contents: rooted trees (`rooted_trees`, `tree_order`, `density`), the residuals of the order
conditions of a step (`weight_residuals`) and of a dense output for every theta at once
(`dense_residuals`), the order they prove (`verified_order`). This module is mathematics about
coefficients: it knows no method by name and solves nothing.

A tree is the sorted tuple of the trees that hang from its root; `()` is the single vertex.
With `Phi_i(()) = 1` and `Phi_i((t1, .., tm)) = prod_j sum_k a[i][k] Phi_k(tj)`, a step has
order p when `sum_i b[i] Phi_i(t) = 1 / density(t)` for all trees t of at most p vertices; a
dense output has when `sum_i b_i(theta) Phi_i(t) = theta^tree_order(t) / density(t)`.
References: [HNW93] theorem II.2.13 and section II.6; [But16] section 31.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

__all__ = [
    "Residual",
    "Tree",
    "dense_residuals",
    "density",
    "rooted_trees",
    "tree_order",
    "verified_order",
    "weight_residuals",
]

# A recursive alias, tuple[Tree, ...], is more than Python 3.11 can say in one line.
Tree: TypeAlias = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Residual:
    """Say by how much one order condition is missed.

    Args:
        tree: Tree of the condition.
        power: Power of theta whose coefficient is compared; 0 in conditions of a step.
        value: Left side less right side.
        scale: Sum of the absolute values of the terms of both sides.
    """

    tree: Tree
    power: int
    value: Fraction
    scale: Fraction

    @property
    def relative(self) -> Fraction:
        """`value` over `scale`, without sign; 0 where no term is left on either side."""
        return abs(self.value) / self.scale if self.scale else Fraction(0)

    def holds(self, tolerance: Fraction | float = 0) -> bool:
        """Tell whether the condition is met to `tolerance * scale`."""
        return self.relative <= Fraction(tolerance)


@functools.cache
def rooted_trees(n_vertices: int) -> tuple[Tree, ...]:
    """Return all rooted trees of `n_vertices` vertices: 1, 1, 2, 4, 9, 20, 48, 115, 286, ..."""
    return tuple(sorted(_forests(n_vertices - 1, n_vertices - 1)))


def tree_order(tree: Tree) -> int:
    """Return the number of vertices."""
    return 1 + sum(map(tree_order, tree))


def density(tree: Tree) -> int:
    """Return the density, gamma(t) in [HNW93] definition II.2.10."""
    return tree_order(tree) * math.prod(map(density, tree))


def weight_residuals(
    a: Sequence[Sequence[Fraction]], b: Sequence[Fraction], order: int
) -> tuple[Residual, ...]:
    """Return the residuals of the conditions of a step, for all trees up to `order`.

    Args:
        a: Strictly lower rows; nodes are taken as their sums.
        b: Weights, or embedded weights; as many as there are rows, or fewer (rest zero).
        order: Largest number of vertices.
    """
    phi = _StageWeights(a)
    return tuple(
        _residual(tree, 0, b, phi(tree), Fraction(1, density(tree))) for tree in _trees_up_to(order)
    )


def dense_residuals(
    a: Sequence[Sequence[Fraction]], dense: Sequence[Sequence[Fraction]], order: int
) -> tuple[Residual, ...]:
    """Return the residuals of the conditions of a dense output, for all trees up to `order`.

    A condition is an identity of polynomials in theta: every power gives one residual, and
    all are zero when the output has the order at every theta.

    Args:
        a: Strictly lower rows of the stages, then of the extra stages.
        dense: Coefficients of powers 1, 2, ... of theta, one row a stage.
        order: Largest number of vertices.
    """
    phi = _StageWeights(a)
    columns = list(itertools.zip_longest(*dense, fillvalue=Fraction(0)))
    residuals = []
    for tree in _trees_up_to(order):
        for power in range(1, max(len(columns), order) + 1):
            column = columns[power - 1] if power <= len(columns) else ()
            right = Fraction(power == tree_order(tree), density(tree))
            residuals.append(_residual(tree, power, column, phi(tree), right))
    return tuple(residuals)


def verified_order(residuals: Iterable[Residual], tolerance: Fraction | float = 0) -> int:
    """Return the largest order below which no residual exceeds `tolerance * scale`."""
    holds_of_order: dict[int, bool] = {}
    for residual in residuals:
        n_vertices = tree_order(residual.tree)
        holds = holds_of_order.get(n_vertices, True) and residual.holds(tolerance)
        holds_of_order[n_vertices] = holds
    failing = [n_vertices for n_vertices, holds in holds_of_order.items() if not holds]
    return min(failing) - 1 if failing else max(holds_of_order)


def _trees_up_to(order: int) -> Iterable[Tree]:
    return itertools.chain.from_iterable(rooted_trees(n) for n in range(1, order + 1))


@functools.cache
def _forests(n_vertices: int, largest: int) -> frozenset[Tree]:
    """Return the sorted tuples of trees with `n_vertices` in all, none above `largest`."""
    if n_vertices == 0:
        return frozenset({()})
    return frozenset(
        tuple(sorted((tree, *rest)))
        for size in range(1, min(n_vertices, largest) + 1)
        for tree in rooted_trees(size)
        for rest in _forests(n_vertices - size, size)
    )


class _StageWeights:
    """Compute Phi_i(tree) of all stages, as integers over one known denominator.

    With every entry of `a` written over the common denominator L, Phi_i(t) has the
    denominator L^(tree_order(t) - 1): no common factors are ever cancelled, which makes this
    many times faster than Fractions and just as exact.
    """

    def __init__(self, a: Sequence[Sequence[Fraction]]) -> None:
        self._scale = math.lcm(*(x.denominator for row in a for x in row))
        self._rows = [[(k, int(x * self._scale)) for k, x in enumerate(row) if x] for row in a]
        self._known: dict[Tree, list[int]] = {(): [1] * len(a)}
        self._known_sums: dict[Tree, list[int]] = {}

    def __call__(self, tree: Tree) -> tuple[list[int], int]:
        """Return the numerators and their denominator."""
        return self._numerators(tree), self._scale ** (tree_order(tree) - 1)

    def _numerators(self, tree: Tree) -> list[int]:
        if tree not in self._known:
            factors = [self._sums(subtree) for subtree in tree]
            self._known[tree] = [math.prod(column) for column in zip(*factors, strict=True)]
        return self._known[tree]

    def _sums(self, tree: Tree) -> list[int]:
        if tree not in self._known_sums:
            phi = self._numerators(tree)
            self._known_sums[tree] = [sum(x * phi[k] for k, x in row) for row in self._rows]
        return self._known_sums[tree]


def _residual(
    tree: Tree,
    power: int,
    weights: Sequence[Fraction],
    phi: tuple[list[int], int],
    right: Fraction,
) -> Residual:
    numerators, denominator = phi
    scale = math.lcm(*(weight.denominator for weight in weights))
    # Weights may be fewer than stages: the rest are zero.
    terms = [int(w * scale) * x for w, x in zip(weights, numerators, strict=False)]
    left = Fraction(sum(terms), scale * denominator)
    size = Fraction(sum(map(abs, terms)), scale * denominator)
    return Residual(tree=tree, power=power, value=left - right, scale=size + abs(right))
