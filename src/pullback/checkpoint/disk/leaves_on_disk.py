"""Pytrees as rows of plain numbers, and back: shapes, dtypes, random keys, shardings."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pullback.checkpoint.storage import StorageError
from pullback.core.keys import is_key, without_keys
from pullback.core.typing import PyTree

__all__ = ["Field", "RowLayout", "TreeForm", "empty_array", "form_of", "to_numpy"]

# JAX on a CPU shares memory that is aligned like this instead of copying it.
_ALIGNMENT = 64


@dataclass(frozen=True)
class Field:
    """One array of a row.

    Attributes:
        dtype: As NumPy writes it; dtypes that NumPy does not know are opaque bytes.
        shape: Its shape.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Size in bytes."""
        return np.dtype(self.dtype).itemsize * int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class RowLayout:
    """What the rows of a file consist of."""

    fields: tuple[Field, ...]

    @property
    def n_bytes(self) -> int:
        """Size of the arrays of a row in bytes."""
        return sum(field.n_bytes for field in self.fields)

    @property
    def name(self) -> str:
        """A name for a file of such rows: equal layouts have equal names."""
        return hashlib.sha256(repr(self.fields).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class _Leaf:
    """How to make a leaf from its array again.

    Attributes:
        dtype: Of the array that the leaf is made from.
        is_jax: Whether the leaf is a JAX array.
        key: Implementation of random keys, if it is an array of those.
        sharding: Where it lies, unless JAX may choose.
    """

    dtype: Any
    is_jax: bool
    key: Any
    sharding: Any


@dataclass(frozen=True)
class TreeForm:
    """Everything about a pytree but its numbers.

    Attributes:
        layout: The row that it becomes.
        structure: Its tree.
    """

    layout: RowLayout
    structure: Any
    _leaves: tuple[_Leaf, ...]

    def to_tree(self, arrays: Sequence[np.ndarray]) -> PyTree:
        """Make the pytree from the arrays of a row, which are not copied if that is possible."""
        leaves = [_rebuilt(leaf, a) for leaf, a in zip(self._leaves, arrays, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)


def form_of(tree: PyTree) -> TreeForm:
    """Describe a pytree without waiting for its numbers.

    Raises:
        StorageError: A leaf is no array of numbers, or lies on devices of other processes.
    """
    leaves, structure = jax.tree.flatten(tree)
    pairs = [_described(leaf) for leaf in leaves]
    layout = RowLayout(tuple(field for field, _ in pairs))
    return TreeForm(layout, structure, tuple(leaf for _, leaf in pairs))


def to_numpy(leaf: Any) -> np.ndarray:
    """Return the numbers of a leaf, contiguous; waits for them."""
    return np.asarray(without_keys(leaf), order="C")


def empty_array(field: Field) -> np.ndarray:
    """Return a new aligned array for a field."""
    room = np.empty(field.n_bytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + field.n_bytes].view(field.dtype).reshape(field.shape)


def _described(leaf: Any) -> tuple[Field, _Leaf]:
    key: Any = None
    is_jax = isinstance(leaf, jax.Array)
    sharding = _sharding(leaf) if is_jax else None
    if is_key(leaf):
        key = jax.random.key_impl(leaf)
        data = jax.eval_shape(jax.random.key_data, leaf)
        shape, dtype = data.shape, np.dtype(data.dtype)
    else:
        value = leaf if is_jax else np.asarray(leaf)
        shape, dtype = value.shape, np.dtype(value.dtype)
    if dtype.hasobject:
        raise StorageError(
            f"`tree`: expected arrays of numbers as leaves, got {leaf!r} of type"
            f" {type(leaf).__name__}. Convert it."
        )
    # NumPy writes dtypes that others have added as opaque bytes, or not at all.
    text = dtype.str if dtype.kind in "biufc" else f"|V{dtype.itemsize}"
    return Field(text, tuple(shape)), _Leaf(dtype, is_jax, key, sharding)


def _sharding(array: jax.Array) -> Any:
    if not array.is_fully_addressable:
        raise StorageError(
            f"`tree`: expected arrays on devices of this process, got one sharded over several"
            f" processes, {array.sharding}. Use storage=RAM(), or a loop per process."
        )
    # An array that JAX put where it liked must come back as such, or it could not be combined
    # with arrays on other devices.
    return array.sharding if getattr(array, "committed", True) else None


def _rebuilt(leaf: _Leaf, array: np.ndarray) -> Any:
    array = array.view(leaf.dtype)
    if not leaf.is_jax:
        return array
    if leaf.key is not None:
        keys = jax.random.wrap_key_data(jax.device_put(array), impl=leaf.key)
        return keys if leaf.sharding is None else jax.device_put(keys, leaf.sharding)
    return jax.device_put(array, leaf.sharding)
