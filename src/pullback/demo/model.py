"""Hares and lynxes: the Lotka-Volterra equations and the likelihood of the pelt counts.

The six unknowns of a fit are kept as logarithms in one vector, in the order of `UNKNOWNS`, so that
all of them are positive whatever an optimiser does. How they are searched does not belong here.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import pullback as pb
from pullback.core.typing import Array

# Name, unit, and the range from which starts are drawn (uniformly in the logarithm).
UNKNOWNS = (
    ("alpha", "1/yr", 0.1, 3.0),  # growth of hares without lynxes
    ("beta", "1/yr/k", 0.005, 0.2),  # hares lost per thousand lynxes
    ("gamma", "1/yr", 0.1, 3.0),  # loss of lynxes without hares
    ("delta", "1/yr/k", 0.005, 0.2),  # lynxes gained per thousand hares
    ("hares", "k", 10.0, 100.0),  # thousands of pelts in the first year
    ("lynxes", "k", 2.0, 50.0),
)
NAMES = tuple(name for name, *_ in UNKNOWNS)
TOLERANCE = 1e-6
# An ordinary fit takes some 30 steps. A start in a corner of the ranges that needs more than this
# is given up, with a status of its own, rather than waited for.
MAX_STEPS = 2_000
# No count is that exact; keeps the logarithm finite where a fit meets every point seen so far.
_SMALLEST_VARIANCE = 1e-8


class Evaluation(NamedTuple):
    """How well each of N fits meets its data.

    Attributes:
        ok: whether the trajectory was integrated to the end, `(N,)`.
        variance: mean squared residual of log counts, `(N, 2)`; 1 where not ok.
        log_loss: mean over the years of the negative log-likelihood without its constant, with the
            standard deviations of both species at their best values, `(N,)`; 0 where not ok.
    """

    ok: Array
    variance: Array
    log_loss: Array


def predator_prey(t: Array, log_y: Array, params: Array) -> Array:
    """Return the rates of change of the logarithms of hares and lynxes.

    In logarithms x' = (alpha - beta y) x becomes (log x)' = alpha - beta y: the populations
    cannot become negative, and the solver's tolerance is a relative one for both of them.
    """
    hares, lynxes = jnp.exp(log_y)
    alpha, beta, gamma, delta = params
    return jnp.stack([alpha - beta * lynxes, delta * hares - gamma])


def simulate(
    log_unknowns: Array, times: np.ndarray, executor: pb.EnsembleKernel | pb.EnsembleArray
) -> pb.Solution:
    """Integrate every row of `log_unknowns`, `(N, 6)`, and save at `times` since the first year."""
    params, log_y0 = jnp.exp(log_unknowns[:, :4]), log_unknowns[:, 4:]
    problem = pb.ODEProblem(predator_prey, log_y0[0], (0.0, float(times[-1])), params[0])
    return pb.solve(
        pb.EnsembleProblem(problem, y0=log_y0, params=params),
        pb.Tsit5(),
        executor,
        trajectories=len(log_unknowns),
        saveat=times,
        rtol=TOLERANCE,
        atol=TOLERANCE,
        max_steps=MAX_STEPS,
    )


def evaluate(
    log_unknowns: Array,
    log_counts: Array,
    weights: Array,
    times: np.ndarray,
    executor: pb.EnsembleKernel | pb.EnsembleArray,
) -> Evaluation:
    """Compare N fits with N data sets, `(N, year, 2)`, each year with its weight.

    Errors are log-normal with one standard deviation per species. Their best values are known, the
    root mean squared residuals, so they are not searched: the likelihood is *profiled*.
    """
    sol = simulate(log_unknowns, times, executor)
    # A failed trajectory keeps its last good point: finite numbers, but no fit. Residuals are
    # taken out before they are squared, so that nothing of it reaches the gradient either.
    ok = sol.ok
    residual = jnp.where(ok[:, None, None], sol.y - log_counts, 0.0)
    variance = jnp.einsum("nts,t->ns", residual**2, weights / jnp.sum(weights))
    variance = jnp.where(ok[:, None], jnp.maximum(variance, _SMALLEST_VARIANCE), 1.0)
    return Evaluation(ok, variance, 0.5 * jnp.sum(jnp.log(variance), axis=1))


def negative_log_likelihood(log_loss: np.ndarray, n_years: int) -> np.ndarray:
    """Return -log L of all counts (in logarithms) from the `log_loss` of an evaluation."""
    constant = 0.5 * np.log(2.0 * np.pi * np.e)
    return n_years * (log_loss + 2 * constant)


def periods(log_unknowns: np.ndarray, times: np.ndarray, log_hares: np.ndarray) -> np.ndarray:
    """Return the period of each cycle, `(N,)`; NaN where fewer than two cycles begin.

    Measured, not estimated: once a cycle the hares rise through their equilibrium gamma/delta.

    Args:
        log_unknowns: `(N, 6)`.
        times: `(time,)`.
        log_hares: the trajectories' first component, `(N, time)`.
    """
    above = log_hares - (log_unknowns[:, 2] - log_unknowns[:, 3])[:, None]
    rises = (above[:, :-1] < 0) & (above[:, 1:] >= 0)
    i, k = np.nonzero(rises)
    low, high = above[i, k], above[i, k + 1]
    crossing = times[k] - low / (high - low) * (times[k + 1] - times[k])
    count = rises.sum(axis=1)
    end = np.cumsum(count)
    out = np.full(len(above), np.nan)
    cycles = count > 1
    first, last = crossing[(end - count)[cycles]], crossing[end[cycles] - 1]
    out[cycles] = (last - first) / (count[cycles] - 1)
    return out
