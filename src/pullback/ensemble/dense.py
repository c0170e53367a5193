"""Dense output of a single solve: `sol(t)` and `sol.derivative(t)`."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array, ArrayLike, PyTree
from pullback.ensemble.dtypes import dtype_of
from pullback.ensemble.leaf import is_array, is_traced
from pullback.ode import (
    DENSE_SLACK,
    SolveOperands,
    SolveSpec,
    StateLayout,
    StepEnds,
    StochasticMethod,
    dense_slopes,
    dense_states,
    started,
)

Kind = Literal["state", "slope"]


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, eq=False)
class DenseOutput:
    """What a solution needs beside its saved steps to take them again.

    Attributes:
        spec: what was solved.
        layout: structure of the state.
        t0: start.
        y0: state with which the first step began, as a vector.
        rows: states at the ends of the steps, as vectors; None where they are the solution's own.
        rtol: relative tolerance, for equations inside a step.
        atol: absolute tolerance, likewise.
        theta: arrays of the vector field.
    """

    spec: SolveSpec
    layout: StateLayout
    t0: Array
    y0: Array
    rows: Array | None
    rtol: Array
    atol: Array
    theta: tuple[Array, ...]

    def tree_flatten(self) -> tuple[Any, Any]:
        """Split into arrays and the static part."""
        arrays = (self.t0, self.y0, self.rows, self.rtol, self.atol, self.theta)
        return arrays, (self.spec, self.layout)

    @classmethod
    def tree_unflatten(cls, static: Any, arrays: Any) -> Self:
        """Rebuild from leaves of any kind."""
        return cls(*static, *arrays)


def make_dense(
    spec: SolveSpec, layout: StateLayout, operands: SolveOperands, rows: Array | None
) -> DenseOutput:
    """Return the dense output of a single solve whose steps were saved; to be traced."""
    first = started(spec, operands)
    rtol, atol = first.rtol, first.atol
    return DenseOutput(spec, layout, first.t0, first.y0, rows, rtol, atol, first.theta)


class Steps(NamedTuple):
    """The parts of a solution that dense output is made of.

    Attributes:
        dense: the dense output; None if there is none.
        t: ends of the steps.
        y: saved states, with the structure of the state.
        n_saved: how many steps there are.
        t_end: end of the last one.
        event_times: times of the recorded events; None without.
        n_events: how many there were; None without.
    """

    dense: DenseOutput | None
    t: Array
    y: PyTree
    n_saved: Array
    t_end: Array
    event_times: Array | None
    n_events: Array | None


def evaluate_dense(steps: Steps, t: ArrayLike, kind: Kind) -> PyTree:
    """Return the state, or its derivative by time, at any times inside the span.

    Raises:
        ValueError: there is no dense output, or a time lies outside.
        TypeError: `t` holds no real numbers.
    """
    dense = _checked_dense(steps, kind)
    times = _checked_times(steps, dense, t)
    rows = _vectors(steps.y) if dense.rows is None else dense.rows
    ends = StepEnds(
        t0=dense.t0,
        y0=dense.y0,
        t=steps.t,
        y=rows,
        n_saved=steps.n_saved,
        rtol=dense.rtol,
        atol=dense.atol,
        theta=dense.theta,
        event_times=steps.event_times,
        n_events=steps.n_events,
    )
    found = _evaluate(dense.spec, kind, ends, times.reshape(-1))
    return dense.layout.unravel(found.reshape(*times.shape, dense.layout.n))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _evaluate(spec: SolveSpec, kind: Kind, ends: StepEnds, times: Array) -> Array:
    return (dense_states if kind == "state" else dense_slopes)(spec, ends, times)


def _checked_dense(steps: Steps, kind: Kind) -> DenseOutput:
    called = "sol(t)" if kind == "state" else "sol.derivative(t)"
    dense = steps.dense
    if dense is None:
        raise ValueError(
            f"`{called}` takes the steps of a single problem, but this solution does not have "
            'them; solve an ODEProblem with saveat="steps", or give the times to `saveat`.'
        )
    if jnp.ndim(steps.n_saved):
        raise ValueError(
            f"`{called}` takes a solution of one trajectory, but this one has the axes "
            f"{jnp.shape(steps.n_saved)} of jax.vmap; call jax.vmap(lambda sol: {called})(sol)."
        )
    if kind == "slope" and isinstance(dense.spec.method, StochasticMethod):
        raise ValueError(
            "`sol.derivative(t)` of a stochastic problem does not exist: its paths have no "
            "derivative by time."
        )
    return dense


def _checked_times(steps: Steps, dense: DenseOutput, t: ArrayLike) -> Array:
    if isinstance(t, (list, tuple)):
        t = np.asarray(t)
    if not is_array(t) or dtype_of(t).kind not in "fiu":
        raise TypeError(f"`t` must be a time or an array of times, but {t!r} arrived.")
    times = jnp.asarray(t).astype(dense.spec.dtype)
    if any(map(is_traced, (times, dense.t0, steps.t_end))):
        return times
    first, last = (float(x) for x in (dense.t0, steps.t_end))
    low, high = min(first, last), max(first, last)
    slack = float(np.finfo(dense.spec.dtype).eps) * DENSE_SLACK * max(abs(low), abs(high))
    numbers = np.asarray(times, np.float64)
    is_outside = ~((numbers >= low - slack) & (numbers <= high + slack))
    if is_outside.any():
        raise ValueError(
            f"`t` must lie inside the span that was solved, ({first:.9g}, {last:.9g}), but "
            f"{numbers[is_outside].flat[0]:.9g} arrived; there is no extrapolation, so solve "
            "over a longer `t_span`."
        )
    return times


def _vectors(y: PyTree) -> Array:
    """Return saved states as vectors, `(save, n)`."""
    leaves = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(y)]
    return leaves[0] if len(leaves) == 1 else jnp.concatenate(leaves, axis=1)
