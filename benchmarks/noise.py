"""`python -m benchmarks.noise`: ensembles of stochastic equations, and pathwise gradients.

All peers take the same number of steps of the same fixed size, and differ in where the increments
come from and in who runs the steps. The gradient is that of the mean end state, its components
added up, by parameters that all trajectories share; few parameters are differentiated quickly in
forward mode too. Errors are those of sampling: the largest one of the mean (or of the gradient)
is given in its standard errors, so a peer that is right has about one, two or three of them. What
single precision loses when it sums a hundred thousand numbers counts as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from benchmarks import ours
from benchmarks.cases import SEED, Field
from benchmarks.command import as_in_a_new_process, make_parser
from benchmarks.solver import GRADIENT, PRIMAL, WORKS
from benchmarks.tables import render
from benchmarks.timing import interleave, timed

N_STEPS = 256
DT = 1.0 / N_STEPS  # all problems end at 1
KERNEL = "kernel"
_BUDGET = 4.0  # seconds of repeated calls for each problem, precision and kind of work
# Trajectories of the reference where there is no closed form, for each one that is measured.
_MORE = 16
_HEAD = (
    "problem", "precision", "work", "peer", "N", "ns per step", "x kernel", "standard errors",
    "first call",
)  # fmt: skip

Ends = Callable[[Any, Any], Any]


class NoiseProblem(NamedTuple):
    """A stochastic equation with diagonal noise.

    Attributes:
        drift: what multiplies dt.
        diffusion: what multiplies dW, component by component.
        y0: initial state of all trajectories; a scalar or a vector.
        params: parameters, `(param,)`.
        n: trajectories, unless others are asked for.
        precisions: in which it is measured.
    """

    drift: Field
    diffusion: Field
    y0: np.ndarray
    params: np.ndarray
    n: int
    precisions: tuple[str, ...]


class Truth(NamedTuple):
    """What is expected of a mean or a gradient.

    Attributes:
        mean: expected value of each entry.
        deviation: standard deviation of the same for one trajectory.
        n: trajectories that the expectation was estimated from; infinite if it is exact.
    """

    mean: np.ndarray
    deviation: np.ndarray
    n: float

    def standard_errors(self, found: np.ndarray, n: int) -> float:
        """Return the largest error of a mean over n trajectories, in standard errors."""
        error = self.deviation * np.sqrt(1.0 / n + 1.0 / self.n)
        return float(np.max(np.abs(found - self.mean) / error))


def _lorenz(t: Any, y: Any, p: Any) -> Any:
    del t
    return jnp.stack([p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]])


NOISY = {
    "geometric": NoiseProblem(
        lambda t, y, p: p[0] * y, lambda t, y, p: p[1] * y,
        np.array(0.1), np.array([1.5, 0.01]), 100_000, ("float64", "float32"),
    ),
    "lorenz": NoiseProblem(
        _lorenz, lambda t, y, p: p[3] * y,
        np.ones(3), np.array([10.0, 28.0, 8.0 / 3.0, 0.1]), 10_000, ("float64",),
    ),
}  # fmt: skip


def package(method: Any, executor: Any) -> Callable[[NoiseProblem, int], Ends]:
    """Return how this package solves a problem; parameters may have a trajectory axis."""

    def make(problem: NoiseProblem, n: int) -> Ends:
        def ends(params: Any, key: Any) -> Any:
            single = params if params.ndim == 1 else params[0]
            y0 = jnp.asarray(problem.y0, params.dtype)
            one = pb.SDEProblem(problem.drift, problem.diffusion, y0, (0.0, 1.0), single)
            ensemble = pb.EnsembleProblem(one, lambda problem, ctx: problem)
            if params.ndim == 2:
                ensemble = pb.EnsembleProblem(one, params=params)
            return pb.solve(ensemble, method, executor, trajectories=n, key=key, dt=DT).y_end

        return ends

    return make


def by_component(f: Field, shape: tuple[int, ...]) -> Field:
    """Return a map for all trajectories, of and to a tuple with an array for each component."""
    mapped = jax.vmap(f, (None, -1, None), -1)

    def each(t: Any, y: tuple[Any, ...], p: Any) -> tuple[Any, ...]:
        stacked = mapped(t, jnp.stack(y).reshape(*shape, -1), p)
        return tuple(stacked.reshape(len(y), -1))

    return each


def scan_at_once(is_drawn_ahead: bool) -> Callable[[NoiseProblem, int], Ends]:
    """Return a loop over steps, each of which advances all trajectories.

    Args:
        is_drawn_ahead: whether all increments of all steps are drawn before the loop. Otherwise
            each step draws those of the next one: XLA puts what is drawn and used in one step into
            the loop over each component of the state, and so draws it as often.
    """

    def make(problem: NoiseProblem, n: int) -> Ends:
        def ends(params: Any, key: Any) -> Any:
            # The trajectories come last, so that they are next to each other in memory.
            shape, dtype = (*problem.y0.shape, n), params.dtype
            drift, diffusion = (
                jax.vmap(f, (None, -1, None), -1) for f in (problem.drift, problem.diffusion)
            )

            def draw(i: Any) -> Any:
                return jax.random.normal(jax.random.fold_in(key, i), shape, dtype)

            def advance(y: Any, normal: Any) -> tuple[Any, None]:
                # No time here: neither of the equations depends on it.
                dw = DT**0.5 * normal
                return y + DT * drift(0.0, y, params) + diffusion(0.0, y, params) * dw, None

            def advance_and_draw(carry: tuple[Any, Any], i: Any) -> tuple[tuple[Any, Any], None]:
                return (advance(*carry)[0], draw(i)), None

            start = jnp.asarray(problem.y0, dtype)[..., None]
            y0 = jnp.broadcast_to(start, shape)
            if is_drawn_ahead:
                y = jax.lax.scan(advance, y0, jax.random.normal(key, (N_STEPS, *shape), dtype))[0]
            else:
                steps = jnp.arange(1, N_STEPS + 1)
                y = jax.lax.scan(advance_and_draw, (y0, draw(0)), steps)[0][0]
            return jnp.moveaxis(y, -1, 0)

        return ends

    return make


def scan_of_each(problem: NoiseProblem, n: int) -> Ends:
    """Return `vmap` of a loop over steps that draws from a key of the trajectory."""

    def ends(params: Any, key: Any) -> Any:
        one = scan_at_once(False)(problem, 1)
        return jax.vmap(lambda i: one(params, jax.random.fold_in(key, i))[0])(jnp.arange(n))

    return ends


def diffrax_path(path: str, is_one: bool, adjoint: str) -> Callable[[NoiseProblem, int], Ends]:
    """Return how diffrax solves a problem by Euler's method.

    Args:
        path: "VirtualBrownianTree" or "UnsafeBrownianPath".
        is_one: whether the ensemble is one large state, with one path for all, instead of `vmap`.
            It has an array for each component, so that XLA draws no increment more than once.
        adjoint: "ForwardMode" (also the plainest loop), or "RecursiveCheckpointAdjoint", which
            gets a checkpoint for each step.
    """

    def make(problem: NoiseProblem, n: int) -> Ends:
        import diffrax  # noqa: PLC0415 - optional
        import lineax  # noqa: PLC0415 - optional

        more = {} if adjoint == "ForwardMode" else {"checkpoints": N_STEPS}
        options: dict[str, Any] = {"adjoint": getattr(diffrax, adjoint)(**more)}
        options |= {"max_steps": N_STEPS, "saveat": diffrax.SaveAt(t1=True), "throw": False}

        def solve(y0: Any, params: Any, key: Any, drift: Field, diffusion: Field) -> Any:
            like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), y0)
            if path == "VirtualBrownianTree":
                # The coarsest tree whose nodes are the steps.
                noise: Any = diffrax.VirtualBrownianTree(0.0, 1.0, DT / 2, like, key)
            else:
                noise = diffrax.UnsafeBrownianPath(like, key)

            def operator(t: Any, y: Any, p: Any) -> Any:
                return lineax.DiagonalLinearOperator(diffusion(t, y, p))

            terms = diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(operator, noise))
            span = jnp.asarray([0.0, 1.0], params.dtype)
            sol = diffrax.diffeqsolve(
                terms, diffrax.Euler(), span[0], span[1], DT, y0, params, **options
            )
            return jax.tree.map(lambda leaf: leaf[0], sol.ys)

        def ends(params: Any, key: Any) -> Any:
            y0 = jnp.asarray(problem.y0, params.dtype)
            maps = problem.drift, problem.diffusion
            if not is_one:
                return jax.vmap(lambda i: solve(y0, params, jax.random.fold_in(key, i), *maps))(
                    jnp.arange(n)
                )
            shape = problem.y0.shape
            drift, diffusion = (by_component(f, shape) for f in maps)
            start = tuple(jnp.full(n, value) for value in y0.reshape(-1))
            y = solve(start, params, key, drift, diffusion)
            return jnp.stack(y, axis=-1).reshape(n, *shape)

        return ends

    return make


class NoisePeer(NamedTuple):
    """Someone to compare with.

    Attributes:
        name: in tables.
        make: returns the end states of so many trajectories as a function of (params, key).
        work: what it is measured in.
        cap: most trajectories; None without a limit.
        derivative: `jax.grad`, or `jax.jacfwd` for forward mode.
        method: which method it uses, and so how far off its mean is.
        is_usual: whether it is measured without being asked for; others are known to be slower.
        n_threads: of the kernel; None for all.
    """

    name: str
    make: Callable[[NoiseProblem, int], Ends]
    work: tuple[str, ...] = WORKS
    cap: int | None = None
    derivative: Any = jax.grad
    method: Any = pb.EulerMaruyama()
    is_usual: bool = True
    n_threads: int | None = None


_EULER = package(pb.EulerMaruyama(), pb.EnsembleKernel())
_ARRAY = package(pb.EulerMaruyama(), pb.EnsembleArray())
_SLOWER: dict[str, Any] = {"is_usual": False}
_UNSAFE, _TREE, _FORWARD = "UnsafeBrownianPath", "VirtualBrownianTree", "ForwardMode"
_REVERSE = "RecursiveCheckpointAdjoint"
PEERS = (
    NoisePeer(KERNEL, _EULER),
    NoisePeer("kernel, 1 thread", _EULER, n_threads=1),
    NoisePeer("kernel, forward mode", _EULER, (GRADIENT,), derivative=jax.jacfwd),
    *(
        NoisePeer(f"kernel, {method.name}", package(method, pb.EnsembleKernel()), method=method)
        for method in (pb.Milstein(), pb.SRIW1())
    ),
    NoisePeer("array", _ARRAY, (PRIMAL,), 20_000),
    NoisePeer("array", _ARRAY, (GRADIENT,), 5_000),
    NoisePeer("jit(scan)", scan_at_once(False), (PRIMAL,)),
    NoisePeer("jit(scan), drawn ahead", scan_at_once(True), (PRIMAL,)),
    NoisePeer("jit(scan)", scan_at_once(False), (GRADIENT,), 20_000),
    NoisePeer("jit(scan), drawn ahead", scan_at_once(True), (GRADIENT,), 20_000),
    NoisePeer("jit(scan), forward mode", scan_at_once(False), (GRADIENT,), 20_000, jax.jacfwd),
    NoisePeer("jit(vmap(scan))", scan_of_each, WORKS, 20_000, **_SLOWER),
    NoisePeer("diffrax, unsafe path", diffrax_path(_UNSAFE, True, _FORWARD), (PRIMAL,)),
    NoisePeer(
        "diffrax, unsafe path, vmap", diffrax_path(_UNSAFE, False, _FORWARD), (PRIMAL,), 20_000,
        **_SLOWER,
    ),
    NoisePeer("diffrax, tree", diffrax_path(_TREE, True, _FORWARD), (PRIMAL,), 1_000),
    NoisePeer(
        "diffrax, tree, vmap", diffrax_path(_TREE, False, _FORWARD), (PRIMAL,), 1_000, **_SLOWER
    ),
    NoisePeer(
        "diffrax, unsafe path, forward mode", diffrax_path(_UNSAFE, True, _FORWARD), (GRADIENT,),
        20_000, jax.jacfwd,
    ),
    NoisePeer(
        "diffrax, tree, forward mode", diffrax_path(_TREE, True, _FORWARD), (GRADIENT,), 1_000,
        jax.jacfwd, **_SLOWER,
    ),
    NoisePeer("diffrax, tree", diffrax_path(_TREE, True, _REVERSE), (GRADIENT,), 500),
)  # fmt: skip


def objective(make: Ends) -> Callable[[Any, Any], Any]:
    """Return the mean end state, its components added up, as a function of (params, key)."""
    return lambda params, key: jnp.sum(jnp.mean(make(params, key), axis=0))


def truth(name: str, work: str, method: Any, n: int) -> Truth:
    """Return the mean end state, or the gradient of the sum of its components.

    The closed form of geometric Brownian motion is that of the method: each of its steps multiplies
    by an independent random number. Elsewhere there are trajectories with noise of their own.

    Args:
        name: of the problem.
        work: primal or gradient.
        method: which one; the error of its mean is no error here.
        n: trajectories that are measured.
    """
    problem = NOISY[name]
    if name == "geometric":
        return _geometric(problem, work, method)
    count, key = _MORE * n, jax.random.key(SEED + 1)
    ends = package(method, pb.EnsembleKernel())(problem, count)
    params = jnp.asarray(problem.params)
    if work == GRADIENT:
        each = jnp.broadcast_to(params, (count, *params.shape))
        values = jax.jit(jax.grad(lambda p: jnp.sum(ends(p, key))))(each)
    else:
        values = jax.jit(ends)(params, key)
    values = np.asarray(values).reshape(count, -1)
    return Truth(values.mean(axis=0), values.std(axis=0), count)


def _geometric(problem: NoiseProblem, work: str, method: Any) -> Truth:
    """Return the exact mean of a method, and the deviation of Euler's, which is nearly the same."""
    (a, b), n, start = problem.params, N_STEPS, float(problem.y0)
    x = a * DT
    second = 0.5 if isinstance(method, pb.SRIW1) else 0.0
    growth, slope = 1.0 + x + second * x * x, 1.0 + 2.0 * second * x
    # The first two moments of the factor of Euler's step.
    m1 = 1.0 + x
    m2 = m1 * m1 + b * b * DT
    if work == PRIMAL:
        return Truth(
            np.array([start * growth**n]),
            start * np.sqrt(np.array([m2**n - m1 ** (2 * n)])), np.inf,
        )  # fmt: skip
    # A derivative is a sum over steps of the product of all other factors, times dt or dW.
    mean = np.array([start * n * DT * slope * growth ** (n - 1), 0.0])
    same, others = n * m2 ** (n - 1), n * (n - 1) * m2 ** (n - 2)
    squares = np.array([DT**2 * (same + others * m1**2), DT * same + others * (b * DT) ** 2])
    euler = np.array([start * n * DT * m1 ** (n - 1), 0.0])
    return Truth(mean, np.sqrt(start**2 * squares - euler**2), np.inf)


def calls(
    name: str, precision: str, work: str, n: int, peers: tuple[NoisePeer, ...]
) -> dict[NoisePeer, tuple[Callable[[], Any], int]]:
    """Return the call of each peer that does this work, and how many trajectories it has."""
    problem, key = NOISY[name], jax.random.key(SEED)
    params = jnp.asarray(problem.params, precision)
    prepared = {}
    for peer in peers:
        if work not in peer.work:
            continue
        count = min(n, peer.cap or n)
        ends = peer.make(problem, count)
        function = jax.jit(peer.derivative(objective(ends)) if work == GRADIENT else ends)

        def call(function: Any = function, threads: int | None = peer.n_threads) -> Any:
            with ours._threads(threads) if threads else contextlib.nullcontext():
                return jax.block_until_ready(function(params, key))

        prepared[peer] = (call, count)
    return prepared


def rows(
    name: str, precision: str, work: str, n: int, repeats: int, peers: tuple[NoisePeer, ...]
) -> list[tuple[str, ...]]:
    """Return the rows of one problem, precision and kind of work."""
    prepared = calls(name, precision, work, n, peers)
    firsts = {peer: timed(call) for peer, (call, _) in prepared.items()}
    warm = {f"{i}": call for i, (call, _) in enumerate(prepared.values())}
    times = dict(zip(prepared, interleave(warm, repeats, _BUDGET).values(), strict=True))
    each = {p: times[p].best / (count * N_STEPS) for p, (_, count) in prepared.items()}
    kernel = next(seconds for peer, seconds in each.items() if peer.name == KERNEL)
    truths: dict[Any, Truth] = {}
    lines = []
    for peer, (_, count) in prepared.items():
        if peer.method not in truths:
            truths[peer.method] = truth(name, work, peer.method, n)
        first, values = firsts[peer]
        found = np.asarray(values, np.float64)
        found = found if work == GRADIENT else found.reshape(count, -1).mean(axis=0)
        error = truths[peer.method].standard_errors(found, count)
        lines.append(
            (
                name, precision, work, peer.name, f"{count:,}", f"{each[peer] * 1e9:.3g}",
                f"{each[peer] / kernel:.3g}", f"{error:.1f}", f"{first:.2f} s",
            )
        )  # fmt: skip
    return lines


def main() -> None:
    """Measure and print the table."""
    parser = make_parser("noise", NOISY, None)
    parser.add_argument("--all", action="store_true", help="also what is known to be slower")
    options = parser.parse_args()
    peers = tuple(peer for peer in PEERS if peer.is_usual or options.all)
    lines = []
    with as_in_a_new_process():
        for name in options.case or NOISY:
            for precision in NOISY[name].precisions:
                for work in WORKS:
                    n = options.n or NOISY[name].n
                    lines += rows(name, precision, work, n, options.repeats, peers)
    print(render(_HEAD, lines))


if __name__ == "__main__":
    main()
