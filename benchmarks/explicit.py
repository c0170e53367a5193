"""`python -m benchmarks.explicit`: ensembles of nonstiff problems beside heyoka, diffrax and SciPy.

heyoka integrates Taylor series, a batch of trajectories as wide as the processor's vectors, here
batch after batch with one integrator on each thread. Each peer gets the form of the vector field
that suits it: one pair of bodies at a time where code is generated from scalars (the kernel,
heyoka), arrays elsewhere. The error is that of the first trajectory, whose end is known; *x kernel*
is the ratio to the quickest of the kernel's methods, on all threads, at the same tolerance and at
the error that the peer has achieved.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from benchmarks.cases import SEED, Inputs
from benchmarks.command import as_in_a_new_process, make_parser
from benchmarks.ours import _threads
from benchmarks.programme import say
from benchmarks.solver import SkippedError
from benchmarks.stiff import Row, matched, ratio
from benchmarks.tables import render
from benchmarks.timing import interleave, timed
from pullback.ode import Method

TOLS = (1e-6, 1e-9, 1e-12)
KERNEL = tuple(f"kernel, {name}" for name in ("Tsit5", "Dopri8", "Vern9"))
_SPREAD = 1e-4  # of initial states, relative
_HEAD = (
    "problem", "peer", "tolerance", "N", "µs each", "error", "x kernel", "x kernel, same error",
)  # fmt: skip
_BUDGET = 6.0

Rates = Callable[[Any, Any, Callable[[Any], Any]], Sequence[Any]]
Ends = Callable[[float], np.ndarray]  # of a tolerance: end states, `(trajectory, state)`


class ExplicitProblem(NamedTuple):
    """A nonstiff problem with a known end.

    Attributes:
        rates: the components of the vector field, of (y, parameter, r² -> r⁻³), in any library.
        y0: initial state.
        t1: end of the span, which begins at 0.
        end: the first components at the end, as many as are known.
        arrays: the vector field of (y, `jax.numpy` or `numpy`); None if the rates serve.
        sweep: the parameter of the first and of the last trajectory; None without one: then
            initial states differ, but for the first one.
    """

    rates: Rates
    y0: np.ndarray
    t1: float
    end: np.ndarray
    arrays: Callable[[Any, Any], Any] | None = None
    sweep: tuple[float, float] | None = None

    def error_of(self, ends: np.ndarray) -> float:
        """Return the largest error of the first trajectory, relative to |known value| + 1."""
        off = np.abs(ends[0, : self.end.size] - self.end)
        return float(np.max(off / (np.abs(self.end) + 1.0)))


_N_BODIES = 7
_MASSES = np.arange(1.0, _N_BODIES + 1.0)


def pleiades_rates(y: Any, p: Any, inverse_cube: Callable[[Any], Any]) -> list[Any]:
    """Return velocities and accelerations of seven stars in the plane, one pair at a time."""
    del p
    n = _N_BODIES
    ax: list[Any] = [0.0] * n
    ay: list[Any] = [0.0] * n
    for i in range(n):
        for j in range(i + 1, n):
            dx, dy = y[j] - y[i], y[n + j] - y[n + i]
            w = inverse_cube(dx * dx + dy * dy)
            ax[i], ay[i] = ax[i] + _MASSES[j] * w * dx, ay[i] + _MASSES[j] * w * dy
            ax[j], ay[j] = ax[j] - _MASSES[i] * w * dx, ay[j] - _MASSES[i] * w * dy
    return [*(y[i] for i in range(2 * n, 4 * n)), *ax, *ay]


def pleiades_arrays(y: Any, xp: Any) -> Any:
    """Return the same, all pairs at once."""
    n = _N_BODIES
    dx, dy = (q[None, :] - q[:, None] for q in (y[:n], y[n : 2 * n]))
    squares = dx * dx + dy * dy + xp.eye(n)
    weights = _MASSES / (squares * xp.sqrt(squares))
    return xp.concatenate([y[2 * n :], (weights * dx).sum(1), (weights * dy).sum(1)])


_MOON = 0.012277471  # its mass, that of Earth and Moon being one


def arenstorf_rates(y: Any, p: Any, inverse_cube: Callable[[Any], Any]) -> list[Any]:
    """Return velocity and acceleration of a body between Earth and Moon, in the turning frame."""
    del p
    earth, moon = y[0] + _MOON, y[0] - (1.0 - _MOON)
    a = (1.0 - _MOON) * inverse_cube(earth * earth + y[1] * y[1])
    b = _MOON * inverse_cube(moon * moon + y[1] * y[1])
    return [y[2], y[3], y[0] + 2.0 * y[3] - a * earth - b * moon,
            y[1] - 2.0 * y[2] - (a + b) * y[1]]  # fmt: skip


def lorenz_rates(y: Any, p: Any, inverse_cube: Callable[[Any], Any]) -> list[Any]:
    """Return Lorenz' rates with the Rayleigh number p."""
    del inverse_cube
    return [10.0 * (y[1] - y[0]), y[0] * (p - y[2]) - y[1], y[0] * y[1] - (8.0 / 3.0) * y[2]]


_ARENSTORF_START = np.array([0.994, 0.0, 0.0, -2.00158510637908252240537862224])
PROBLEMS = {
    # The IVP test set of the University of Bari; positions alone are published.
    "pleiades": ExplicitProblem(
        pleiades_rates,
        np.array([3.0, 3, -1, -3, 2, -2, 2, 3, -3, 2, 0, 0, -4, 4,
                  0, 0, 0, 0, 0, 1.75, -1.5, 0, 0, 0, -1.25, 1, 0, 0]),
        3.0,
        np.array([0.3706139143970502, 3.237284092057233, -3.222559032418324, 0.6597091455775310,
                  0.3425581707156584, 1.562172101400631, -0.7003092922212495, -3.943437585517392,
                  -3.271380973972550, 5.225081843456543, -2.590612434977470, 1.198213693392275,
                  -0.2429682344935824, 1.091449240428980]),
        pleiades_arrays,
    ),
    # Rayleigh numbers from 21 to 0; the end of the first by a Taylor series with 40 digits.
    "lorenz": ExplicitProblem(
        lorenz_rates, np.array([1.0, 0.0, 0.0]), 10.0,
        np.array([-7.8734410765709620402, -6.7133208531644654431, 22.176159652834202702]),
        sweep=(21.0, 0.0),
    ),
    # [HNW93] section II.0: a period, after which the body is where it began.
    "arenstorf": ExplicitProblem(
        arenstorf_rates, _ARENSTORF_START, 17.0652165601579625588917206249, _ARENSTORF_START
    ),
}  # fmt: skip


def inputs(problem: ExplicitProblem, n: int) -> Inputs:
    """Return initial states `(n, state)` and parameters `(n,)`; the first has the known end."""
    states, params = np.tile(problem.y0, (n, 1)), np.zeros(n)
    if problem.sweep is not None:
        return Inputs(states, np.linspace(*problem.sweep, n))
    off = np.random.default_rng(SEED).uniform(-_SPREAD, _SPREAD, (n - 1, states.shape[1]))
    states[1:] *= 1.0 + off
    return Inputs(states, params)


def _by_root(xp: Any) -> Callable[[Any], Any]:
    return lambda square: 1.0 / (square * xp.sqrt(square))


def scalar_field(problem: ExplicitProblem) -> Callable[[Any, Any, Any], Any]:
    """Return the vector field in JAX, from its components."""
    return lambda t, y, p: jnp.stack(problem.rates(y, p, _by_root(jnp)))


def array_field(problem: ExplicitProblem, xp: Any) -> Callable[[Any, Any, Any], Any]:
    """Return the vector field in JAX or NumPy, of arrays where there is such a form."""
    if problem.arrays is not None:
        whole = problem.arrays
        return lambda t, y, p: whole(y, xp)
    return lambda t, y, p: xp.stack(problem.rates(y, p, _by_root(xp)))


def package(method: Method, executor: Any, n_threads: int | None = None) -> Any:
    """Return how to prepare this package; a problem fails where a trajectory does."""

    def make(problem: ExplicitProblem, given: Inputs) -> Ends:
        is_kernel = isinstance(executor, pb.EnsembleKernel)
        field = scalar_field(problem) if is_kernel else array_field(problem, jnp)

        @jax.jit
        def solve(y0: Any, params: Any, tol: Any) -> Any:
            one = pb.ODEProblem(field, y0[0], (0.0, problem.t1), params[0])
            ensemble = pb.EnsembleProblem(one, y0=y0, params=params)
            sol = pb.solve(ensemble, method, executor, rtol=tol, atol=tol)
            return jnp.where(sol.ok[:, None], sol.y_end, jnp.nan)

        arrays = jax.tree.map(jnp.asarray, given)

        def ends(tol: float) -> np.ndarray:
            with _threads(n_threads) if n_threads else contextlib.nullcontext():
                return np.asarray(solve(*arrays, tol))

        return ends

    return make


def diffrax_dopri8(problem: ExplicitProblem, given: Inputs) -> Ends:
    """Prepare diffrax's `diffeqsolve` under jit and vmap."""
    diffrax = _library("diffrax")
    term = diffrax.ODETerm(array_field(problem, jnp))

    def one(y0: Any, params: Any, tol: Any) -> Any:
        control = diffrax.PIDController(rtol=tol, atol=tol)
        return diffrax.diffeqsolve(
            term, diffrax.Dopri8(), 0.0, problem.t1, None, y0, args=params,
            stepsize_controller=control, max_steps=100_000,
        ).ys[-1]  # fmt: skip

    solve = jax.jit(jax.vmap(one, (0, 0, None)))
    arrays = jax.tree.map(jnp.asarray, given)
    return lambda tol: np.asarray(solve(*arrays, tol))


def scipy_dop853(problem: ExplicitProblem, given: Inputs) -> Ends:
    """Prepare a Python loop over SciPy's `solve_ivp`, with a vector field in NumPy."""
    solve_ivp = _library("scipy.integrate").solve_ivp
    field, span = array_field(problem, np), (0.0, problem.t1)

    def ends(tol: float) -> np.ndarray:
        options = {"method": "DOP853", "rtol": tol, "atol": tol}
        members = zip(*given, strict=True)
        return np.stack([solve_ivp(field, span, y, args=(p,), **options).y[:, -1]
                         for y, p in members])  # fmt: skip

    return ends


def heyoka_batches(n_threads: int) -> Any:
    """Return how to prepare heyoka's batches, with one integrator on each thread."""

    def make(problem: ExplicitProblem, given: Inputs) -> Ends:
        heyoka = _library("heyoka")
        width = heyoka.recommended_simd_size()
        n = len(given.y0)
        # The last trajectory fills up the last batch; a column is a trajectory.
        filled = np.minimum(np.arange(-(-n // width) * width), n - 1)
        states, params = np.ascontiguousarray(given.y0[filled].T), given.params[filled]
        parts = np.array_split(np.arange(0, filled.size, width), n_threads)
        pool = ThreadPoolExecutor(n_threads)
        kept: dict[float, list[Any]] = {}

        def integrators(tol: float) -> list[Any]:
            names = [f"y{i}" for i in range(problem.y0.size)]
            y = heyoka.make_vars(*names)
            rates = problem.rates(y, heyoka.par[0], lambda square: square**-1.5)
            options = {} if problem.sweep is None else {"pars": np.zeros((1, width))}
            first = heyoka.taylor_adaptive_batch(
                sys=list(zip(y, rates, strict=True)), state=states[:, :width], tol=tol, **options
            )
            return [first, *(copy.deepcopy(first) for _ in range(n_threads - 1))]

        def solve(integrator: Any, starts: np.ndarray, ends: np.ndarray) -> None:
            state, times = integrator.state, [problem.t1] * width
            for start in starts:
                batch = slice(start, start + width)
                state[:] = states[:, batch]
                if problem.sweep is not None:
                    integrator.pars[0] = params[batch]
                integrator.set_time(0.0)
                integrator.propagate_until(times)  # a state that fails is not finite
                ends[:, batch] = state

        def ends(tol: float) -> np.ndarray:
            if tol not in kept:  # it compiles
                kept[tol] = integrators(tol)
            found = np.empty_like(states)
            if n_threads == 1:
                solve(kept[tol][0], parts[0], found)
            else:
                list(pool.map(solve, kept[tol], parts, [found] * n_threads))
            return found.T[:n]

        return ends

    return make


def _library(name: str) -> Any:
    """Import something optional.

    Raises:
        SkippedError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        top = name.partition(".")[0]
        raise SkippedError(f"{top} is not installed (pip install {top})") from error


class Peer(NamedTuple):
    """Someone who solves: how it is prepared, and the most trajectories that it gets."""

    make: Callable[[ExplicitProblem, Inputs], Ends]
    cap: int | None = None


PEERS = {
    **{
        f"kernel, {method.name}": Peer(package(method, pb.EnsembleKernel()))
        for method in (pb.Tsit5(), pb.Dopri8(), pb.Vern9())
    },
    "kernel, Vern9, 1 thread": Peer(package(pb.Vern9(), pb.EnsembleKernel(), 1)),
    "array, Dopri8": Peer(package(pb.Dopri8(), pb.EnsembleArray()), 200),
    "diffrax, Dopri8": Peer(diffrax_dopri8, 200),
    "SciPy, DOP853": Peer(scipy_dop853, 4),
    "heyoka, 1 thread": Peer(heyoka_batches(1), 256),
    "heyoka, 2 threads": Peer(heyoka_batches(2), 256),
}


def measure(
    problem: ExplicitProblem, n: int, repeats: int, tols: Sequence[float] = TOLS
) -> dict[str, list[Row]]:
    """Return the rows of each peer that is there; at each tolerance they have turns.

    Args:
        problem: which one.
        n: trajectories of those without a cap.
        repeats: rounds.
        tols: relative tolerances, which are the absolute ones too.
    """
    prepared: dict[str, tuple[Ends, int]] = {}
    for name, peer in PEERS.items():
        count = min(n, peer.cap or n)
        try:
            prepared[name] = peer.make(problem, inputs(problem, count)), count
        except SkippedError as reason:
            say(f"  skipped: {name}: {reason}")
    rows: dict[str, list[Row]] = {name: [] for name in prepared}
    for tol in tols:
        calls = {name: partial(ends, tol) for name, (ends, _) in prepared.items()}
        first = {name: timed(call) for name, call in calls.items()}
        times = interleave(calls, repeats, _BUDGET)
        for name, (_, count) in prepared.items():
            seconds, found = first[name]
            error = problem.error_of(found)
            rows[name].append(Row(tol, count, times[name].best / count, error, seconds))
    return rows


def quickest(rows: dict[str, list[Row]], error: float) -> float:
    """Return the kernel's seconds at an error: of the methods that achieve it the quickest one.

    NaN if none does.
    """
    times = (matched(rows[name], error) for name in KERNEL)
    return min((time for time in times if not np.isnan(time)), default=np.nan)


def table(name: str, rows: dict[str, list[Row]]) -> list[tuple[str, ...]]:
    """Return the rows of the printed table."""
    same = {
        tol: min(row.each for peer in KERNEL for row in rows[peer] if row.tol == tol)
        for tol in {row.tol for row in rows[KERNEL[0]]}
    }
    return [
        (
            name, peer, f"{row.tol:.0e}", f"{row.n:,}", f"{row.each * 1e6:.3g}", f"{row.error:.1e}",
            f"{row.each / same[row.tol]:.3g}", ratio(row.each, quickest(rows, row.error)),
        )
        for peer, found in rows.items()
        for row in found
    ]  # fmt: skip


def main() -> None:
    """Measure and print the table."""
    parser = make_parser("explicit", PROBLEMS, 2_000)
    options = parser.parse_args()
    lines = []
    with as_in_a_new_process():
        for name in options.case or PROBLEMS:
            lines += table(name, measure(PROBLEMS[name], options.n, options.repeats))
    print(render(_HEAD, lines))


if __name__ == "__main__":
    main()
