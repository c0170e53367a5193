"""Two pictures: throughput against the number of trajectories, time against error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import CASES
from benchmarks.peers import ARRAY, CPP, DIFFRAX, KERNEL, KERNEL_DEFAULT, SCIPY
from benchmarks.programme import PRECISION, SCALING
from benchmarks.records import Record
from benchmarks.solver import GRADIENT, PRIMAL

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
_INK, _MUTED, _PALE = "#222222", "#666666", "#E8E8E8"
_COLOURS = {
    KERNEL: "#0072B2", ARRAY: "#56B4E9", DIFFRAX: "#D55E00", CPP: "#009E73", SCIPY: "#CC79A7",
    KERNEL_DEFAULT: "#0072B2",
}  # fmt: skip
_LABELS = {
    KERNEL: "pullback, kernel",
    KERNEL_DEFAULT: "pullback, kernel, error-controlled",
    ARRAY: "pullback, array (jit + vmap)",
    DIFFRAX: "diffrax (jit + vmap)",
    CPP: "C++ loop, one thread",
    SCIPY: "SciPy loop, one thread",
}
_STYLE = {
    "figure.facecolor": "white", "font.family": "sans-serif", "font.size": 10.5,
    "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": "#B0B0B0",
    "xtick.color": _MUTED, "ytick.color": _MUTED, "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK, "axes.spines.top": False, "axes.spines.right": False,
    "axes.linewidth": 0.8, "axes.titlelocation": "left", "axes.titlesize": 12,
    "axes.titleweight": "bold", "axes.titlepad": 10, "axes.axisbelow": True,
}  # fmt: skip
_MARK = {"markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.8}


def draw(records: Sequence[Record], folder: Path) -> list[Path]:
    """Draw what the records allow, and return the files."""
    from matplotlib import rc_context  # noqa: PLC0415 - optional, and slow to import

    folder.mkdir(parents=True, exist_ok=True)
    pictures = (("throughput.png", _throughput), ("work_precision.png", _work_precision))
    drawn = []
    with rc_context(_STYLE):
        for name, make in pictures:
            figure = make(records)
            if figure is not None:
                figure.savefig(folder / name)
                drawn.append(folder / name)
    return drawn


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to import

    # A bare figure needs no display and leaves nothing behind.
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def _throughput(records: Sequence[Record]) -> Any:
    works = [w for w in (PRIMAL, GRADIENT) if any(_series(records, w))]
    if not works:
        return None
    figure = _figure(6.2 * len(works), 4.6)
    axes = figure.subplots(1, len(works), sharey=True, squeeze=False)[0]
    for ax, work in zip(axes, works, strict=True):
        for peer, dtype, points in _series(records, work):
            _draw_series(ax, peer, dtype, points)
        ax.set(xscale="log", yscale="log", xlabel="trajectories")
        ax.set_title({PRIMAL: "Solving", GRADIENT: "Gradients"}[work])
        _finish(ax)
        ax.legend(
            frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2
        )
    axes[0].set_ylabel("trajectories per second")
    figure.suptitle(
        "Lorenz sweep, Tsit5, tolerance 1e-6: cost hardly depends on how many there are",
        x=0.01, ha="left", fontsize=13, weight="bold",
    )  # fmt: skip
    return figure


def _series(records: Sequence[Record], work: str) -> list[tuple[str, str, list[Any]]]:
    found = [r for r in records if r.part == SCALING and r.work == work and r.tol == 1e-6]
    names = dict.fromkeys((r.peer, r.dtype) for r in found)
    series = []
    for name in names:
        points = [(r.n, r.per_second) for r in found if (r.peer, r.dtype) == name]
        series.append((*name, sorted(points)))
    return series


def _draw_series(ax: Any, peer: str, dtype: str, points: list[Any]) -> None:
    is_open = dtype == "float32" or peer == KERNEL_DEFAULT
    colour = _COLOURS[peer]
    mark = dict(_MARK)
    if is_open:
        mark |= {"markerfacecolor": "white", "markeredgecolor": colour, "markeredgewidth": 1.3}
    note = {"float32": ", float32"}.get(dtype, "")
    ax.plot(
        *zip(*points, strict=True), "--o" if is_open else "-o", color=colour, linewidth=1.8,
        label=_LABELS[peer] + note, **mark,
    )  # fmt: skip


def _work_precision(records: Sequence[Record]) -> Any:
    found = [r for r in records if r.part == PRECISION and r.error > 0]
    cases = list(dict.fromkeys(r.case for r in found))
    if not cases:
        return None
    rows = -(-len(cases) // 2)
    columns = min(len(cases), 2)
    figure = _figure(6.2 * columns, 4.6 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, case in zip(axes, cases, strict=False):
        for peer in dict.fromkeys(r.peer for r in found):
            points = [
                (r.error, 1e6 / r.per_second) for r in found if (r.peer, r.case) == (peer, case)
            ]
            if points:
                ax.plot(
                    *zip(*points, strict=True), "-o", color=_COLOURS[peer], linewidth=1.8,
                    label=_LABELS[peer], **_MARK,
                )  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel="median relative error")
        ax.invert_xaxis()
        ax.set_title(CASES[case].title)
        ax.set_ylabel("µs per trajectory")
        _finish(ax)
    for ax in axes[len(cases) :]:
        ax.set_visible(False)
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False,
        fontsize=9.5,
    )  # fmt: skip
    figure.suptitle(
        "Work against precision, tolerances 1e-3 to 1e-9: lower and further right is better",
        x=0.01, ha="left", fontsize=13, weight="bold",
    )  # fmt: skip
    return figure


def _finish(ax: Any) -> None:
    ax.grid(color=_PALE, linewidth=0.7)
    ax.tick_params(length=3, which="both")
    ax.minorticks_off()
