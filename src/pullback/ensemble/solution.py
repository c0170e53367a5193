"""What a solve returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import jax
import numpy as np

from pullback.core import FIRST_FAILURE, SolveFailedError, Status
from pullback.core.typing import Array, ArrayLike, PyTree
from pullback.ensemble.dense import DenseOutput, Steps, evaluate_dense
from pullback.ensemble.event import Events
from pullback.ensemble.leaf import is_traced


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """Saved states, outcome and statistics of every trajectory.

    A solution is a pytree, so it passes through `jax.jit` and `jax.vmap`. For a single problem the
    trajectory axis is absent everywhere.

    Attributes:
        t: times of the saved rows, `(trajectory, save)`.
        y: saved states with the structure of `y0`, leaves `(trajectory, save, *state)`. Rows after
            an end or a failure repeat the last good point.
        t_end: time of the last good point, `(trajectory,)`.
        y_end: state there, with the structure of `y0`.
        status: `pb.Status` code, `(trajectory,)`.
        n_saved: how many rows of `t` and `y` are real, `(trajectory,)`.
        stats: `n_attempts`, `n_accepted`, `n_rejected`, `n_rhs`, each `(trajectory,)`.
        events: the recorded events, `pb.Events`; None for a problem without.
        dense: what `sol(t)` needs beside the saved steps; None unless every step of a single
            problem was saved.

    Differentiation:
        `t`, `y`, `t_end`, `y_end` and `events.t` are differentiable; the rest are integers.
    """

    t: Array
    y: PyTree
    t_end: Array
    y_end: PyTree
    status: Array
    n_saved: Array
    stats: Mapping[str, Array]
    events: Events | None = None
    dense: DenseOutput | None = None

    def __call__(self, t: ArrayLike) -> PyTree:
        """Return the state at any time of a single problem solved with `saveat="steps"`.

        Args:
            t: a time or an array of times, in any order, inside the span that was solved.

        Returns:
            The state with the structure of `y0`, leaves `(*t.shape, *state)`: the method's own
            interpolant. At an event it is the state behind it. A traced time outside gives NaN.

        Raises:
            ValueError: there are no steps of a single problem, or a time lies outside.

        Differentiation:
            By `t`, and through the solution by all that the solve is differentiable by.
        """
        return evaluate_dense(self._steps(), t, "state")

    def derivative(self, t: ArrayLike) -> PyTree:
        """Return the derivative of `sol(t)` by time, likewise."""
        return evaluate_dense(self._steps(), t, "slope")

    def _steps(self) -> Steps:
        events = self.events
        times, count = (None, None) if events is None else (events.t, events.count)
        return Steps(self.dense, self.t, self.y, self.n_saved, self.t_end, times, count)

    @property
    def ok(self) -> Array:
        """Whether the trajectory ended as asked, `(trajectory,)` booleans."""
        return self.status < FIRST_FAILURE

    def raise_if_failed(self) -> Self:
        """Return the solution itself, or raise if a trajectory failed.

        Raises:
            SolveFailedError: says how many failed, which first, the time it reached, what that
                means and what to change.
            ValueError: the solution is traced, so its status is not known yet.
        """
        if is_traced(self.status):
            raise ValueError(
                "`raise_if_failed` and throw=True need to see the status, but it is traced (inside "
                "jax.jit, jax.vmap or jax.grad); call sol.raise_if_failed() on the solution that "
                "the transformed function returns, or mask with sol.ok."
            )
        status = np.asarray(self.status)
        failed = np.argwhere(np.atleast_1d(status) >= FIRST_FAILURE)
        if failed.size:
            raise SolveFailedError(self._failure_text(status, failed))
        return self

    def _failure_text(self, status: np.ndarray, failed: np.ndarray) -> str:
        index = tuple(int(i) for i in failed[0]) if status.ndim else ()
        code = Status(int(status[index]))
        time = float(np.asarray(self.t_end)[index])
        if status.ndim == 0:
            head = f"the solve failed at t = {time:.6g}"
        else:
            which = index[0] if len(index) == 1 else index
            head = (
                f"{len(failed)} of {status.size} trajectories failed, the first is number {which}, "
                f"which reached t = {time:.6g}"
            )
        advice = f"; to change that, {code.advice}" if code.advice else ""
        others = _counts(status[status >= FIRST_FAILURE]) if len(failed) > 1 else code.name
        return (
            f"{head} ({others}): {code.message}{advice}. The last good point is in `sol.t_end`, "
            "`sol.y_end`."
        )

    def __repr__(self) -> str:
        states = ", ".join(_short(leaf) for leaf in jax.tree_util.tree_leaves(self.y))
        n_saves = np.shape(self.t)[-1:]
        parts = [f"{' x '.join(map(str, np.shape(self.status)))} trajectories"]
        parts = parts if np.ndim(self.status) else []
        head = ", ".join([*parts, *(_count(n, "save") for n in n_saves), f"y: {states}"])
        head = f"Solution({head}"
        if not all(isinstance(x, (jax.Array, np.ndarray)) for x in (self.status, self.t_end)):
            return f"{head})"
        if is_traced(self.status):
            return f"{head}, traced)"
        attempts = np.asarray(self.stats["n_attempts"])
        effort = f"n_attempts {_range(attempts)}" if attempts.size else "empty"
        return f"{head}, {_counts(np.asarray(self.status))}, {effort})"

    def tree_flatten_with_keys(self) -> tuple[Any, None]:
        """Split into leaves with their names."""
        return [(jax.tree_util.GetAttrKey(f), getattr(self, f)) for f in _FIELDS], None

    @classmethod
    def tree_unflatten(cls, _: None, children: Any) -> Self:
        """Rebuild from leaves of any kind."""
        return cls(*children)


_FIELDS = tuple(field.name for field in fields(Solution))


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _counts(status: np.ndarray) -> str:
    counted = sorted(Counter(status.ravel().tolist()).items())
    return ", ".join(f"{Status(code).name} {count}" for code, count in counted) or "none"


def _range(values: np.ndarray) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low}" if low == high else f"{low}..{high}"


def _short(leaf: Any) -> str:
    if not hasattr(leaf, "dtype"):
        return repr(leaf)
    return f"{np.dtype(leaf.dtype).name}[{','.join(map(str, leaf.shape))}]"
