"""What every peer becomes: something that takes a tolerance, solves, and waits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from benchmarks.cases import Case, Inputs

PRIMAL, GRADIENT = "primal", "gradient"
WORKS = (PRIMAL, GRADIENT)


class SkippedError(Exception):
    """Why a peer does not take part here."""


class Result(NamedTuple):
    """What a solver found.

    Attributes:
        values: saved states `(trajectory, save, state)`; or the gradient, `(trajectory, param)`,
            or `(1, param)` where the parameters are shared.
        mean_steps: tried steps of a trajectory; NaN where it does not say.
        n_failed: trajectories that failed.
    """

    values: np.ndarray
    mean_steps: float
    n_failed: int


class Solver(NamedTuple):
    """A prepared peer.

    Attributes:
        run: takes a tolerance, solves, waits, returns what it has found in its own form.
        read: turns that into a result; not timed.
    """

    run: Callable[[float], Any]
    read: Callable[[Any], Result]


def read_primal(raw: Any) -> Result:
    """Read saved states, tried steps and success."""
    values, steps, ok = (np.asarray(x) for x in raw)
    return Result(values, float(steps.mean()), int(np.sum(~ok)))


def gradient_solver(case: Case, inputs: Inputs, gradient: Any) -> Solver:
    """Return the solver that a compiled gradient of (params, y0, tol) makes."""
    arrays = jax.tree.map(jnp.asarray, inputs)

    def run(tol: float) -> Any:
        with warnings.catch_warnings():  # unresolved gradients are counted elsewhere
            warnings.simplefilter("ignore", pb.GradientUnresolvedWarning)
            return jax.block_until_ready(gradient(arrays.params, arrays.y0, tol))

    def read(raw: Any) -> Result:
        rows = 1 if case.shared_params else len(raw)
        values = np.concatenate([np.reshape(x, (rows, -1)) for x in jax.tree.leaves(raw)], axis=1)
        return Result(values, np.nan, int(np.sum(~np.isfinite(values).all(axis=1))))

    return Solver(run, read)
