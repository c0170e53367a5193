"""What a reduction looks at, traced for one trajectory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.extend import core as jex

from pullback.core.fingerprint import ContentKey, open_jaxpr_key
from pullback.core.typing import Array, PyTree
from pullback.core.user_function import require_function
from pullback.ensemble.event import Events
from pullback.ensemble.leaf import is_array
from pullback.ensemble.run import STATS, RunPlan
from pullback.ensemble.solution import Solution


@dataclass(frozen=True)
class TracedLook:
    """A traced `of(solution)` of one trajectory, equal by content.

    Attributes:
        key: equal for equal traces.
        tree: structure of what it returns.
        jaxpr: the trace, of what the function closes over and the solution's leaves.
    """

    key: ContentKey
    tree: Any
    jaxpr: jex.Jaxpr = field(compare=False, repr=False)

    def __call__(self, consts: tuple[Array, ...], solution: Solution) -> PyTree:
        """Return what is reduced of each trajectory, with a leading axis."""

        def one(*leaves: Array) -> list[Array]:
            return eval_jaxpr(self.jaxpr, consts, *leaves)

        return jax.tree.unflatten(self.tree, jax.vmap(one)(*jax.tree.leaves(solution)))


def trace_look(of: Any, plan: RunPlan) -> tuple[TracedLook, tuple[Array, ...]]:
    """Trace the function of one trajectory's solution.

    Args:
        of: the user's function.
        plan: how a block is solved.

    Returns:
        The traced function, and the arrays that it closes over.

    Raises:
        TypeError: it is not a function, or returns something that is not an array.
    """
    require_function("of", of, "solution")
    leaves, tree = jax.tree.flatten(solution_of_one(plan))
    found: list[Any] = []

    def flat(*values: Array) -> list[Array]:
        out = of(jax.tree.unflatten(tree, values))
        results, structure = jax.tree.flatten(out)
        if not results or not all(map(is_array, results)):
            raise TypeError(
                "a function given to `reduce` must return arrays or numbers in any pytree, but it "
                f"returned {out!r}."
            )
        found[:] = [structure]
        return [jnp.asarray(result) for result in results]

    closed = jax.make_jaxpr(flat)(*leaves)
    look = TracedLook(open_jaxpr_key(closed.jaxpr), found[0], closed.jaxpr)
    return look, tuple(closed.consts)


def solution_of_one(plan: RunPlan) -> Solution:
    """Return the shapes and dtypes of one trajectory's solution."""
    spec, layout = plan.spec, plan.layout

    # Structures of shapes stand where arrays will be.
    def like(dtype: Any, *shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, np.dtype(dtype))

    def floating(*shape: int) -> Any:
        return like(spec.dtype, *shape)

    whole = like(np.int32)
    state = jax.tree.unflatten(layout.tree, [floating(*shape) for shape in layout.shapes])
    row = state if plan.save_fn is None else plan.save_fn.shapes
    events = None
    if spec.events is not None and spec.events.tells:
        n = spec.events.max_recorded
        events = Events(floating(n), like(np.int32, n), whole, like(bool))
    return Solution(
        t=floating(spec.n_saves),
        y=jax.tree.map(lambda x: like(x.dtype, spec.n_saves, *x.shape), row),
        t_end=floating(),
        y_end=state,
        status=whole,
        n_saved=whole,
        stats={name: whole for name in STATS},
        events=events,
    )
