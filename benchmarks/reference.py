"""True solutions, and how far others are from them.

The truth is this package's own Vern7 at a tolerance of 1e-12; the tests hold it against SciPy's
DOP853 at the same tolerance, and gradients against DOP853 through the variational equations.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from benchmarks.cases import Case, Inputs, cast, first
from benchmarks.ours import pullback_solve
from benchmarks.solver import PRIMAL
from pullback import native

TOL = 1e-12
# Trajectories whose error is looked at.
N_LOOKED_AT = 200


class Errors(NamedTuple):
    """Errors relative to the size of the true values, over trajectories.

    Attributes:
        median: the median.
        largest: the largest.
    """

    median: float
    largest: float


def reference(case: Case, inputs: Inputs, work: str) -> np.ndarray:
    """Return true saved states or gradients of at most `N_LOOKED_AT` trajectories.

    The gradient of shared parameters is that of all trajectories.
    """
    if work == PRIMAL or not case.shared_params:
        inputs = first(case, inputs, N_LOOKED_AT)
    arrays = jax.tree.map(jnp.asarray, cast(inputs, "float64"))
    compute = _compiled(case, work)
    if work == PRIMAL:
        return np.asarray(compute(arrays.params, arrays.y0))
    leaves = jax.tree.leaves(compute(arrays.params, arrays.y0))
    rows = 1 if case.shared_params else len(leaves[0])
    return np.concatenate([np.reshape(x, (rows, -1)) for x in leaves], axis=1)


@functools.cache
def _compiled(case: Case, work: str):
    executor = pb.EnsembleKernel() if native.is_supported() else pb.EnsembleArray()

    def solve(params, y0):
        # At this tolerance the state's own mesh resolves the gradient too.
        adjoint = pb.DiscreteAdjoint(resolve=False)
        options = {"method": pb.Vern7(), "executor": executor, "adjoint": adjoint}
        return pullback_solve(case, y0, params, TOL, **options).y

    if work == PRIMAL:
        return jax.jit(solve)
    return jax.jit(jax.grad(lambda params, y0: solve(params, y0).sum()))


def errors(values: np.ndarray, truth: np.ndarray) -> Errors:
    """Compare values with the truth, as far as both go.

    The error of a trajectory is its largest one, relative to its own largest value plus that of
    the median trajectory.
    """
    n = min(len(values), len(truth))
    values = values[:n].reshape(n, -1).astype(np.float64)
    truth = truth[:n].reshape(n, -1)
    size = np.abs(truth).max(axis=1)
    found = np.abs(values - truth).max(axis=1) / (size + np.median(size))
    return Errors(float(np.median(found)), float(found.max()))
