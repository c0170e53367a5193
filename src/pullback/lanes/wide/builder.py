"""The builder for ONE trajectory: lanes are the elements of an array, so widths differ.

It is the SIMD builder with a width that changes from operation to operation. A uniform value is
still one scalar, and stands for an array whose elements are all equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pullback.lanes.cpu.access import Access
from pullback.lanes.cpu.text import element_type
from pullback.lanes.values import Value

__all__ = ["WideBuilder"]

_MACHINE_BYTES = 32


class WideBuilder(Access):
    """Emit operations on whole arrays into one function.

    Attributes:
        cost: Machine instructions so far, roughly.
    """

    def __init__(self) -> None:
        super().__init__(1)
        self.cost = 0
        self._tables: dict[int, list[dict[Any, Any]]] = {}
        self._made: dict[Any, Value] = {}

    @contextmanager
    def at_width(self, width: int, dtype: np.dtype) -> Iterator[None]:
        """Operations inside work on arrays of `width` elements."""
        outer = self.width, self._seen
        self.width = width
        self._seen = self._tables.setdefault(width, [{}])
        before = self.function.n_lines
        try:
            yield
        finally:
            pieces = -(-width * dtype.itemsize // _MACHINE_BYTES)
            self.cost += pieces * (self.function.n_lines - before)
            self.width, self._seen = outer

    def forget(self) -> None:
        """Use no earlier result again: what follows may run without what came before."""
        self._tables.clear()
        self._made.clear()
        self._seen = [{}]

    def made(self, key: Any, make: Callable[[], Value]) -> Value:
        """Return what `make` returned for an equal key since the last `forget`."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def outlined(
        self, name: str, emit: Callable[..., Sequence[Value]], operands: Sequence[Value]
    ) -> list[Value]:
        """Call a function that is emitted once per module and width."""
        return super().outlined(f"{name}_{self.width}", emit, operands)

    def lane(self, vector: Value, width: int, index: int) -> Value:
        """Return an element of an array as a scalar."""

        def make() -> Value:
            kind = f"<{width} x {element_type(vector.dtype)}>"
            text = self.function.define(f"extractelement {kind} {vector.text}, i32 {index}")
            return Value(text, vector.dtype, uniform=True)

        return self.made(("lane", vector.text, index), make)

    def shuffle(self, first: str, second: str, width: int, dtype: np.dtype, mask: list[int]) -> str:
        """Return elements of two arrays of `width`, numbered through; -1: any."""
        kind = f"<{width} x {element_type(dtype)}>"
        items = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in mask)
        self.cost += -(-len(mask) * dtype.itemsize // _MACHINE_BYTES)
        return self.function.define(
            f"shufflevector {kind} {first}, {kind} {second}, <{len(mask)} x i32> <{items}>"
        )
