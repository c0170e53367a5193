"""Which measurements are made, and making them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.cases import CASES, Case, make_inputs
from benchmarks.peers import (
    ARRAY,
    CPP,
    DIFFRAX,
    KERNEL,
    KERNEL_DEFAULT,
    SCIPY,
    Peer,
    peers_for,
)
from benchmarks.records import Record
from benchmarks.reference import errors, reference
from benchmarks.solver import GRADIENT, PRIMAL, SkippedError, Solver
from benchmarks.timing import Times, interleave, timed
from pullback.lanes.kernel import KernelReport, kernel_reports

COMPARE, SCALING, PRECISION, FRESH = "compare", "scaling", "precision", "fresh"
PARTS = (COMPARE, SCALING, PRECISION, FRESH)

# Seconds after which a job begins no further round.
_BUDGET = 25.0
_SMALLEST_TOL = {"float32": 1e-6, "float64": 0.0}


@dataclass(frozen=True)
class Job:
    """Peers on the same ensemble, at one or several tolerances.

    Attributes:
        part: part of the programme.
        case: name of the case.
        work: "primal" or "gradient".
        n: trajectories; peers with a smaller cap take the first ones.
        tols: tolerances; None for the case's own.
        dtype: precision.
        peers: who takes part; None for all who do this work.
        cap: most trajectories of those who have a cap, if theirs is larger.
    """

    part: str
    case: str
    work: str
    n: int
    tols: tuple[float, ...] | None = None
    dtype: str = "float64"
    peers: tuple[str, ...] | None = None
    cap: int | None = None


_TOLS = (1e-3, 1e-6, 1e-9)
_MANY_TOLS = tuple(10.0**-k for k in range(3, 10))
_SIZES = (1_000, 10_000, 100_000, 1_000_000)

_SHORT = (
    Job(COMPARE, "lorenz", PRIMAL, 20_000, _TOLS),
    Job(COMPARE, "lorenz", PRIMAL, 20_000, _TOLS, "float32"),
    Job(COMPARE, "lorenz", GRADIENT, 20_000),
    Job(COMPARE, "lotka_volterra", PRIMAL, 20_000),
    Job(COMPARE, "lotka_volterra", GRADIENT, 20_000),
    Job(COMPARE, "van_der_pol", PRIMAL, 4_096),
    # In lock-step the stiffest trajectory's thousands of steps are everyone's.
    Job(COMPARE, "van_der_pol", GRADIENT, 4_096, cap=400),
    Job(COMPARE, "mlp", PRIMAL, 20_000),
    Job(COMPARE, "mlp", GRADIENT, 2_000),
    *(Job(SCALING, "lorenz", PRIMAL, n, (1e-6,), peers=(KERNEL,)) for n in _SIZES),
    *(Job(SCALING, "lorenz", PRIMAL, n, (1e-6,), "float32", (KERNEL,)) for n in _SIZES),
    *(Job(SCALING, "lorenz", GRADIENT, n, (1e-6,), peers=(KERNEL, KERNEL_DEFAULT))
      for n in _SIZES),
    *(Job(SCALING, "lorenz", PRIMAL, n, (1e-6,), peers=(ARRAY, DIFFRAX)) for n in _SIZES[:2]),
    *(Job(PRECISION, case, PRIMAL, 2_000, _MANY_TOLS, peers=(KERNEL, ARRAY, DIFFRAX, CPP, SCIPY))
      for case in ("lorenz", "lotka_volterra")),
)  # fmt: skip
_LONG = (
    Job(COMPARE, "lorenz", GRADIENT, 20_000, (1e-3, 1e-9)),
    Job(COMPARE, "lorenz", GRADIENT, 20_000, _TOLS, "float32"),
    *(Job(COMPARE, case, work, 20_000, None, "float32")
      for case in ("lotka_volterra", "mlp") for work in (PRIMAL, GRADIENT)),
    *(Job(SCALING, "lorenz", PRIMAL, n, (1e-3, 1e-9), dtype, (KERNEL,))
      for n in _SIZES for dtype in ("float32", "float64")),
    *(Job(SCALING, "lorenz", GRADIENT, n, (1e-6,), peers=(ARRAY, DIFFRAX))
      for n in (500, 1_000, 2_000)),
    *(Job(PRECISION, case, PRIMAL, 2_000, _MANY_TOLS, peers=(KERNEL, ARRAY, DIFFRAX, CPP, SCIPY))
      for case in ("van_der_pol", "mlp")),
)  # fmt: skip


def jobs(full: bool, cases: tuple[str, ...], parts: tuple[str, ...], n: int | None) -> list[Job]:
    """Return the jobs of a programme.

    Args:
        full: all sizes and precisions, instead of 15 minutes' worth.
        cases: only these.
        parts: only these.
        n: number of trajectories instead of each job's own.
    """
    wanted = [j for j in (*_SHORT, *(_LONG if full else ())) if j.case in cases and j.part in parts]
    if n is None:
        return wanted
    return list(dict.fromkeys(Job(**{**vars(job), "n": n}) for job in wanted))


def run(job: Job, rounds: int) -> Iterator[Record]:
    """Make the measurements of a job."""
    case = CASES[job.case]
    prepared: dict[str, tuple[int, Solver]] = {}
    for peer in peers_for(job.work):
        if job.peers is None or peer.name in job.peers:
            ready = _prepare(peer, case, job)
            if ready is not None:
                prepared[peer.name] = ready
    sizes = {n for n, _ in prepared.values()}
    truths = {n: reference(case, make_inputs(case, n, job.dtype), job.work) for n in sizes}
    firsts: dict[str, float | None] = {}
    for tol in job.tols or (case.tol,):
        if tol < _SMALLEST_TOL[job.dtype]:
            continue
        yield from _run_at(job, tol, prepared, truths, firsts, rounds)


def _prepare(peer: Peer, case: Case, job: Job) -> tuple[int, Solver] | None:
    caps = [job.n] if peer.cap is None else [job.n, peer.cap, job.cap or job.n]
    n = min(caps)
    try:
        return n, peer.make(case, make_inputs(case, n, job.dtype))
    except SkippedError as reason:
        say(f"  {peer.name} is left out: {reason}")
        return None


def _run_at(
    job: Job,
    tol: float,
    prepared: dict[str, tuple[int, Solver]],
    truths: dict[int, Any],
    firsts: dict[str, float | None],
    rounds: int,
) -> Iterator[Record]:
    say(f"  {job.part}: {job.case} {job.work} {job.dtype} n={job.n} tol={tol:g}")
    found, busy = {}, {}
    for name, (_, solver) in prepared.items():
        seconds, raw = timed(lambda s=solver: s.run(tol))
        firsts[name] = None if name in firsts else seconds
        found[name] = solver.read(raw)
        before = kernel_reports()
        solver.run(tol)
        busy[name] = _busy(before, kernel_reports())
    calls = {name: (lambda s=solver: s.run(tol)) for name, (_, solver) in prepared.items()}
    times: dict[str, Times] = interleave(calls, rounds, _BUDGET)
    for name, (n, _) in prepared.items():
        result, off = found[name], errors(found[name].values, truths[n])
        yield Record(
            part=job.part, case=job.case, work=job.work, dtype=job.dtype, tol=tol, peer=name,
            n=job.n, n_measured=n, median=times[name].median, best=times[name].best,
            count=times[name].count, first=firsts[name], error=off.median,
            largest_error=off.largest, mean_steps=result.mean_steps, n_failed=result.n_failed,
            busy=busy[name],
        )  # fmt: skip


def _busy(before: tuple[KernelReport, ...], after: tuple[KernelReport, ...]) -> float | None:
    """Return the busy share of the kernel that ran in between, None if none did."""
    calls = [report.calls for report in before] + [0] * (len(after) - len(before))
    ran = [r for r, n in zip(after, calls, strict=True) if r.calls > n]
    return ran[-1].busy if ran else None


def say(text: str) -> None:
    """Tell how far it is, beside the tables."""
    print(text, file=sys.stderr, flush=True)
