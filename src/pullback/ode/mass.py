"""The constant mass matrix M of M y' = f(t, y), possibly singular."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from pullback.core.typing import Array

__all__ = ["MassMatrix", "make_mass_matrix", "placed"]


@dataclasses.dataclass(frozen=True)
class MassMatrix:
    """A constant square matrix, static and equal by content.

    Attributes:
        rows: Its entries.
    """

    rows: tuple[tuple[float, ...], ...]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def algebraic(self) -> tuple[bool, ...]:
        """Which rows are zero: algebraic equations."""
        return tuple(not any(row) for row in self.rows)

    @property
    def is_singular(self) -> bool:
        """Whether there are algebraic equations."""
        return any(self.algebraic)

    @property
    def is_diagonal(self) -> bool:
        """Whether only the diagonal is not zero."""
        return all(not x or i == j for i, row in enumerate(self.rows) for j, x in enumerate(row))

    def times(self, x: Array) -> Array:
        """Return M x."""
        if self.is_diagonal:
            return jnp.asarray([row[i] for i, row in enumerate(self.rows)], x.dtype) * x
        total = jnp.zeros_like(x)
        for j in range(self.n):
            column = [row[j] for row in self.rows]
            if any(column):
                total = total + jnp.asarray(column, x.dtype) * x[j]
        return total

    def inverse_times(self, x: Array) -> Array:
        """Return M^-1 x of a matrix that is not singular."""
        if self.is_diagonal:
            return jnp.asarray([1.0 / row[i] for i, row in enumerate(self.rows)], x.dtype) * x
        return jnp.asarray(np.linalg.inv(np.asarray(self.rows)), x.dtype) @ x

    def columns(self, scale: Array) -> list[Array]:
        """Return the columns of `scale` M; zeros come from padding, so kernels know them."""
        return [self._column(j, scale) for j in range(self.n)]

    def _column(self, j: int, scale: Array) -> Array:
        parts = [placed(scale * row[j], i, self.n) for i, row in enumerate(self.rows) if row[j]]
        return sum(parts[1:], parts[0]) if parts else placed(None, 0, self.n, scale.dtype)


def placed(value: Array | None, i: int, n: int, dtype: Any = None) -> Array:
    """Return a vector with `value` at `i` (None: nowhere) and zeros that kernels know of."""
    dtype = dtype if value is None else value.dtype
    zero = jnp.zeros((), dtype)
    if value is None:
        return lax.pad(jnp.zeros((0,), dtype), zero, [(0, n, 0)])
    return lax.pad(value[None], zero, [(i, n - 1 - i, 0)])


def make_mass_matrix(matrix: Any, n: int) -> MassMatrix | None:
    """Return a checked mass matrix; None for the identity.

    Args:
        matrix: `(n, n)` numbers, or `(n,)` for a diagonal one.
        n: Length of the state vector.

    Raises:
        ValueError: Its shape or an entry is wrong, or it is singular in a way that does not
            separate algebraic equations from differential ones.
    """
    entries = np.asarray(matrix, float)
    if entries.shape == (n,):
        entries = np.diag(entries)
    if entries.shape != (n, n):
        raise ValueError(
            f"`mass_matrix` must have shape ({n}, {n}), or ({n},) for a diagonal one, since the "
            f"state has {n} components, but shape {np.shape(matrix)} arrived."
        )
    if not np.isfinite(entries).all():
        raise ValueError("`mass_matrix` must be finite, but it holds NaN or infinity.")
    _check_split(entries)
    if (entries == np.eye(n)).all():
        return None
    return MassMatrix(tuple(tuple(map(float, row)) for row in entries))


def _check_split(entries: np.ndarray) -> None:
    differential = entries[np.any(entries != 0, axis=1)]
    n_algebraic = len(entries) - len(differential)
    has_variables = n_algebraic == int(np.sum(~np.any(entries != 0, axis=0)))
    depends = len(differential) and np.linalg.matrix_rank(differential) < len(differential)
    if depends or not has_variables:
        raise ValueError(
            "`mass_matrix` is singular, but not in semi-explicit form: each algebraic equation "
            "must have a row of zeros, and there must be as many columns of zeros (the algebraic "
            "variables); combine equations and variables so."
        )
