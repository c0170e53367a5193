"""The simulator accepts what an executor can follow, and names the first action it cannot."""

import pytest

from pullback.checkpoint import Advance, Free, Restore, Store, UTurn, simulate
from pullback.core import ScheduleError

GOOD = [
    Store(0, 0), Advance(0, 2), Store(1, 2, "disk"), Advance(2, 3), UTurn(3, 4),
    Restore(1, 2, "disk"), UTurn(2, 3), Free(1, 2, "disk"), Restore(0, 0), UTurn(0, 2), Free(0, 0),
]  # fmt: skip


def test_counts_every_kind_of_cost():
    cost = simulate(GOOD, 4)
    assert (cost.n_steps, cost.forward_steps, cost.stores, cost.restores) == (4, 3, 2, 2)
    assert (cost.peak_ram, cost.peak_disk, cost.peak_tape) == (1, 1, 2)
    assert cost.recompute_factor == 7 / 4


def test_no_steps_need_no_actions():
    assert simulate([], 0).recompute_factor == 0.0


WRONG = {
    "store of another state": ([Store(0, 1)], "state 0 is in hand"),
    "store in a full slot": ([Store(0, 0), Store(0, 0)], "slot 0 still holds state 0"),
    "store in no tier": ([Store(0, 0, "tape")], '`tier` is "ram" or "disk"'),
    "advance from elsewhere": ([Advance(1, 2)], "state 0 is in hand"),
    "advance by nothing": ([Advance(0, 0)], "no further than state 4"),
    "advance beyond the end": ([Advance(0, 5)], "no further than state 4"),
    "restore from an empty slot": ([Restore(3, 0)], "slot 3 is empty"),
    "restore of another state": ([Store(0, 0), Restore(0, 1)], "slot 0 holds state 0 in ram"),
    "restore from another tier": ([Store(0, 0), Restore(0, 0, "disk")], "state 0 in ram"),
    "turn in the wrong place": ([UTurn(0, 1)], "next is step 3"),
    "turn from elsewhere": ([UTurn(3, 4)], "state 0 is in hand"),
    "nothing in hand": ([Advance(0, 3), UTurn(3, 4), UTurn(2, 3)], "no state is in hand"),
    "free of an empty slot": ([Free(0, 0)], "slot 0 is empty"),
    "no action": (["store"], "it is not an action"),
}


@pytest.mark.parametrize("case", WRONG)
def test_names_the_impossible_action(case):
    actions, why = WRONG[case]
    with pytest.raises(ScheduleError, match=f"action {len(actions) - 1}, .*{why}"):
        simulate(actions, 4)


def test_nothing_may_be_left_over():
    with pytest.raises(ScheduleError, match="ends with 2 of 4 steps not reversed"):
        simulate(GOOD[:7], 4)
    with pytest.raises(ScheduleError, match="ends while slot 0 holds state 0"):
        simulate(GOOD[:-1], 4)
