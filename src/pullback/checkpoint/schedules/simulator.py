"""The one simulator that proves a schedule legal and counts what it costs.

It knows no scheme: it follows the actions as an executor would and objects to the first one that
an executor could not carry out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pullback.checkpoint.schedules.actions import Action, Advance, Free, Restore, Store, UTurn
from pullback.core import ScheduleError

__all__ = ["ScheduleCost", "simulate"]


@dataclass(frozen=True)
class ScheduleCost:
    """What a schedule costs.

    Attributes:
        n_steps: Steps that are reversed.
        forward_steps: Plain steps that are run, the first sweep included.
        stores: Snapshots that are written.
        restores: Snapshots that are read.
        peak_ram: Most snapshots in memory at a time.
        peak_disk: Most snapshots on disk at a time.
        peak_tape: Most steps taped at a time.
    """

    n_steps: int
    forward_steps: int
    stores: int
    restores: int
    peak_ram: int
    peak_disk: int
    peak_tape: int

    @property
    def recompute_factor(self) -> float:
        """Forward evaluations per step, the taped one included."""
        return (self.forward_steps + self.n_steps) / max(self.n_steps, 1)


def simulate(actions: Iterable[Action], n_steps: int) -> ScheduleCost:
    """Follow a schedule and count its cost.

    Args:
        actions: The schedule.
        n_steps: Number of steps that it is for.

    Raises:
        ScheduleError: An action cannot be carried out, or something is left undone at the end.

    Example:
        >>> simulate(
        ...     [Store(0, 0), Advance(0, 1), UTurn(1, 2), Restore(0, 0), UTurn(0, 1), Free(0, 0)],
        ...     n_steps=2,
        ... ).forward_steps
        1
    """
    run = _Simulation(n_steps)
    for number, action in enumerate(actions):
        follow = _FOLLOW.get(type(action))
        problem = "it is not an action" if follow is None else follow(run, action)
        if problem:
            raise ScheduleError(
                f"`actions`: action {number}, {action}, is not possible: {problem}."
                " Correct the schedule."
            )
    return run.finished()


class _Simulation:
    """State of the simulated executor; each method returns what is wrong with an action, or ""."""

    def __init__(self, n_steps: int) -> None:
        self.n_steps = self.end = n_steps
        self.position: int | None = 0
        self.slots: dict[int, tuple[int, str]] = {}
        self.in_use = {"ram": 0, "disk": 0}
        self.peak = {"ram": 0, "disk": 0}
        self.forward = self.stores = self.restores = self.tape = 0

    def store(self, action: Store) -> str:
        slot, step, tier = action
        if step != self.position:
            return self._in_hand()
        if slot in self.slots:
            return f"slot {slot} still holds state {self.slots[slot][0]}"
        if tier not in self.in_use:
            return f'`tier` is "ram" or "disk", not {tier!r}'
        self.slots[slot] = (step, tier)
        self.stores += 1
        self.in_use[tier] += 1
        self.peak[tier] = max(self.peak[tier], self.in_use[tier])
        return ""

    def advance(self, action: Advance) -> str:
        start, stop = action
        if start != self.position:
            return self._in_hand()
        if not start < stop <= self.end:
            return f"it has to go forward and no further than state {self.end}"
        self.forward += stop - start
        self.position = stop
        return ""

    def restore(self, action: Restore) -> str:
        slot, step, tier = action
        if self.slots.get(slot) != (step, tier):
            return self._held(slot)
        self.restores += 1
        self.position = step
        return ""

    def u_turn(self, action: UTurn) -> str:
        start, stop = action
        if start != self.position:
            return self._in_hand()
        if not start < stop == self.end:
            return f"the step to reverse next is step {self.end - 1}"
        self.tape = max(self.tape, stop - start)
        self.end = start
        self.position = None
        return ""

    def free(self, action: Free) -> str:
        slot, step, tier = action
        if self.slots.get(slot) != (step, tier):
            return self._held(slot)
        del self.slots[slot]
        self.in_use[tier] -= 1
        return ""

    def finished(self) -> ScheduleCost:
        if self.end:
            raise ScheduleError(
                f"`actions`: the schedule ends with {self.end} of {self.n_steps} steps not"
                " reversed. Add the missing U-turns."
            )
        if self.slots:
            slot, (step, _) = next(iter(self.slots.items()))
            raise ScheduleError(
                f"`actions`: the schedule ends while slot {slot} holds state {step}."
                " Free every slot."
            )
        return ScheduleCost(
            self.n_steps, self.forward, self.stores, self.restores,
            self.peak["ram"], self.peak["disk"], self.tape,
        )  # fmt: skip

    def _in_hand(self) -> str:
        if self.position is None:
            return "no state is in hand after a U-turn"
        return f"state {self.position} is in hand"

    def _held(self, slot: int) -> str:
        if slot not in self.slots:
            return f"slot {slot} is empty"
        step, tier = self.slots[slot]
        return f"slot {slot} holds state {step} in {tier}"


_FOLLOW = {
    Store: _Simulation.store,
    Advance: _Simulation.advance,
    Restore: _Simulation.restore,
    UTurn: _Simulation.u_turn,
    Free: _Simulation.free,
}
