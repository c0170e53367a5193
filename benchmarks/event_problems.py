"""`python -m benchmarks.event_problems`: ensembles with events, and gradients through them.

Each trajectory has parameters of its own and gives one number, for which there is a closed form:
the height of a bouncing ball at a fixed time, the time at which a damped oscillator comes up
through zero, what is in the blood after doses at given times. The gradient is that of each number
by its two parameters; so few are differentiated quickly in forward mode too.

Other libraries end a solve at an event, so a trajectory that goes on is a loop over segments there:
over as many as any trajectory of the ensemble needs, for a loop that is differentiated in reverse
mode has a fixed length. Between bounces the ball is a parabola, which every method here integrates
exactly: what is measured are events, not steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from benchmarks.cases import SEED
from benchmarks.command import as_in_a_new_process, make_parser
from benchmarks.peers import ARRAY, KERNEL, KERNEL_DEFAULT
from benchmarks.solver import GRADIENT, PRIMAL, WORKS
from benchmarks.stiff import Row, matched
from benchmarks.tables import render
from benchmarks.timing import interleave, timed

TOLS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
_TOL = 1e-6  # of those with one tolerance
_CAPS = {"array": 2_000, "diffrax": 2_000, "SciPy": 20}  # trajectories; None of them is scaled
_REVERSE, _FORWARD = "RecursiveCheckpointAdjoint", "ForwardMode"  # diffrax's names
_BUDGET = 6.0  # seconds of repeated calls for each problem and kind of work
_HEAD = (
    "problem", "work", "peer", "tolerance", "N", "µs each", "error", "largest", "x kernel",
    "x kernel, same error", "first call",
)  # fmt: skip

Rates = Callable[[Any, Any, Any], tuple[Any, ...]]
Solve = Callable[[Any, Any], Any]

HEIGHT = 1.0  # of the ball at the start
MOST_BOUNCES = 8
DOSE = 1.0
DOSE_TIMES = np.arange(0.0, 36.0, 6.0)


def field(rates: Rates) -> Callable[[Any, Any, Any], Any]:
    """Return the vector field with these rates of change, which SciPy takes as they are."""
    return lambda t, y, p: jnp.stack(rates(t, y, p))


def ball_rates(t: Any, y: Any, p: Any) -> tuple[Any, ...]:
    """Return the rates of height and velocity under gravity p[0]."""
    del t
    return y[1], -p[0]


def oscillator_rates(t: Any, y: Any, p: Any) -> tuple[Any, ...]:
    """Return the rates of position and velocity, at frequency p[0] and damping ratio p[1]."""
    del t
    return y[1], -p[0] * (p[0] * y[0] + 2.0 * p[1] * y[1])


def dose_rates(t: Any, y: Any, p: Any) -> tuple[Any, ...]:
    """Return the rates of the amounts in gut and blood, absorbed at p[0], eliminated at p[1]."""
    del t
    return -p[0] * y[0], p[0] * y[0] - p[1] * y[1]


def bounce_times(params: Any, xp: Any = np) -> tuple[list[Any], list[Any]]:
    """Return the times of the first bounces, and the speeds behind them."""
    gravity, restitution = params[..., 0], params[..., 1]
    time, speed = xp.sqrt(2.0 * HEIGHT / gravity), xp.sqrt(2.0 * HEIGHT * gravity)
    times, speeds = [], []
    for _ in range(MOST_BOUNCES):
        speed = restitution * speed
        times.append(time)
        speeds.append(speed)
        time = time + 2.0 * speed / gravity
    return times, speeds


class EventProblem(NamedTuple):
    """A problem with events.

    Attributes:
        rates: the vector field's components.
        y0: initial state.
        t1: end of the span, which begins at 0.
        low: smallest parameters, `(2,)`.
        high: largest ones.
        events: what happens.
        read: returns the numbers that a solution of this package gives.
        exact: returns the number of one trajectory in closed form, given its parameters.
    """

    rates: Rates
    y0: np.ndarray
    t1: float
    low: np.ndarray
    high: np.ndarray
    events: tuple[Any, ...]
    read: Callable[[pb.Solution], Any]
    exact: Callable[[Any], Any]


def _exact_height(p: Any) -> Any:
    height = HEIGHT - 0.5 * p[0] * BALL_END**2
    for time, speed in zip(*bounce_times(p, jnp), strict=True):
        since = BALL_END - time
        height = jnp.where(since >= 0.0, since * (speed - 0.5 * p[0] * since), height)
    return height


def _exact_crossing(p: Any) -> Any:
    return (1.5 * np.pi + jnp.arcsin(p[1])) / (p[0] * jnp.sqrt(1.0 - p[1] ** 2))


def _exact_blood(p: Any) -> Any:
    since = DOSES_END - DOSE_TIMES
    each = jnp.exp(-p[1] * since) - jnp.exp(-p[0] * since)
    return DOSE * p[0] / (p[0] - p[1]) * jnp.sum(each)


BALL_END, DOSES_END = 3.0, 36.0
_GROUND = pb.Event(
    lambda t, y, p: y[0], lambda t, y, p: jnp.stack([0.0 * y[0], -p[1] * y[1]]), direction=-1
)
_UPWARDS = pb.Event(lambda t, y, p: y[0], terminate=True, direction=1)
_DOSES = pb.PresetTimes(DOSE_TIMES[1:], lambda t, y, p: y.at[0].add(DOSE))
PROBLEMS = {
    # At the smallest restitution the bounces accumulate at t = 3.9, behind the end.
    "bounces": EventProblem(
        ball_rates, np.array([HEIGHT, 0.0]), BALL_END, np.array([9.0, 0.8]),
        np.array([10.5, 0.9]), (_GROUND,), lambda sol: sol.y_end[:, 0], _exact_height,
    ),
    "crossing": EventProblem(
        oscillator_rates, np.array([1.0, 0.0]), 20.0, np.array([0.8, 0.05]),
        np.array([1.2, 0.3]), (_UPWARDS,), lambda sol: sol.t_end, _exact_crossing,
    ),
    "doses": EventProblem(
        dose_rates, np.array([DOSE, 0.0]), DOSES_END, np.array([0.8, 0.08]),
        np.array([1.5, 0.15]), (_DOSES,), lambda sol: sol.y_end[:, 1], _exact_blood,
    ),
}  # fmt: skip


def inputs(problem: EventProblem, n: int) -> np.ndarray:
    """Return parameters of n trajectories, `(n, 2)`."""
    return np.random.default_rng(SEED).uniform(problem.low, problem.high, (n, 2))


def ours(problem: EventProblem, executor: Any, adjoint: pb.DiscreteAdjoint) -> Solve:
    """Return the numbers of an ensemble by this package."""

    def solve(params: Any, tol: Any) -> Any:
        one = pb.ODEProblem(
            field(problem.rates), problem.y0, (0.0, problem.t1), params[0], events=problem.events
        )
        ensemble = pb.EnsembleProblem(one, params=params)
        options = {"rtol": tol, "atol": tol, "adjoint": adjoint}
        return problem.read(pb.solve(ensemble, pb.Tsit5(), executor, **options))

    return solve


def _diffrax(
    problem: EventProblem, tol: Any, adjoint: str = _REVERSE, **options: Any
) -> Callable[..., Any]:
    """Return `diffeqsolve` as a function of (t0, t1, y0, p) that returns time, state, result."""
    import diffrax  # noqa: PLC0415 - optional

    options["adjoint"] = getattr(diffrax, adjoint)()
    options.setdefault("stepsize_controller", diffrax.PIDController(rtol=tol, atol=tol))
    term = diffrax.ODETerm(options.pop("field", field(problem.rates)))

    def segment(t0: Any, t1: Any, y0: Any, p: Any) -> tuple[Any, Any, Any]:
        sol = diffrax.diffeqsolve(
            term, diffrax.Tsit5(), t0, t1, None, y0, p, max_steps=256, throw=False, **options
        )
        assert sol.ts is not None
        assert sol.ys is not None
        return sol.ts[0], sol.ys[0], sol.result == diffrax.RESULTS.event_occurred

    return segment


def _diffrax_event(tol: Any, direction: bool) -> Any:
    import diffrax  # noqa: PLC0415 - optional
    import optimistix  # noqa: PLC0415 - optional

    return diffrax.Event(lambda t, y, args, **_: y[0], optimistix.Newton(tol, tol), direction)


def diffrax_bounces(problem: EventProblem, adjoint: str, n_segments: int) -> Solve:
    """Return the heights by a loop over segments, each up to a bounce or the end."""

    def solve(params: Any, tol: Any) -> Any:
        segment = _diffrax(problem, tol, adjoint, event=_diffrax_event(tol, False))

        def one(p: Any) -> Any:
            def body(carry: Any, _: None) -> tuple[Any, None]:
                t, y, is_event = segment(carry[0], problem.t1, carry[1], p)
                bounced = jnp.stack([0.0 * y[0], -p[1] * y[1]])
                return (t, jnp.where(is_event, bounced, y)), None

            start = jnp.zeros(()), jnp.asarray(problem.y0)
            return jax.lax.scan(body, start, None, length=n_segments)[0][1][0]

        return jax.vmap(one)(params)

    return solve


def diffrax_crossing(problem: EventProblem, adjoint: str) -> Solve:
    """Return the times at which the event ends a solve."""

    def solve(params: Any, tol: Any) -> Any:
        segment = _diffrax(problem, tol, adjoint, event=_diffrax_event(tol, True))
        y0 = jnp.asarray(problem.y0)
        return jax.vmap(lambda p: segment(0.0, problem.t1, y0, p)[0])(params)

    return solve


def diffrax_segments(problem: EventProblem, adjoint: str) -> Solve:
    """Return the amounts in the blood by a loop over the times between doses."""

    def solve(params: Any, tol: Any) -> Any:
        segment = _diffrax(problem, tol, adjoint)
        ends = jnp.append(DOSE_TIMES[1:], problem.t1)

        def one(p: Any) -> Any:
            def body(y: Any, span: Any) -> tuple[Any, None]:
                return segment(*span, y.at[0].add(DOSE), p)[1], None

            return jax.lax.scan(body, jnp.zeros(2), (jnp.asarray(DOSE_TIMES), ends))[0][1]

        return jax.vmap(one)(params)

    return solve


def diffrax_jumps(problem: EventProblem, adjoint: str) -> Solve:
    """Return the same in one solve, of what is left of the state without the doses so far.

    That is continuous; its vector field jumps at the doses.
    """
    import diffrax  # noqa: PLC0415 - optional

    def shifted(t: Any, y: Any, p: Any) -> Any:
        given = DOSE * jnp.sum(t >= DOSE_TIMES[1:])
        return field(problem.rates)(t, y.at[0].add(given), p)

    def solve(params: Any, tol: Any) -> Any:
        control = diffrax.ClipStepSizeController(
            diffrax.PIDController(rtol=tol, atol=tol), jump_ts=jnp.asarray(DOSE_TIMES[1:])
        )
        segment = _diffrax(problem, tol, adjoint, field=shifted, stepsize_controller=control)
        y0 = jnp.asarray(problem.y0)
        return jax.vmap(lambda p: segment(0.0, problem.t1, y0, p)[1][1])(params)

    return solve


class _Zero:
    """An event of SciPy that ends a solve where the first component vanishes."""

    terminal = True

    def __init__(self, direction: int) -> None:
        self.direction = direction

    def __call__(self, t: float, y: Any, p: Any) -> Any:
        del t, p
        return y[0]


def _scipy(problem: EventProblem, span: Any, y0: Any, p: Any, tol: float, event: Any = None) -> Any:
    from scipy.integrate import solve_ivp  # noqa: PLC0415 - optional

    return solve_ivp(
        problem.rates, span, y0, "RK45", rtol=tol, atol=tol, args=(p,), events=event
    )  # fmt: skip


def scipy_bounces(problem: EventProblem, p: np.ndarray, tol: float) -> float:
    """Return the height of one ball, a solve up to each bounce."""
    t, y = 0.0, problem.y0
    while True:
        sol = _scipy(problem, (t, problem.t1), y, p, tol, _Zero(-1))
        t, y = sol.t[-1], sol.y[:, -1]
        if sol.status != 1:
            return float(y[0])
        y = np.array([0.0, -p[1] * y[1]])


def scipy_crossing(problem: EventProblem, p: np.ndarray, tol: float) -> float:
    """Return the time at which the event ends the solve of one oscillator."""
    return float(_scipy(problem, (0.0, problem.t1), problem.y0, p, tol, _Zero(1)).t[-1])


def scipy_doses(problem: EventProblem, p: np.ndarray, tol: float) -> float:
    """Return the amount in the blood of one person, a solve from dose to dose."""
    y, ends = np.zeros(2), [*DOSE_TIMES[1:], problem.t1]
    for span in zip(DOSE_TIMES, ends, strict=True):
        y = _scipy(problem, span, y + np.array([DOSE, 0.0]), p, tol).y[:, -1]
    return float(y[1])


SCIPY = {"bounces": scipy_bounces, "crossing": scipy_crossing, "doses": scipy_doses}


def others(name: str, params: np.ndarray, adjoint: str = _REVERSE) -> dict[str, Solve]:
    """Return the forms in which diffrax solves a problem with these parameters.

    Args:
        name: of the problem.
        params: parameters of all trajectories, which tell how many bounces there are.
        adjoint: by which diffrax differentiates, in reverse or in forward mode.
    """
    problem = PROBLEMS[name]
    if name == "bounces":
        most = sum(np.max(time <= problem.t1) for time in bounce_times(params)[0])
        return {"diffrax, segments": diffrax_bounces(problem, adjoint, int(most) + 1)}
    if name == "crossing":
        return {"diffrax": diffrax_crossing(problem, adjoint)}
    return {
        "diffrax, segments": diffrax_segments(problem, adjoint),
        "diffrax, jump_ts": diffrax_jumps(problem, adjoint),
    }


def gradient_of(solve: Solve) -> Solve:
    """Return the gradient of each trajectory's number by its parameters."""
    return jax.grad(lambda params, tol: jnp.sum(solve(params, tol)))


def forward_gradient_of(solve: Solve) -> Solve:
    """Return the same in forward mode, which needs a tangent for each of the two parameters."""

    def gradient(params: Any, tol: Any) -> Any:
        def along(direction: Any) -> Any:
            tangents = (jnp.broadcast_to(direction, params.shape),)
            return jax.jvp(lambda p: solve(p, tol), (params,), tangents)[1]

        return jax.vmap(along, out_axes=-1)(jnp.eye(params.shape[-1]))

    return gradient


def truth(problem: EventProblem, work: str, params: np.ndarray) -> np.ndarray:
    """Return the numbers or their gradients in closed form, `(n, 1)` or `(n, 2)`."""
    function = jax.grad(problem.exact) if work == GRADIENT else problem.exact
    return np.asarray(jax.vmap(function)(params)).reshape(len(params), -1)


class Measured(NamedTuple):
    """One peer at one tolerance.

    Attributes:
        row: as for stiff problems.
        largest: error of the worst trajectory, relative to the largest value of its component.
    """

    row: Row
    largest: float


def solvers(
    name: str, work: str, params: np.ndarray, is_all: bool = False
) -> dict[str, tuple[Any, tuple[float, ...]]]:
    """Return what each peer calls with (params, tol), and at which tolerances.

    Args:
        name: of the problem.
        work: primal or gradient.
        params: parameters of all trajectories.
        is_all: whether diffrax takes gradients in reverse mode too, which is known to be slower
            for so few parameters.
    """
    problem = PROBLEMS[name]
    kernel = ours(problem, pb.EnsembleKernel(), pb.DiscreteAdjoint(resolve=False))
    array = ours(problem, pb.EnsembleArray(), pb.DiscreteAdjoint(resolve=False))
    found: dict[str, tuple[Any, tuple[float, ...]]]
    if work == PRIMAL:
        found = {KERNEL: (kernel, TOLS), ARRAY: (array, (_TOL,))}
        found |= {peer: (solve, (1e-4, _TOL)) for peer, solve in others(name, params).items()}
        return {peer: (jax.jit(solve), tols) for peer, (solve, tols) in found.items()}
    default = ours(problem, pb.EnsembleKernel(), pb.DiscreteAdjoint())
    found = {
        KERNEL: (gradient_of(kernel), TOLS),
        KERNEL_DEFAULT: (gradient_of(default), (_TOL,)),
        f"{KERNEL}, forward": (forward_gradient_of(kernel), (_TOL,)),
        ARRAY: (gradient_of(array), (_TOL,)),
    }
    for peer, solve in others(name, params).items() if is_all else ():
        found[peer] = gradient_of(solve), (_TOL,)
    for peer, solve in others(name, params, _FORWARD).items():
        found[f"{peer}, forward"] = forward_gradient_of(solve), (1e-4, _TOL)
    return {peer: (jax.jit(gradient), tols) for peer, (gradient, tols) in found.items()}


def measure(
    name: str, work: str, n: int, repeats: int, is_all: bool = False
) -> dict[str, list[Measured]]:
    """Return what was measured of each peer, the kernel at many tolerances."""
    problem = PROBLEMS[name]
    params = inputs(problem, n)
    calls: dict[tuple[str, float], Callable[[], Any]] = {}
    counts = {}
    for peer, (function, tols) in solvers(name, work, params, is_all).items():
        counts[peer] = min(n, _CAPS.get(peer.split(",")[0], n))
        given = jnp.asarray(params[: counts[peer]])
        for tol in tols:

            def call(tol: float = tol, function: Any = function, given: Any = given) -> Any:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", pb.GradientUnresolvedWarning)
                    return jax.block_until_ready(function(given, tol))

            calls[peer, tol] = call
    if work == PRIMAL:
        few = params[: _CAPS["SciPy"]]
        counts["SciPy, RK45"] = len(few)
        one = SCIPY[name]
        calls["SciPy, RK45", _TOL] = lambda: np.array([one(problem, p, _TOL) for p in few])
    firsts = {key: timed(call) for key, call in calls.items()}
    names = {f"{peer} {tol}": (peer, tol) for peer, tol in calls}
    times = interleave({text: calls[key] for text, key in names.items()}, repeats, _BUDGET)
    exact = truth(problem, work, params)
    measured: dict[str, list[Measured]] = {}
    for text, (peer, tol) in names.items():
        first, values = firsts[peer, tol]
        middle, largest = errors(np.asarray(values), exact)
        row = Row(tol, counts[peer], times[text].best / counts[peer], middle, first)
        measured.setdefault(peer, []).append(Measured(row, largest))
    return measured


def errors(values: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """Return median and largest error of trajectories, relative to each component's largest value.

    Args:
        values: of the first trajectories, `(m,)` or `(m, component)`.
        exact: what they should be, `(n, component)` with n of at least m.
    """
    off = np.abs(values.reshape(len(values), -1) - exact[: len(values)]) / np.abs(exact).max(axis=0)
    worst = off.max(axis=1)
    return float(np.median(worst)), float(worst.max())


def table(name: str, work: str, measured: dict[str, list[Measured]]) -> list[tuple[str, ...]]:
    """Return the rows of the printed table."""
    lines = []
    kernel = [found.row for found in measured[KERNEL]]
    same = {row.tol: row.each for row in kernel}
    low, high = (f(row.error for row in kernel) for f in (min, max))
    for peer, found in measured.items():
        for row, largest in found:
            # Where the kernel's own errors do not depend on the tolerance there is no such time.
            is_between = peer != KERNEL and high > 10.0 * low and low <= row.error <= high
            at_error = f"{row.each / matched(kernel, row.error):.3g}" if is_between else ""
            lines.append(
                (
                    name, work, peer, f"{row.tol:.0e}", f"{row.n:,}", f"{row.each * 1e6:.3g}",
                    f"{row.error:.1e}", f"{largest:.1e}", f"{row.each / same[row.tol]:.3g}",
                    at_error, f"{row.first:.2f} s",
                )
            )  # fmt: skip
    return lines


def main() -> None:
    """Measure and print the table."""
    parser = make_parser("event_problems", PROBLEMS, 10_000)
    parser.add_argument("--all", action="store_true", help="also what is known to be slower")
    options = parser.parse_args()
    lines = []
    with as_in_a_new_process():
        for name in options.case or PROBLEMS:
            for work in WORKS:
                measured = measure(name, work, options.n, options.repeats, options.all)
                lines += table(name, work, measured)
    print(render(_HEAD, lines))


if __name__ == "__main__":
    main()
