"""`python -m benchmarks.stiff_precision`: time against error on stiff problems with known ends.

This package's stiff methods in the kernel beside diffrax's `Kvaerno5`, as it comes and tuned, and
SciPy's stiff solvers.
Every trajectory has the published parameters, so its error is that against the published end; all
lanes of a kernel take the same steps and none waits. `benchmarks.stiff` has ensembles that differ.
SciPy calls compiled functions, the analytic Jacobian among them, for one trajectory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from benchmarks import charts
from benchmarks.command import as_in_a_new_process, make_parser
from benchmarks.programme import say
from benchmarks.stiff import Row, kvaerno5_of_diffrax, numpy_functions
from benchmarks.stiff_problems import STIFF, StiffProblem
from benchmarks.tables import render
from benchmarks.timing import interleave, timed
from pullback.ode import Method

TITLES = {
    "hires": "HIRES", "robertson": "Robertson", "oregonator": "Oregonator",
    "van_der_pol": "Van der Pol", "pollution": "Pollution",
}  # fmt: skip
FILE = "stiff_precision.png"
INCHES = (13.0, 8.2)
_RESULTS = Path(__file__).resolve().parent / "results"
_HEAD = ("peer", "tolerance", "N", "µs each", "error")
_BUDGET = 4.0

_TO_1E4, _TO_1E6, _TO_1E9, _TO_1E10 = (
    tuple(10.0**-k for k in range(3, last + 1)) for last in (4, 6, 9, 10)
)
_EVERY_OTHER = _TO_1E9[::2]
# Methods of order three and less would take most of the time at smaller tolerances.
METHODS: dict[Method, tuple[float, ...]] = {
    pb.Rosenbrock23(): _TO_1E6,
    pb.Rodas4(): _TO_1E10,
    pb.Rodas5P(): _TO_1E10,
    pb.Kvaerno3(): _TO_1E6,
    pb.Kvaerno5(): _TO_1E10,
    pb.TRBDF2(): _TO_1E6,
    pb.ImplicitEuler(): _TO_1E4,
}
DIFFRAX, DIFFRAX_TUNED = "diffrax, Kvaerno5", "diffrax, Kvaerno5, Newton, PI"
N_DIFFRAX = 50  # so many share the costs of a step that do not grow with their number
_MAX_STEPS = 40_000  # of diffrax, which stands still in one of the problems
SCIPY = {name: f"SciPy, {name}" for name in ("Radau", "BDF", "LSODA")}
_FAILED = np.nan

Ends = Callable[[float], np.ndarray]  # of a tolerance: one end state, or NaN where it failed

# Colours tell families and libraries apart, marks and shades the methods in them.
_LOOK = {
    "kernel, Rosenbrock23": ("#56B4E9", "^"), "kernel, Rodas4": ("#3A8FCB", "s"),
    "kernel, Rodas5P": ("#0072B2", "o"), "kernel, ImplicitEuler": ("#8FD3BC", "v"),
    "kernel, TRBDF2": ("#5CC0A0", "^"), "kernel, Kvaerno3": ("#2BAA85", "s"),
    "kernel, Kvaerno5": ("#009E73", "o"), DIFFRAX: ("#D55E00", "s"),
    DIFFRAX_TUNED: ("#D55E00", "o"),
    SCIPY["Radau"]: ("#CC79A7", "o"), SCIPY["BDF"]: ("#CC79A7", "s"),
    SCIPY["LSODA"]: ("#CC79A7", "^"),
}  # fmt: skip


class Peer(NamedTuple):
    """Someone who solves.

    Attributes:
        ends: returns the end state of the last trajectory, which is that of all.
        tols: relative tolerances; the absolute ones are these times the problem's unit.
        n: trajectories of a call.
        is_repeated: whether it is timed in rounds; others are slow, and compiled beforehand.
    """

    ends: Ends
    tols: tuple[float, ...]
    n: int
    is_repeated: bool = True


def kernel_ends(problem: StiffProblem, method: Method, n: int) -> Ends:
    """Return the end state by the kernel, of n copies."""
    one = pb.ODEProblem(problem.field, problem.y0, (0.0, problem.t1), problem.params)

    @jax.jit
    def solve(params: Any, rtol: Any) -> Any:
        ensemble = pb.EnsembleProblem(one, params=params)
        options = {"rtol": rtol, "atol": rtol * problem.unit, "max_steps": 10**6}
        sol = pb.solve(ensemble, method, pb.EnsembleKernel(), **options)
        return jnp.where(jnp.all(sol.ok), sol.y_end[-1], _FAILED)

    copies = jnp.tile(problem.params, (n, 1))
    return lambda tol: np.asarray(solve(copies, tol))


def diffrax_ends(problem: StiffProblem, n: int, is_tuned: bool) -> Ends:
    """Return the same by diffrax under vmap.

    Args:
        problem: which one.
        n: copies.
        is_tuned: see `kvaerno5_of_diffrax`.

    Raises:
        ImportError: diffrax is not installed.
    """
    import diffrax  # noqa: PLC0415 - optional

    method, gains = kvaerno5_of_diffrax(is_tuned)
    term, y0 = diffrax.ODETerm(problem.field), jnp.asarray(problem.y0)

    def one(params: Any, tol: Any) -> Any:
        sol = diffrax.diffeqsolve(
            term, method, 0.0, problem.t1, None, y0, args=params, max_steps=_MAX_STEPS, throw=False,
            stepsize_controller=diffrax.PIDController(
                rtol=tol, atol=tol * problem.unit, **gains
            ),
        )  # fmt: skip
        assert sol.ys is not None
        return jnp.where(sol.result == diffrax.RESULTS.successful, sol.ys[-1], _FAILED)

    copies = jnp.tile(problem.params, (n, 1))
    # Compiled before a clock runs.
    solve = jax.jit(jax.vmap(one, (0, None))).lower(copies, 0.1).compile()
    return lambda tol: np.asarray(solve(copies, tol))[-1]


def scipy_ends(problem: StiffProblem, name: str) -> Ends:
    """Return the same by one of SciPy's methods, one trajectory.

    Raises:
        ImportError: SciPy is not installed.
    """
    from scipy.integrate import solve_ivp  # noqa: PLC0415 - optional

    field, jacobian = numpy_functions(problem)

    def ends(tol: float) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # LSODA warns where it fails
            sol = solve_ivp(
                field, (0.0, problem.t1), problem.y0, name, jac=jacobian, rtol=tol,
                atol=tol * problem.unit, args=(problem.params,),
            )  # fmt: skip
        return sol.y[:, -1] if sol.success else np.full_like(problem.end, _FAILED)

    return ends


def error_of(problem: StiffProblem, end: np.ndarray) -> float:
    """Return the largest error of a component, relative to |published value| + unit."""
    return float(np.max(np.abs(end - problem.end) / (np.abs(problem.end) + problem.unit)))


def peers(problem: StiffProblem, n: int) -> dict[str, Peer]:
    """Return who solves a problem; libraries that are not installed are named and left out."""
    found = {
        f"kernel, {method.name}": Peer(kernel_ends(problem, method, n), tols, n)
        for method, tols in METHODS.items()
    }
    few = min(n, N_DIFFRAX)
    try:
        for peer, tols in ((DIFFRAX, _EVERY_OTHER), (DIFFRAX_TUNED, _TO_1E9)):
            ends = diffrax_ends(problem, few, is_tuned=peer == DIFFRAX_TUNED)
            found[peer] = Peer(ends, tols, few, is_repeated=False)
    except ImportError:
        say("  skipped: diffrax (pip install diffrax)")
    try:
        for name, peer in SCIPY.items():
            found[peer] = Peer(scipy_ends(problem, name), _TO_1E10, 1, is_repeated=False)
    except ImportError:
        say("  skipped: SciPy's solvers (pip install scipy)")
    return found


def measure(name: str, n: int, repeats: int) -> dict[str, list[Row]]:
    """Return the rows of each peer; at each tolerance they have turns.

    Args:
        name: of the problem.
        n: trajectories of the kernel.
        repeats: rounds.
    """
    problem = STIFF[name]
    found = peers(problem, n)
    rows: dict[str, list[Row]] = {peer: [] for peer in found}
    for tol in _TO_1E10:
        taking_part = {label: peer for label, peer in found.items() if tol in peer.tols}
        calls = {label: partial(peer.ends, tol) for label, peer in taking_part.items()}
        first = {label: timed(call) for label, call in calls.items()}
        again = {label: call for label, call in calls.items() if taking_part[label].is_repeated}
        times = interleave(again, repeats, _BUDGET)
        for label, peer in taking_part.items():
            seconds, end = first[label]
            best = times[label].best if label in times else seconds
            rows[label].append(Row(tol, peer.n, best / peer.n, error_of(problem, end), seconds))
    return rows


def table(rows: dict[str, list[Row]]) -> str:
    """Return the table of one problem."""
    lines = [
        (
            peer, f"{row.tol:.0e}", f"{row.n:,}", f"{row.each * 1e6:.3g}",
            "failed" if np.isnan(row.error) else f"{row.error:.1e}",
        )
        for peer, found in rows.items()
        for row in found
    ]  # fmt: skip
    return render(_HEAD, lines)


def draw(
    found: dict[str, dict[str, list[Row]]], folder: Path, inches: Sequence[float] = INCHES
) -> Path:
    """Draw a panel for each problem, time over error, and return the file.

    Args:
        found: rows by problem and peer.
        folder: where the file goes; it is made.
        inches: width and height; a hundred and fifty points each.
    """
    from matplotlib import rc_context  # noqa: PLC0415 - optional, and slow to import

    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(charts._STYLE):
        figure = charts._figure(*inches)
        panels = figure.subplots(2, 3, squeeze=False).ravel()
        for ax, (name, rows) in zip(panels, found.items(), strict=False):
            _panel(ax, TITLES[name], rows)
        for ax in panels[len(found) :]:
            ax.set_axis_off()
        # One legend for all, in the place of the sixth panel.
        handles, labels = panels[0].get_legend_handles_labels()
        panels[-1].legend(handles, labels, frameon=False, loc="center", ncols=1)
        figure.suptitle(
            "Stiff problems, tolerances from 1e-3: lower and further right is better",
            x=0.01, ha="left", fontsize=13, weight="bold",
        )  # fmt: skip
        figure.savefig(folder / FILE)
    return folder / FILE


def _panel(ax: Any, title: str, rows: dict[str, list[Row]]) -> None:
    for peer, found in rows.items():
        points = [(row.error, row.each * 1e6) for row in found if row.error > 0.0]
        if points:
            colour, mark = _LOOK[peer]
            label = peer.replace("kernel", "pullback, kernel")
            ax.plot(
                *zip(*points, strict=True), f"-{mark}", color=colour, linewidth=1.5, label=label,
                **charts._MARK,
            )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="error", ylabel="µs per trajectory", title=title)
    ax.invert_xaxis()
    charts._finish(ax)


def main() -> None:
    """Measure, print the tables and draw the figure."""
    parser = make_parser("stiff_precision", TITLES, 200)
    parser.add_argument("--charts", type=Path, default=_RESULTS, metavar="DIR")
    options = parser.parse_args()
    found = {}
    with as_in_a_new_process():
        for name in options.case or TITLES:
            found[name] = measure(name, options.n, options.repeats)
            print(f"### {TITLES[name]}\n\n{table(found[name])}\n", flush=True)
    print(f"wrote {draw(found, options.charts)}")


if __name__ == "__main__":
    main()
