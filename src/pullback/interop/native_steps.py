"""Native kernels for the steps of checkpointed loops: the step compiler behind `"auto"`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback.checkpoint import AbstractStepKernels, StepNotCompiled, traced_step
from pullback.checkpoint.body import Body
from pullback.checkpoint.compiled_scan import Gradients
from pullback.checkpoint.leaves import Leaves
from pullback.core.fingerprint import ContentKey
from pullback.core.typing import Array, PyTree
from pullback.interop.step_primitives import advance_p, pull_p, while_p
from pullback.interop.step_programs import (
    tape_bytes,
    unsupported_condition,
    unsupported_reason,
)

__all__ = ["NativeSteps", "native_steps", "native_steps_reason"]


# More do not make a loop faster, fewer than the least do: a call costs as much as a few steps.
_TAPE_BYTES, _LEAST, _MOST = 1 << 22, 64, 1 << 16


@dataclasses.dataclass(frozen=True)
class NativeSteps(AbstractStepKernels):
    """Kernels of one step.

    Attributes:
        body: The step, without kernels.
    """

    body: Body

    @property
    def block(self) -> int:
        """Steps whose tape takes a few MiB."""
        return min(max(_TAPE_BYTES // max(tape_bytes(self.body), 1), _LEAST), _MOST)

    def advance(
        self, consts: Leaves, xs: Leaves, lower: Any, upper: Any, state: Leaves, ys: Leaves
    ) -> tuple[Leaves, Leaves]:
        """Run steps `lower, ..., upper - 1`; write their `y` unless `ys` is empty."""
        operands = (*_indices(lower, upper), *consts, *xs, *state, *ys)
        out = advance_p.bind(*operands, body=self.body, n_recorded=0)
        return tuple(out[: len(state)]), tuple(out[len(state) :])

    def record(
        self, n_steps: int, consts: Leaves, xs: Leaves, state: Leaves, ys: Leaves
    ) -> tuple[Leaves, Leaves, Array]:
        """Run the first `n_steps` steps as `advance` does, and return a tape of them, too."""
        operands = (*_indices(np.int32(0), np.int32(n_steps)), *consts, *xs, *state, *ys)
        *out, tape = advance_p.bind(*operands, body=self.body, n_recorded=n_steps)
        return tuple(out[: len(state)]), tuple(out[len(state) :]), tape

    def run_while(
        self, cond: Body, cond_consts: Leaves, consts: Leaves, most: Array, state: Leaves
    ) -> tuple[Array, Leaves] | None:
        """Run steps while a condition holds; None if the condition has no kernel."""
        cond = _specialised(cond)
        if unsupported_condition(cond, self.body) is not None:
            return None
        operands = (jnp.asarray(most, np.int32), *cond_consts, *consts, *state)
        count, *out = while_p.bind(*operands, cond=cond, body=self.body)
        return count, tuple(out)

    def u_turn(
        self,
        n_steps: int,
        consts: Leaves,
        xs: Leaves,
        start: Any,
        state: Leaves,
        ys_bar: Leaves,
        grads: Gradients,
        tape: Array | None = None,
    ) -> Gradients:
        """Run `n_steps` steps from `state`, or take them from `tape`, and reverse them."""
        groups = (() if tape is None else (tape,), consts, xs, state, ys_bar, *grads)
        operands = [*_indices(start), *(value for group in groups for value in group)]
        is_recorded = tape is not None
        out = pull_p.bind(*operands, body=self.body, n_steps=n_steps, is_recorded=is_recorded)
        n_first, n_last = len(grads.consts), len(out) - len(grads.xs)
        return Gradients(tuple(out[:n_first]), tuple(out[n_first:n_last]), tuple(out[n_last:]))


def _indices(*values: Any) -> list[Any]:
    dtype = jnp.result_type(*[jnp.asarray(v).dtype for v in values])
    return [jnp.asarray(v, dtype) for v in values]


def native_steps(body: Body) -> NativeSteps:
    """Compile a step to native code; for `compile_step=` of a checkpointed loop.

    Every array of the step is one vector in registers, so a step costs its arithmetic and nothing
    else. Under `jax.vmap`, in forward mode over the gradient, and on other devices than CPUs the
    loop runs through XLA.

    Args:
        body: The traced step.

    Raises:
        StepNotCompiled: The step is too large, or uses something without a rule; the message says
            what.

    Differentiation:
        The reverse of a step is JAX's own, exact. A block is run again with a tape of what its
        reverse needs.
    """
    plain = _specialised(body)
    reason = _reason(plain)
    if reason is not None:
        raise StepNotCompiled(reason)
    return NativeSteps(plain)


def _specialised(body: Body) -> Body:
    """Return a step without kernels that is equal only to steps with the same tables."""
    tables = tuple((i, a.dtype.str, a.shape, a.tobytes()) for i, a in body.fixed)
    return dataclasses.replace(body, kernels=None, key=ContentKey((body.key, tables)))


def _reason(body: Body) -> str | None:
    if jax.sharding.get_abstract_mesh().manual_axes:
        return "it runs under `jax.shard_map`"
    return unsupported_reason(body)


def native_steps_reason(
    step: Callable[[Any, Any], tuple[Any, Any]], init: PyTree, xs: PyTree = None
) -> str | None:
    """Return why a loop over `step` runs through XLA, or None if it runs natively.

    Args:
        step: The step of a `checkpointed_scan`.
        init: Its first carry.
        xs: Its inputs, with one row per step.

    Example:
        >>> native_steps_reason(lambda y, _: (0.9 * y, None), 1.0) is None
        True
        >>> import jax
        >>> "`sort`" in native_steps_reason(lambda y, _: (jax.lax.sort(y), None), jax.numpy.ones(3))
        True
    """
    return _reason(_specialised(traced_step(step, init, xs).body))
