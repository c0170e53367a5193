"""Coefficients of diagonally implicit Runge-Kutta methods, as checked and immutable data.

Contents: `DirkTableau`, `make_dirk_tableau` (builds one from text), `stage_value_dense` (dense
output that stays bounded where the problem is stiff), `slope_predictor` (where Newton's
iteration begins). The numbers of each method are in `pullback.ode.tableaus`; the order
conditions that prove them are those of any Runge-Kutta method, `pullback.ode.order_conditions`.
No step is taken here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from pullback.ode.tableau import Number

__all__ = ["DirkTableau", "make_dirk_tableau", "slope_predictor", "stage_value_dense"]

# A row of up to ten coefficients of moderate size, rounded one by one, sums to within this.
_ROUNDING = 1e-14
# Numbers computed from decimals that were cut: nodes are equal, weights zero, to within this.
_PUBLISHED_DIGITS = Fraction(1, 10**15)


@dataclasses.dataclass(frozen=True)
class DirkTableau:
    """Hold a Runge-Kutta method with one diagonal coefficient, and what a step needs of it.

    Stage i is `k[i] = f(t + c[i] dt, Y[i])` with `Y[i] = y + dt sum_{j <= i} a[i][j] k[j]`,
    where `a[i][i]` is gamma, or zero in a first stage that is explicit. The step is
    `y1 = y + dt sum_i b[i] k[i]`, its error estimate `err = dt sum_i b_err[i] k[i]`, its dense
    output `y(t + theta dt) = y + dt sum_i b_i(theta) k[i]` with
    `b_i(theta) = sum_j dense[i][j] theta**(j + 1)`.

    Args:
        name: Name of the method.
        gamma: Diagonal coefficient of the implicit stages.
        a: Lower rows with the diagonal: row i has i + 1 entries.
        b: Weights of the step, one a stage.
        b_err: `b - b_hat`, where `b_hat` are the embedded weights; None without an estimate.
        c: Nodes, one a stage.
        order: Order of the step.
        embedded_order: Order of `b_hat`; None without an estimate.
        dense: Polynomial coefficients in theta, powers 1, 2, ...; one row a stage.
        dense_order: Order of the dense output, for every theta.
        is_stiffly_accurate: Whether y1 is the last stage value Y.
        filters_error: Whether `err` grows with the stiffness, so that
            `(I - dt gamma J)^-1 err` is to be used in its place.
        predictor: Newton's iteration for Y[i] begins at `y + dt sum_j predictor[i][j] k[j]`;
            row i has i entries (row 0 is empty).
        reference: Bib key in brackets and where to look.

    Raises:
        ValueError: A shape, a diagonal entry, a row sum, the end of the dense output or stiff
            accuracy is wrong.

    References:
        [HW96] section IV.6, where the explicit first stage is not considered; [Kva04].
    """

    name: str
    gamma: float
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    b_err: tuple[float, ...] | None
    c: tuple[float, ...]
    order: int
    embedded_order: int | None
    dense: tuple[tuple[float, ...], ...]
    dense_order: int
    is_stiffly_accurate: bool
    filters_error: bool
    predictor: tuple[tuple[float, ...], ...]
    reference: str

    def __post_init__(self) -> None:
        for check in (_check_shapes, _check_diagonal, _check_sums, _check_stiff_accuracy):
            check(self)

    @property
    def n_stages(self) -> int:
        """Number of stages of a step, an explicit one included."""
        return len(self.b)

    @property
    def is_first_explicit(self) -> bool:
        """Whether the first stage is f(t, y), which the step before may have left."""
        return self.a[0][0] == 0.0


def make_dirk_tableau(
    *,
    name: str,
    gamma: Number,
    a: Sequence[Sequence[Number]],
    b: Sequence[Number],
    order: int,
    dense: Sequence[Sequence[Number]],
    dense_order: int,
    is_stiffly_accurate: bool,
    predictor: Sequence[Sequence[Number]],
    reference: str,
    b_hat: Sequence[Number] | None = None,
    embedded_order: int | None = None,
    filters_error: bool = False,
) -> DirkTableau:
    """Build a tableau from numbers written as text: every float is one rounded once.

    Arguments are the fields of `DirkTableau`, but that the embedded weights `b_hat` themselves
    are given, not `b_err`, and that the nodes are the row sums of `a`.
    """
    if b_hat is None:
        b_err = None
    else:
        b_err = _floats(Fraction(x) - Fraction(y) for x, y in zip(b, b_hat, strict=True))
    return DirkTableau(
        name=name,
        gamma=float(Fraction(gamma)),
        a=_float_rows(a),
        b=_floats(b),
        b_err=b_err,
        c=_floats(sum(_fractions(row), Fraction(0)) for row in a),
        order=order,
        embedded_order=embedded_order,
        dense=_float_rows(dense),
        dense_order=dense_order,
        is_stiffly_accurate=is_stiffly_accurate,
        filters_error=filters_error,
        predictor=_float_rows(predictor),
        reference=reference,
    )


def stage_value_dense(
    a: Sequence[Sequence[Number]], stages: Sequence[int]
) -> tuple[tuple[Fraction, ...], ...]:
    """Return the dense output `y + sum_s w_s(theta) (Y[s] - y)` over the given stage values.

    One stage gives order 1, two give 2, three 3 and five 4: as many weights as conditions,
    so that the answer is unique. Stage values stay bounded however stiff the problem, which
    slopes times dt do not: a Hermite cubic through f(t0, y0) overshoots by dt |J| where y0 is
    not on the slow manifold. From order 3 on the stages must have stage order 2.

    Args:
        a: Lower rows with the diagonal.
        stages: Indices of implicit stages; the last should be the new point.

    Returns:
        Coefficients of powers of theta of the weights of the slopes, one row a stage.

    References:
        [HNW93] section II.6 for the conditions, in which `sum_j a[i][j] c[j] = c[i]**2 / 2`.
    """
    rows = [_fractions(row) + [Fraction(0)] * (len(a) - len(row)) for row in a]
    conditions = _dense_conditions(rows)[: len(stages)]
    moments = [[_dot(rows[s], phi) for s in stages] for phi, _, _ in conditions]
    degree = max(power for _, power, _ in conditions)
    dense = [[Fraction(0)] * degree for _ in rows]
    for i, (_, power, value) in enumerate(conditions):
        unit = [value * (i == j) for j in range(len(stages))]
        for s, w in zip(stages, _solve(moments, unit), strict=True):
            for j, x in enumerate(rows[s]):
                dense[j][power - 1] += w * x
    return tuple(
        tuple(x if abs(x) > _PUBLISHED_DIGITS else Fraction(0) for x in row) for row in dense
    )


def slope_predictor(
    a: Sequence[Sequence[Number]], n_nodes: int = 3
) -> tuple[tuple[Fraction, ...], ...]:
    """Return where Newton's iteration begins when slopes are extrapolated to the next stage.

    k[i] is predicted by the polynomial through the slopes of the first `n_nodes` stages (of as
    many as there are before i), then put into the equation of Y[i]. The last row is the stage
    before it where both have the node 1: that is the embedded solution.

    Args:
        a: Lower rows with the diagonal, the first stage explicit, the nodes distinct but the
            last two.
        n_nodes: How many slopes to use.

    Returns:
        Strictly lower rows, `DirkTableau.predictor`.
    """
    rows = [_fractions(row) for row in a]
    nodes = [sum(row, Fraction(0)) for row in rows]
    predictor: list[tuple[Fraction, ...]] = [()]
    for i, row in enumerate(rows[1:], start=1):
        if abs(nodes[i] - nodes[i - 1]) < _PUBLISHED_DIGITS:
            predictor.append(tuple(rows[i - 1]))
            continue
        slopes = _lagrange(nodes[: min(i, n_nodes)], nodes[i])
        slopes += [Fraction(0)] * (i - len(slopes))
        predictor.append(tuple(x + row[i] * w for x, w in zip(row, slopes, strict=False)))
    return tuple(predictor)


def _dense_conditions(
    rows: Sequence[Sequence[Fraction]],
) -> list[tuple[list[Fraction], int, Fraction]]:
    """Return phi, power and value: `sum_i b_i(theta) phi[i] = value theta**power`."""
    nodes = [sum(row, Fraction(0)) for row in rows]
    squares = [x * x for x in nodes]
    return [
        ([Fraction(1)] * len(rows), 1, Fraction(1)),
        (nodes, 2, Fraction(1, 2)),
        (squares, 3, Fraction(1, 3)),
        ([x**3 for x in nodes], 4, Fraction(1, 4)),
        ([_dot(row, squares) for row in rows], 4, Fraction(1, 12)),
    ]


def _dot(x: Sequence[Fraction], y: Sequence[Fraction]) -> Fraction:
    return sum((p * q for p, q in zip(x, y, strict=True)), Fraction(0))


def _lagrange(nodes: Sequence[Fraction], at: Fraction) -> list[Fraction]:
    """Return the weights of the polynomial through values at the nodes, taken at `at`."""
    return [
        math.prod(((at - y) / (x - y) for y in nodes if y != x), start=Fraction(1)) for x in nodes
    ]


def _solve(matrix: Sequence[Sequence[Fraction]], right: Sequence[Fraction]) -> list[Fraction]:
    """Solve a small linear system exactly, by Gauss-Jordan elimination."""
    rows = [[*row, x] for row, x in zip(matrix, right, strict=True)]
    for i in range(len(rows)):
        pivot = next(j for j in range(i, len(rows)) if rows[j][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j, row in enumerate(rows):
            if j != i and row[i]:
                rows[j] = [x - row[i] * y for x, y in zip(row, rows[i], strict=True)]
    return [row[-1] for row in rows]


def _fractions(row: Iterable[Number]) -> list[Fraction]:
    return [Fraction(x) for x in row]


def _floats(row: Iterable[Number]) -> tuple[float, ...]:
    return tuple(float(Fraction(x)) for x in row)


def _float_rows(rows: Iterable[Iterable[Number]]) -> tuple[tuple[float, ...], ...]:
    return tuple(_floats(row) for row in rows)


def _check_shapes(tableau: DirkTableau) -> None:
    n_stages = len(tableau.b)
    lower = tuple(range(n_stages))
    _expect(tableau, "a", tuple(map(len, tableau.a)), tuple(i + 1 for i in lower))
    _expect(tableau, "c", len(tableau.c), n_stages)
    _expect(tableau, "predictor", tuple(map(len, tableau.predictor)), lower)
    if tableau.b_err is not None:
        _expect(tableau, "b_err", len(tableau.b_err), n_stages)
    if (tableau.b_err is None) != (tableau.embedded_order is None):
        raise ValueError(
            f"tableau {tableau.name}: `b_err` and `embedded_order` must both be given or both be "
            f"None, got b_err={tableau.b_err}, embedded_order={tableau.embedded_order}."
        )
    _expect(tableau, "dense", len(tableau.dense), n_stages)
    if len(set(map(len, tableau.dense))) != 1:
        raise ValueError(
            f"tableau {tableau.name}: the rows of `dense` must have one length (the degree), "
            f"got {tuple(map(len, tableau.dense))}; pad them with zeros."
        )


def _expect(
    tableau: DirkTableau, field: str, got: int | tuple[int, ...], expected: int | tuple[int, ...]
) -> None:
    if got != expected:
        raise ValueError(
            f"tableau {tableau.name}: `{field}` must have length {expected} to go with "
            f"{len(tableau.b)} weights in `b`, got {got}."
        )


def _check_diagonal(tableau: DirkTableau) -> None:
    diagonal = tuple(row[-1] for row in tableau.a)
    implicit = diagonal[1:] if tableau.is_first_explicit else diagonal
    if not tableau.gamma > 0 or set(implicit) != {tableau.gamma}:
        raise ValueError(
            f"tableau {tableau.name}: the diagonal of `a` must be a positive `gamma` = "
            f"{tableau.gamma!r} in every stage but an explicit first one, got {diagonal}."
        )


def _check_sums(tableau: DirkTableau) -> None:
    for i, (row, node) in enumerate(zip(tableau.a, tableau.c, strict=True)):
        _expect_sum(tableau, f"row {i} of `a`", row, f"c[{i}]", node)
    for i, (row, weight) in enumerate(zip(tableau.dense, tableau.b, strict=True)):
        _expect_sum(tableau, f"row {i} of `dense`", row, f"b[{i}]", weight)


def _expect_sum(
    tableau: DirkTableau, what: str, row: Sequence[float], target: str, value: float
) -> None:
    total = math.fsum(row)
    if not abs(total - value) <= _ROUNDING * max(1.0, math.fsum(map(abs, row))):
        raise ValueError(
            f"tableau {tableau.name}: {what} must sum to {target} = {value!r}, got {total!r}."
        )


def _check_stiff_accuracy(tableau: DirkTableau) -> None:
    is_last_stage = tableau.a[-1] == tableau.b and tableau.c[-1] == 1.0
    if tableau.is_stiffly_accurate != is_last_stage:
        raise ValueError(
            f"tableau {tableau.name}: `is_stiffly_accurate` must tell whether the last row of `a` "
            f"equals `b` and its node is 1, got {tableau.is_stiffly_accurate} with row "
            f"{tableau.a[-1]}, b {tableau.b}, node {tableau.c[-1]!r}."
        )
