"""Tables as Markdown that lines up in a terminal too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.cases import CASES
from benchmarks.peers import KERNEL
from benchmarks.programme import COMPARE, PRECISION, SCALING
from benchmarks.records import FreshRecord, Record
from benchmarks.targets import Verdict

_COMPARE_HEAD = (
    "precision", "tolerance", "peer", "N", "time", "best", "µs each", "x kernel", "error",
    "largest", "steps", "failed", "busy", "first call",
)  # fmt: skip
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_LEFT = {"precision", "peer", "target", "case", "work", "reached"}


def render(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with columns of equal width; names to the left, numbers right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    is_left = [name in _LEFT for name in head]

    def text(line: Sequence[str]) -> str:
        cells = (
            c.ljust(w) if left else c.rjust(w)
            for c, w, left in zip(line, widths, is_left, strict=True)
        )
        return f"| {' | '.join(cells)} |"

    rule = [f":{'-' * (w + 1)}" if left else f"{'-' * (w + 1)}:"
            for w, left in zip(widths, is_left, strict=True)]  # fmt: skip
    return "\n".join([text(lines[0]), f"|{'|'.join(rule)}|", *map(text, lines[1:])])


def comparisons(records: Sequence[Record]) -> str:
    """Return one table for each case and kind of work."""
    found = [r for r in records if r.part == COMPARE]
    parts = []
    for case, work in dict.fromkeys((r.case, r.work) for r in found):
        rows = [r for r in found if (r.case, r.work) == (case, work)]
        parts.append(f"### {CASES[case].title}: {work}\n\n{comparison(rows)}")
    return "\n\n".join(parts)


def comparison(rows: Sequence[Record]) -> str:
    """Return the table of peers at the same work, beside the kernel."""
    kernel = {(r.dtype, r.tol): r.seconds for r in rows if r.peer == KERNEL}
    return render(_COMPARE_HEAD, (_compare_row(r, kernel.get((r.dtype, r.tol))) for r in rows))


def _compare_row(r: Record, kernel: float | None) -> list[str]:
    scaled = "" if r.factor == 1 else f" (x {r.factor:g})"
    return [
        r.dtype,
        f"{r.tol:.0e}",
        r.peer,
        f"{r.n_measured:,}",
        f"{seconds(r.seconds)}{scaled}",
        seconds(r.best * r.factor),
        f"{1e6 * r.seconds / r.n:.3g}",
        "" if kernel is None else f"{r.seconds / kernel:.3g}",
        f"{r.error:.1e}",
        f"{r.largest_error:.1e}",
        "" if r.mean_steps != r.mean_steps else f"{r.mean_steps:.1f}",
        str(r.n_failed),
        "" if r.busy is None else f"{100 * r.busy:.1f} %",
        "" if r.first is None else seconds(r.first),
    ]


def scaling(records: Sequence[Record]) -> str:
    """Return trajectories per second by number of trajectories."""
    found = [r for r in records if r.part == SCALING]
    return _pivot(found, "N", lambda r: r.n, "{:,}", _series, lambda r: f"{r.per_second:,.0f}")


def precision(records: Sequence[Record], case: str) -> str:
    """Return time and error of each peer by tolerance."""
    found = [r for r in records if r.part == PRECISION and r.case == case]

    def cell(r: Record) -> str:
        return f"{1e6 * r.median / r.n_measured:.3g} µs, {r.error:.0e}"

    return _pivot(found, "tolerance", lambda r: r.tol, "{:.0e}", lambda r: r.peer, cell)


def _series(r: Record) -> str:
    return f"{r.peer}, {r.work}, {r.dtype}, {r.tol:.0e}"


def _pivot(records, corner, row_of, row_format, column_of, cell) -> str:
    columns = list(dict.fromkeys(map(column_of, records)))
    cells = {(row_of(r), column_of(r)): cell(r) for r in records}
    rows = sorted({row for row, _ in cells})
    if corner == "tolerance":
        rows.reverse()
    return render(
        [corner, *columns],
        ([row_format.format(row), *(cells.get((row, c), "") for c in columns)] for row in rows),
    )


def first_calls(records: Sequence[FreshRecord]) -> str:
    """Return first calls of new processes."""
    head = ("case", "work", "peer", "N", "first call")
    return render(
        head,
        ([CASES[r.case].title, r.work, r.peer, f"{r.n:,}", seconds(r.seconds)] for r in records),
    )


def memory(records: Sequence[FreshRecord]) -> str:
    """Return by how much processes grew."""
    head = ("case", "work", "peer", "N", "inputs and outputs", "growth", "time")
    return render(
        head,
        (
            [
                CASES[r.case].title, r.work, r.peer, f"{r.n:,}", f"{r.arrays / 1e6:.1f} MB",
                "" if r.growth is None else f"{r.growth / 1e6:.0f} MB", seconds(r.seconds),
            ]
            for r in records
        ),
    )  # fmt: skip


def targets(verdicts: Sequence[Verdict]) -> str:
    """Return what was to be reached, and what was."""
    return render(
        ("target", "goal", "measured", "reached"),
        ([v.what, v.goal, v.measured, v.word] for v in verdicts),
    )


def seconds(value: float) -> str:
    """Write a time with three digits and a unit that suits it."""
    factor, unit = next((u for u in _UNITS if value >= u[0]), _UNITS[-1])
    return f"{_three_digits(value / factor)} {unit}"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
