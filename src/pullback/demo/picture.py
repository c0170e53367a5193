"""The picture of the fit: populations over time, the cycle, and where the starts were."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pullback.data import LynxHare
from pullback.demo.summary import CONVERGED, DistinctFit, Floats

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
HARE, LYNX, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
INK, MUTED, PALE = "#222222", "#666666", "#E8E8E8"
_STYLE = {
    "figure.facecolor": "white", "font.family": "sans-serif", "font.size": 10.5,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": "#B0B0B0",
    "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8,
    "axes.titlelocation": "left", "axes.titlesize": 11.5, "axes.titleweight": "bold",
    "axes.titlepad": 10, "axes.axisbelow": True,
}  # fmt: skip
_BANDS = ((0.05, 0.95, 0.15), (0.25, 0.75, 0.25))  # lower and upper quantile, opacity
_SPECIES = (("hares", HARE, "o"), ("lynxes", LYNX, "s"))
_FORECAST = 6.0  # years
_N_CYCLES = 60
_POINT = {"markeredgecolor": "white", "markeredgewidth": 0.9}


class Scene(NamedTuple):
    """What is drawn.

    Attributes:
        data: the counts.
        best: the best fit.
        times: years since the first one, `(time,)`.
        best_curve: its populations, `(time, 2)`.
        curves: populations of the refits, `(refit, time, 2)`.
        starts: unknowns that the starts began with, `(N, 6)`.
        loss: negative log-likelihoods that they ended with, `(N,)`.
        refits: unknowns of the refits, `(refit, 6)`.
    """

    data: LynxHare
    best: DistinctFit
    times: Floats
    best_curve: Floats
    curves: Floats
    starts: Floats
    loss: Floats
    refits: Floats

    @property
    def found(self) -> Any:
        """Which starts found the best fit, `(N,)`."""
        return self.loss - self.best.loss < CONVERGED

    def until(self, years: float) -> Any:
        """Which times are at most `years` after the last count."""
        return self.times <= self.data.year[-1] - self.data.year[0] + years


def import_matplotlib() -> tuple[Any, Any]:
    """Return Matplotlib's `Figure` and `rc_context`, or say what to install.

    A bare `Figure` needs no display and, unlike those of pyplot, leaves nothing behind.
    """
    try:
        from matplotlib import rc_context  # noqa: PLC0415 - optional, and only needed here
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            "the picture needs Matplotlib, which is not installed; install it with "
            "`pip install 'pullback[plot]'`, or ask for no picture."
        ) from error
    return Figure, rc_context


def draw(path: Path, scene: Scene) -> None:
    """Draw a scene into a PNG file."""
    figure_class, style = import_matplotlib()
    with style(_STYLE):
        figure = figure_class(figsize=(12, 9), dpi=150)
        grid = figure.add_gridspec(
            2, 2, height_ratios=(1.15, 1), left=0.065, right=0.93, top=0.84, bottom=0.07,
            hspace=0.36, wspace=0.2,
        )  # fmt: skip
        _draw_years(figure.add_subplot(grid[0, :]), scene)
        _draw_cycle(figure.add_subplot(grid[1, 0]), scene)
        _draw_starts(figure.add_subplot(grid[1, 1]), scene)
        _write_head(figure, scene)
        figure.savefig(path)


def _write_head(figure: Any, scene: Scene) -> None:
    best = scene.best
    figure.text(
        0.065, 0.967, f"Hares and lynxes take turns every {best.period:.1f} years",
        fontsize=19, weight="bold", va="top",
    )  # fmt: skip
    values = zip("αβγδ", best.unknowns[:4], strict=True)
    figure.text(
        0.065, 0.921, "Lotka–Volterra equations fitted to the pelt records of the Hudson’s Bay "
        f"Company: {',  '.join(f'{name} = {value:#.2g}' for name, value in values)}",
        color=MUTED, va="top", fontsize=11.5,
    )  # fmt: skip


def _draw_years(axes: Any, scene: Scene) -> None:
    data, shown = scene.data, scene.until(_FORECAST)
    year, last = data.year[0] + scene.times[shown], data.year[-1]
    axes.axvspan(last, year[-1], color="#F4F4F4", zorder=-2, linewidth=0)
    for i, (name, colour, marker) in enumerate(_SPECIES):
        curves, best = scene.curves[:, shown, i], scene.best_curve[shown, i]
        if len(curves):
            quantiles = np.quantile(curves, [q for band in _BANDS for q in band[:2]], axis=0)
            for j, (_, _, opacity) in enumerate(_BANDS):
                low, high = quantiles[2 * j : 2 * j + 2]
                axes.fill_between(year, low, high, color=colour, alpha=opacity, linewidth=0)
        axes.plot(year, best, color=colour, linewidth=2.2)
        counts = (data.hare, data.lynx)[i]
        axes.plot(data.year, counts, marker, color=colour, markersize=7, zorder=5 + i, **_POINT)
        axes.annotate(
            name, (year[-1], best[-1]), xytext=(7, 0), textcoords="offset points", color=colour,
            weight="bold", va="center", fontsize=12.5, annotation_clip=False,
        )  # fmt: skip
    axes.text(
        last + 0.15, 0.985, "beyond the data", color=MUTED, va="top", fontsize=9.5,
        transform=axes.get_xaxis_transform(),
    )  # fmt: skip
    axes.set(xlim=(year[0] - 0.4, year[-1]), ylim=(0, None), ylabel="pelts [thousands per year]")
    axes.set_xticks(np.arange(year[0], year[-1] + 0.1, 5))
    _finish(
        axes, "Points: data.  Lines: best fit.  Bands: middle half and middle 90 % of "
        f"{_count(len(scene.curves))} refits to data with new random errors",
    )  # fmt: skip


def _draw_cycle(axes: Any, scene: Scene) -> None:
    data, inside = scene.data, scene.until(0.0)
    for curve in scene.curves[:_N_CYCLES]:
        axes.plot(*curve[inside].T, color=GREEN, alpha=0.14, linewidth=0.9)
    axes.plot(*scene.best_curve[inside].T, color=INK, linewidth=2.2, zorder=3)
    axes.plot(data.hare, data.lynx, color="#A8A8A8", linewidth=0.8, zorder=2)
    axes.plot(data.hare, data.lynx, "o", color=INK, markersize=5.5, zorder=4, **_POINT)
    for i, place in ((0, (2, -13)), (4, (6, 4)), (13, (7, 3)), (15, (-34, 2))):
        axes.annotate(
            f"{data.year[i]:.0f}", (data.hare[i], data.lynx[i]), xytext=place,
            textcoords="offset points", fontsize=9.5, color=MUTED,
        )  # fmt: skip
    axes.set(
        xlim=(0, 100), ylim=(0, 70), xlabel="hares [thousands of pelts per year]",
        ylabel="lynxes [thousands of pelts per year]",
    )  # fmt: skip
    _finish(axes, f"The cycle: data, best fit and {min(_N_CYCLES, len(scene.curves))} refits")


def _draw_starts(axes: Any, scene: Scene) -> None:
    x, y = scene.starts[:, 0], scene.starts[:, 2]
    for mask, colour, size, opacity in (
        (scene.found, "#9A9A9A", 4, 0.5),
        (~scene.found, PINK, 14, 1.0),
    ):
        axes.scatter(x[mask], y[mask], s=size, color=colour, alpha=opacity, linewidths=0)
    axes.scatter(*scene.refits[:, (0, 2)].T, s=3, color=GREEN, alpha=0.35, linewidths=0, zorder=3)
    best = scene.best.unknowns[[0, 2]]
    axes.plot(*best, "*", color=INK, markersize=17, zorder=4, **_POINT)
    n_missed = int(np.sum(~scene.found))
    box = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 2.0}
    label = {"weight": "bold", "bbox": box, "zorder": 5, "textcoords": "offset points"}
    axes.annotate("best fit", best, xytext=(12, -16), color=INK, **label)
    axes.annotate("refits", best, xytext=(-28, 34), color=GREEN, **label)
    if n_missed:
        axes.annotate(
            f"{n_missed} starts that did not", (1, 1), xycoords="axes fraction", ha="right",
            va="top", xytext=(-4, -3), color=PINK, **label,
        )  # fmt: skip
    ticks = (0.1, 0.2, 0.5, 1, 2)
    axes.set(xscale="log", yscale="log", xlim=(0.095, 3.2), ylim=(0.095, 4.3))
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set(xlabel="α, growth rate of hares [1/year]", ylabel="γ, loss rate of lynxes [1/year]")
    share = 100 * np.mean(scene.found)
    _finish(axes, f"{_count(len(x))} random starts: {share:.0f} % found the best fit")


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title)
    axes.grid(color=PALE, linewidth=0.7)
    axes.tick_params(length=3)


def _count(number: int) -> str:
    """Write a number with narrow gaps between thousands."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
