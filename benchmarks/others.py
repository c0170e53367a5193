"""The other libraries and a compiled loop as peers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cases import Case, Inputs, first
from benchmarks.cpp import CppLoop, NoCompilerError
from benchmarks.solver import Result, SkippedError, Solver, gradient_solver, read_primal


def _diffrax_ensemble(case: Case, dtype: Any) -> Any:
    try:
        import diffrax  # noqa: PLC0415 - optional
    except ImportError as error:
        raise SkippedError("diffrax is not installed (pip install diffrax)") from error
    times = case.save_times
    saveat = diffrax.SaveAt(t1=True) if times is None else diffrax.SaveAt(ts=times.astype(dtype))
    span = (jnp.zeros((), dtype), jnp.asarray(case.t1, dtype))

    def one(y0, params, tol):
        sol = diffrax.diffeqsolve(
            diffrax.ODETerm(case.field), diffrax.Tsit5(), *span, None, y0, args=params,
            saveat=saveat, stepsize_controller=diffrax.PIDController(rtol=tol, atol=tol),
            throw=False,
        )  # fmt: skip
        ok = sol.result == diffrax.RESULTS.successful
        return sol.ys, sol.stats["num_steps"], ok

    axes = (0, None, None) if case.shared_params else (None, 0, None)
    return jax.vmap(one, in_axes=axes)


def diffrax_primal(case: Case, inputs: Inputs) -> Solver:
    """Prepare diffrax's `diffeqsolve` under jit and vmap."""
    solve = jax.jit(_diffrax_ensemble(case, inputs.y0.dtype))
    arrays = jax.tree.map(jnp.asarray, inputs)
    return Solver(lambda tol: jax.block_until_ready(solve(*arrays, tol)), read_primal)


def diffrax_gradient(case: Case, inputs: Inputs) -> Solver:
    """Prepare gradients of the sum of all saved states, with diffrax's default adjoint."""
    solve = _diffrax_ensemble(case, inputs.y0.dtype)

    def total(params, y0, tol):
        return solve(y0, params, tol)[0].sum()

    return gradient_solver(case, inputs, jax.jit(jax.grad(total)))


def members(case: Case, inputs: Inputs) -> Iterator[tuple[np.ndarray, Any]]:
    """Yield the initial state and the parameters of each trajectory."""
    if case.shared_params:
        yield from ((y0, inputs.params) for y0 in inputs.y0)
    else:
        yield from ((inputs.y0, params) for params in inputs.params)


def scipy_solve(case: Case, inputs: Inputs, tol: float, method: str = "RK45") -> list[Any]:
    """Solve each trajectory with `scipy.integrate.solve_ivp`."""
    try:
        from scipy.integrate import solve_ivp  # noqa: PLC0415 - optional
    except ImportError as error:
        raise SkippedError("SciPy is not installed (pip install scipy)") from error
    span, times = (0.0, case.t1), case.save_times
    return [
        solve_ivp(case.numpy_field, span, y0, method, times, args=(p,), rtol=tol, atol=tol)
        for y0, p in members(case, inputs)
    ]


def scipy_primal(case: Case, inputs: Inputs) -> Solver:
    """Prepare a Python loop over `solve_ivp`."""
    scipy_solve(case, first(case, inputs, 0), 1e-3)  # whether SciPy is there

    def read(raw: list[Any]) -> Result:
        times = case.save_times
        values = [s.y.T if times is not None else s.y.T[-1:] for s in raw]
        # RK45 spends two evaluations before the first step and six on each attempt.
        steps = np.mean([(s.nfev - 2) / 6 for s in raw])
        return Result(np.stack(values), float(steps), sum(s.status != 0 for s in raw))

    return Solver(lambda tol: scipy_solve(case, inputs, tol), read)


def cpp_primal(case: Case, inputs: Inputs) -> Solver:
    """Prepare the compiled loop."""
    try:
        loop = CppLoop(case, inputs)
    except NoCompilerError as error:
        raise SkippedError(str(error)) from error

    def read(raw: tuple[np.ndarray, int]) -> Result:
        values, steps = raw
        return Result(values.copy(), max(steps, 0) / len(values), max(-steps, 0))

    return Solver(loop, read)
