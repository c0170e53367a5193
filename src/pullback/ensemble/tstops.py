"""`tstops`: times at which a step must end, because the vector field jumps or kinks there."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pullback.ensemble.dtypes import dtype_of
from pullback.ensemble.leaf import Members, is_array
from pullback.ensemble.times import listed_times


class Stops(NamedTuple):
    """Times at which a step must end.

    Attributes:
        times: `(stop,)`, or `(trajectory, stop)` where `batched`.
        batched: whether they differ between trajectories.
    """

    times: Any
    batched: bool


def checked_stops(tstops: Any, members: Members, sim_ids: Any = None) -> Stops | None:
    """Return the stops of a solve, checked as far as the numbers are known; None without.

    Args:
        tstops: what was given to `solve`.
        members: trajectories whose leaves have been cast.
        sim_ids: which of all trajectories these are; None for all.

    Raises:
        TypeError: they are not real numbers.
        ValueError: they have a wrong shape, are not sorted, or lie outside the time span.
    """
    if tstops is None:
        return None
    times = np.asarray(tstops) if isinstance(tstops, (list, tuple)) else tstops
    if not is_array(times) or dtype_of(times).kind not in "fiu":
        raise TypeError(
            f"`tstops` must be None or an array of times, but {tstops!r} arrived; write "
            "tstops=[1.0, 2.5]."
        )
    if np.size(times) == 0 and np.ndim(times) == 1:
        return None
    if np.ndim(times) == 2 and sim_ids is not None:
        times = jnp.asarray(times)[sim_ids]
    times = jnp.asarray(times)[None] if np.ndim(times) == 0 else times
    plan = listed_times("tstops", times, members.t_span, members.n_traj, members.dtype)
    return Stops(plan.times, plan.batched)
