"""Coefficients of explicit Runge-Kutta methods, as checked and immutable data.

Contents: `ButcherTableau` (floats for the step, plus the published numbers as Fractions),
`make_tableau` (builds one from text), `hermite_dense` (C1 interpolants of the methods that
evaluate f at the new point). The numbers of each method are in `pullback.ode.tableaus`; the
mathematics that proves them is in `pullback.ode.order_conditions`. No step is taken here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

__all__ = ["ButcherTableau", "ExactTableau", "hermite_dense", "make_tableau"]

Number = str | int | Fraction
"""A coefficient as written in a tableau file: "35/384", "0.161", 1 or a Fraction."""


# Coefficients up to about 100 are rounded to float64 one by one; a row of ten of them then
# sums to its node within a few ulp of its largest entry.
_ROUNDING = 1e-14


@dataclasses.dataclass(frozen=True)
class ExactTableau:
    """Hold the published numbers of a tableau as Fractions.

    `is_rational` tells whether they are the method itself (True) or decimals cut to the
    published digits (False). Fields have the meaning and shape of `ButcherTableau`'s.
    """

    a: tuple[tuple[Fraction, ...], ...]
    b: tuple[Fraction, ...]
    b_err: tuple[Fraction, ...] | None
    c: tuple[Fraction, ...]
    dense: tuple[tuple[Fraction, ...], ...]
    dense_a: tuple[tuple[Fraction, ...], ...]
    dense_c: tuple[Fraction, ...]
    is_rational: bool


@dataclasses.dataclass(frozen=True)
class ButcherTableau:
    """Hold an explicit Runge-Kutta method, its error estimate and its dense output.

    Stage i is `k[i] = f(t + c[i] dt, y + dt sum_j a[i][j] k[j])`; the step is
    `y1 = y + dt sum_i b[i] k[i]`, its error estimate `dt sum_i b_err[i] k[i]`, its dense
    output `y(t + theta dt) = y + dt sum_i b_i(theta) k[i]` with
    `b_i(theta) = sum_j dense[i][j] theta**(j + 1)`. Two tableaus are equal, and hash alike,
    when their floats are.

    Args:
        name: Name of the method.
        a: Strictly lower rows: row i has i entries (row 0 is empty).
        b: Weights of the step, one a stage.
        b_err: `b - b_hat`, where `b_hat` are the embedded weights; None without an estimate.
        c: Nodes, one a stage.
        order: Order of the step.
        embedded_order: Order of `b_hat`; None without an estimate.
        fsal: Whether the last stage is f at the new point (first of the next step).
        dense: Polynomial coefficients in theta, powers 1, 2, ...; one row a stage, then one
            row for each extra stage.
        dense_order: Order of the dense output, for every theta.
        reference: Bib key in brackets and where to look, as "[HNW93] table II.5.2".
        dense_a: Rows of the extra stages that only dense output needs; they follow the main
            stages, so that row r has `n_stages + r` entries.
        dense_c: Nodes of the extra stages.
        exact: The published numbers as Fractions, from which the floats were rounded.

    Raises:
        ValueError: A shape, row sum, FSAL row or end point of the dense output is wrong.
    """

    name: str
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    b_err: tuple[float, ...] | None
    c: tuple[float, ...]
    order: int
    embedded_order: int | None
    fsal: bool
    dense: tuple[tuple[float, ...], ...]
    dense_order: int
    reference: str
    dense_a: tuple[tuple[float, ...], ...] = ()
    dense_c: tuple[float, ...] = ()
    exact: ExactTableau | None = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for check in (_check_shapes, _check_row_sums, _check_fsal, _check_dense_ends):
            check(self)

    @property
    def n_stages(self) -> int:
        """Number of stages of a step."""
        return len(self.b)

    @property
    def n_dense_stages(self) -> int:
        """Number of extra stages that dense output needs."""
        return len(self.dense_c)


def make_tableau(
    *,
    name: str,
    a: Sequence[Sequence[Number]],
    b: Sequence[Number],
    c: Sequence[Number],
    order: int,
    dense: Sequence[Sequence[Number]],
    dense_order: int,
    reference: str,
    b_hat: Sequence[Number] | None = None,
    embedded_order: int | None = None,
    fsal: bool = False,
    dense_a: Sequence[Sequence[Number]] = (),
    dense_c: Sequence[Number] = (),
    is_rational: bool = True,
) -> ButcherTableau:
    """Build a tableau from the published numbers, written as text.

    Every float is the Fraction rounded once. Arguments are the fields of `ButcherTableau`,
    but that the embedded weights `b_hat` themselves are given, not `b_err`; and
    `is_rational=False` says that the numbers are decimals cut to some digits.
    """
    b_exact = _fractions(b)
    if b_hat is None:
        b_err = None
    else:
        b_err = tuple(x - y for x, y in zip(b_exact, _fractions(b_hat), strict=True))
    exact = ExactTableau(
        a=_fraction_rows(a),
        b=b_exact,
        b_err=b_err,
        c=_fractions(c),
        dense=_fraction_rows(dense),
        dense_a=_fraction_rows(dense_a),
        dense_c=_fractions(dense_c),
        is_rational=is_rational,
    )
    return ButcherTableau(
        name=name,
        a=_float_rows(exact.a),
        b=_floats(exact.b),
        b_err=None if b_err is None else _floats(b_err),
        c=_floats(exact.c),
        order=order,
        embedded_order=embedded_order,
        fsal=fsal,
        dense=_float_rows(exact.dense),
        dense_order=dense_order,
        reference=reference,
        dense_a=_float_rows(exact.dense_a),
        dense_c=_floats(exact.dense_c),
        exact=exact,
    )


def hermite_dense(
    b: Sequence[Number], quartic: Sequence[Number] | None = None
) -> tuple[tuple[Fraction, ...], ...]:
    """Return the weights of the C1 interpolant of a method with the FSAL property.

    They are the cubic through both end values and slopes plus, where given,
    `quartic[i] theta^2 (1 - theta)^2`, the only quartic that leaves those four alone.

    Args:
        b: Weights of the step; the first stage is f(t0), the last f(t1).
        quartic: Coefficient of theta**4, one a stage.

    Returns:
        Coefficients of powers 1 to 3 (1 to 4 with `quartic`), one row a stage.

    References:
        [HNW93] eq. (II.6.7), written for the weights.
    """
    weights = _fractions(b)
    last = len(weights) - 1
    rows = []
    for i, weight in enumerate(weights):
        at_start, at_end = Fraction(i == 0), Fraction(i == last)
        row = [at_start, 3 * weight - 2 * at_start - at_end, at_start + at_end - 2 * weight]
        if quartic is not None:
            bump = Fraction(quartic[i])
            row = [row[0], row[1] + bump, row[2] - 2 * bump, bump]
        rows.append(tuple(row))
    return tuple(rows)


def _fractions(row: Iterable[Number]) -> tuple[Fraction, ...]:
    return tuple(Fraction(x) for x in row)


def _fraction_rows(rows: Iterable[Iterable[Number]]) -> tuple[tuple[Fraction, ...], ...]:
    return tuple(_fractions(row) for row in rows)


def _floats(row: Iterable[Fraction]) -> tuple[float, ...]:
    return tuple(float(x) for x in row)


def _float_rows(rows: Iterable[Iterable[Fraction]]) -> tuple[tuple[float, ...], ...]:
    return tuple(_floats(row) for row in rows)


def _check_shapes(tableau: ButcherTableau) -> None:
    n_stages = len(tableau.b)
    _expect(tableau, "a", tuple(map(len, tableau.a)), tuple(range(n_stages)))
    _expect(tableau, "c", len(tableau.c), n_stages)
    if tableau.b_err is not None:
        _expect(tableau, "b_err", len(tableau.b_err), n_stages)
    if (tableau.b_err is None) != (tableau.embedded_order is None):
        raise ValueError(
            f"tableau {tableau.name}: `b_err` and `embedded_order` must both be given or both be "
            f"None, got b_err={tableau.b_err}, embedded_order={tableau.embedded_order}."
        )
    n_extra = len(tableau.dense_c)
    n_all = n_stages + n_extra
    _expect(tableau, "dense_a", tuple(map(len, tableau.dense_a)), tuple(range(n_stages, n_all)))
    _expect(tableau, "dense", len(tableau.dense), n_all)
    if len(set(map(len, tableau.dense))) != 1:
        raise ValueError(
            f"tableau {tableau.name}: the rows of `dense` must have one length (the degree), "
            f"got {tuple(map(len, tableau.dense))}; pad them with zeros."
        )


def _expect(
    tableau: ButcherTableau,
    field: str,
    got: int | tuple[int, ...],
    expected: int | tuple[int, ...],
) -> None:
    if got != expected:
        raise ValueError(
            f"tableau {tableau.name}: `{field}` must have length {expected} to go with "
            f"{len(tableau.b)} weights in `b`, got {got}."
        )


def _check_row_sums(tableau: ButcherTableau) -> None:
    rows = tableau.a + tableau.dense_a
    nodes = tableau.c + tableau.dense_c
    for i, (row, node) in enumerate(zip(rows, nodes, strict=True)):
        total = math.fsum(row)
        if not abs(total - node) <= _tolerance(row):
            raise ValueError(
                f"tableau {tableau.name}: row {i} of `a` must sum to c[{i}] = {node!r}, "
                f"got {total!r}."
            )


def _check_fsal(tableau: ButcherTableau) -> None:
    is_last_at_new_point = (
        tableau.a[-1] == tableau.b[:-1] and tableau.b[-1] == 0.0 and tableau.c[-1] == 1.0
    )
    if tableau.fsal and not is_last_at_new_point:
        raise ValueError(
            f"tableau {tableau.name}: with `fsal` the last row of `a` must equal `b` and its node "
            f"must be 1, got row {tableau.a[-1]}, b {tableau.b}, node {tableau.c[-1]!r}."
        )


def _check_dense_ends(tableau: ButcherTableau) -> None:
    weights = tableau.b + (0.0,) * len(tableau.dense_c)
    for i, (row, weight) in enumerate(zip(tableau.dense, weights, strict=True)):
        total = math.fsum(row)
        if not abs(total - weight) <= _tolerance(row):
            raise ValueError(
                f"tableau {tableau.name}: row {i} of `dense` must sum to b[{i}] = {weight!r} so "
                f"that dense output ends at the new point, got {total!r}."
            )


def _tolerance(row: Sequence[float]) -> float:
    return _ROUNDING * max(1.0, math.fsum(map(abs, row)))
