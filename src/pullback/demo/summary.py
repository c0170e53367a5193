"""What came out of the fits: which differ, how many starts found them, how certain they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pullback.demo.model import NAMES, UNKNOWNS

Floats = NDArray[np.float64]

# Two fits are the same one where -log L and the logarithm of the period agree to this.
_SAME_LOSS = 0.5
_SAME_PERIOD = 0.03
# A start has found the best fit where its -log L is this near to it.
CONVERGED = 0.01
_N_SHOWN = 5

# Posterior mean and middle 80 % of the same model of the same data with weak priors: B. Carpenter,
# "Predator-prey population dynamics: the Lotka-Volterra model in Stan", Stan case studies (2018).
# Differs: the text gives beta's interval as (0.23, 0.33) and swaps the names of the last two.
PUBLISHED = {
    "alpha": (0.55, 0.47, 0.63), "beta": (0.028, 0.023, 0.033),
    "gamma": (0.80, 0.69, 0.91), "delta": (0.024, 0.020, 0.029),
}  # fmt: skip


@dataclass(frozen=True)
class DistinctFit:
    """A fit that several starts found.

    Attributes:
        unknowns: alpha, beta, gamma, delta and the populations in the first year, `(6,)`.
        sigma: standard deviation of the logarithms of hare and lynx counts, `(2,)`.
        loss: negative log-likelihood.
        period: years from one maximum to the next.
        n_starts: how many starts ended here.
    """

    unknowns: Floats
    sigma: Floats
    loss: float
    period: float
    n_starts: int


@dataclass(frozen=True)
class Timing:
    """How much was computed, and how long it took.

    Attributes:
        n_solves: trajectories integrated.
        n_gradients: gradients of trajectories.
        n_unresolved: how many of these have an estimated error above one per cent.
        compiling: seconds before the first update.
        fitting: seconds of the search from all starts.
        refitting: seconds of the refits to resampled data.
        total: seconds from beginning to end, the picture included.
        n_threads: threads of the kernel.
    """

    n_solves: int
    n_gradients: int
    n_unresolved: int
    compiling: float
    fitting: float
    refitting: float
    total: float
    n_threads: int

    @property
    def trajectories_per_second(self) -> float:
        """Solves and gradients together, over the time of fitting and refitting."""
        return (self.n_solves + self.n_gradients) / (self.fitting + self.refitting)


@dataclass(frozen=True)
class LynxHareFit:
    """The result of the demo.

    Attributes:
        fits: distinct fits, the best one first.
        loss: negative log-likelihood that each start ended with, infinite where it failed, `(N,)`.
        starts: where each start began, `(N, 6)`.
        unknowns: what it ended with, `(N, 6)` in the order of `fits[0].unknowns`.
        refits: best fits to resampled data, `(M, 6)`.
        refit_period: their periods, `(M,)`.
        timing: what it cost.
        picture: the file that was written, or None.
    """

    fits: tuple[DistinctFit, ...]
    loss: Floats
    starts: Floats
    unknowns: Floats
    refits: Floats
    refit_period: Floats
    timing: Timing
    picture: Path | None

    @property
    def best(self) -> DistinctFit:
        """The most likely fit."""
        return self.fits[0]

    @property
    def n_converged(self) -> int:
        """How many starts ended at the best fit."""
        return int(np.sum(self.loss - self.best.loss < CONVERGED))

    @property
    def n_failed(self) -> int:
        """How many starts ended where the equations could not be integrated."""
        return int(np.sum(~np.isfinite(self.loss)))

    def report(self) -> str:
        """Lay out the fits, their uncertainty and the cost for reading."""
        return "\n".join([*_fit_table(self), "", *_uncertainty(self), "", *_cost(self)])


def distinct_fits(loss: Floats, period: Floats) -> list[NDArray[np.intp]]:
    """Group the starts that found the same fit.

    Returns:
        The starts of each fit; the best fit first, and in each the best start first. Starts that
        failed are in none.
    """
    order = np.argsort(loss, kind="stable")
    left = order[np.isfinite(loss[order])]
    # Where no period was measured the loss alone decides.
    measured = np.where(np.isnan(period), 0.0, np.log(period))
    groups = []
    while len(left):
        same = loss[left] - loss[left[0]] < _SAME_LOSS
        same &= np.abs(measured[left] - measured[left[0]]) < _SAME_PERIOD
        groups.append(left[same])
        left = left[~same]
    return groups


def _fit_table(result: LynxHareFit) -> list[str]:
    units = [f"[{unit}]" for _, unit, *_ in UNKNOWNS]
    heads = ["starts", "-log L", *NAMES, "sd(h)", "sd(l)", "period"]
    second = ["", "", *units, "[-]", "[-]", "[yr]"]
    rows = [
        [f"{fit.n_starts}", f"{fit.loss:.2f}", *_numbers(fit.unknowns), *_numbers(fit.sigma),
         f"{fit.period:.2f}"]
        for fit in result.fits[:_N_SHOWN]
    ]  # fmt: skip
    others = result.fits[_N_SHOWN:]
    lines = [
        f"The {len(rows)} best of {len(result.fits)} distinct fits",
        *_columns([heads, second, *rows]),
    ]
    if others:
        n_starts = sum(fit.n_starts for fit in others)
        lines.append(f"  ({n_starts} more starts ended in {len(others)} worse ones)")
    lines.append(
        f"{result.n_converged} of {len(result.loss)} starts found the best fit"
        f" ({result.n_converged / len(result.loss):.1%}), {result.n_failed} failed."
    )
    return lines


def _uncertainty(result: LynxHareFit) -> list[str]:
    if not np.isfinite(result.refit_period).any():
        return ["No refit succeeded, so how certain the fit is remains unknown."]
    low, high = np.quantile(result.refits, (0.1, 0.9), axis=0)
    periods = [f"{p:.2f}" for p in np.nanquantile(result.refit_period, (0.1, 0.9))]
    published = [[f"{p:#.2g}" for p in column] for column in zip(*PUBLISHED.values(), strict=True)]
    blank = [""] * (len(NAMES) - len(PUBLISHED) + 1)
    rows = [
        ["", *NAMES, "period"],
        ["best fit", *_numbers(result.best.unknowns), f"{result.best.period:.2f}"],
        ["refits, lower 10 %", *_numbers(low), periods[0]],
        ["refits, upper 10 %", *_numbers(high), periods[1]],
        ["published mean", *published[0], *blank],
        ["published, lower 10 %", *published[1], *blank],
        ["published, upper 10 %", *published[2], *blank],
    ]
    return [
        f"How certain: {len(result.refits)} refits, each to the best fit with new random errors",
        *_columns(rows, left=True),
        "  (published: Bayesian, same model and data; B. Carpenter, Stan case studies, 2018)",
    ]


def _cost(result: LynxHareFit) -> list[str]:
    t = result.timing
    lines = [
        f"{_grouped(t.n_solves)} solves and {_grouped(t.n_gradients)} gradients in "
        f"{t.fitting + t.refitting:.1f} s on {t.n_threads} threads: "
        f"{_grouped(round(t.trajectories_per_second, -3))} trajectories per second.",
        f"Gradients with an estimated error above one per cent: {_grouped(t.n_unresolved)}"
        f" ({t.n_unresolved / t.n_gradients:.2%}).",
        f"compiling {t.compiling:.1f} s, fitting {t.fitting:.1f} s, refitting {t.refitting:.1f} s, "
        f"{t.total:.1f} s altogether.",
    ]
    return [*lines, f"Picture: {result.picture}"] if result.picture else lines


def _columns(rows: list[list[str]], left: bool = False) -> list[str]:
    """Align cells to the right, the first column to the left if so asked."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        [c.ljust(w) if left and i == 0 else c.rjust(w)
         for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    ]  # fmt: skip
    return ["  " + "  ".join(row).rstrip() for row in aligned]


def _numbers(values: Floats) -> list[str]:
    return [f"{value:#.3g}".rstrip(".") for value in values]


def _grouped(number: float) -> str:
    """Write a number with thin gaps between thousands."""
    return f"{number:,.0f}".replace(",", " ")
