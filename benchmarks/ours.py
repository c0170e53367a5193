"""This package as a peer, through its public interface."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

import pullback as pb
from benchmarks.cases import Case, Inputs
from benchmarks.solver import Result, SkippedError, Solver, gradient_solver, read_primal
from pullback import native


def pullback_solve(case: Case, y0: Any, params: Any, tol: Any, **options: Any) -> pb.Solution:
    """Solve an ensemble of a case through the public interface."""
    if case.shared_params:
        problem = pb.ODEProblem(case.field, y0[0], (0.0, case.t1), params)
        ensemble = pb.EnsembleProblem(problem, y0=y0)
    else:
        problem = pb.ODEProblem(case.field, y0, (0.0, case.t1), params[0])
        ensemble = pb.EnsembleProblem(problem, params=params)
    options.setdefault("method", pb.Tsit5())
    return pb.solve(ensemble, saveat=case.save_times, rtol=tol, atol=tol, **options)


def primal(executor: Any, n_threads: int | None = None) -> Any:
    """Return how to prepare plain solves, on so many threads."""

    def make(case: Case, inputs: Inputs) -> Solver:
        _require(executor)

        @jax.jit
        def solve(y0, params, tol):
            sol = pullback_solve(case, y0, params, tol, executor=executor)
            return sol.y, sol.stats["n_attempts"], sol.ok

        arrays = jax.tree.map(jnp.asarray, inputs)

        def run(tol: float) -> Any:
            with _threads(n_threads):
                return jax.block_until_ready(solve(*arrays, tol))

        return Solver(run, read_primal)

    return make


def gradient(executor: Any, adjoint: pb.DiscreteAdjoint) -> Any:
    """Return how to prepare gradients of the sum of all saved states."""

    def make(case: Case, inputs: Inputs) -> Solver:
        _require(executor)

        def total(params, y0, tol):
            options = {"executor": executor, "adjoint": adjoint}
            return pullback_solve(case, y0, params, tol, **options).y.sum()

        return gradient_solver(case, inputs, jax.jit(jax.grad(total)))

    return make


def value_and_gradient(executor: Any) -> Any:
    """Return how to prepare value, gradient and its estimated error, as a training step needs."""

    def make(case: Case, inputs: Inputs) -> Solver:
        _require(executor)

        def total(params, y0, tol):
            return pullback_solve(case, y0, params, tol, executor=executor).y.sum()

        compute = jax.jit(pb.value_and_grad(total))
        gradients = gradient_solver(case, inputs, compute)

        def read(raw: Any) -> Result:
            _, gradient, stats = raw
            return gradients.read(gradient)._replace(n_failed=int(stats.n_unresolved))

        return Solver(gradients.run, read)

    return make


def _require(executor: Any) -> None:
    if isinstance(executor, pb.EnsembleKernel) and not native.is_supported():
        raise SkippedError(f"no kernels on this machine: {native.unsupported_reason()}")


@contextlib.contextmanager
def _threads(n: int | None) -> Iterator[None]:
    """Limit the threads of kernels for a while."""
    if n is None:
        yield
        return
    before = native.num_threads()
    native.set_num_threads(n)
    try:
        yield
    finally:
        native.set_num_threads(before)
