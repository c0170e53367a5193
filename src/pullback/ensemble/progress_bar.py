"""How far an ensemble is: trajectories done, and trajectories per second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from tqdm import tqdm

from pullback.ensemble.leaf import is_traced

T = TypeVar("T")


def with_progress(parts: Sequence[T], sizes: Sequence[int], is_shown: bool) -> Iterator[T]:
    """Yield `parts`; a bar says how many trajectories of those already yielded are done.

    Args:
        parts: what is done one after the other.
        sizes: how many trajectories each is.
        is_shown: whether there is a bar at all.
    """
    if not is_shown:
        yield from parts
        return
    with tqdm(total=sum(sizes), unit=" trajectories", unit_scale=True) as bar:
        for part, size in zip(parts, sizes, strict=True):
            yield part
            bar.update(size)


def finished(results: Any, is_shown: bool) -> Any:
    """Return `results`; computed, where a bar is to tell the truth."""
    return jax.block_until_ready(results) if is_shown else results


def refuse_traced_progress(values: Any) -> None:
    """Raise where a bar was asked for inside a trace, which runs when nobody looks."""
    if is_tracing(values):
        raise ValueError(
            "`progress`=True needs to run batch by batch, but the solve is traced (inside jax.jit, "
            "jax.grad or jax.vmap), where it only becomes part of a program; leave it out there."
        )


def is_tracing(values: Any) -> bool:
    """Whether what is done with `values` becomes part of a program."""
    # Inside `jax.jit` also what depends on nothing is traced.
    return any(map(is_traced, (jnp.zeros(()), *jax.tree.leaves(values))))
