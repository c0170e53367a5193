"""How an ensemble is summarised, block by block: what a reduction is, and means.

A reduction is a fold: a state, to which blocks of trajectories are added in their order, so that
the result does not depend on how many threads solved them.
"""

from __future__ import annotations

import abc
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.sums import spread_over_trajectories, sum_over_trajectories
from pullback.core.typing import Array, PyTree


def saved_states(solution: Any) -> PyTree:
    """Return the saved states of a trajectory: what is reduced if nothing else is said."""
    return solution.y


@dataclass(frozen=True)
class Reduction(abc.ABC):
    """How an ensemble is summarised; a subclass is a frozen dataclass with hashable fields.

    `solve` calls `start`, then `add` for each block, then `finish`, all traced; a reduction with
    several passes goes over the ensemble anew for each, with `start` given the state of the pass
    before. Only the last pass is differentiated.

    Attributes:
        of: function of the `pb.Solution` of ONE trajectory that returns what is reduced, any pytree
            of arrays; its saved states `y` by default.
    """

    of: Callable[[Any], PyTree] = field(default=saved_states)

    @property
    def n_passes(self) -> int:
        """How often the ensemble is solved."""
        return 1

    @abc.abstractmethod
    def start(self, like: PyTree, before: Any) -> Any:
        """Return the state before the first block.

        Args:
            like: shapes and dtypes of what `of` returns.
            before: the state at the end of the pass before; None in the first.
        """

    @abc.abstractmethod
    def add(self, state: Any, values: PyTree, is_ok: Array) -> Any:
        """Return the state with a block.

        Args:
            state: the state so far.
            values: what `of` returned, with a leading axis; zero for trajectories that failed.
            is_ok: which trajectories of the block count, `(trajectory,)`.
        """

    @abc.abstractmethod
    def finish(self, state: Any) -> PyTree:
        """Return the summary."""


class _Moments(NamedTuple):
    """Count, mean and sum of squared deviations."""

    n: Array
    mean: PyTree
    m2: PyTree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MeanVariance:
    """Mean and variance over the trajectories that did not fail.

    Attributes:
        mean: the mean; NaN without any trajectory.
        var: the variance with `n - ddof` in the denominator; NaN where that is not positive.
    """

    mean: PyTree
    var: PyTree

    @property
    def std(self) -> PyTree:
        """Square root of the variance."""
        return jax.tree.map(jnp.sqrt, self.var)


@dataclass(frozen=True)
class MeanVar(Reduction):
    """Mean and variance, `pb.MeanVariance`.

    Attributes:
        ddof: what is subtracted from the number of trajectories in the variance's denominator.

    Differentiation:
        Exact, by everything that the trajectories depend on.

    References:
        [CGL83], for combining two samples.
    """

    ddof: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.ddof, numbers.Real) or not np.isfinite(self.ddof):
            raise TypeError(f"`ddof` must be a number, such as 0 or 1, but {self.ddof!r} arrived.")

    def start(self, like: PyTree, before: Any) -> Any:
        """Return moments of nothing."""
        del before
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, _float(x.dtype)), like)
        return _Moments(jnp.zeros((), jnp.int32), zero, zero)

    def add(self, state: Any, values: PyTree, is_ok: Array) -> Any:
        """Combine the moments with those of a block."""
        n_block = jnp.sum(is_ok, dtype=jnp.int32)
        n = state.n + n_block

        def one(mean: Array, m2: Array, x: Array) -> tuple[Array, Array]:
            x = x.astype(mean.dtype)
            mask = along(is_ok, x)
            size = _at_least_one(n_block, mean)
            here = sum_over_trajectories(jnp.where(mask, x, 0.0)) / size
            # Once more, for what the first sum rounds away.
            rest = jnp.where(mask, x - spread_over_trajectories(here, len(x)), 0.0)
            here = here + sum_over_trajectories(rest) / size
            off = jnp.where(mask, x - spread_over_trajectories(here, len(x)), 0.0)
            delta, part = here - mean, n_block.astype(mean.dtype) / _at_least_one(n, mean)
            delta = jnp.where(n_block > 0, delta, 0.0)
            between = (delta * delta) * (state.n.astype(mean.dtype) * part)
            return mean + delta * part, m2 + (sum_over_trajectories(off * off) + between)

        pairs = jax.tree.map(one, state.mean, state.m2, values)
        mean, m2 = jax.tree.transpose(jax.tree.structure(values), jax.tree.structure((0, 0)), pairs)
        return _Moments(n, mean, m2)

    def finish(self, state: Any) -> PyTree:
        """Return mean and variance."""
        has_mean, has_var = state.n > 0, state.n > self.ddof

        def variance(m2: Array) -> Array:
            return jnp.where(has_var, m2 / _at_least_one(state.n - self.ddof, m2), np.nan)

        mean = jax.tree.map(lambda x: jnp.where(has_mean, x, np.nan), state.mean)
        return MeanVariance(mean, jax.tree.map(variance, state.m2))


class _Total(NamedTuple):
    n: Array
    total: PyTree


@dataclass(frozen=True)
class Sum(Reduction):
    """The sum over the trajectories that did not fail.

    Differentiation:
        Exact, by everything that the trajectories depend on.
    """

    def start(self, like: PyTree, before: Any) -> Any:
        """Return a sum of nothing."""
        del before
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, _number(x.dtype)), like)
        return _Total(jnp.zeros((), jnp.int32), zero)

    def add(self, state: Any, values: PyTree, is_ok: Array) -> Any:
        """Add a block."""

        def one(total: Array, x: Array) -> Array:
            masked = jnp.where(along(is_ok, x), x.astype(total.dtype), jnp.zeros((), total.dtype))
            return total + sum_over_trajectories(masked)

        n = state.n + jnp.sum(is_ok, dtype=jnp.int32)
        return _Total(n, jax.tree.map(one, state.total, values))

    def finish(self, state: Any) -> PyTree:
        """Return the sum."""
        return state.total


@dataclass(frozen=True)
class Mean(Sum):
    """The mean over the trajectories that did not fail; NaN without any.

    Differentiation:
        Exact, by everything that the trajectories depend on.
    """

    def start(self, like: PyTree, before: Any) -> Any:
        """Return a floating sum of nothing."""
        floats = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, _float(x.dtype)), like)
        return super().start(floats, before)

    def finish(self, state: Any) -> PyTree:
        """Return the mean."""
        return jax.tree.map(
            lambda x: jnp.where(state.n > 0, x / _at_least_one(state.n, x), np.nan), state.total
        )


def along(is_ok: Array, x: Array) -> Array:
    """Return flags of trajectories with further axes of length one, to go with `x`."""
    return is_ok.reshape(is_ok.shape + (1,) * (x.ndim - 1))


def _at_least_one(n: Array, like: Array) -> Array:
    return jnp.maximum(n, 1).astype(like.dtype)


def _float(dtype: Any) -> Any:
    return dtype if jnp.issubdtype(dtype, np.floating) else jnp.result_type(float)


def _number(dtype: Any) -> Any:
    return jnp.int32 if np.dtype(dtype) == np.bool_ else dtype
