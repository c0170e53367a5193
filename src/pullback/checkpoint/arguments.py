"""Checks of what the user passes to a checkpointed loop, and the errors they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax import lax

from pullback.checkpoint.leaves import is_weak
from pullback.checkpoint.schedules import AbstractScheme
from pullback.checkpoint.schedules.scheme import check_count
from pullback.checkpoint.storage import AbstractStorage
from pullback.core.typing import Array, PyTree
from pullback.core.user_function import misfit

__all__ = [
    "array_leaves",
    "check_carry",
    "check_function",
    "check_options",
    "loop_length",
    "promote_weak",
    "row_avals",
]


def check_function(name: str, function: Any, arguments: str) -> None:
    """Check that a function can be called with these arguments, which are positional."""
    if not callable(function):
        raise TypeError(f"`{name}`: expected a function, got {function!r}. Pass a callable.")
    takes = misfit(function, len(arguments.split(", ")))
    if takes is not None:
        raise TypeError(
            f"`{name}`: expected a function of ({arguments}), but {takes}. Let it take these, used"
            " or not."
        )


def check_options(scheme: Any, storage: Any, block: Any) -> None:
    """Check the arguments that are neither functions nor arrays."""
    if not isinstance(scheme, AbstractScheme):
        raise TypeError(
            f"`scheme`: expected a scheme, got {scheme!r}. Pass one such as Revolve(64)."
        )
    try:
        hash(scheme)
    except TypeError as error:
        raise TypeError(
            f"`scheme`: expected a hashable scheme, got {scheme!r}. Make it a frozen dataclass."
        ) from error
    if not isinstance(storage, AbstractStorage):
        raise TypeError(f"`storage`: expected a storage, got {storage!r}. Pass one such as RAM().")
    if block is not None:
        check_count("block", block, least=1)


def array_leaves(name: str, tree: PyTree) -> tuple[Array, ...]:
    """Return the leaves of a pytree as arrays."""
    leaves = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        try:
            leaves.append(jnp.asarray(leaf))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`{name}`: expected arrays and numbers as leaves, got {leaf!r} of type"
                f" {type(leaf).__name__} at {name}{jax.tree_util.keystr(path)}. Convert it, or let"
                " the step close over it."
            ) from error
    return tuple(leaves)


def loop_length(xs: PyTree, leaves: Sequence[Array], length: Any) -> int:
    """Return the number of steps that `xs` and `length` agree on."""
    n_steps = -1
    if isinstance(length, jax.core.Tracer):
        raise TypeError(
            "`length`: expected an integer that is known when the loop is traced, got a traced"
            " value. Name it in static_argnums of jax.jit, or use checkpointed_while."
        )
    if length is not None:
        check_count("length", length, least=0)
        n_steps = int(length)
    elif not leaves:
        raise ValueError(
            "`length`: expected an integer because `xs` has no arrays, got None. Pass length=."
        )
    for (path, _), leaf in zip(jax.tree_util.tree_leaves_with_path(xs), leaves, strict=True):
        name = f"xs{jax.tree_util.keystr(path)}"
        if leaf.ndim == 0:
            raise ValueError(
                f"`{name}`: expected an array with one row per step, got a scalar. Close over"
                " what is the same in every step."
            )
        if n_steps < 0:
            n_steps = leaf.shape[0]
        elif leaf.shape[0] != n_steps:
            raise ValueError(
                f"`{name}`: expected {n_steps} rows, one per step, got shape {leaf.shape}. Make"
                " `length` and the leading axes of `xs` equal."
            )
    return n_steps


def row_avals(leaves: Sequence[Array]) -> list[Any]:
    """Return abstract values of one row of each array, with its mesh axes under `shard_map`."""
    if any(leaf.shape[0] == 0 for leaf in leaves):
        return [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in leaves]
    rows = jax.eval_shape(lambda xs: [lax.index_in_dim(x, 0, keepdims=False) for x in xs], leaves)
    return list(rows)


def promote_weak(leaves: Sequence[Array], out: Sequence[Any]) -> tuple[Array, ...]:
    """Give leaves that were plain numbers the dtype that the step returns, as `lax.scan` does."""
    return tuple(
        leaf.astype(jnp.result_type(leaf, new.dtype)) if is_weak(leaf) else leaf
        for leaf, new in zip(leaves, out, strict=True)
    )


def check_carry(name: str, init: PyTree, leaves: Sequence[Array], carry: PyTree) -> None:
    """Compare the carry that `name` returns with `init`, whose leaves as arrays are given.

    A plain number may become anything that `promote_weak` can make of it.
    """
    before, after = jax.tree.structure(init), jax.tree.structure(carry)
    if after != before:
        raise TypeError(
            f"`{name}`: expected a new carry of the structure of `init`, {before}, got {after}."
            " Return the carry with the structure that it came in."
        )
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(init)]
    for path, old, new in zip(paths, leaves, jax.tree.leaves(carry), strict=True):
        dtype = jnp.result_type(old, new.dtype) if is_weak(old) else old.dtype
        if old.shape != new.shape or dtype != new.dtype:
            raise TypeError(
                f"`{name}`: expected carry{path} to stay {_text(old)}, got {_text(new)}."
                " Convert it in the step, or start from what the step returns."
            )


def _text(value: Any) -> str:
    return f"{value.dtype}[{','.join(map(str, value.shape))}]"
