"""The search: Adam on every start at once, years of data added as the fits get better.

One compiled update serves the search and the refits; how far the data reach, the learning rate and
the data themselves are its arguments.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from pullback.core.typing import Array
from pullback.demo.model import UNKNOWNS, Evaluation, evaluate

# Share of the iterations after which every year counts in full; the rest is for converging.
_GROWING = 0.6
_LAST_RATE = 0.01
# A start far away has a huge gradient. Adam forgets its square only slowly, so it is cut.
_LARGEST_GRADIENT = 1.0
_CHUNK = 10


class Plan(NamedTuple):
    """What distinguishes one search from another.

    Attributes:
        n_iterations: how many updates.
        first_year: how many years after the first one count at the beginning.
        rate: learning rate at the beginning; it falls along a cosine.
    """

    n_iterations: Any
    first_year: Any
    rate: Any


class State(NamedTuple):
    """Where N searches are.

    Attributes:
        log_unknowns: `(N, 6)`.
        adam: state of Optax' Adam.
        n_unresolved: how many gradients so far had an estimated error above one per cent.
    """

    log_unknowns: Array
    adam: Any
    n_unresolved: Array


def draw_starts(n_starts: int, seed: int) -> Array:
    """Draw starts uniformly in the logarithms of the ranges in `UNKNOWNS`."""
    low, high = (np.log([unknown[i] for unknown in UNKNOWNS]) for i in (2, 3))
    uniform = np.random.default_rng(seed).random((n_starts, len(UNKNOWNS)))
    return jnp.asarray(low + uniform * (high - low))


class Search:
    """Fits of the model from many starts, each to data of its own.

    Args:
        times: years since the first one, `(year,)`.
        executor: who runs the trajectories.
    """

    def __init__(self, times: np.ndarray, executor: pb.EnsembleKernel | pb.EnsembleArray) -> None:
        self._evaluate = functools.partial(evaluate, times=times, executor=executor)
        self.times, self.executor = times, executor
        self._adam = _import_optax().scale_by_adam(b2=0.99)
        self._advance = jax.jit(self._advance_by_chunk)
        self._score = jax.jit(self._evaluate)

    def begin(self, log_unknowns: Array) -> State:
        """Return the state before the first update."""
        return State(log_unknowns, self._adam.init(log_unknowns), jnp.zeros((), jnp.int32))

    def run(
        self, state: State, log_counts: Array, plan: Plan, report: Callable[[int, float], None]
    ) -> State:
        """Make all updates of `plan`; `report(n_updates, years)` is called now and then."""
        with warnings.catch_warnings():
            # From a bad start the way out need not be known to a per cent. They are counted.
            warnings.simplefilter("ignore", pb.GradientUnresolvedWarning)
            for first in range(0, plan.n_iterations, _CHUNK):
                last = min(first + _CHUNK, plan.n_iterations)
                state = jax.block_until_ready(self._advance(state, log_counts, plan, first, last))
                report(last - first, float(_horizon(plan, last, self.times[-1])))
        return state

    def compile(self, log_unknowns: Array, log_counts: Array, plan: Plan) -> None:
        """Compile the update, by a call that makes none."""
        jax.block_until_ready(self._advance(self.begin(log_unknowns), log_counts, plan, 0, 0))

    def score(self, log_unknowns: Array, log_counts: Array) -> Evaluation:
        """Compare with the data of all years."""
        return self._score(log_unknowns, log_counts, weights=jnp.ones(len(self.times)))

    def _advance_by_chunk(
        self, state: State, log_counts: Array, plan: Plan, first: Any, last: Any
    ) -> State:
        def body(i: Array, state: State) -> State:
            horizon = _horizon(plan, i, self.times[-1])
            weights = jnp.clip(horizon + 1.0 - self.times, 0.0, 1.0)
            return self._update(state, log_counts, weights, _rate(plan, i))

        return jax.lax.fori_loop(first, last, body, state)

    def _update(self, state: State, log_counts: Array, weights: Array, rate: Array) -> State:
        def total(log_unknowns: Array) -> Array:
            return jnp.sum(self._evaluate(log_unknowns, log_counts, weights).log_loss)

        # One gradient of the sum holds the gradient of every start: they do not see each other.
        _, gradient, stats = pb.value_and_grad(total)(state.log_unknowns)
        norm = jnp.linalg.norm(gradient, axis=1)
        cut = jnp.minimum(1.0, _LARGEST_GRADIENT / jnp.maximum(norm, 1e-12))
        finite = jnp.isfinite(norm)[:, None]
        gradient = jnp.where(finite, gradient, 0.0) * jnp.where(finite, cut[:, None], 0.0)
        change, adam = self._adam.update(gradient, state.adam)
        unresolved = state.n_unresolved + stats.n_unresolved
        return State(state.log_unknowns - rate * change, adam, unresolved)


def _progress(plan: Plan, i: Any) -> Any:
    return i / plan.n_iterations


def _horizon(plan: Plan, i: Any, last_year: float) -> Any:
    """Return how many years after the first one count at iteration `i`.

    All years at once reward a fit that has as many cycles as it likes between few points. Adding
    them one by one leads nearly every start to the cycle that the data have.
    """
    share = jnp.minimum(1.0, _progress(plan, i) / _GROWING)
    return plan.first_year + (last_year - plan.first_year) * share


def _rate(plan: Plan, i: Any) -> Any:
    cosine = 0.5 * (1.0 + jnp.cos(jnp.pi * _progress(plan, i)))
    return plan.rate * (_LAST_RATE + (1.0 - _LAST_RATE) * cosine)


def _import_optax() -> Any:
    try:
        import optax  # noqa: PLC0415 - optional, and only needed here
    except ImportError as error:
        raise ImportError(
            "the demo needs Optax, which is not installed; install it with "
            "`pip install 'pullback[demo]'`."
        ) from error
    return optax
