"""Coefficients of Rosenbrock methods, as checked and immutable data.

Contents: `RosenbrockTableau` (the transformed form in which a step is taken, without products
of matrices), `ClassicalForm` and `classical_form` (the same method with its stages as slopes,
the form of the order conditions), `make_rosenbrock_tableau` (builds one from text),
`rodas_dense` (the interpolants of the RODAS family). The numbers of each method are in
`pullback.ode.tableaus`; the mathematics that proves them is in
`pullback.ode.rosenbrock_conditions`. No step is taken here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from fractions import Fraction

from pullback.ode.tableau import Number

__all__ = [
    "ClassicalForm",
    "RosenbrockTableau",
    "classical_form",
    "make_rosenbrock_tableau",
    "rodas_dense",
]

# Coefficients of sixteen digits and of size up to 200: row sums of their products are met to
# this part of the sum of their absolute terms.
_PUBLISHED_DIGITS = Fraction(1, 10**13)


@dataclasses.dataclass(frozen=True)
class RosenbrockTableau:
    """Hold a Rosenbrock method, its error estimate and its dense output.

    With the mass matrix M (the identity where there is none), the Jacobian `J = df/dy` and
    `f_t = df/dt`, both at (t, y), the stages u[i] solve one linear system each:

        (M / (dt gamma) - J) u[i] = f(t + alpha[i] dt, y + sum_j a[i][j] u[j])
                                    + M sum_j (c[i][j] / dt) u[j] + gamma_sums[i] dt f_t.

    The step is `y1 = y + sum_i m[i] u[i]`, its error estimate `sum_i e[i] u[i]`, its dense
    output `y(t + theta dt) = y + sum_i b_i(theta) u[i]` with
    `b_i(theta) = sum_j dense[i][j] theta**(j + 1)`. In none of these does `dt` stand: u is an
    increment, not a slope, and stays bounded where the problem is stiff.

    Args:
        name: Name of the method.
        gamma: The one diagonal coefficient.
        a: Strictly lower rows: row i has i entries (row 0 is empty).
        c: Strictly lower rows, those of the coupling through M.
        alpha: Nodes, one a stage.
        gamma_sums: Coefficients of `dt f_t`, one a stage.
        m: Weights of the step, one a stage.
        e: `m - m_hat`, where `m_hat` are the embedded weights.
        order: Order of the step.
        embedded_order: Order of `m_hat`.
        dense: Polynomial coefficients in theta, powers 1, 2, ...; one row a stage.
        dense_order: Order of the dense output, for every theta.
        is_stiffly_accurate: Whether y1 is the argument of f in the last stage plus that
            stage, so that the algebraic equations of a DAE hold at y1.
        reference: Bib key in brackets and where to look.

    Raises:
        ValueError: A shape, a node, the end of the dense output or stiff accuracy is wrong.

    References:
        [HW96] eq. (IV.7.25); `e` and `dense` are written for the same u.
    """

    name: str
    gamma: float
    a: tuple[tuple[float, ...], ...]
    c: tuple[tuple[float, ...], ...]
    alpha: tuple[float, ...]
    gamma_sums: tuple[float, ...]
    m: tuple[float, ...]
    e: tuple[float, ...]
    order: int
    embedded_order: int
    dense: tuple[tuple[float, ...], ...]
    dense_order: int
    is_stiffly_accurate: bool
    reference: str

    def __post_init__(self) -> None:
        for check in (_check_shapes, _check_nodes, _check_dense_ends, _check_stiff_accuracy):
            check(self)

    @property
    def n_stages(self) -> int:
        """Number of stages, and of linear systems, of a step."""
        return len(self.m)


@dataclasses.dataclass(frozen=True)
class ClassicalForm:
    """Hold a Rosenbrock method with slopes as stages, `u = dt Gamma k`, in exact arithmetic.

    Stage i is `k[i] = f(t + alpha_i dt, y + dt sum_j alpha[i][j] k[j])
    + dt J sum_j gamma[i][j] k[j] + gamma_i dt f_t` with M the identity, `alpha_i` and `gamma_i`
    the row sums; the step is `y1 = y + dt sum_i b[i] k[i]`.

    Args:
        alpha: Strictly lower rows.
        gamma: Lower rows with the diagonal: row i has i + 1 entries.
        b: Weights of the step.
        b_err: `b - b_hat`.
        dense: Polynomial coefficients in theta of the slopes, one row a stage.

    References:
        [HW96] eq. (IV.7.4).
    """

    alpha: tuple[tuple[Fraction, ...], ...]
    gamma: tuple[tuple[Fraction, ...], ...]
    b: tuple[Fraction, ...]
    b_err: tuple[Fraction, ...]
    dense: tuple[tuple[Fraction, ...], ...]

    @property
    def beta(self) -> tuple[tuple[Fraction, ...], ...]:
        """Lower rows `alpha + gamma` with the diagonal."""
        return tuple(
            tuple(x + y for x, y in zip((*row, Fraction(0)), gamma_row, strict=True))
            for row, gamma_row in zip(self.alpha, self.gamma, strict=True)
        )


def classical_form(tableau: RosenbrockTableau) -> ClassicalForm:
    """Undo the transformation `u = dt Gamma k`, exactly for the floats of the tableau."""
    gamma = _gamma_rows(tableau)
    columns = zip(*(_fractions(row) for row in tableau.dense), strict=True)
    transformed = [_times(column, gamma) for column in columns]
    return ClassicalForm(
        alpha=tuple(
            _times(_fractions(row), gamma)[:i] if row else () for i, row in enumerate(tableau.a)
        ),
        gamma=tuple(tuple(row[: i + 1]) for i, row in enumerate(gamma)),
        b=_times(_fractions(tableau.m), gamma),
        b_err=_times(_fractions(tableau.e), gamma),
        dense=tuple(zip(*transformed, strict=True)),
    )


def make_rosenbrock_tableau(
    *,
    name: str,
    gamma: Number,
    a: Sequence[Sequence[Number]],
    c: Sequence[Sequence[Number]],
    alpha: Sequence[Number],
    gamma_sums: Sequence[Number],
    m: Sequence[Number],
    e: Sequence[Number],
    order: int,
    embedded_order: int,
    dense: Sequence[Sequence[Number]],
    dense_order: int,
    is_stiffly_accurate: bool,
    reference: str,
) -> RosenbrockTableau:
    """Build a tableau from numbers written as text: every float is one rounded once."""
    return RosenbrockTableau(
        name=name,
        gamma=float(Fraction(gamma)),
        a=_float_rows(a),
        c=_float_rows(c),
        alpha=_floats(alpha),
        gamma_sums=_floats(gamma_sums),
        m=_floats(m),
        e=_floats(e),
        order=order,
        embedded_order=embedded_order,
        dense=_float_rows(dense),
        dense_order=dense_order,
        is_stiffly_accurate=is_stiffly_accurate,
        reference=reference,
    )


def rodas_dense(
    m: Sequence[Number], h: Sequence[Sequence[Number]]
) -> tuple[tuple[Fraction, ...], ...]:
    """Return the dense output of the RODAS family as coefficients of powers of theta.

    It is `(1 - theta) y0 + theta (y1 + (1 - theta) (v[0] + theta v[1] + theta**2 v[2] ..))` with
    `v[r] = sum_i h[r][i] u[i]`.

    Args:
        m: Weights of the step.
        h: One row for each v, one entry a stage.

    Returns:
        Coefficients of powers 1 to `len(h) + 1`, one row a stage.
    """
    rows = []
    for weight, *column in zip(m, *h, strict=True):
        lower = [Fraction(weight), *(-Fraction(x) for x in column)]
        upper = [*(Fraction(x) for x in column), Fraction(0)]
        rows.append(tuple(x + y for x, y in zip(lower, upper, strict=True)))
    return tuple(rows)


def _gamma_rows(tableau: RosenbrockTableau) -> list[list[Fraction]]:
    """Return Gamma, square: `C = I / gamma - Gamma^-1` gives `Gamma = gamma (I + C Gamma)`."""
    gamma = Fraction(tableau.gamma)
    n_stages = len(tableau.c)
    rows: list[list[Fraction]] = []
    for i, row in enumerate(tableau.c):
        coupled = _times(_fractions(row), rows) if row else (Fraction(0),) * n_stages
        rows.append([gamma * (x + (j == i)) for j, x in enumerate(coupled)])
    return rows


def _times(row: Sequence[Fraction], matrix: Sequence[Sequence[Fraction]]) -> tuple[Fraction, ...]:
    """Return the row vector times the first rows of the matrix."""
    used = matrix[: len(row)]
    return tuple(
        sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0))
        for column in zip(*used, strict=True)
    )


def _fractions(row: Iterable[float]) -> tuple[Fraction, ...]:
    return tuple(Fraction(x) for x in row)


def _floats(row: Iterable[Number]) -> tuple[float, ...]:
    return tuple(float(Fraction(x)) for x in row)


def _float_rows(rows: Iterable[Iterable[Number]]) -> tuple[tuple[float, ...], ...]:
    return tuple(_floats(row) for row in rows)


def _check_shapes(tableau: RosenbrockTableau) -> None:
    n_stages = len(tableau.m)
    for field in ("a", "c"):
        _expect(tableau, field, tuple(map(len, getattr(tableau, field))), tuple(range(n_stages)))
    for field in ("alpha", "gamma_sums", "e", "dense"):
        _expect(tableau, field, len(getattr(tableau, field)), n_stages)
    if len(set(map(len, tableau.dense))) != 1:
        raise ValueError(
            f"tableau {tableau.name}: the rows of `dense` must have one length (the degree), "
            f"got {tuple(map(len, tableau.dense))}; pad them with zeros."
        )
    if not tableau.gamma > 0:
        raise ValueError(f"tableau {tableau.name}: `gamma` must be positive, got {tableau.gamma}.")


def _expect(
    tableau: RosenbrockTableau,
    field: str,
    got: int | tuple[int, ...],
    expected: int | tuple[int, ...],
) -> None:
    if got != expected:
        raise ValueError(
            f"tableau {tableau.name}: `{field}` must have length {expected} to go with "
            f"{len(tableau.m)} weights in `m`, got {got}."
        )


def _check_nodes(tableau: RosenbrockTableau) -> None:
    """The stages at t + alpha[i] dt must be those of the problem with t as a component."""
    gamma = _gamma_rows(tableau)
    sums = [sum(row, Fraction(0)) for row in gamma]
    sizes = [sum(map(abs, row), Fraction(0)) for row in gamma]
    for i, row in enumerate(tableau.a):
        terms = [Fraction(x) * total for x, total in zip(row, sums, strict=False)]
        size = sum((abs(Fraction(x)) * s for x, s in zip(row, sizes, strict=False)), Fraction(1))
        _expect_sum(tableau, f"alpha[{i}]", tableau.alpha[i], sum(terms, Fraction(0)), size)
        _expect_sum(tableau, f"gamma_sums[{i}]", tableau.gamma_sums[i], sums[i], 1 + sizes[i])


def _expect_sum(
    tableau: RosenbrockTableau, what: str, got: float, expected: Fraction, size: Fraction
) -> None:
    if not abs(got - expected) <= _PUBLISHED_DIGITS * size:
        raise ValueError(
            f"tableau {tableau.name}: `{what}` must be the row sum {float(expected)!r} that `a`, "
            f"`c` and `gamma` give, got {got!r}."
        )


def _check_dense_ends(tableau: RosenbrockTableau) -> None:
    for i, (row, weight) in enumerate(zip(tableau.dense, tableau.m, strict=True)):
        total = sum(map(Fraction, row), Fraction(0))
        size = sum((abs(Fraction(x)) for x in row), Fraction(1))
        if not abs(total - Fraction(weight)) <= _PUBLISHED_DIGITS * size:
            raise ValueError(
                f"tableau {tableau.name}: row {i} of `dense` must sum to m[{i}] = {weight!r} so "
                f"that dense output ends at the new point, got {float(total)!r}."
            )


def _check_stiff_accuracy(tableau: RosenbrockTableau) -> None:
    is_last_stage_added = (*tableau.a[-1], 1.0) == tableau.m and tableau.alpha[-1] == 1.0
    if tableau.is_stiffly_accurate != is_last_stage_added:
        raise ValueError(
            f"tableau {tableau.name}: `is_stiffly_accurate` must tell whether the weights `m` are "
            f"the last row of `a` and then 1, at the node 1, got {tableau.is_stiffly_accurate} "
            f"with m {tableau.m}, row {tableau.a[-1]}, node {tableau.alpha[-1]!r}."
        )
