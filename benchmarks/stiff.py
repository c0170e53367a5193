"""`python -m benchmarks.stiff`: ensembles of stiff problems, and their gradients.

This package's kernel beside diffrax's `Kvaerno5` and SciPy's stiff solvers, in turns on the same
data. Methods differ in how much of a tolerance they use, so the ratio that counts is the one at
the error that the other has achieved: the kernel's time there is interpolated on its line of
log(time) over log(error).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from benchmarks.cases import SEED
from benchmarks.command import as_in_a_new_process, make_parser
from benchmarks.stiff_problems import STIFF, StiffProblem
from benchmarks.tables import render
from benchmarks.timing import interleave, timed
from pullback.ode import Method

PRIMAL, GRADIENT = "primal", "gradient"
OURS = "kernel, Rodas5P"
TOLS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
# Trajectories that others run; their time is scaled.
OTHERS = {"robertson": 200, "hires": 100, "pollution": 40}
_HEAD = (
    "problem", "work", "peer", "tolerance", "N", "µs each", "error", "x kernel",
    "x kernel, same error", "first call",
)  # fmt: skip

Solve = Callable[[Any, Any, Any], Any]


class Row(NamedTuple):
    """One peer at one tolerance.

    Attributes:
        tol: relative tolerance.
        n: trajectories that were run.
        each: seconds of one.
        error: median error of a trajectory, relative to each component's size.
        first: seconds of the first call.
    """

    tol: float
    n: int
    each: float
    error: float
    first: float


def inputs(problem: StiffProblem, n: int) -> np.ndarray:
    """Return parameters of n trajectories, spread by up to ten per cent."""
    spread = np.random.default_rng(SEED).uniform(0.9, 1.1, (n, problem.params.size))
    return problem.params * spread


def ours(problem: StiffProblem, method: Method, adjoint: pb.DiscreteAdjoint) -> Solve:
    """Return the end states of an ensemble by this package's kernel."""

    def solve(params: Any, rtol: Any, atol: Any) -> Any:
        one = pb.ODEProblem(problem.field, problem.y0, (0.0, problem.t1), params[0])
        ensemble = pb.EnsembleProblem(one, params=params)
        options = {"rtol": rtol, "atol": atol, "adjoint": adjoint}
        return pb.solve(ensemble, method, pb.EnsembleKernel(), **options).y_end

    return solve


def kvaerno5_of_diffrax(is_tuned: bool) -> tuple[Any, dict[str, float]]:
    """Return diffrax's method and the gains of its step control.

    As they come, or so that it takes the fewest steps: Newton's iteration has a new Jacobian each
    time and steps follow two errors.
    """
    import diffrax  # noqa: PLC0415 - optional
    import optimistix  # noqa: PLC0415 - diffrax needs it

    if not is_tuned:
        return diffrax.Kvaerno5(), {}
    newton = diffrax.with_stepsize_controller_tols(optimistix.Newton)()
    return diffrax.Kvaerno5(root_finder=newton), {"pcoeff": 0.3, "icoeff": 0.3}


def diffrax_kvaerno5(problem: StiffProblem, is_tuned: bool) -> Solve:
    """Return the same by diffrax."""
    import diffrax  # noqa: PLC0415 - optional

    term, y0 = diffrax.ODETerm(problem.field), jnp.asarray(problem.y0)
    method, gains = kvaerno5_of_diffrax(is_tuned)

    def solve(params: Any, rtol: Any, atol: Any) -> Any:
        def one(p: Any) -> Any:
            control = diffrax.PIDController(rtol=rtol, atol=atol, **gains)
            sol = diffrax.diffeqsolve(
                term, method, 0.0, problem.t1, None, y0, args=p,
                stepsize_controller=control, max_steps=16_384,
            )  # fmt: skip
            assert sol.ys is not None
            return sol.ys[-1]

        return jax.vmap(one)(params)

    return solve


def numpy_functions(problem: StiffProblem) -> list[Callable[[Any, Any, Any], np.ndarray]]:
    """Return the vector field and its Jacobian as SciPy calls them, compiled."""
    like = (0.0, problem.y0, problem.params)
    functions = (problem.field, jax.jacfwd(problem.field, 1))
    compiled = [jax.jit(function).lower(*like).compile() for function in functions]
    return [lambda t, y, p, f=f: np.asarray(f(float(t), y, p)) for f in compiled]


def scipy_radau(problem: StiffProblem, params: np.ndarray, tol: float) -> tuple[float, np.ndarray]:
    """Return seconds and end states of SciPy, one trajectory after the other."""
    from scipy.integrate import solve_ivp  # noqa: PLC0415 - optional

    field, jacobian = numpy_functions(problem)
    begin = time.perf_counter()
    ends = [
        solve_ivp(
            field, (0.0, problem.t1), problem.y0, "Radau", jac=jacobian, args=(p,), rtol=tol,
            atol=tol * problem.unit,
        ).y[:, -1]
        for p in params
    ]  # fmt: skip
    return time.perf_counter() - begin, np.stack(ends)


def gradient_of(solve: Solve, scale: np.ndarray) -> Solve:
    """Return the gradient of the sum of scaled end states by the logarithms of the parameters."""

    def total(logs: Any, rtol: Any, atol: Any) -> Any:
        return jnp.sum(solve(jnp.exp(logs), rtol, atol) / scale)

    return jax.grad(total)


def error_of(values: Any, truth: np.ndarray, size: np.ndarray) -> float:
    """Return the median over trajectories of the largest error, relative to `size`."""
    n = min(len(values), len(truth))
    off = np.abs(np.asarray(values)[:n] - truth[:n]) / size
    return float(np.median(off.max(axis=1)))


def matched(lines: list[Row], error: float) -> float:
    """Return the time at which a line of measurements has achieved an error, by interpolation.

    NaN for an error that is smaller than all that were measured.
    """
    ordered = sorted(lines, key=lambda row: row.error)
    if error < ordered[0].error:
        return float("nan")
    errors = np.log([row.error for row in ordered])
    return float(np.exp(np.interp(np.log(error), errors, np.log([row.each for row in ordered]))))


def ratio(a: float, b: float) -> str:
    """Return a ratio as text: nothing if there is none."""
    return "" if np.isnan(b) else f"{a / b:.3g}"


def measure(name: str, work: str, n: int, repeats: int) -> dict[str, list[Row]]:
    """Return rows for each peer, the kernel's at many tolerances."""
    problem = STIFF[name]
    scale = np.abs(problem.end) + problem.unit
    params = inputs(problem, n)
    plain = pb.DiscreteAdjoint(resolve=False)
    solvers: dict[str, tuple[Solve, tuple[float, ...], int]] = {
        OURS: (ours(problem, pb.Rodas5P(), plain), TOLS, n),
        "kernel, Kvaerno5": (ours(problem, pb.Kvaerno5(), plain), (1e-6,), n),
        **{
            peer: (diffrax_kvaerno5(problem, is_tuned), (1e-4, 1e-6), min(n, OTHERS[name]))
            for peer, is_tuned in (("diffrax, Kvaerno5", False), ("diffrax, tuned", True))
        },
    }
    if work == GRADIENT:
        solvers["kernel, Rodas5P, default"] = (
            ours(problem, pb.Rodas5P(), pb.DiscreteAdjoint()), (1e-6,), n,
        )  # fmt: skip
    logs = np.log(params)
    found: dict[tuple[str, float], Any] = {}
    rows: dict[str, list[Row]] = {}
    for peer, (solve, tols, count) in solvers.items():
        function = jax.jit(gradient_of(solve, scale) if work == GRADIENT else solve)
        given = jnp.asarray((logs if work == GRADIENT else params)[:count])
        for tol in tols:

            def call(tol: float = tol, function: Any = function, given: Any = given) -> Any:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", pb.GradientUnresolvedWarning)
                    return jax.block_until_ready(function(given, tol, tol * problem.unit))

            first, values = timed(call)
            times = interleave({peer: call}, repeats, 20.0)[peer]
            found[peer, tol] = values
            rows.setdefault(peer, []).append(Row(tol, count, times.best / count, np.nan, first))
    if work == PRIMAL:
        few = params[:3]
        seconds, found["SciPy, Radau", 1e-6] = scipy_radau(problem, few, 1e-6)
        rows["SciPy, Radau"] = [Row(1e-6, len(few), seconds / len(few), np.nan, seconds)]
    # Last, for it compiles programs whose first calls are measured above.
    truth, size = _truth(problem, work, logs[:40], scale)
    return {
        peer: [r._replace(error=error_of(found[peer, r.tol], truth, size)) for r in measured]
        for peer, measured in rows.items()
    }


def _truth(
    problem: StiffProblem, work: str, logs: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the first trajectories should give, and the size of errors that count as one."""
    solve = ours(problem, pb.Rodas5P(), pb.DiscreteAdjoint(resolve=False))
    if work == PRIMAL:
        return np.asarray(solve(np.exp(logs), 1e-11, 1e-11 * problem.unit)), scale
    values = np.asarray(jax.jit(gradient_of(solve, scale))(logs, 1e-11, 1e-11 * problem.unit))
    return values, np.abs(values).max(axis=0) + 1e-3 * np.abs(values).max()


def table(name: str, work: str, rows: dict[str, list[Row]]) -> list[tuple[str, ...]]:
    """Return the rows of the printed table."""
    lines = []
    same = {row.tol: row.each for row in rows[OURS]}
    for peer, found in rows.items():
        for row in found:
            is_ours = peer == OURS
            at_error = "" if is_ours else ratio(row.each, matched(rows[OURS], row.error))
            lines.append(
                (
                    name, work, peer, f"{row.tol:.0e}", f"{row.n:,}", f"{row.each * 1e6:.3g}",
                    f"{row.error:.1e}", f"{row.each / same[row.tol]:.3g}", at_error,
                    f"{row.first:.2f} s",
                )
            )  # fmt: skip
    return lines


def main() -> None:
    """Measure and print the tables."""
    parser = make_parser("stiff", OTHERS, 1_000)
    options = parser.parse_args()
    lines = []
    with as_in_a_new_process():
        for name in options.case or OTHERS:
            for work in (PRIMAL, GRADIENT):
                lines += table(name, work, measure(name, work, options.n, options.repeats))
    print(render(_HEAD, lines))


if __name__ == "__main__":
    main()
