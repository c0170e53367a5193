"""`run`: from thousands of random starts to a table of fits and a picture."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import pullback as pb
from pullback import native
from pullback.core.typing import Array
from pullback.data import load_lynx_hare
from pullback.demo import picture as drawing
from pullback.demo.model import negative_log_likelihood, periods, simulate
from pullback.demo.search import Plan, Search, State, draw_starts
from pullback.demo.summary import DistinctFit, Floats, LynxHareFit, Timing, distinct_fits

_FIRST_YEARS = 5.0
_RATE, _REFIT_RATE = 0.05, 0.02
_REFIT_SHARE = 0.4
# Curves are drawn, and periods measured, on these years since the first one.
_YEARS = np.linspace(0.0, 40.0, 401)


def run(
    n_starts: int = 4096,
    n_iterations: int = 500,
    seed: int = 0,
    picture: str | Path | None = "lynx_hare.png",
    progress: bool = True,
    executor: pb.EnsembleKernel | pb.EnsembleArray | None = None,
) -> LynxHareFit:
    """Fit the Lotka-Volterra equations to the hare and lynx pelts from many starts at once.

    First every start is fitted to the data, by Adam with gradients through the solver. Then the
    best fit is refitted as often to data with new random errors, which shows how certain it is.
    Works in float64, whatever the precision that JAX is set to.

    Args:
        n_starts: how many random starts.
        n_iterations: updates of each start; refits take four tenths of that.
        seed: of the starts and of the random errors.
        picture: file to draw, or None.
        progress: whether to show a progress bar.
        executor: who runs the trajectories, `pb.EnsembleKernel()` by default.

    Raises:
        ImportError: Optax, or with `picture` Matplotlib, is not installed.
        ValueError: `n_starts`, `n_iterations` or `picture` is wrong.
        RuntimeError: no start led to a fit.
    """
    for name, value in (("n_starts", n_starts), ("n_iterations", n_iterations)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be a positive whole number, but {value!r} arrived.")
    if picture is not None:
        # What is missing should be known before the work, not after it.
        drawing.import_matplotlib()
        if not Path(picture).parent.is_dir():
            raise ValueError(
                f"`picture` must name a file in a folder that exists, but {str(picture)!r} arrived."
            )
    clock = _Clock()
    with jax.enable_x64(True):
        data = load_lynx_hare()
        search = Search(data.year - data.year[0], executor or pb.EnsembleKernel())
        log_counts = np.log(np.stack([data.hare, data.lynx], axis=-1))
        runner = _Runner(search, clock, n_starts, n_iterations, seed, progress)
        starts, loss, unknowns, fits = runner.fit(log_counts)
        refits, refit_period, curves = runner.refit(fits[0])
        if picture is not None:
            with clock("drawing"):
                best_curve = np.exp(runner.curves(fits[0].unknowns[None])[0])
                scene = drawing.Scene(
                    data, fits[0], _YEARS, best_curve, curves, starts, loss, refits
                )
                drawing.draw(Path(picture), scene)
    return LynxHareFit(
        fits=fits,
        loss=loss,
        starts=starts,
        unknowns=unknowns,
        refits=refits,
        refit_period=refit_period,
        timing=clock.timing(runner.n_gradients, runner.n_unresolved),
        picture=None if picture is None else Path(picture),
    )


class _Clock:
    """Seconds since it was made, and of each part of the work."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._parts: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self._parts[part] = time.perf_counter() - begin

    def timing(self, n_gradients: int, n_unresolved: int) -> Timing:
        """Return what solving that many trajectories and their gradients took."""
        return Timing(
            n_solves=n_gradients,
            n_gradients=n_gradients,
            n_unresolved=n_unresolved,
            compiling=self._parts["compiling"],
            fitting=self._parts["fitting"],
            refitting=self._parts["refitting"],
            total=time.perf_counter() - self._begin,
            n_threads=native.num_threads(),
        )


class _Runner:
    """The two searches of a run and what is made of their results."""

    def __init__(
        self,
        search: Search,
        clock: _Clock,
        n_starts: int,
        n_iterations: int,
        seed: int,
        progress: bool,
    ) -> None:
        self._search, self._clock, self._seed, self._progress = search, clock, seed, progress
        self._n_starts, self._n_iterations = n_starts, n_iterations
        self._n_refit_iterations = round(_REFIT_SHARE * n_iterations)
        self.n_gradients = self.n_unresolved = 0

    def fit(self, log_counts: Floats) -> tuple[Floats, Floats, Floats, tuple[DistinctFit, ...]]:
        """Return where the starts began, their losses and unknowns at the end, and the fits."""
        targets = jnp.broadcast_to(log_counts, (self._n_starts, *log_counts.shape))
        starts = draw_starts(self._n_starts, self._seed)
        plan = Plan(self._n_iterations, _FIRST_YEARS, _RATE)
        with self._clock("compiling"):
            self._search.compile(starts, targets, plan)
        end = self._run("fitting", starts, targets, plan).log_unknowns
        score = self._search.score(end, targets)
        loss = negative_log_likelihood(np.asarray(score.log_loss), len(log_counts))
        loss = np.where(np.asarray(score.ok) & np.isfinite(loss), loss, np.inf)
        unknowns, sigma = np.exp(np.asarray(end)), np.sqrt(np.asarray(score.variance))
        period = periods(np.asarray(end), _YEARS, self.curves(unknowns)[..., 0])
        groups = distinct_fits(loss, period)
        if not groups:
            raise RuntimeError("no start led to a fit; try another `seed` or more `n_starts`.")
        fits = tuple(
            DistinctFit(unknowns[i[0]], sigma[i[0]], float(loss[i[0]]), float(period[i[0]]), len(i))
            for i in groups
        )
        return np.exp(np.asarray(starts)), loss, unknowns, fits

    def refit(self, best: DistinctFit) -> tuple[Floats, Floats, Floats]:
        """Return fits to the best fit with new errors, their periods and their curves.

        This is the parametric bootstrap: how far the fits scatter is how uncertain the fit is.
        """
        start = jnp.broadcast_to(np.log(best.unknowns), (self._n_starts, len(best.unknowns)))
        truth = np.asarray(simulate(start[:1], self._search.times, self._search.executor).y[0])
        noise = np.random.default_rng((self._seed, 1)).normal(size=(self._n_starts, *truth.shape))
        targets = jnp.asarray(truth + best.sigma * noise)
        plan = Plan(self._n_refit_iterations, float(self._search.times[-1]), _REFIT_RATE)
        end = np.asarray(self._run("refitting", start, targets, plan).log_unknowns)
        log_curves = self.curves(np.exp(end))
        ok = np.isfinite(log_curves).all(axis=(1, 2))
        return (
            np.exp(end[ok]),
            periods(end[ok], _YEARS, log_curves[ok][..., 0]),
            np.exp(log_curves[ok]),
        )

    def curves(self, unknowns: Floats) -> Floats:
        """Return logarithms of the populations at `_YEARS`; NaN where a trajectory failed."""
        sol = simulate(jnp.log(unknowns), _YEARS, self._search.executor)
        return np.where(np.asarray(sol.ok)[:, None, None], np.asarray(sol.y), np.nan)

    def _run(self, name: str, log_unknowns: Array, targets: Array, plan: Plan) -> State:
        with (
            self._clock(name),
            tqdm(
                total=plan.n_iterations,
                desc=f"{name} {len(log_unknowns)}",
                unit=" updates",
                disable=not self._progress,
            ) as bar,
        ):

            def report(n_updates: int, years: float) -> None:
                bar.set_postfix_str(f"{years:.0f} years of data", refresh=False)
                bar.update(n_updates)

            state = self._search.run(self._search.begin(log_unknowns), targets, plan, report)
        self.n_gradients += len(log_unknowns) * plan.n_iterations
        self.n_unresolved += int(state.n_unresolved)
        return state
