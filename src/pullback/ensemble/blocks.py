"""The compiled loop over blocks of an ensemble that is reduced.

The trajectories of a block are made inside the loop: the arrays of a run are a traced function of
the trajectories' numbers, so that nothing has the size of the ensemble but what the user gave.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.extend import core as jex

from pullback.core import Status
from pullback.core.fingerprint import ContentKey
from pullback.core.typing import Array
from pullback.ensemble.reduction import Reduction, along
from pullback.ensemble.run import RunArrays, RunPlan
from pullback.ensemble.traced_reduction import TracedLook, solution_of_one


class Tally(NamedTuple):
    """What the loop over blocks carries.

    Attributes:
        state: the reduction's.
        status: how many trajectories ended with each status, in the order of `Status`.
    """

    state: Any
    status: Array


class BlockArrays(NamedTuple):
    """The arrays of a reduced run.

    Attributes:
        fixed: arrays of a run that are the same for every block, in order.
        consts: what the trace of the others closes over.
        look_consts: what the reduction's function closes over.
        ids: numbers of the trajectories, `(block, trajectory)`.
        is_real: which of them there are, likewise.
        moving: what the user gave with a trajectory axis, in blocks.
        tally: what was counted before; None at first.
        before: the reduction's state at the end of the pass before; None in the first.
    """

    fixed: tuple[Any, ...]
    consts: tuple[Any, ...]
    look_consts: tuple[Any, ...]
    ids: Any
    is_real: Any
    moving: tuple[Any, ...]
    tally: Any
    before: Any


@dataclass(frozen=True)
class Maker:
    """Makes the arrays of a block, equal by content.

    Attributes:
        key: equal for equal traces.
        tree: structure of `RunArrays`.
        is_made: which of its leaves are made, the others are fixed.
        jaxpr: the trace, of constants, numbers of trajectories and what moves with them.
    """

    key: ContentKey
    tree: Any
    is_made: tuple[bool, ...]
    jaxpr: jex.Jaxpr = field(compare=False, repr=False)

    def __call__(self, arrays: BlockArrays, ids: Array, moving: tuple[Array, ...]) -> RunArrays:
        """Return the arrays of the trajectories `ids`."""
        made = iter(eval_jaxpr(self.jaxpr, arrays.consts, ids, *moving))
        fixed = iter(arrays.fixed)
        return jax.tree.unflatten(
            self.tree, [next(made) if flag else next(fixed) for flag in self.is_made]
        )


@dataclass(frozen=True)
class BlockPlan:
    """The static part of a reduced run.

    Attributes:
        plan: how a block is solved.
        maker: how its arrays are made.
        look: what is reduced of a trajectory.
        reduction: how; its own function is `look`.
    """

    plan: RunPlan
    maker: Maker
    look: TracedLook
    reduction: Reduction

    @property
    def backend(self) -> Any:
        """Who runs it."""
        return self.plan.backend

    def on(self, backend: Any) -> BlockPlan:
        """Return the same plan for another back end."""
        return replace(self, plan=self.plan.on(backend))

    def evaluate(self, arrays: BlockArrays) -> Tally:
        """Go over some blocks; to be traced."""

        def body(tally: Tally, x: Any) -> tuple[Tally, None]:
            return self._with_block(tally, arrays, *x), None

        start = self._start(arrays) if arrays.tally is None else arrays.tally
        blocks = (arrays.ids, arrays.is_real, arrays.moving)
        # What a block needs for its derivative is computed again, or all would be kept.
        return jax.lax.scan(jax.checkpoint(body), start, blocks)[0]

    def _start(self, arrays: BlockArrays) -> Tally:
        one = solution_of_one(self.plan)
        many = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), one)
        looked = jax.eval_shape(self.look, arrays.look_consts, many)
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), looked)
        status = jnp.zeros((len(Status),), jnp.int32)
        return Tally(self.reduction.start(like, arrays.before), status)

    def _with_block(
        self, tally: Tally, arrays: BlockArrays, ids: Array, is_real: Array, moving: Any
    ) -> Tally:
        solution = self.plan.evaluate(self.maker(arrays, ids, moving))
        is_ok = is_real & solution.ok
        # Selecting here too keeps a failed trajectory's derivative, finite or not, out of the sum.
        solution = jax.tree.map(lambda x: _still_unless(is_ok, x), solution)
        values = jax.tree.map(
            lambda x: jnp.where(along(is_ok, x), x, jnp.zeros((), x.dtype)),
            self.look(arrays.look_consts, solution),
        )
        codes = jnp.asarray([int(s) for s in Status], solution.status.dtype)
        here = (solution.status[:, None] == codes[None]) & is_real[:, None]
        counted = tally.status + jnp.sum(here, axis=0, dtype=jnp.int32)
        return Tally(self.reduction.add(tally.state, values, is_ok), counted)


def _still_unless(is_ok: Array, x: Array) -> Array:
    if not jnp.issubdtype(x.dtype, np.floating):
        return x
    return jnp.where(along(is_ok, x), x, jax.lax.stop_gradient(x))
