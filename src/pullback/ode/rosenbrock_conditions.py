"""Rooted-tree order conditions of Rosenbrock methods, in exact arithmetic.

Contents: the residuals of the order conditions of a step (`rosenbrock_residuals`) and of a
dense output for every theta at once (`rosenbrock_dense_residuals`). Trees, residuals and the
order they prove (`verified_order`) are those of `pullback.ode.order_conditions`. This module is
mathematics about coefficients: it knows no method by name and solves nothing.

The linear term of a stage adds `gamma` to `alpha` exactly where the B-series meets f' alone: at
vertices with one child. So with `beta = alpha + gamma`, `Phi_i(()) = 1`,
`Phi_i((t,)) = sum_k beta[i][k] Phi_k(t)` and, for more children,
`Phi_i((t1, .., tm)) = prod_j sum_k alpha[i][k] Phi_k(tj)`, a step has order p when
`sum_i b[i] Phi_i(t) = 1 / density(t)` for all trees t of at most p vertices.
References: [HW96] section IV.7, theorem 7.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from pullback.ode.order_conditions import Residual, Tree, density, rooted_trees, tree_order
from pullback.ode.rosenbrock_tableau import ClassicalForm

__all__ = ["rosenbrock_dense_residuals", "rosenbrock_residuals"]


def rosenbrock_residuals(
    form: ClassicalForm, weights: Sequence[Fraction], order: int
) -> tuple[Residual, ...]:
    """Return the residuals of the conditions of a step, for all trees up to `order`.

    Args:
        form: The method, its stages as slopes.
        weights: `form.b`, or embedded weights.
        order: Largest number of vertices.
    """
    phi = _StageWeights(form)
    return tuple(
        _residual(tree, 0, weights, phi(tree), Fraction(1, density(tree)))
        for tree in _trees_up_to(order)
    )


def rosenbrock_dense_residuals(form: ClassicalForm, order: int) -> tuple[Residual, ...]:
    """Return the residuals of the conditions of the dense output, for all trees up to `order`.

    A condition is an identity of polynomials in theta: every power gives one residual.
    """
    phi = _StageWeights(form)
    columns = list(zip(*form.dense, strict=True))
    residuals = []
    for tree in _trees_up_to(order):
        for power in range(1, max(len(columns), order) + 1):
            column = columns[power - 1] if power <= len(columns) else ()
            right = Fraction(power == tree_order(tree), density(tree))
            residuals.append(_residual(tree, power, column, phi(tree), right))
    return tuple(residuals)


def _trees_up_to(order: int) -> Iterable[Tree]:
    return (tree for n_vertices in range(1, order + 1) for tree in rooted_trees(n_vertices))


class _StageWeights:
    """Compute Phi_i(tree) of all stages, and the sums of their absolute terms."""

    def __init__(self, form: ClassicalForm) -> None:
        self._alpha = form.alpha
        self._beta = form.beta
        n_stages = len(form.b)
        self._known: dict[Tree, tuple[list[Fraction], list[Fraction]]] = {
            (): ([Fraction(1)] * n_stages, [Fraction(1)] * n_stages)
        }

    def __call__(self, tree: Tree) -> tuple[list[Fraction], list[Fraction]]:
        """Return Phi_i, one a stage, and the same with every term made positive."""
        if tree not in self._known:
            rows = self._beta if len(tree) == 1 else self._alpha
            values, sizes = zip(*map(self, tree), strict=True)
            magnitudes = [[abs(x) for x in row] for row in rows]
            self._known[tree] = (_products(rows, values), _products(magnitudes, sizes))
        return self._known[tree]


def _products(
    rows: Sequence[Sequence[Fraction]], children: Iterable[Sequence[Fraction]]
) -> list[Fraction]:
    """Return `prod_j sum_k rows[i][k] children[j][k]`, one a row i."""
    factors = [
        # A row is shorter than the stages: those it lacks are later ones.
        [sum((x * y for x, y in zip(row, child, strict=False)), Fraction(0)) for row in rows]
        for child in children
    ]
    return [math.prod(column, start=Fraction(1)) for column in zip(*factors, strict=True)]


def _residual(
    tree: Tree,
    power: int,
    weights: Sequence[Fraction],
    phi: tuple[list[Fraction], list[Fraction]],
    right: Fraction,
) -> Residual:
    values, sizes = phi
    # No weights at all: a power of theta that the dense output lacks.
    left = sum((w * x for w, x in zip(weights, values, strict=False)), Fraction(0))
    scale = sum((abs(w) * x for w, x in zip(weights, sizes, strict=False)), Fraction(0))
    return Residual(tree=tree, power=power, value=left - right, scale=scale + abs(right))
