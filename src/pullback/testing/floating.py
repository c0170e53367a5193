"""The floating leaves of pytrees as flat lists: what the checks differentiate and sum over."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["FloatFunction", "floating_leaves", "floating_part", "inner", "like", "random_like"]

Leaves = list[jax.Array]
FloatFunction = Callable[[Leaves], Leaves]


def is_floating(leaf: Any) -> bool:
    """Tell whether a leaf (array or Python number) has a real floating dtype."""
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def floating_leaves(tree: Any) -> Leaves:
    """List the real floating leaves of `tree` as arrays, in order."""
    return [jnp.asarray(leaf) for leaf in jax.tree.leaves(tree) if is_floating(leaf)]


def floating_part(f: Callable[[Any], Any], x: Any) -> tuple[FloatFunction, Leaves]:
    """Restrict `f` to floating leaves: integers and keys in `x` are held fixed, in f(x) left out.

    Returns:
        The restricted function from leaves to leaves, and the floating leaves of `x`.

    Raises:
        ValueError: If `x` has no floating leaf.
    """
    leaves, structure = jax.tree.flatten(x)
    where = [i for i, leaf in enumerate(leaves) if is_floating(leaf)]
    if not where:
        raise ValueError(
            "`x`: expected at least one floating leaf to differentiate with respect to, got"
            f" {structure} with dtypes {[jnp.result_type(leaf).name for leaf in leaves]}."
        )

    def restricted(floats: Leaves) -> Leaves:
        replaced = dict(zip(where, floats, strict=True))
        full = [replaced.get(i, leaf) for i, leaf in enumerate(leaves)]
        return floating_leaves(f(jax.tree.unflatten(structure, full)))

    return restricted, [jnp.asarray(leaves[i]) for i in where]


def like(name: str, tree: Any, leaves: Leaves) -> Leaves:
    """Check that the floating leaves of `tree` (the argument `name`) fit `leaves`; cast them."""
    given = floating_leaves(tree)
    expected, arrived = ([leaf.shape for leaf in side] for side in (leaves, given))
    if expected != arrived:
        raise ValueError(
            f"`{name}`: expected floating leaves of shapes {expected}, got {arrived}. Give a"
            " pytree with the structure of what it belongs to."
        )
    return [leaf.astype(ref.dtype) for leaf, ref in zip(given, leaves, strict=True)]


def random_like(leaves: Leaves, seed: int, *, scaled: bool = False) -> Leaves:
    """Draw standard normal leaves; `scaled` multiplies each by its leaf's root mean square."""
    rng = np.random.default_rng(seed)
    drawn: Leaves = []
    for leaf in leaves:
        value = rng.standard_normal(leaf.shape)
        size = np.sqrt(np.mean(np.square(_wide(leaf)))) if scaled and leaf.size else 1.0
        drawn.append(jnp.asarray(value * (size if size > 0 else 1.0), leaf.dtype))
    return drawn


def inner(a: Sequence[Any], b: Sequence[Any]) -> tuple[float, float]:
    """Sum the products of two lists of leaves in float64; the second result sums their sizes."""
    products = [_wide(p) * _wide(q) for p, q in zip(a, b, strict=True)]
    return sum(float(p.sum()) for p in products), sum(float(np.abs(p).sum()) for p in products)


def _wide(leaf: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(leaf).astype(np.float64)
