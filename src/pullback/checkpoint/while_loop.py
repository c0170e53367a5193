"""`checkpointed_while`: a `jax.lax.while_loop` with a gradient, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from pullback.checkpoint.arguments import (
    array_leaves,
    check_carry,
    check_function,
    check_options,
    promote_weak,
)
from pullback.checkpoint.body import TracedFunction, trace
from pullback.checkpoint.compiled_while import CompiledWhile, Consts, compiled_while
from pullback.checkpoint.host_while import HostWhile, host_while, with_storage
from pullback.checkpoint.leaves import Leaves, is_weak, strong
from pullback.checkpoint.mode import Mode, follows_on_host, naming_forward_mode
from pullback.checkpoint.scan import checkpointed_scan
from pullback.checkpoint.schedules import AbstractScheme, Online
from pullback.checkpoint.schedules.scheme import check_count
from pullback.checkpoint.slots import ArraySlots
from pullback.checkpoint.step_kernels import CompileStep, block_size, with_kernels
from pullback.checkpoint.storage import AbstractStorage
from pullback.checkpoint.storage_ram import RAM
from pullback.core.typing import Array, PyTree

__all__ = ["checkpointed_while"]

_DEFAULT_SCHEME = Online(64)
_DEFAULT_STORAGE = RAM()
_LONGEST_BLOCK = 64


def checkpointed_while(
    cond: Callable[[Any], Any],
    step: Callable[[Any], Any],
    init: PyTree,
    *,
    scheme: AbstractScheme = _DEFAULT_SCHEME,
    storage: AbstractStorage = _DEFAULT_STORAGE,
    block: int | None = None,
    max_steps: int | None = None,
    mode: Mode = "auto",
    compile_step: CompileStep = "auto",
) -> PyTree:
    """Run `step` while `cond` holds, as `jax.lax.while_loop` does; it has a gradient.

    Args:
        cond: Function `carry -> bool`. May close over arrays; it has no derivative.
        step: Function `carry -> carry`. It may close over arrays, which are differentiated, and
            must have no side effects: steps run more than once.
        init: The first carry: a pytree of arrays and numbers; integers and random keys too.
        scheme: `Online(n_snapshots)`; or, with `max_steps`, any other scheme: then the loop
            always makes `max_steps` turns, of which the last do nothing.
        storage: Where snapshots are kept.
        block: Steps that are taped and reversed together; None is 16, and for native
            code 64.
        max_steps: The loop ends after so many steps even if `cond` still holds.
        mode: As for `checkpointed_scan`.
        compile_step: What runs steps, as for `checkpointed_scan`.

    Returns:
        The last carry.

    Raises:
        TypeError: `step` does not return a carry like `init`, `cond` no boolean, or a leaf is no
            array; or a derivative in forward mode reached a scheme that has none.
        ValueError: An option is out of range, or a function has side effects.
        CheckpointModeError: A storage elsewhere than in memory met `jax.vmap`, or forward mode
            over the gradient.

    Differentiation:
        Reverse mode, exact for the number of steps taken, with respect to `init` and what `step`
        closes over; forward mode over it. `Nested(levels)` with `max_steps` has forward mode and
        any order.

    Example:
        >>> import jax
        >>> def halvings(x):
        ...     return checkpointed_while(lambda y: y > 1.0, lambda y: y / 2, x)
        >>> float(jax.grad(halvings)(10.0))
        0.0625
    """
    check_function("cond", cond, "carry")
    check_function("step", step, "carry")
    check_options(scheme, storage, block)
    on_host = follows_on_host(mode, storage)
    if max_steps is not None:
        check_count("max_steps", max_steps, least=0)
    condition, traced, carry = _trace(cond, step, init)
    consts = Consts(condition.consts, traced.consts)
    structure = jax.tree.structure(init)
    if not isinstance(scheme, Online):
        if max_steps is None:
            raise ValueError(
                f"`max_steps`: expected an integer because {scheme} needs to know the length, got"
                " None. Pass max_steps= or scheme=Online(n_snapshots)."
            )

        def masked(state: Leaves, _: None) -> tuple[Leaves, None]:
            holds = condition.body(consts.cond, state)[1][0]
            return lax.cond(
                holds, lambda s: traced.body(consts.step, s)[0], lambda s: s, state
            ), None

        carry, _ = checkpointed_scan(
            masked, carry, None, max_steps,
            scheme=scheme, storage=storage, block=block, mode=mode, compile_step=compile_step,
        )  # fmt: skip
        return jax.tree.unflatten(structure, carry)
    body = with_kernels(compile_step, traced.body, (*traced.consts, *carry))
    # The newest block is reversed step by step, because its length is known to the loop only.
    size = block or min(block_size(None, body), _LONGEST_BLOCK)
    slots = ArraySlots(scheme.n_snapshots + 1)
    loop = CompiledWhile(condition.body, body, size, slots, max_steps)
    with naming_forward_mode("checkpointed_while"):
        if on_host:
            out: Any = host_while(HostWhile(loop, storage), consts, carry)
        else:
            out = compiled_while(with_storage(loop, storage), consts, carry)
    return jax.tree.unflatten(structure, out)


def _trace(
    cond: Callable[[Any], Any], step: Callable[[Any], Any], init: PyTree
) -> tuple[TracedFunction, TracedFunction, Leaves]:
    """Trace both functions; return the leaves of `init` in the dtypes that the loop keeps."""
    structure = jax.tree.structure(init)

    def flat_step(leaves: list[Array]) -> Any:
        return jax.tree.map(strong, step(jax.tree.unflatten(structure, leaves)))

    def flat_cond(leaves: list[Array]) -> Any:
        return cond(jax.tree.unflatten(structure, leaves))

    leaves = array_leaves("init", init)
    n_leaves = len(leaves)
    traced = trace(flat_step, "step", lambda _: n_leaves, list(leaves))
    check_carry("step", init, leaves, traced.out)
    if any(map(is_weak, leaves)):
        leaves = promote_weak(leaves, jax.tree.leaves(traced.out))
        traced = trace(flat_step, "step", lambda _: n_leaves, list(leaves))
        check_carry("step", init, leaves, traced.out)
    condition = trace(flat_cond, "cond", lambda _: 0, list(leaves))
    out = jax.tree.leaves(condition.out)
    is_boolean = len(out) == 1 and out[0].shape == () and out[0].dtype == np.bool_
    if not is_boolean or not jax.tree_util.treedef_is_leaf(jax.tree.structure(condition.out)):
        raise TypeError(
            f"`cond`: expected a function that returns one boolean, got {condition.out}."
            " Reduce it, for example with jnp.any."
        )
    return condition, traced, leaves
