"""The user's step or condition as a traced function of flat lists of arrays.

What the function closes over, traced or not, becomes an operand, so that it can be differentiated
and is never part of compiled code. A body compares by content: see `fingerprint`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from pullback.checkpoint.leaves import Leaves
from pullback.core.fingerprint import ContentKey, open_jaxpr_key
from pullback.core.typing import PyTree

if TYPE_CHECKING:
    from pullback.checkpoint.step_kernels import AbstractStepKernels

__all__ = ["Body", "TracedFunction", "trace"]

_LARGEST_TABLE = 256


@dataclasses.dataclass(frozen=True)
class Body:
    """A pure function of `consts` and further lists of arrays.

    Attributes:
        key: Equal for equal traces; with `n_carry` and `kernels`, what is compared.
        n_carry: How many of the results are the new carry; the others are the step's `y`.
        jaxpr: The trace.
        kernels: What runs blocks of steps faster than XLA, or None.
        fixed: Which of `consts` are small tables of integers that were known when the step was
            traced, and their values. A step compiler may build them in.
    """

    key: ContentKey
    n_carry: int
    jaxpr: jex.Jaxpr = dataclasses.field(compare=False, repr=False)
    kernels: AbstractStepKernels | None = None
    fixed: tuple[tuple[int, np.ndarray], ...] = dataclasses.field(
        default=(), compare=False, repr=False
    )

    @property
    def has_y(self) -> bool:
        """Whether there are results besides the carry."""
        return len(self.jaxpr.outvars) > self.n_carry

    def closed_over(self, n_operands: int) -> Body:
        """Return the same function with its first operands as its last `consts`."""
        taken, kept = self.jaxpr.invars[:n_operands], self.jaxpr.invars[n_operands:]
        jaxpr = self.jaxpr.replace(constvars=[*self.jaxpr.constvars, *taken], invars=kept)
        return dataclasses.replace(self, jaxpr=jaxpr)

    def __call__(self, consts: Leaves, *groups: Sequence[Any]) -> tuple[Leaves, Leaves]:
        """Evaluate; return the new carry and `y`."""
        operands = [value for group in groups for value in group]
        out = jax.core.eval_jaxpr(self.jaxpr, consts, *operands)
        return tuple(out[: self.n_carry]), tuple(out[self.n_carry :])


class TracedFunction(NamedTuple):
    """What tracing a function gives.

    Attributes:
        body: The function, static.
        consts: The arrays that it closes over.
        out: The result, with abstract values as leaves.
    """

    body: Body
    consts: Leaves
    out: PyTree


def trace(
    function: Callable[..., Any], name: str, n_carry: Callable[[Any], int], *args: PyTree
) -> TracedFunction:
    """Trace `function(*args)` once.

    Args:
        function: The user's function.
        name: The argument that it was given as, for messages.
        n_carry: Tells from the result how many of its leaves are the carry; checks it.
        args: Pytrees of arrays or abstract values.

    Raises:
        ValueError: The function has side effects.
    """
    closed, out = jax.make_jaxpr(function, return_shape=True)(*args)
    _refuse_effects(closed, name)
    consts = tuple(jnp.asarray(const) for const in closed.consts)
    body = Body(
        open_jaxpr_key(closed.jaxpr), n_carry(out), closed.jaxpr, fixed=_tables(closed.consts)
    )
    return TracedFunction(body, consts, out)


def _tables(consts: Sequence[Any]) -> tuple[tuple[int, np.ndarray], ...]:
    return tuple(
        (i, np.asarray(const))
        for i, const in enumerate(consts)
        if not isinstance(const, jax.core.Tracer)
        and isinstance(const.dtype, np.dtype)
        and const.dtype.kind in "biu"
        and const.size <= _LARGEST_TABLE
    )


def _refuse_effects(closed: jex.ClosedJaxpr, name: str) -> None:
    # Printing more often than the loop has steps does no harm; anything else might.
    effects = sorted(str(e) for e in closed.effects if type(e).__name__ != "DebugEffect")
    if effects:
        raise ValueError(
            f"`{name}`: expected a function without side effects, found {', '.join(effects)}."
            " Steps are run again in the reverse sweep: remove ordered callbacks and changes of"
            " Refs, or use `jax.lax.scan`."
        )
