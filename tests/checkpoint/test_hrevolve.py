"""The plan for two kinds of storage against a search of all schedules."""

import heapq
import itertools

import pytest

from pullback.checkpoint import HRevolve, Revolve, simulate
from pullback.checkpoint.schedules import Restore, Store


def predicted(scheme: HRevolve, n: int) -> float:
    """Time of the actions themselves, counted one by one."""
    actions = list(scheme.actions(n))
    cost = simulate(actions, n)
    assert cost.peak_ram <= scheme.n_ram
    assert cost.peak_disk <= scheme.n_disk
    writes = sum(isinstance(a, Store) and a.tier == "disk" for a in actions)
    reads = sum(isinstance(a, Restore) and a.tier == "disk" for a in actions)
    return cost.forward_steps * scheme.step + writes * scheme.write + reads * scheme.read


def least_time(scheme: HRevolve, n: int) -> float:
    """Dijkstra's search over all states of an executor: in hand, in memory, on disk, end."""
    start = (0, frozenset(), frozenset(), n)
    queue, times, order = [(0.0, 0, start)], {start: 0.0}, itertools.count(1)
    while queue:
        time, _, state = heapq.heappop(queue)
        if time > times[state]:
            continue
        if state[3] == 0:
            return time
        for extra, new in moves(scheme, *state):
            if time + extra < times.get(new, float("inf")):
                times[new] = time + extra
                heapq.heappush(queue, (time + extra, next(order), new))
    raise AssertionError("no schedule found")


def moves(scheme, hand, ram, disk, end):
    for step in ram:
        yield 0.0, (hand, ram - {step}, disk, end)
        yield 0.0, (step, ram, disk, end)
    for step in disk:
        yield 0.0, (hand, ram, disk - {step}, end)
        yield scheme.read, (step, ram, disk, end)
    if hand is None:
        return
    if hand < end - 1:
        yield scheme.step, (hand + 1, ram, disk, end)
    if hand == end - 1:
        yield 0.0, (None, ram, disk, hand)
    if len(ram) < scheme.n_ram:
        yield 0.0, (hand, ram | {hand}, disk, end)
    if len(disk) < scheme.n_disk:
        yield scheme.write, (hand, ram, disk | {hand}, end)


@pytest.mark.parametrize(("n_ram", "n_disk"), [(1, 0), (0, 2), (1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize(("write", "read"), [(0.0, 0.0), (0.4, 0.7), (2.0, 1.0), (1.0, 5.0)])
def test_no_schedule_is_faster(n_ram, n_disk, write, read):
    scheme = HRevolve(n_ram, n_disk, write, read)
    for n in range(1, 8):
        assert scheme.time(n) == pytest.approx(least_time(scheme, n), rel=1e-12)


@pytest.mark.parametrize("scheme", [HRevolve(2, 3), HRevolve(1, 4, 0.3, 2.0), HRevolve(3, 1, 9.0)])
def test_time_is_that_of_the_actions(scheme):
    for n in range(0, 60, 7):
        assert predicted(scheme, n) == pytest.approx(scheme.time(n), rel=1e-12)


def test_free_disk_is_memory_and_dear_disk_is_left_alone():
    for n in (1, 10, 40):
        assert HRevolve(2, 3, 0.0, 0.0).time(n) == Revolve(5).cost(n).forward_steps
        assert HRevolve(3, 2, 1e9, 1e9).time(n) == Revolve(3).cost(n).forward_steps
