"""Every scheme is legal for every length; costs are those of the published formulas."""

import functools
import inspect
import itertools
import math

import hypothesis
import pytest
from hypothesis import strategies as st

from pullback.checkpoint import (
    HRevolve,
    Multistage,
    Nested,
    Online,
    Periodic,
    Revolve,
    ScheduleCost,
    StoreAll,
    TwoLevel,
    schedules,
    simulate,
)
from pullback.checkpoint.schedules.binomial import beta, forward_steps, repetition

LENGTHS = range(61)
SNAPSHOTS = range(1, 13)

# t(l, c): plain steps to reverse l steps with c snapshots.
TABLE_SNAPSHOTS = (1, 2, 3, 5, 7, 10, 20, 30, 50, 100, 1000)
TABLE = {
    5: (10, 6, 5, 4, 4, 4, 4, 4, 4, 4, 4),
    10: (45, 20, 15, 13, 11, 9, 9, 9, 9, 9, 9),
    20: (190, 65, 45, 33, 31, 28, 19, 19, 19, 19, 19),
    50: (1225, 285, 180, 122, 105, 88, 78, 68, 49, 49, 49),
    100: (4950, 845, 490, 316, 255, 222, 178, 168, 148, 99, 99),
    1000: (499500, 28820, 12155, 6284, 4713, 3636, 2747, 2472, 1948, 1898, 999),
    10**6: (
        499999500000, 941809245, 134787105, 31940948, 17891895, 11647922, 6815960, 5623008,
        4658945, 3817896, 2497497,
    ),
}  # fmt: skip


@functools.cache
def least_steps(n: int, c: int) -> int:
    """Dynamic programming, without the closed form."""
    if n <= 1:
        return 0
    if c == 1:
        return n * (n - 1) // 2
    return min(m + least_steps(n - m, c - 1) + least_steps(m, c) for m in range(1, n))


@functools.cache
def least_stores(n: int, c: int) -> int:
    """Fewest stores, without the first, among the schedules with the fewest steps."""
    if n <= 1 or c == 1:
        return 0
    return min(
        (n - m > 1) + least_stores(n - m, c - 1) + least_stores(m, c)
        for m in range(1, n)
        if m + least_steps(n - m, c - 1) + least_steps(m, c) == least_steps(n, c)
    )


@pytest.mark.parametrize("n", TABLE)
def test_least_steps_of_the_table(n):
    assert tuple(forward_steps(n, c) for c in TABLE_SNAPSHOTS) == TABLE[n]


def test_revolve_is_optimal_in_steps_and_then_in_stores():
    for n, c in itertools.product(LENGTHS, SNAPSHOTS):
        cost = simulate(Revolve(c).actions(n), n)
        assert cost == Revolve(c).cost(n), (n, c)
        assert cost.forward_steps == least_steps(n, c), (n, c)
        assert cost.stores == (least_stores(n, c) + 1 if n else 0), (n, c)
        assert cost.peak_ram <= c, (n, c)


def test_c3_fifty_steps_with_seven_snapshots():
    cost = simulate(Revolve(7).actions(50), 50)
    assert (cost.forward_steps, cost.stores, cost.peak_ram) == (105, 28, 7)


def test_costs_of_a_million_steps_are_predicted_at_once():
    cost = Revolve(1000).cost(10**6)
    assert cost.forward_steps == TABLE[10**6][-1]
    assert cost.recompute_factor == 3.497497


def test_online_is_optimal_while_two_repeats_are_enough():
    for c in SNAPSHOTS:
        for n in range(beta(c, 2) + 2):
            cost = simulate(Online(c).actions(n), n)
            assert cost.forward_steps == least_steps(n, c), (n, c)
            assert cost.peak_ram <= c, (n, c)


@pytest.mark.parametrize(("n_snapshots", "most"), [(2, 200), (3, 200), (5, 500), (10, 1100)])
def test_online_repeats_no_step_more_often_than_the_optimum(n_snapshots, most):
    for n in range(2, most, 11):
        actions = list(Online(n_snapshots).actions(n))
        assert simulate(actions, n).peak_ram <= n_snapshots
        assert most_visits(actions, n) <= repetition(n, n_snapshots), n
        # Measured: at most 1.38 times the optimum's steps while three repeats are enough.
        assert simulate(actions, n).forward_steps <= 1.4 * forward_steps(n, n_snapshots), n


def most_visits(actions, n: int) -> int:
    visits = [0] * n
    for action in actions:
        if isinstance(action, schedules.Advance):
            for i in range(*action):
                visits[i] += 1
    return max(visits)


def test_online_decides_without_the_length():
    long = list(itertools.takewhile(lambda a: not isinstance(a, schedules.UTurn),
                                    Online(4).actions(100)))  # fmt: skip
    for n in range(1, 60):
        short = itertools.takewhile(
            lambda a: not isinstance(a, schedules.UTurn), Online(4).actions(n)
        )
        stores = [a for a in short if not isinstance(a, schedules.Advance)]
        same = [a for a in long if not isinstance(a, schedules.Advance)]
        assert stores == same[: len(stores)], n


def test_multistage_takes_the_steps_of_revolve_and_spares_the_disk():
    for n, ram, disk in itertools.product(range(0, 61, 3), range(5), range(5)):
        if ram + disk == 0:
            continue
        actions = list(Multistage(ram, disk).actions(n))
        cost = simulate(actions, n)
        assert cost.forward_steps == Revolve(ram + disk).cost(n).forward_steps
        assert cost.peak_ram <= ram and cost.peak_disk <= disk
        assert disk_uses(actions) == fewest_disk_uses(n, ram, disk)


def disk_uses(actions) -> int:
    uses = (a for a in actions if isinstance(a, (schedules.Store, schedules.Restore)))
    return sum(a.tier == "disk" for a in uses)


def fewest_disk_uses(n: int, ram: int, disk: int) -> int:
    """Try every choice of slots on disk."""
    uses = [a.slot for a in Revolve(ram + disk).actions(n)
            if isinstance(a, (schedules.Store, schedules.Restore))]  # fmt: skip
    choices = itertools.combinations(range(ram + disk), disk)
    return min(sum(slot in chosen for slot in uses) for chosen in choices)


def test_two_level_takes_the_steps_of_its_parts():
    for n, period, c in itertools.product(range(1, 61, 2), (1, 2, 5, 9), (0, 1, 3)):
        cost = simulate(TwoLevel(period, c).actions(n), n)
        whole, rest = divmod(n, period)
        parts = [period] * whole + ([rest] if rest else [])
        wanted = sum(forward_steps(m, c + 1) for m in parts) + period * (len(parts) - 1)
        assert cost.forward_steps == wanted, (n, period, c)
        assert cost.peak_ram <= c and cost.peak_disk == len(parts)


def test_periodic_costs_one_more_sweep_and_a_period():
    for n, period in itertools.product(LENGTHS, (1, 2, 7, 100)):
        cost = Periodic(period).cost(n)
        assert cost.forward_steps == n // period * period
        assert cost.peak_ram == n // period
        assert cost.peak_tape == (min(n, period))


def test_nested_costs_a_sweep_per_level_and_memory_like_the_root():
    for n, levels in itertools.product(LENGTHS, (1, 2, 3, 4)):
        cost = Nested(levels).cost(n)
        root = max(2, math.ceil(n ** (1 / levels) - 1e-9))
        assert cost.forward_steps <= (levels - 1) * n
        assert cost.peak_tape <= root
        assert cost.peak_ram <= (levels - 1) * root, (n, levels)


def test_store_all_runs_nothing_twice():
    assert StoreAll().cost(30) == ScheduleCost(30, 0, 0, 0, 0, 0, 30)


SCHEMES = [
    StoreAll(), Periodic(5), Nested(3), Revolve(4), Online(4), TwoLevel(6, 2), Multistage(2, 3),
    HRevolve(2, 2),
]  # fmt: skip


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@hypothesis.settings(max_examples=10)
@hypothesis.given(n=st.integers(0, 300))
def test_any_length_is_legal(scheme, n):
    assert scheme.cost(n).n_steps == n


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_schemes_are_lazy_hashable_and_documented(scheme):
    assert scheme == eval(repr(scheme), vars(schedules))
    assert hash(scheme) == hash(eval(repr(scheme), vars(schedules)))
    assert inspect.isgenerator(scheme.actions(40))
    with pytest.raises(AttributeError):
        scheme.anything = 1
    with pytest.raises(ValueError, match="`n_steps`: expected at least 0, got -1"):
        list(scheme.actions(-1))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Revolve(0), "n_snapshots"),
        (lambda: Online(0), "n_snapshots"),
        (lambda: Periodic(0), "period"),
        (lambda: Nested(0), "levels"),
        (lambda: TwoLevel(0, 1), "period"),
        (lambda: TwoLevel(1, -1), "n_snapshots"),
        (lambda: Multistage(0, 0), r"n_ram \+ n_disk"),
        (lambda: HRevolve(1, -1), "n_disk"),
        (lambda: HRevolve(1, 1, write=-1.0), "write"),
    ],
)
def test_counts_out_of_range_are_named(make, name):
    with pytest.raises(ValueError, match=f"`{name}`: expected"):
        make()


def test_counts_that_are_no_integers_are_named():
    with pytest.raises(TypeError, match=r"`n_snapshots`: expected an integer, got 2\.5"):
        Revolve(2.5)  # pyright: ignore[reportArgumentType]
