"""What is to be reached, on two cores with AVX2, and whether it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.fresh import FIRST, MEMORY
from benchmarks.peers import CPP, DIFFRAX, KERNEL, KERNEL_DEFAULT, KERNEL_ONE_THREAD
from benchmarks.programme import COMPARE, SCALING
from benchmarks.records import FreshRecord, Record
from benchmarks.solver import GRADIENT, PRIMAL

# A gradient of many trajectories may use so much memory beside 1.5 x its inputs and outputs.
_FREE_BYTES = 300e6


class Verdict(NamedTuple):
    """A target beside what was measured.

    Attributes:
        what: is measured.
        goal: is to be reached.
        measured: was.
        word: "yes", or "no" and by how much.
    """

    what: str
    goal: str
    measured: str
    word: str


class Measured:
    """Looks up what was measured; None for what was not."""

    def __init__(self, records: Sequence[Record], fresh: Sequence[FreshRecord]) -> None:
        """Index the records."""
        self._records = {
            (r.part, r.case, r.work, r.dtype, r.tol, r.peer, r.n if r.part == SCALING else 0): r
            for r in records
        }
        self._first = {(r.case, r.work, r.peer): r for r in fresh if r.question == FIRST}
        self._memory = {(r.work, r.peer): r for r in fresh if r.question == MEMORY}

    def record(self, case: str, work: str, peer: str) -> Record | None:
        """Return a comparison's record in double precision at 1e-6."""
        return self._records.get((COMPARE, case, work, "float64", 1e-6, peer, 0))

    def each(self, case: str, work: str, peer: str) -> float | None:
        """Return the seconds of one trajectory."""
        r = self.record(case, work, peer)
        return None if r is None else r.seconds / r.n

    def busy(self, case: str, work: str, peer: str) -> float | None:
        """Return the busy share of lanes."""
        r = self.record(case, work, peer)
        return None if r is None else r.busy

    def throughput(self, work: str, n: int) -> float | None:
        """Return the kernel's trajectories per second, Lorenz sweep."""
        r = self._records.get((SCALING, "lorenz", work, "float64", 1e-6, KERNEL, n))
        return None if r is None else r.per_second

    def first_call(self, case: str, work: str, peer: str) -> float | None:
        """Return the seconds of a new process's first call."""
        r = self._first.get((case, work, peer))
        return None if r is None else r.seconds

    def memory(self, peer: str) -> float | None:
        """Return growth during many Lorenz gradients, as a share of what is allowed."""
        r = self._memory.get((GRADIENT, peer))
        if r is None or r.growth is None:
            return None
        return r.growth / (1.5 * r.arrays + _FREE_BYTES)


@dataclass(frozen=True)
class Target:
    """Something to be reached.

    Attributes:
        what: is measured.
        bound: the number.
        at_least: whether more is better.
        value: reads it from what was measured; None if it was not.
        unit: behind the number.
    """

    what: str
    bound: float
    at_least: bool
    value: Callable[[Measured], float | None]
    unit: str = "x"

    def judge(self, measured: Measured) -> Verdict | None:
        """Compare; None if nothing was measured."""
        value = self.value(measured)
        if value is None:
            return None
        reached = value >= self.bound if self.at_least else value <= self.bound
        word = "yes" if reached else f"no, {value / self.bound:.2f} of it"
        sign = ">=" if self.at_least else "<="
        return Verdict(
            self.what, f"{sign} {self.bound:g} {self.unit}", f"{value:.3g} {self.unit}", word
        )


def _ratio(case: str, work: str, peer: str, ours: str = KERNEL):
    return lambda m: _divide(m.each(case, work, peer), m.each(case, work, ours))


def _gradient_cost(case: str, ours: str):
    return lambda m: _divide(m.each(case, GRADIENT, ours), m.each(case, PRIMAL, KERNEL))


def _divide(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def _scaled(work: str):
    return lambda m: _divide(m.throughput(work, 1_000_000), m.throughput(work, 10_000))


def _first(work: str, ours: str, case: str = "lorenz"):
    return lambda m: m.first_call(case, work, ours)


def _busy(work: str):
    return lambda m: m.busy("van_der_pol", work, KERNEL)


_OTHERS = (("lotka_volterra", 10.0), ("van_der_pol", 10.0), ("mlp", 3.0))
_DEFAULT = "gradient, default"
TARGETS = (
    Target("lorenz primal against diffrax", 100, True, _ratio("lorenz", PRIMAL, DIFFRAX)),
    Target("lorenz primal, one thread, against C++", 6, True,
           _ratio("lorenz", PRIMAL, CPP, KERNEL_ONE_THREAD)),
    Target("lorenz gradient against diffrax", 250, True, _ratio("lorenz", GRADIENT, DIFFRAX)),
    Target(f"lorenz {_DEFAULT}, against diffrax", 160, True,
           _ratio("lorenz", GRADIENT, DIFFRAX, KERNEL_DEFAULT)),
    Target("lorenz gradient / primal", 3, False, _gradient_cost("lorenz", KERNEL)),
    Target(f"lorenz {_DEFAULT} / primal", 5, False, _gradient_cost("lorenz", KERNEL_DEFAULT)),
    *(Target(f"{case} primal against diffrax", goal, True, _ratio(case, PRIMAL, DIFFRAX))
      for case, goal in _OTHERS),
    *(Target(f"{case} gradient against diffrax", goal, True, _ratio(case, GRADIENT, DIFFRAX))
      for case, goal in _OTHERS),
    *(Target(f"{case} {_DEFAULT}, against diffrax", goal, True,
             _ratio(case, GRADIENT, DIFFRAX, KERNEL_DEFAULT)) for case, goal in _OTHERS),
    Target("first call, lorenz primal", 0.7, False, _first(PRIMAL, KERNEL), "s"),
    Target("first call, lorenz gradient", 1.5, False, _first(GRADIENT, KERNEL), "s"),
    Target(f"first call, lorenz {_DEFAULT}", 1.5, False, _first(GRADIENT, KERNEL_DEFAULT), "s"),
    Target("first call, mlp gradient", 3, False, _first(GRADIENT, KERNEL, "mlp"), "s"),
    Target("throughput, 10^6 / 10^4, primal", 0.8, True, _scaled(PRIMAL)),
    Target("throughput, 10^6 / 10^4, gradient", 0.8, True, _scaled(GRADIENT)),
    Target("memory of 10^6 gradients / allowed", 1, False, lambda m: m.memory(KERNEL)),
    Target("memory of 10^6 default gradients / allowed", 1, False,
           lambda m: m.memory(KERNEL_DEFAULT)),
    Target("busy lanes, van_der_pol primal", 0.95, True, _busy(PRIMAL), ""),
    Target("busy lanes, van_der_pol gradient", 0.90, True, _busy(GRADIENT), ""),
)  # fmt: skip


def judge(records: Sequence[Record], fresh: Sequence[FreshRecord]) -> list[Verdict]:
    """Return every target that was measured."""
    return list(_verdicts(Measured(records, fresh)))


def _verdicts(measured: Measured) -> Iterator[Verdict]:
    for target in TARGETS:
        verdict = target.judge(measured)
        if verdict is not None:
            yield verdict
