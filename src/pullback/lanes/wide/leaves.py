"""Arrays of a step between memory, the variables of a loop, and elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pullback.lanes.cpu.text import FunctionText, Phi, element_type, memory_type
from pullback.lanes.values import Value, object_array
from pullback.lanes.wide.arrays import LEAST_VECTOR
from pullback.lanes.wide.builder import WideBuilder
from pullback.lanes.wide.elements import assemble, scalar_of, spread_out

__all__ = ["Leaf", "add_edges", "place_phis"]


@dataclass(frozen=True)
class Leaf:
    """One array: a vector, or so small that its elements are scalars."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return self.size * self.dtype.itemsize

    @property
    def is_vector(self) -> bool:
        """Whether it is held as one vector."""
        return self.size >= LEAST_VECTOR

    @property
    def kinds(self) -> list[str]:
        """LLVM types of its parts."""
        element = element_type(self.dtype)
        return [f"<{self.size} x {element}>"] if self.is_vector else [element] * self.size

    def joined(self, b: WideBuilder, texts: Sequence[str]) -> np.ndarray:
        """Return the array whose parts have these names."""
        if self.is_vector:
            return spread_out(b, Value(texts[0], self.dtype), self.shape)
        return object_array(self.shape, [Value(t, self.dtype, uniform=True) for t in texts])

    def parts(self, b: WideBuilder, array: np.ndarray) -> list[str]:
        """Return the names of the parts of an array."""
        items = array.ravel().tolist()
        if not self.is_vector:
            return [scalar_of(b, item).text for item in items]
        value = assemble(b, items)
        with b.at_width(self.size, self.dtype):
            return [b.operand(value)]

    def load(self, b: WideBuilder, pointer: str) -> np.ndarray:
        """Load the array."""
        f, stored, element = b.function, memory_type(self.dtype), element_type(self.dtype)
        texts = []
        for kind, at in self._places(f, pointer):
            memory = kind.replace(element, stored)
            text = f.define(f"load {memory}, ptr {at}, align {self.dtype.itemsize}")
            if stored != element:
                zero = "0" if kind == element else "zeroinitializer"
                text = f.define(f"icmp ne {memory} {text}, {zero}")
            texts.append(text)
        return self.joined(b, texts)

    def store(self, b: WideBuilder, pointer: str, array: np.ndarray) -> None:
        """Store the array."""
        f, stored, element = b.function, memory_type(self.dtype), element_type(self.dtype)
        for (kind, at), text in zip(
            self._places(f, pointer), self.parts(b, array), strict=True
        ):  # fmt: skip
            memory = kind.replace(element, stored)
            if stored != element:
                text = f.define(f"zext {kind} {text} to {memory}")
            f.emit(f"store {memory} {text}, ptr {at}, align {self.dtype.itemsize}")

    def _places(self, f: FunctionText, pointer: str) -> list[tuple[str, str]]:
        kinds = self.kinds
        steps = (f"getelementptr i8, ptr {pointer}, i64 {i * self.dtype.itemsize}"
                 for i in range(len(kinds)))  # fmt: skip
        return [(kind, f.define(step)) for kind, step in zip(kinds, steps, strict=True)]


def place_phis(
    b: WideBuilder, leaves: Sequence[Leaf]
) -> tuple[list[np.ndarray], list[Phi]]:  # fmt: skip
    """Make loop variables for arrays; return the arrays, and the phis to add edges to."""
    arrays, phis = [], []
    for leaf in leaves:
        own = [b.function.phi(kind) for kind in leaf.kinds]
        phis += own
        arrays.append(leaf.joined(b, [phi.name for phi in own]))
    return arrays, phis


def add_edges(phis: Sequence[Phi], texts: Sequence[str], block: str) -> None:
    """Let loop variables take values when control comes from a block."""
    for phi, text in zip(phis, texts, strict=True):
        phi.add(text, block)
