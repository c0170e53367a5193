"""Order conditions of methods that treat two parts of a vector field differently.

An additive method has one matrix and one row of weights for each part of y' = f(y) + g(y), a
partitioned one for each variable of x' = f(v), v' = g(x). Its conditions belong to rooted trees
whose vertices carry the number of the part: `Phi_i` of a tree takes the matrix of each child's
part, and the root takes the weights of its own. In a partitioned system f has derivatives by v
only and g by x only, so that the parts of its trees alternate.

A tree is a pair of its root's part and the sorted tuple of the trees that hang from it. Everything
is exact; this module knows no method by name and solves nothing.
References: [ARS97] section 2 for the idea; [HLW06] section III.2, theorem 2.5.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from pullback.ode.order_conditions import Residual

__all__ = ["ColouredTree", "coloured_trees", "coupled_dense_residuals", "coupled_residuals"]

# A recursive alias, tuple[int, tuple[ColouredTree, ...]], is more than Python 3.11 can say.
ColouredTree: TypeAlias = tuple[int, tuple[Any, ...]]
_PARTS = (0, 1)


@functools.cache
def coloured_trees(n_vertices: int, alternating: bool = False) -> tuple[ColouredTree, ...]:
    """Return all rooted trees of `n_vertices` vertices of two parts: 2, 4, 14, 52, 214, ...

    Args:
        n_vertices: How many vertices.
        alternating: Only those in which no child is of its parent's part.
    """
    found = (
        (part, forest)
        for part in _PARTS
        for forest in _forests(n_vertices - 1, n_vertices - 1, alternating)
        if not (alternating and any(child[0] == part for child in forest))
    )
    return tuple(sorted(found))


def coupled_residuals(
    matrices: Sequence[Sequence[Sequence[Fraction]]],
    weights: Sequence[Sequence[Fraction]],
    order: int,
    *,
    alternating: bool = False,
) -> tuple[Residual, ...]:
    """Return the residuals of the conditions of a step, for all trees up to `order`.

    Args:
        matrices: Lower rows for each part.
        weights: Weights for each part.
        order: Largest number of vertices.
        alternating: Whether each part depends on the other one only.
    """
    phi = _StageWeights(matrices)
    return tuple(
        _residual(tree, 0, weights[tree[0]], phi(tree), Fraction(1, _density(tree)))
        for tree in _trees_up_to(order, alternating)
    )


def coupled_dense_residuals(
    matrices: Sequence[Sequence[Sequence[Fraction]]],
    dense: Sequence[Sequence[Fraction]],
    order: int,
) -> tuple[Residual, ...]:
    """Return the residuals of a dense output that is the same for both parts.

    Args:
        matrices: Lower rows for each part.
        dense: Coefficients of powers 1, 2, ... of theta, one row a stage.
        order: Largest number of vertices.
    """
    phi = _StageWeights(matrices)
    residuals = []
    for tree in _trees_up_to(order, False):
        for power in range(1, max(len(dense[0]), order) + 1):
            column = [row[power - 1] if power <= len(row) else Fraction(0) for row in dense]
            right = Fraction(power == _order(tree), _density(tree))
            residuals.append(_residual(tree, power, column, phi(tree), right))
    return tuple(residuals)


@functools.cache
def _forests(
    n_vertices: int, largest: int, alternating: bool
) -> frozenset[tuple[ColouredTree, ...]]:
    """Return the sorted tuples of trees with `n_vertices` in all, none above `largest`."""
    if n_vertices == 0:
        return frozenset({()})
    return frozenset(
        tuple(sorted((tree, *rest)))
        for size in range(1, min(n_vertices, largest) + 1)
        for tree in coloured_trees(size, alternating)
        for rest in _forests(n_vertices - size, size, alternating)
    )


def _trees_up_to(order: int, alternating: bool) -> Iterator[ColouredTree]:
    for n_vertices in range(1, order + 1):
        yield from coloured_trees(n_vertices, alternating)


def _plain(tree: ColouredTree) -> tuple[Any, ...]:
    """Return the tree without its parts, sorted."""
    return tuple(sorted(map(_plain, tree[1])))


def _order(tree: ColouredTree) -> int:
    return 1 + sum(map(_order, tree[1]))


def _density(tree: ColouredTree) -> int:
    return _order(tree) * math.prod(map(_density, tree[1]))


class _StageWeights:
    """Compute Phi_i(tree) of all stages."""

    def __init__(self, matrices: Sequence[Sequence[Sequence[Fraction]]]) -> None:
        self._matrices = matrices
        self._n_stages = len(matrices[0])
        self._known: dict[tuple[ColouredTree, ...], list[Fraction]] = {}

    def __call__(self, tree: ColouredTree) -> list[Fraction]:
        children = tree[1]
        if children not in self._known:
            columns = [self._sums(child) for child in children]
            self._known[children] = [
                math.prod((column[i] for column in columns), start=Fraction(1))
                for i in range(self._n_stages)
            ]
        return self._known[children]

    def _sums(self, child: ColouredTree) -> list[Fraction]:
        phi = self(child)
        return [
            sum((x * p for x, p in zip(row, phi, strict=False)), Fraction(0))
            for row in self._matrices[child[0]]
        ]


def _residual(
    tree: ColouredTree,
    power: int,
    weights: Sequence[Fraction],
    phi: Sequence[Fraction],
    right: Fraction,
) -> Residual:
    terms = [w * p for w, p in zip(weights, phi, strict=True)]
    scale = sum(map(abs, terms), abs(right))
    return Residual(
        tree=_plain(tree), power=power, value=sum(terms, Fraction(0)) - right, scale=scale
    )
