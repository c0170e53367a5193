"""Times: `t_span` and the save times that follow from `saveat`.

Everything that is known before tracing is checked here; what is only known in a trace becomes the
status `invalid_input` of its trajectory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pullback.ensemble.dtypes import cast, cast_leaf, dtype_of, known
from pullback.ensemble.leaf import Leaf, Members, is_array, is_traced

SINGLE_MAX_SAVES = 4096
# Save times are computed by users in ways that round: this much outside the span is still its end.
_SLACK_EPS = 8
_MOST_ROWS = 2**27


@dataclass(frozen=True)
class SavePlan:
    """Which rows a solve saves.

    Attributes:
        mode: "final", "times" or "steps".
        n_saves: rows of the saved arrays.
        times: save times, `(n_saves,)`, or `(trajectory, n_saves)` where `batched`.
        batched: whether the times differ between trajectories.
        n_real: how many rows are wanted, `(trajectory,)`; None means all of them.
    """

    mode: Literal["final", "times", "steps"]
    n_saves: int
    times: Any
    batched: bool = False
    n_real: np.ndarray | None = None


def cast_t_span(t_span: tuple[Leaf, Leaf], dtype: np.dtype) -> tuple[Leaf, Leaf]:
    """Return the two ends as arrays of `dtype`.

    Raises:
        TypeError: an end is not a real number.
        ValueError: an end is not a scalar, or is NaN or infinite.
    """
    for leaf in t_span:
        if not is_array(leaf.value) or dtype_of(leaf.value).kind not in "fiu":
            what = dtype_of(leaf.value) if is_array(leaf.value) else type(leaf.value).__name__
            raise TypeError(f"`{leaf.path}` must be a real number, but {what} arrived.")
        if leaf.shape != ():
            raise ValueError(
                f"`{leaf.path}` must be one number per trajectory, but an array of shape "
                f"{leaf.shape} arrived; spans that differ between trajectories go to "
                "EnsembleProblem(problem, t_span=...)."
            )
        values = known(leaf.value)
        if values is not None and not np.isfinite(values).all():
            bad = np.ravel(values)[~np.isfinite(np.ravel(values))][0]
            raise ValueError(
                f"`{leaf.path}` must be finite, but {bad} arrived; give `t_span` two finite times."
            )
    t0, t1 = (cast_leaf(leaf, dtype) for leaf in t_span)
    return t0, t1


def plan_saves(saveat: Any, max_saves: int | None, members: Members) -> SavePlan:
    """Return the rows that `saveat` asks for, checked as far as the numbers are known."""
    t_span, n_traj, dtype = members.t_span, members.n_traj, members.dtype
    nothing = np.zeros((0,), dtype)
    if isinstance(saveat, str):
        return SavePlan("steps", _step_rows(saveat, max_saves, n_traj), nothing)
    if max_saves is not None:
        raise ValueError(
            f'`max_saves`={max_saves} is the number of rows of saveat="steps", but saveat='
            f"{saveat!r} arrived; leave `max_saves` out."
        )
    if saveat is None:
        return SavePlan("final", 1, nothing)
    times = np.asarray(saveat) if isinstance(saveat, (list, tuple)) else saveat
    if not is_array(times) or dtype_of(times).kind not in "fiu":
        raise TypeError(
            '`saveat` must be None, a number, an array of times or "steps", but '
            f"{saveat!r} arrived."
        )
    if np.ndim(times) == 0:
        return _spaced(times, t_span, dtype)
    return listed_times("saveat", times, t_span, n_traj, dtype)


def _step_rows(saveat: str, max_saves: int | None, n_traj: int | None) -> int:
    if saveat != "steps":
        raise ValueError(
            '`saveat` must be None, a number, an array of times or "steps", but '
            f"{saveat!r} arrived."
        )
    if max_saves is None:
        if n_traj is not None:
            raise ValueError(
                '`max_saves` is missing: saveat="steps" on an ensemble reserves that many rows for '
                "each trajectory; pass max_saves=, for example 200."
            )
        return SINGLE_MAX_SAVES
    is_int = isinstance(max_saves, (int, np.integer)) and not isinstance(max_saves, bool)
    if not is_int or max_saves < 1:
        raise ValueError(
            "`max_saves` must be an integer of at least 1 (the number of rows that are reserved), "
            f"but {max_saves!r} arrived."
        )
    return int(max_saves)


def _spaced(spacing: Any, t_span: tuple[Leaf, Leaf], dtype: np.dtype) -> SavePlan:
    """Save at t0, t0 + spacing, ... and always at t1."""
    if any(map(is_traced, (spacing, t_span[0].value, t_span[1].value))):
        raise ValueError(
            "`saveat` is a number, but how many times that gives is unknown because `t_span` or "
            "`saveat` is traced (inside jax.jit, jax.grad or jax.vmap, or changed by `prob_func` "
            "there); pass an array of times, for example jnp.linspace(t0, t1, 11)."
        )
    step = float(spacing)
    if not (np.isfinite(step) and step > 0):
        raise ValueError(
            f"`saveat` as a number is the spacing of the save times and must be positive, but "
            f"{step} arrived; pass a positive number also when time runs backward."
        )
    t0, t1 = (np.asarray(leaf.value, np.float64) for leaf in t_span)
    t0, t1 = np.broadcast_arrays(t0, t1)
    n_rows = np.abs(t1 - t0).max(initial=0.0) / step
    if n_rows > _MOST_ROWS:
        raise ValueError(
            f"`saveat`={step} gives {n_rows:.2g} save times in `t_span`, but at most "
            f"{_MOST_ROWS:.2g} were expected; `saveat` as a number is the spacing of the times."
        )
    rows = [_spaced_row(a, b, step, dtype) for a, b in zip(t0.ravel(), t1.ravel(), strict=True)]
    if t0.ndim == 0:
        return SavePlan("times", rows[0].size, rows[0])
    return _padded(rows, dtype)


def _spaced_row(t0: float, t1: float, step: float, dtype: np.dtype) -> np.ndarray:
    span = abs(t1 - t0)
    slack = _slack(t0, t1, dtype)
    count = int(np.floor((span + slack) / step))
    row = t0 + np.sign(t1 - t0) * step * np.arange(count + 1)
    row = row[np.abs(row - t1) > slack]
    return np.append(row, t1).astype(dtype)


def _padded(rows: list[np.ndarray], dtype: np.dtype) -> SavePlan:
    counts = np.array([row.size for row in rows], np.int32)
    width = int(counts.max(initial=1))
    times = np.zeros((len(rows), width), dtype)
    for i, row in enumerate(rows):
        times[i, : row.size] = row
        times[i, row.size :] = row[-1]
    real = None if (counts == width).all() else counts
    return SavePlan("times", width, times, batched=True, n_real=real)


def listed_times(
    name: str, times: Any, t_span: tuple[Leaf, Leaf], n_traj: int | None, dtype: np.dtype
) -> SavePlan:
    """Return the times given, the same for all trajectories or one row for each.

    Args:
        name: what the argument is called.
        times: the times, `(time,)` or `(trajectory, time)`.
        t_span: the span they must lie in.
        n_traj: number of trajectories; None for a single problem.
        dtype: their dtype.
    """
    kind = "save" if name == "saveat" else "stop"
    shape = np.shape(times)
    if len(shape) > 2 or (len(shape) == 2 and n_traj is None):
        expected = f"({kind},) or (trajectory, {kind})" if n_traj is not None else f"({kind},)"
        raise ValueError(
            f"`{name}` must have shape {expected}, but an array of shape {shape} arrived."
        )
    n_saves = shape[len(shape) - 1]
    if n_saves == 0:
        what = " to get the final state only" if name == "saveat" else ""
        raise ValueError(f"`{name}` holds no times; pass {name}=None{what}.")
    if len(shape) == 2 and shape[0] != n_traj:
        raise ValueError(
            f"trajectory counts disagree: `{name}` has {shape[0]} rows, but there are {n_traj} "
            "trajectories; give one row per trajectory, or one row for all."
        )
    times = cast(times, dtype)
    if not is_traced(times):
        times = _checked_times(name, np.asarray(times), t_span, dtype)
    return SavePlan("times", n_saves, times, batched=np.ndim(times) == 2)


def _checked_times(
    name: str, times: np.ndarray, t_span: tuple[Leaf, Leaf], dtype: np.dtype
) -> np.ndarray:
    if np.isnan(times).any():
        raise ValueError(
            f"`{name}` must hold numbers, but its entry {_first(np.isnan(times))} is NaN."
        )
    if any(is_traced(leaf.value) for leaf in t_span):
        return times
    t0, t1 = (np.asarray(leaf.value, np.float64)[..., None] for leaf in t_span)
    sign = np.where(t1 < t0, -1.0, 1.0)
    unsorted = np.diff(sign * times, axis=-1) < 0
    if unsorted.any():
        raise ValueError(
            f"`{name}` must be sorted in the direction of integration, but its entry "
            f"{_first(unsorted, shift=1)} comes after a later time; pass jnp.sort({name}), "
            "reversed when `t_span` runs backward."
        )
    slack = _slack(t0, t1, dtype)
    low, high = np.minimum(t0, t1), np.maximum(t0, t1)
    outside = (times < low - slack) | (times > high + slack)
    if outside.any():
        where = _first(outside)
        value = np.broadcast_to(times, outside.shape)[where]
        first, last = (np.broadcast_to(t, outside.shape)[where] for t in (t0, t1))
        raise ValueError(
            f"`{name}` must lie inside `t_span`, but its entry {where} is {value:.9g} and the span "
            f"is ({first:.9g}, {last:.9g}); widen `t_span` or drop that time."
        )
    clipped = np.clip(times, low, high).astype(dtype)
    return times if (clipped == times).all() else clipped


def _slack(t0: Any, t1: Any, dtype: np.dtype) -> Any:
    return _SLACK_EPS * np.finfo(dtype).eps * np.maximum(np.abs(t0), np.abs(t1))


def _first(mask: np.ndarray, shift: int = 0) -> Any:
    """Return the index of the first true entry, as a number where there is one axis."""
    index = [int(i) for i in np.argwhere(mask)[0]]
    index[-1] += shift
    return index[0] if len(index) == 1 else tuple(index)
