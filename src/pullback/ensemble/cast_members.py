"""The trajectories of a problem in the dtypes in which they are solved."""

from __future__ import annotations

from dataclasses import replace

from pullback.ensemble.dtypes import cast_params, cast_state, state_dtype
from pullback.ensemble.leaf import Members
from pullback.ensemble.times import cast_t_span


def cast_members(members: Members) -> Members:
    """Return `members` with all leaves checked and cast; the state decides to what.

    Raises:
        TypeError: a leaf is of a wrong type.
        ValueError: an end of the time span is not a finite number.
    """
    dtype = state_dtype(members.y0)
    return replace(
        members,
        y0=cast_state(members.y0, dtype),
        params=cast_params(members.params, dtype),
        t_span=cast_t_span(members.t_span, dtype),
    )
