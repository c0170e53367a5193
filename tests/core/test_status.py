import pytest

from pullback.core import FIRST_FAILURE, Status

CODES = {
    "success": 0,
    "terminated": 1,
    "max_steps_reached": 10,
    "dt_underflow": 11,
    "non_finite": 12,
    "save_overflow": 13,
    "newton_diverged": 14,
    "looks_stiff": 15,
    "event_chatter": 16,
    "zeno": 17,
    "inconsistent_initial": 18,
    "singular_dae": 19,
    "gradient_unresolved": 20,
    "invalid_input": 21,
    "left_domain": 22,
}


def test_codes_are_fixed():
    # Programs store them: a code may be added, never changed.
    assert {status.name: status.value for status in Status} == CODES


@pytest.mark.parametrize("status", Status)
def test_every_code_explains_itself(status):
    assert status.message
    assert not status.message.endswith(".")
    assert status.is_failure == (status.value >= FIRST_FAILURE)
    assert bool(status.advice) == status.is_failure
