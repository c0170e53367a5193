"""The least time for a given memory and a disk whose reads and writes take time."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from pullback.checkpoint.schedules.actions import Action, Advance, Free, Restore, Store, Tier, UTurn
from pullback.checkpoint.schedules.scheme import AbstractScheme, check_count

__all__ = ["HRevolve"]

# Number of steps, free snapshots in memory, free snapshots on disk.
_Key: TypeAlias = tuple[int, int, int]
_CACHED_PLANS = 8


@dataclass(frozen=True)
class HRevolve(AbstractScheme):
    """The cheapest schedule for two kinds of storage, by dynamic programming.

    Its time is `forward_steps * step + (writes * write + reads * read)` of the snapshots on
    disk; memory is free. Writes wait for the disk. The table takes time and memory like
    `n_steps**2 * n_ram * n_disk` and `n_steps * n_ram * n_disk`: meant for up to a few hundred
    (blocks of) steps.

    Attributes:
        n_ram: Snapshots in memory.
        n_disk: Snapshots on disk.
        write: Time to write a snapshot to disk.
        read: Time to read it back.
        step: Time of a plain step, in the same unit.

    References:
        Herrmann and Pallez, H-Revolve: a framework for adjoint computation on synchronous
        hierarchical platforms, ACM Trans. Math. Softw. 46 (2020).
    """

    n_ram: int
    n_disk: int
    write: float = 1.0
    read: float = 1.0
    step: float = 1.0

    def __post_init__(self) -> None:
        check_count("n_ram", self.n_ram, least=0)
        check_count("n_disk", self.n_disk, least=0)
        check_count("n_ram + n_disk", self.n_ram + self.n_disk, least=1)
        for name in ("write", "read", "step"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(
                    f"`{name}`: expected a time that is finite and not negative, got {value}."
                    " Give the measured seconds."
                )

    def actions(self, n_steps: int) -> Iterator[Action]:
        """Yield the actions that reverse `n_steps` steps."""
        check_count("n_steps", n_steps, least=0)
        if n_steps:
            slots: dict[Tier, list[int]] = {
                "ram": list(range(self.n_ram - 1, -1, -1)),
                "disk": list(range(self.n_ram + self.n_disk - 1, self.n_ram - 1, -1)),
            }
            plan = _plan(self, n_steps)
            yield from _reverse(plan, slots, 0, n_steps, self.n_ram, self.n_disk)

    def time(self, n_steps: int) -> float:
        """Return the predicted time, without that of the taped steps."""
        check_count("n_steps", n_steps, least=0)
        return _plan(self, n_steps).open[n_steps, self.n_ram, self.n_disk] if n_steps else 0.0


class _Plan:
    """Least times of all sub-problems; the state at the start of each is in hand.

    Attributes:
        open: The start is stored nowhere.
        stored: By tier: the start has a snapshot there, which is not counted as free.
        choice: For a stored start, by tier: how far to advance, or 0 to move it into memory.
    """

    def __init__(self) -> None:
        self.open: dict[_Key, float] = {}
        self.stored: dict[Tier, dict[_Key, float]] = {"ram": {}, "disk": {}}
        self.choice: dict[Tier, dict[_Key, int]] = {"ram": {}, "disk": {}}


@functools.lru_cache(maxsize=_CACHED_PLANS)
def _plan(scheme: HRevolve, n_steps: int) -> _Plan:
    plan = _Plan()
    for n in range(1, n_steps + 1):
        # By increasing `ram`: moving a start into memory refers to the entry with one fewer.
        for ram, disk in itertools.product(range(scheme.n_ram + 1), range(scheme.n_disk + 1)):
            _solve(scheme, plan, (n, ram, disk))
    return plan


def _solve(scheme: HRevolve, plan: _Plan, key: _Key) -> None:
    n, ram, disk = key
    reads: dict[Tier, float] = {"ram": 0.0, "disk": scheme.read}
    for tier, read in reads.items():
        stored = plan.stored[tier]
        best, choice = (0.0, 0) if n == 1 else (math.inf, 0)
        for m in range(1, n):
            later = m * scheme.step + plan.open[n - m, ram, disk]
            time = later + read + stored[m, ram, disk]
            if time < best:
                best, choice = time, m
        if tier == "disk" and n > 1 and ram > 0:
            moved = plan.stored["ram"].get((n, ram - 1, min(disk + 1, scheme.n_disk)), math.inf)
            if moved < best:
                best, choice = moved, 0
        stored[key], plan.choice[tier][key] = best, choice
    options = [0.0] if n == 1 else []
    if n > 1 and ram:
        options.append(plan.stored["ram"][n, ram - 1, disk])
    if n > 1 and disk:
        options.append(scheme.write + plan.stored["disk"][n, ram, disk - 1])
    plan.open[key] = min(options, default=math.inf)


def _reverse(
    plan: _Plan, slots: dict[Tier, list[int]], start: int, stop: int, ram: int, disk: int
) -> Iterator[Action]:
    """Reverse the steps from a start in hand that is stored nowhere."""
    n = stop - start
    if n == 1:
        yield UTurn(start, stop)
        return
    in_memory = ram > 0 and plan.open[n, ram, disk] == plan.stored["ram"][n, ram - 1, disk]
    tier: Tier = "ram" if in_memory else "disk"
    ram, disk = (ram - 1, disk) if in_memory else (ram, disk - 1)
    snapshot = Store(slots[tier].pop(), start, tier)
    yield snapshot
    while (n := stop - start) > 1:
        m = plan.choice[snapshot.tier][n, ram, disk]
        if m == 0:
            yield Free(*snapshot)
            slots["disk"].append(snapshot.slot)
            snapshot, ram, disk = Store(slots["ram"].pop(), start), ram - 1, disk + 1
            yield snapshot
            continue
        yield Advance(start, start + m)
        yield from _reverse(plan, slots, start + m, stop, ram, disk)
        yield Restore(*snapshot)
        stop = start + m
    yield UTurn(start, stop)
    yield Free(*snapshot)
    slots[snapshot.tier].append(snapshot.slot)
