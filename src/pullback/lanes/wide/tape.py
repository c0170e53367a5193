"""What the reverse of a step needs from the step, a row of memory for each step.

Residuals are lists of elements, so what is kept are the vectors that the elements lie in: a
rolled, reversed or broadcast copy of an array costs nothing, and constants are not kept at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.lanes.values import Value, object_array
from pullback.lanes.wide.arrays import LEAST_VECTOR
from pullback.lanes.wide.elements import Lane, scalar_of, spread_out
from pullback.lanes.wide.leaves import Leaf

if TYPE_CHECKING:
    from pullback.lanes.wide.shell import Shell

__all__ = ["Tape"]

_WORD = 8
_ALIGNMENT = 64


class Tape:
    """Arrays of elements, kept row by row.

    Attributes:
        pointer: Where the first row begins.
        row_bytes: Length of a row.
    """

    def __init__(self, shell: Shell, pointer: str) -> None:
        self.shell = shell
        self.pointer = pointer
        self.row_bytes = 0
        self._arrays: Sequence[np.ndarray] = ()
        self._places: dict[Any, tuple[Leaf, int]] = {}

    def record(self, row: str, arrays: Sequence[np.ndarray]) -> None:
        """Keep arrays in a row; the first call decides how a row is laid out."""
        b, self._arrays = self.shell.b, arrays
        sources: dict[Any, tuple[Leaf, np.ndarray]] = {}
        for item in (item for array in arrays for item in array.ravel().tolist()):
            key = self._key(item)
            if key is None or key in sources:
                continue
            if _lies_in_vector(item):
                shape = (item.width,)
                sources[key] = Leaf(shape, item.dtype), spread_out(b, item.vector, shape)
            else:
                sources[key] = Leaf((), item.dtype), object_array((), [scalar_of(b, item)])
        total = 0
        for key, (leaf, _) in sources.items():
            self._places[key] = leaf, total
            total += -(-leaf.n_bytes // _WORD) * _WORD
        self.row_bytes = -(-total // _ALIGNMENT) * _ALIGNMENT
        base = self._row(row)
        for key, (leaf, array) in sources.items():
            leaf.store(b, self.shell.offset(base, self._places[key][1]), array)

    def restore(self, row: str) -> list[np.ndarray]:
        """Return the arrays as they were recorded in a row."""
        b, base = self.shell.b, self._row(row)
        loaded = {
            key: leaf.load(b, self.shell.offset(base, offset))
            for key, (leaf, offset) in self._places.items()
        }
        return [self._replaced(array, loaded) for array in self._arrays]

    def _replaced(self, array: np.ndarray, loaded: dict[Any, np.ndarray]) -> np.ndarray:
        items = []
        for item in array.ravel().tolist():
            key = self._key(item)
            if key is None:
                items.append(item)
            else:
                items.append(loaded[key].item(item.index if _lies_in_vector(item) else 0))
        return object_array(array.shape, items)

    def _row(self, row: str) -> str:
        return self.shell.offset(
            self.pointer, self.shell.f.define(f"mul i64 {row}, {self.row_bytes}")
        )

    def _key(self, item: Value) -> Any:
        """Return what an element is a part of, None if that is there in every step."""
        if item.is_constant:
            return None
        text = item.vector.text if isinstance(item, Lane) else item.text
        if text in self.shell.lasting:
            return None
        if _lies_in_vector(item):
            return "vector", text
        return "scalar", text, item.index if isinstance(item, Lane) else 0


def _lies_in_vector(item: Value) -> bool:
    return isinstance(item, Lane) and item.width >= LEAST_VECTOR
