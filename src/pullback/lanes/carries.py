"""What a loop carries: values in phis, or two buffers in memory that change places every trip.

A :class:`Carry` turns an array into the texts that flow along control edges and back. In memory the
texts are two pointers: the current contents and the place of the next ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.lanes.memory import Expression, Strided
from pullback.lanes.values import Value, is_key, object_array


class Carry:
    """One carried array held in registers."""

    def __init__(self, walk: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.walk = walk
        self.shape = shape
        self.dtype = dtype

    def initial(self, x: Any) -> list[str]:
        """Return the texts that enter the loop."""
        values = self.walk.arrays.registers(self.walk, x)
        return [self.walk.builder.operand(v) for v in values.ravel()]

    def undefined(self) -> list[str]:
        """Return texts for an edge on which nobody reads the array."""
        return ["zeroinitializer"] * int(np.prod(self.shape, dtype=np.int64))

    def place(self) -> tuple[Any, list[Any]]:
        """Place phis; return the array they form and the phis."""
        count = int(np.prod(self.shape, dtype=np.int64))
        pairs = [self.walk.builder.phi(self.dtype) for _ in range(count)]
        return object_array(self.shape, [v for v, _ in pairs]), [p for _, p in pairs]

    def texts(self, state: Any) -> list[str]:
        """Return the texts of a state as it stands."""
        return [v.text for v in state.ravel()]

    def successor(self, state: Any, result: Any, mask: Value | None) -> list[str]:
        """Return the texts of `result`, of the old state in lanes outside `mask`."""
        b = self.walk.builder
        values = self.walk.arrays.registers(self.walk, result).ravel()
        if mask is not None:
            values = [
                b.select(mask, new, old) for new, old in zip(values, state.ravel(), strict=True)
            ]
        return [b.operand(v) for v in values]


class Buffered(Strided):
    """Current contents of a carried array, with the place of the next ones."""

    other: str


class MemoryCarry(Carry):
    """One carried array held in two buffers."""

    def __init__(self, walk: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
        super().__init__(walk, shape, dtype)
        self.buffers = [walk.arrays.fresh(shape, dtype) for _ in range(2)]

    def initial(self, x: Any) -> list[str]:
        """Evaluate the array into the first buffer."""
        self.walk.arrays.in_memory(x, self.buffers[0])
        return self.undefined()

    def undefined(self) -> list[str]:
        """Return the two buffers."""
        return [s.pointer for s in self.buffers]

    def place(self) -> tuple[Any, list[Any]]:
        """Place one phi for each pointer."""
        f = self.walk.builder.function
        current, other = f.phi("ptr"), f.phi("ptr")
        state = Buffered(self.walk.builder, current.name, self.shape, self.dtype, keep=self)
        state.other = other.name
        return state, [current, other]

    def texts(self, state: Any) -> list[str]:
        """Return the two pointers."""
        return [state.pointer, state.other]

    def successor(self, state: Any, result: Any, mask: Value | None) -> list[str]:
        """Evaluate `result` into the other buffer, blending, and let the buffers change places."""
        if isinstance(result, Strided) and result.pointer == state.pointer and result.contiguous:
            return self.texts(state)
        arrays, b = self.walk.arrays, self.walk.builder
        source = arrays.node(result)
        if mask is not None:
            source = Expression(
                lambda new, old: b.select(mask, new, old), [source, state], self.shape, self.dtype
            )
        target = Strided(b, state.other, self.shape, self.dtype, keep=self)
        arrays.in_memory(source, target)
        return [state.other, state.pointer]

    def overwrite(self, state: Any, result: Any, mask: Value) -> None:
        """Replace the current contents in lanes of `mask`; `result` must not read them."""
        arrays, b = self.walk.arrays, self.walk.builder
        blended = Expression(
            lambda new, old: b.select(mask, new, old),
            [arrays.node(result), state],
            self.shape,
            self.dtype,
        )
        arrays.in_memory(blended, state)


def make_carries(walk: Any, shapes: Sequence[tuple[tuple[int, ...], np.dtype]]) -> list[Carry]:
    """Return a carry for each shape and dtype, in registers or memory."""
    return [
        (Carry if walk.arrays.fits(shape) else MemoryCarry)(walk, shape, dtype)
        for shape, dtype in shapes
    ]


def add_edge(phis: Sequence[Sequence[Any]], texts: Sequence[Sequence[str]], block: str) -> None:
    """Let the phis of several carries take `texts` when control comes from `block`."""
    for some_phis, some_texts in zip(phis, texts, strict=True):
        for phi, text in zip(some_phis, some_texts, strict=True):
            phi.add(text, block)


def lane_form(atom: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Return shape and dtype of an atom's lane values: a random key is a row of two words."""
    aval = atom.aval
    if is_key(aval):
        return (*aval.shape, 2), np.dtype(np.uint32)
    return tuple(aval.shape), np.dtype(aval.dtype)
