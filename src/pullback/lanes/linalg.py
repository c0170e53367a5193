"""Square linear systems inside a lane: `factorise` once, `solve` many times.

The matrix is given by its columns, which is how forward mode produces a Jacobian, and so that zeros
known while the kernel is built (`unit_vector`) survive: the lane compiler eliminates only what the
pattern needs. Two primitives carry it:

    lane_lu(column_1 ... column_n)           -> (lu_1 ... lu_n, permutation, growth)
    lane_lsolve(lu_1 ... lu_n, permutation, b) -> x with W x = b, or W^T x = b

The n results `lu_j` stand for the factorisation together. Their tangent space is that of W itself,
not of its triangular factors: the tangent of `lu_j` IS the tangent of column j, and
`W dx = db - dW x` is all that differentiation needs. What does *not* belong here: how lanes
eliminate (`rules.linalg`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex

from pullback.core.compat import (
    UndefinedPrimal,
    Zero,
    lower_fun,
    primitive_batchers,
    primitive_jvps,
    primitive_transposes,
    register_lowering,
    zero_tangent,
)
from pullback.core.typing import Array

__all__ = ["PIVOTING", "Factors", "factorise", "lane_lsolve_p", "lane_lu_p", "solve", "unit_vector"]

Pivoting = Literal["auto", "static", "pivoted"]
PIVOTING = ("auto", "static", "pivoted")

lane_lu_p = jex.Primitive("lane_lu")
lane_lu_p.multiple_results = True
lane_lsolve_p = jex.Primitive("lane_lsolve")


class Factors(NamedTuple):
    """A factorised matrix; opaque but for `growth`.

    Attributes:
        columns: What stands for the factors, one array for each column of the matrix.
        permutation: Which row of the matrix became row i.
        growth: Largest multiplier of the elimination where it did not pivot, 1 or more; a solution
            then has an error of about `growth` roundings. Exactly 1 where it pivoted.
    """

    columns: tuple[Array, ...]
    permutation: Array
    growth: Array


def factorise(columns: Sequence[Array], pivot: Pivoting = "auto") -> Factors:
    """Factorise the square matrix with these columns.

    Args:
        columns: n arrays of shape (n,) and one floating dtype.
        pivot: "static" eliminates in an order chosen while the program is compiled, which is fast
            where many elements are known to be zero, and unsafe where `growth` is large; a matrix
            for which that is too much code exchanges rows all the same. "pivoted" exchanges rows in
            each lane. "auto" does so for tiny and for large dense matrices and is static for the
            others. Executors other than lanes always exchange rows.

    Returns:
        The factors, for `solve`. A singular matrix gives solutions that are not finite.

    Differentiation:
        jvp and vjp to any order, through `solve`; `growth` and `permutation` have no derivative.
    """
    columns = tuple(jnp.asarray(c) for c in columns)
    if pivot not in PIVOTING:
        names = ", ".join(map(repr, PIVOTING))
        raise ValueError(f"`pivot` must be one of {names}, got {pivot!r}.")
    n = len(columns)
    shapes = sorted({c.shape for c in columns})
    if n == 0 or shapes != [(n,)]:
        found = f"{n} of shapes {', '.join(map(str, shapes))}" if n else "none"
        raise ValueError(f"`columns` must be n arrays of shape (n,), got {found}.")
    dtypes = sorted({str(c.dtype) for c in columns})
    if len(dtypes) > 1 or not jnp.issubdtype(columns[0].dtype, np.floating):
        raise TypeError(
            f"`columns` must have one floating dtype, got {', '.join(dtypes)}: convert them first."
        )
    *lu, permutation, growth = lane_lu_p.bind(*columns, pivot=pivot)
    return Factors(tuple(lu), permutation, growth)


def solve(factors: Factors, b: Array, *, trans: bool = False) -> Array:
    """Return x with W x = b, or W^T x = b if `trans`.

    Args:
        factors: From `factorise`.
        b: Right-hand side of shape (n,).
        trans: Solve with the transposed matrix.

    Differentiation:
        jvp and vjp with respect to `b` and the columns of the matrix: one more solve with the same
        factors each. The factorisation itself is never differentiated.
    """
    b = jnp.asarray(b)
    n, dtype = len(factors.columns), factors.columns[0].dtype
    if b.shape != (n,) or b.dtype != dtype:
        raise ValueError(
            f"`b` must have shape ({n},) and dtype {dtype} like the matrix, got {b.shape} and "
            f"{b.dtype}."
        )
    return lane_lsolve_p.bind(*factors.columns, factors.permutation, b, trans=bool(trans))


def unit_vector(n: int, j: int, dtype: Any) -> Array:
    """Return basis vector j of length n, whose zeros the lane compiler knows to be zeros."""
    one, zero = jnp.ones((1,), dtype), jnp.zeros((), dtype)
    return lax.pad(one, zero, [(j, n - 1 - j, 0)])


# -- on arrays, with any leading axes ------------------------------------------------------------
def _factorise_arrays(*columns: Array, pivot: str) -> list[Array]:
    del pivot  # LAPACK always exchanges rows
    packed, _, permutation = lax.linalg.lu(jnp.stack(columns, axis=-1))
    n = len(columns)
    growth = jnp.ones(packed.shape[:-2], packed.dtype)
    return [*[packed[..., j] for j in range(n)], permutation, growth]


def _solve_arrays(*operands: Array, trans: bool) -> Array:
    *columns, permutation, b = operands
    triangle = functools.partial(
        lax.linalg.triangular_solve, jnp.stack(columns, axis=-1), left_side=True, transpose_a=trans
    )
    if not trans:
        x = jnp.take_along_axis(b, permutation, -1)[..., None]
        x = triangle(x, lower=True, unit_diagonal=True)
        return triangle(x, lower=False)[..., 0]
    x = triangle(b[..., None], lower=False)
    x = triangle(x, lower=True, unit_diagonal=True)[..., 0]
    return jnp.take_along_axis(x, jnp.argsort(permutation, -1), -1)


@lane_lu_p.def_abstract_eval
def _lu_abstract(*columns: Any, pivot: str) -> list[Any]:
    first, n = columns[0], len(columns)
    assert all(c.shape == first.shape and c.shape[-1] == n for c in columns), columns
    shaped = jax.core.ShapedArray
    lead = first.shape[:-1]
    lu = [shaped(first.shape, first.dtype) for _ in columns]
    return [*lu, shaped((*lead, n), np.dtype(np.int32)), shaped(lead, first.dtype)]


@lane_lsolve_p.def_abstract_eval
def _solve_abstract(*operands: Any, trans: bool) -> Any:
    b = operands[-1]
    assert all(x.shape == b.shape for x in operands), operands
    return jax.core.ShapedArray(b.shape, b.dtype)


# -- derivatives ---------------------------------------------------------------------------------
def _lu_jvp(
    primals: Sequence[Array], tangents: Sequence[Any], *, pivot: str
) -> tuple[list[Array], list[Any]]:
    """The factors move as the matrix does."""
    outs = lane_lu_p.bind(*primals, pivot=pivot)
    rest = [zero_tangent(jax.typeof(x)) for x in outs[len(primals) :]]
    return outs, [*tangents, *rest]


def _solve_jvp(
    primals: Sequence[Array], tangents: Sequence[Any], *, trans: bool
) -> tuple[Array, Any]:
    """W dx = db - dW x, or with the transposes: column by column, so that zeros stay known."""
    *lu, permutation, _ = primals
    x = lane_lsolve_p.bind(*primals, trans=trans)
    *lu_dots, _, b_dot = tangents
    moving = [(j, t) for j, t in enumerate(lu_dots) if type(t) is not Zero]
    if not moving and type(b_dot) is Zero:
        return x, zero_tangent(jax.typeof(x))
    right = jnp.zeros_like(x) if type(b_dot) is Zero else b_dot
    if trans:
        right = _minus_rows(right, moving, x)
    else:
        for j, t in moving:
            right = right - t * lax.slice_in_dim(x, j, j + 1, axis=-1)
    return x, lane_lsolve_p.bind(*lu, permutation, right, trans=trans)


def _minus_rows(b: Array, moving: Sequence[tuple[int, Array]], x: Array) -> Array:
    """Return b_j - t_j . x for the given columns t_j, b_j for the others."""
    products = {j: (t * x).sum(axis=-1, keepdims=True) for j, t in moving}
    parts = []
    for j in range(b.shape[-1]):
        here = lax.slice_in_dim(b, j, j + 1, axis=-1)
        parts.append(here - products[j] if j in products else here)
    return lax.concatenate(parts, b.ndim - 1)


def _solve_transpose(cotangent: Any, *operands: Any, trans: bool) -> list[Any]:
    *factors, b = operands
    assert isinstance(b, UndefinedPrimal), "a solve is linear in its right-hand side only"
    nothing = [None] * len(factors)
    if type(cotangent) is Zero:
        return [*nothing, Zero(b.aval)]
    return [*nothing, lane_lsolve_p.bind(*factors, cotangent, trans=not trans)]


# -- vmap ----------------------------------------------------------------------------------------
def _aligned(operands: Sequence[Array], dims: Sequence[int | None]) -> list[Array]:
    """Give every operand the new axis, in front."""
    size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)
    return [
        jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(operands, dims, strict=True)
    ]


def _lu_batch(
    operands: Sequence[Array], dims: Sequence[int | None], *, pivot: str
) -> tuple[list[Array], list[int]]:
    outs = lane_lu_p.bind(*_aligned(operands, dims), pivot=pivot)
    return outs, [0] * len(outs)


def _solve_batch(
    operands: Sequence[Array], dims: Sequence[int | None], *, trans: bool
) -> tuple[Array, int]:
    return lane_lsolve_p.bind(*_aligned(operands, dims), trans=trans), 0


lane_lu_p.def_impl(_factorise_arrays)
lane_lsolve_p.def_impl(_solve_arrays)
register_lowering(lane_lu_p, lower_fun(_factorise_arrays, multiple_results=True))
register_lowering(lane_lsolve_p, lower_fun(_solve_arrays, multiple_results=False))
primitive_batchers[lane_lu_p] = _lu_batch
primitive_batchers[lane_lsolve_p] = _solve_batch
primitive_jvps[lane_lu_p] = _lu_jvp
primitive_jvps[lane_lsolve_p] = _solve_jvp
primitive_transposes[lane_lsolve_p] = _solve_transpose
