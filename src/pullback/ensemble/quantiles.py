"""Quantiles of an ensemble that is not stored: found by counting, pass by pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array, PyTree
from pullback.ensemble.reduction import Reduction, along

_Q = (0.05, 0.25, 0.5, 0.75, 0.95)


class _Range(NamedTuple):
    """The state of the first pass: how many values, the smallest and the largest."""

    n: Array
    low: PyTree
    high: PyTree


class _Bins(NamedTuple):
    """Bins of equal width for each quantile of one leaf, `(q, *shape)` each."""

    low: Array
    width: Array


class _Search(NamedTuple):
    """The state of a later pass, of one leaf.

    Attributes:
        rank: which value is looked for, in order from 0, `(q, *shape)`.
        n_below: how many values lie below the bins.
        levels: the bins of this pass, behind those of the passes before.
        places: which bin holds the value, for each of the passes before.
        counts: how many values lie in each bin, `(q, *shape, bin)`.
        totals: sum of their distances from where the bins begin, likewise.
    """

    rank: Array
    n_below: Array
    levels: tuple[_Bins, ...]
    places: tuple[Array, ...]
    counts: Array
    totals: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class QuantileValues:
    """Quantiles over the trajectories that did not fail.

    Attributes:
        value: the quantiles, leaves `(q, ...)`; NaN without any trajectory.
        error: how far each may be from the exact one, likewise.
    """

    value: PyTree
    error: PyTree


@dataclass(frozen=True)
class Quantiles(Reduction):
    """Quantiles within a known error, `pb.QuantileValues`, by solving the ensemble repeatedly.

    The quantile q of n values is the smallest one that at least q n of them do not exceed. The
    first pass finds the smallest and the largest value; the second counts how many lie in each of
    `bins` bins between these, and each further one divides the bin that holds the quantile. Counts
    are exact, so the error is at most the width of the last bin: (largest - smallest) /
    bins**(passes - 1). Where that holds a single value, the quantile is exact. An infinite value
    leaves no bins: the quantiles are NaN then.

    Attributes:
        q: which quantiles, between 0 and 1.
        bins: into how many bins an interval is divided.
        passes: how often the ensemble is solved, at least 2.

    Differentiation:
        The result is the mean of the values in the last bin, and its derivative the mean of
        theirs: that of a quantile is the expected derivative of the trajectories that are there.
    """

    q: tuple[float, ...] = _Q
    bins: int = 256
    passes: int = 3

    def __post_init__(self) -> None:
        numbers = np.atleast_1d(np.asarray(self.q, np.float64))
        if numbers.ndim != 1 or not numbers.size or not ((numbers >= 0) & (numbers <= 1)).all():
            raise ValueError(
                f"`q` of Quantiles must hold numbers between 0 and 1, but {self.q!r} arrived."
            )
        for name in ("bins", "passes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 2:
                raise ValueError(
                    f"`{name}` of Quantiles must be an integer of at least 2, but {value!r} "
                    "arrived."
                )
        object.__setattr__(self, "q", tuple(map(float, numbers)))

    @property
    def n_passes(self) -> int:
        """How often the ensemble is solved."""
        return self.passes

    def start(self, like: PyTree, before: Any) -> Any:
        """Return an empty range, or empty bins where the pass before found the quantiles."""
        if before is None:
            _check_floating(like)
            low = jax.tree.map(lambda x: jnp.full(x.shape, np.inf, x.dtype), like)
            return _Range(jnp.zeros((), jnp.int32), low, jax.tree.map(jnp.negative, low))
        if isinstance(before, _Range):
            ranks = jnp.stack([_rank(q, before.n) for q in self.q])
            first = lambda low, high: self._first(ranks, low, high)  # noqa: E731
            return jax.tree.map(first, before.low, before.high)
        return jax.tree.map(self._next, before, is_leaf=_is_search)

    def add(self, state: Any, values: PyTree, is_ok: Array) -> Any:
        """Widen the range, or count."""
        if not isinstance(state, _Range):
            count = lambda search, x: self._count(search, x, is_ok)  # noqa: E731
            return jax.tree.map(count, state, values, is_leaf=_is_search)

        def edge(x: Array, fill: float) -> Array:
            return jnp.where(along(is_ok, x), jax.lax.stop_gradient(x), fill)

        low = lambda a, x: jnp.minimum(a, jnp.min(edge(x, np.inf), axis=0))  # noqa: E731
        high = lambda a, x: jnp.maximum(a, jnp.max(edge(x, -np.inf), axis=0))  # noqa: E731
        return _Range(
            state.n + jnp.sum(is_ok, dtype=jnp.int32),
            jax.tree.map(low, state.low, values),
            jax.tree.map(high, state.high, values),
        )

    def finish(self, state: Any) -> PyTree:
        """Return the mean of the values in the bin of each quantile."""

        def value(search: _Search) -> Array:
            place, _ = self._place(search)
            n, total = _at(search.counts, place), _at(search.totals, place)
            mean = search.levels[-1].low + total / jnp.maximum(n, 1).astype(total.dtype)
            return jnp.where(n > 0, mean, np.nan)

        def error(search: _Search) -> Array:
            n = _at(search.counts, self._place(search)[0])
            width = jnp.where(n > 1, search.levels[-1].width, 0.0)
            return jax.lax.stop_gradient(jnp.where(n > 0, width, np.nan))

        return QuantileValues(*(jax.tree.map(f, state, is_leaf=_is_search) for f in (value, error)))

    def _first(self, ranks: Array, low: Array, high: Array) -> _Search:
        """Return the search of the second pass, between the extremes."""
        shape = (len(self.q), *low.shape)
        rank = jnp.broadcast_to(ranks.reshape((-1,) + (1,) * low.ndim), shape)
        width = (high - low) / self.bins
        bins = _Bins(jnp.broadcast_to(low, shape), jnp.broadcast_to(width, shape))
        return self._empty(rank, jnp.zeros(shape, jnp.int32), (bins,), ())

    def _next(self, found: _Search) -> _Search:
        """Return the search of the next pass, in the bin that was found."""
        place, n_below = self._place(found)
        low, width = found.levels[-1]
        bins = _Bins(low + place.astype(low.dtype) * width, width / self.bins)
        levels, places = (*found.levels, bins), (*found.places, place)
        return self._empty(found.rank, n_below, levels, places)

    def _empty(self, rank: Array, n_below: Array, levels: Any, places: Any) -> _Search:
        shape = (*rank.shape, self.bins)
        counts = jnp.zeros(shape, jnp.int32)
        return _Search(
            rank, n_below, levels, places, counts, jnp.zeros(shape, levels[-1].low.dtype)
        )

    def _place(self, search: _Search) -> tuple[Array, Array]:
        """Return which bin holds each quantile, and how many values lie below it."""
        upto = search.n_below[..., None] + jnp.cumsum(search.counts, axis=-1)
        place = jnp.sum(upto <= search.rank[..., None], axis=-1, dtype=jnp.int32)
        place = jnp.minimum(place, self.bins - 1)
        return place, _at(upto - search.counts, place)

    def _bin_of(self, bins: _Bins, x: Array) -> Array:
        """Return in which bin values lie: a monotone function, whatever is rounded."""
        width = jnp.where(bins.width > 0, bins.width, 1.0)
        place = (x - bins.low[None]) / width[None]
        return jnp.clip(place, 0, self.bins - 1).astype(jnp.int32)

    def _count(self, search: _Search, x: Array, is_ok: Array) -> _Search:
        """Add the values of a block, `(trajectory, *shape)`, to the bins of each quantile."""
        x = x[:, None]
        fixed = jax.lax.stop_gradient(x)
        counts_here = jnp.broadcast_to(along(is_ok, x), (x.shape[0], *search.rank.shape))
        for bins, place in zip(search.levels, search.places, strict=False):
            counts_here &= self._bin_of(bins, fixed) == place[None]
        last = search.levels[-1]
        place = self._bin_of(last, fixed)
        column = jnp.arange(search.rank.size).reshape(search.rank.shape) * self.bins
        where = (place + column[None]).reshape(-1)
        parts = jnp.where(counts_here, x - last.low[None], 0.0).reshape(-1)
        ones = counts_here.reshape(-1).astype(jnp.int32)
        counts = search.counts.reshape(-1).at[where].add(ones).reshape(search.counts.shape)
        totals = search.totals.reshape(-1).at[where].add(parts).reshape(search.totals.shape)
        return search._replace(counts=counts, totals=totals)


def _rank(q: float, n: Array) -> Array:
    """Return the rank, from 0, of the smallest value that at least q n values do not exceed."""
    exact = q * n.astype(jnp.result_type(float))
    near = jnp.round(exact)
    # What is whole up to rounding is meant to be whole.
    slack = 4.0 * float(jnp.finfo(exact.dtype).eps) * jnp.maximum(near, 1.0)
    count = jnp.where(jnp.abs(exact - near) <= slack, near, jnp.ceil(exact))
    return jnp.clip(count.astype(jnp.int32) - 1, 0, jnp.maximum(n - 1, 0))


def _at(x: Array, place: Array) -> Array:
    return jnp.take_along_axis(x, place[..., None], axis=-1)[..., 0]


def _is_search(x: Any) -> bool:
    return isinstance(x, _Search)


def _check_floating(like: PyTree) -> None:
    for x in jax.tree.leaves(like):
        if not jnp.issubdtype(x.dtype, np.floating):
            raise TypeError(
                f"`of` of Quantiles must return floating numbers, but {x.dtype} is among them; "
                "convert it with .astype(float)."
            )
