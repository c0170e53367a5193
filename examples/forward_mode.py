"""Forward mode through ten thousand Lorenz systems, and what the tangents say about chaos.

Each system has random parameters and runs to t = 100. Three tangents, one for each component of
the initial state, say how a small change of it grows. Where it grows exponentially the system is
chaotic: its rate is the largest Lyapunov exponent, and it limits for how long anything can be
predicted.

Full size takes some ten seconds on two cores; `n_traj` and `t1` make it smaller. The tangents
reach exp(90), beyond float32, so this example runs in float64. The picture needs the extra
`plot`.
"""

import itertools
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from pullback.demo.picture import import_matplotlib

CLASSIC = np.array([10.0, 28.0, 8.0 / 3.0])
PUBLISHED_EXPONENT = (
    0.9056  # of the classic parameters; J. C. Sprott, Chaos and Time-Series Analysis
)
TOLERANCE = 1e-6
# Growth per unit time, of the whole run and of its second half, above which it counts as chaotic.
# On a stable orbit changes grow at most like a power of t, which fades in the logarithm.
CHAOTIC = 0.05
QUANTILES = (0.05, 0.5, 0.95)


class Result(NamedTuple):
    """What a run found.

    Attributes:
        params: sigma, rho, beta, `(N, 3)`.
        times: save times, `(T,)`.
        growth: logarithm of the largest growth of a change of the initial state, `(N, T)`.
        exponent: finite-time Lyapunov exponent at the end, `(N,)`.
        is_chaotic: `(N,)`.
        classic_exponent: mean over starts with the classic parameters.
        seconds: of the ten thousand, compilation included.
    """

    params: np.ndarray
    times: np.ndarray
    growth: np.ndarray
    exponent: np.ndarray
    is_chaotic: np.ndarray
    classic_exponent: float
    seconds: float


def lorenz(t, u, p):
    x, y, z = u
    sigma, rho, beta = p
    return jnp.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])


def tangent_map(y0, params, times, tolerance=TOLERANCE):
    """Return states `(N, T, 3)` and their derivatives by the initial state, `(N, T, 3, 3)`."""
    problem = pb.ODEProblem(lorenz, y0[0], (0.0, float(times[-1])), params[0])

    def states(y0):
        ensemble = pb.EnsembleProblem(problem, y0=y0, params=params)
        sol = pb.solve(
            ensemble, pb.Tsit5(), pb.EnsembleKernel(), trajectories=len(params), saveat=times,
            rtol=tolerance, atol=tolerance,
        )  # fmt: skip
        # Where a trajectory failed, rows repeat the last good point; NaN says so.
        return jnp.where(sol.ok[:, None, None], sol.y, jnp.nan)

    def along(direction):
        return jax.jvp(states, (y0,), (jnp.broadcast_to(direction, y0.shape),))

    return jax.vmap(along, out_axes=(None, -1))(jnp.eye(3, dtype=y0.dtype))


def log_growth(derivative: np.ndarray) -> np.ndarray:
    """Return the logarithm of the largest singular value of each derivative."""
    largest = np.linalg.svd(derivative, compute_uv=False)[..., 0]
    return np.log(np.maximum(largest, np.finfo(float).tiny))


def late_exponent(times: np.ndarray, growth: np.ndarray) -> np.ndarray:
    """Return the growth per unit time over the second half, when the transient is over."""
    half = len(times) // 2
    return (growth[:, -1] - growth[:, half]) / (times[-1] - times[half])


def classic_exponent(times: np.ndarray, n_starts: int = 256) -> float:
    """Return the exponent of the classic parameters, a mean over random starts."""
    y0 = np.random.default_rng(1).normal(size=(n_starts, 3)) * 5.0 + np.array([0.0, 0.0, 25.0])
    params = np.broadcast_to(CLASSIC, (n_starts, 3))
    _, derivative = jax.jit(lambda y: tangent_map(y, params, times))(jnp.asarray(y0))
    return float(np.mean(late_exponent(times, log_growth(np.asarray(derivative)))))


def report(result: Result) -> None:
    times, growth, chaotic = result.times, result.growth, result.is_chaotic
    n_traj = len(chaotic)
    print(
        f"{n_traj} Lorenz systems to t = {times[-1]:g} with three tangents each: "
        f"{result.seconds:.1f} s, compilation included"
    )
    print(f"chaotic: {chaotic.sum()} ({chaotic.mean():.1%})\n")
    print("a change of the initial state grows by a factor of 10^...")
    print(f"{'':>6}{'chaotic':^27}{'others':^27}")
    print(f"{'t':>6}" + 2 * "".join(f"{f'{q:.0%}':>9}" for q in QUANTILES))
    for t in (1, 2, 5, 10, 20, 50, 100):
        if t <= times[-1]:
            i = int(np.searchsorted(times, t))
            cells = [_quantiles(growth[mask, i] / np.log(10)) for mask in (chaotic, ~chaotic)]
            print(f"{t:6d}" + "".join(f"{x:9.1f}" for row in cells for x in row))
    print("\nLyapunov exponents at the end")
    for name, mask in (("chaotic", chaotic), ("others", ~chaotic)):
        cells = "".join(f"{x:9.3f}" for x in _quantiles(result.exponent[mask]))
        print(f"  {name:<8}" + cells)
    print(
        f"  classic parameters: {result.classic_exponent:.3f} (published {PUBLISHED_EXPONENT})\n"
        f"  (a change that has died out is known to {TOLERANCE:g} of its largest size only, so\n"
        f"  exponents below {np.log(TOLERANCE) / times[-1]:.2f} are not told apart)"
    )
    _report_where(result)
    if chaotic.any():
        median = float(np.median(result.exponent[chaotic]))
        print(
            f"\nWhat it means: in the median chaotic system an error doubles every "
            f"{np.log(2) / median:.1f} time units\nand a millionth has become the whole after "
            f"{6 * np.log(10) / median:.0f}. Until then the derivatives are useful;\n"
            "afterwards they are still right, for changes too small to be of any use."
        )


def _quantiles(values: np.ndarray) -> np.ndarray:
    return np.quantile(values, QUANTILES) if len(values) else np.full(len(QUANTILES), np.nan)


def _report_where(result: Result) -> None:
    print("\nwhere the chaotic ones are")
    edges = np.linspace(0.0, CLASSIC[1], 5)
    for low, high in itertools.pairwise(edges):
        inside = (result.params[:, 1] >= low) & (result.params[:, 1] < high)
        share = np.mean(result.is_chaotic[inside]) if inside.any() else np.nan
        print(f"  rho from {low:4.0f} to {high:3.0f}: {share:6.1%} of {inside.sum()}")


def draw(path: Path, result: Result) -> None:
    figure_class, style = import_matplotlib()
    settings = {
        "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
        "axes.titleweight": "bold", "axes.titlesize": 11.5, "axes.titlepad": 10,
    }  # fmt: skip
    with style(settings):
        figure = figure_class(figsize=(12.5, 5.2), dpi=150, layout="constrained")
        axes = figure.subplots(1, 2)
        draw_growth(axes[0], result)
        dots = draw_systems(axes[1], result)
        figure.colorbar(dots, ax=axes[1], label="Lyapunov exponent [1/time]")
        figure.savefig(path)


def draw_growth(axes, result: Result) -> None:
    groups = (("chaotic", result.is_chaotic, "#D55E00"), ("others", ~result.is_chaotic, "#0072B2"))
    for name, mask, colour in groups:
        if mask.any():
            low, middle, high = np.quantile(result.growth[mask] / np.log(10), QUANTILES, axis=0)
            axes.fill_between(result.times, low, high, color=colour, alpha=0.18, linewidth=0)
            axes.plot(result.times, middle, color=colour, linewidth=2)
            axes.annotate(
                f"{name}, {mask.mean():.0%}", (result.times[-1], middle[-1]), xytext=(-6, 12),
                textcoords="offset points", ha="right", color=colour, weight="bold",
            )  # fmt: skip
    axes.axhline(6, color="#666666", linewidth=0.9, linestyle="--", zorder=0)
    axes.annotate(
        "a millionth has\nbecome the whole", (0, 6), xytext=(6, 5), textcoords="offset points",
        color="#555555", fontsize=9.5,
    )  # fmt: skip
    axes.set(
        xlabel="time", ylabel="growth [powers of ten]", xlim=(0, result.times[-1]),
        title="Growth of a small change: median, middle 90 %",
    )  # fmt: skip


def draw_systems(axes, result: Result):
    sigma, rho, wild = result.params[:, 0], result.params[:, 1], result.is_chaotic
    axes.scatter(rho[~wild], sigma[~wild], s=3, color="#CFCFCF", linewidths=0)
    dots = axes.scatter(
        rho[wild], sigma[wild], c=result.exponent[wild], s=8, cmap="viridis", linewidths=0
    )
    axes.set(
        xlabel="ρ", ylabel="σ", xlim=(0, CLASSIC[1]), ylim=(0, CLASSIC[0]),
        title="Which systems are chaotic (grey: not)",
    )  # fmt: skip
    return dots


def main(
    n_traj: int = 10_000, t1: float = 100.0, picture: str | Path | None = "forward_mode.png"
) -> Result:
    with jax.enable_x64(True):
        params = np.random.default_rng(0).random((n_traj, 3)) * CLASSIC
        times = np.arange(0.0, t1 + 0.5, 1.0)
        y0 = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.0]), (n_traj, 3))
        begin = time.perf_counter()
        _, derivative = jax.block_until_ready(jax.jit(lambda y: tangent_map(y, params, times))(y0))
        seconds = time.perf_counter() - begin
        growth = log_growth(np.asarray(derivative))
        exponent = growth[:, -1] / times[-1]
        result = Result(
            params=params,
            times=times,
            growth=growth,
            exponent=exponent,
            is_chaotic=np.minimum(exponent, late_exponent(times, growth)) > CHAOTIC,
            classic_exponent=classic_exponent(times),
            seconds=seconds,
        )
    report(result)
    if picture is not None:
        draw(Path(picture), result)
        print(f"Picture: {picture}")
    return result


if __name__ == "__main__":
    main()
