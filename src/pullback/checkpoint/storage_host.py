"""Snapshots of a device's arrays in the memory of its host."""

from __future__ import annotations

from typing import Any

import jax

from pullback.checkpoint.storage_ram import RAM
from pullback.core.typing import PyTree

__all__ = ["Host"]

_PINNED = "pinned_host"


class Host(RAM):
    """Keep arrays in pinned host memory: room for more snapshots than the device has.

    Sharded arrays stay sharded, each part beside its device. Copies run while the device
    computes. Where the device is the CPU its memory is the host's: then this is `RAM`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.compiles = jax.default_backend() == "cpu"
        self._shardings: dict[int, PyTree] = {}

    def __repr__(self) -> str:
        return "Host()"

    def put(self, slot: int, tree: PyTree) -> None:
        """Begin to copy a pytree to the host."""
        shardings = jax.tree.map(_elsewhere, tree)
        super().put(slot, jax.tree.map(_pin, tree, shardings))
        self._shardings[slot] = shardings

    def get(self, slot: int) -> PyTree:
        """Copy what the slot holds back to where it came from."""
        return jax.tree.map(_unpin, super().get(slot), self._shardings[slot])

    def discard(self, slot: int) -> None:
        """Forget what the slot holds, if anything."""
        super().discard(slot)
        self._shardings.pop(slot, None)

    def close(self) -> None:
        """Forget everything."""
        super().close()
        self._shardings.clear()


def _elsewhere(leaf: Any) -> Any:
    # False, because None would be no leaf of the tree of shardings.
    return leaf.sharding if isinstance(leaf, jax.Array) and not _is_on_host(leaf) else False


def _is_on_host(array: jax.Array) -> bool:
    return all(device.platform == "cpu" for device in array.sharding.device_set)


def _pin(leaf: Any, sharding: Any) -> Any:
    return jax.device_put(leaf, sharding.with_memory_kind(_PINNED)) if sharding else leaf


def _unpin(leaf: Any, sharding: Any) -> Any:
    return jax.device_put(leaf, sharding) if sharding else leaf
