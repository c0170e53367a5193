"""Large arrays of a lane: views of memory and expressions that are evaluated inside loops.

An array is one of
* an object array of values (registers): few elements, static positions only;
* :class:`Strided`: memory of the thread, one vector per element, or memory that all lanes share,
  one scalar per element (weights, constants);
* a lazy node: an expression of other arrays that emits its element when asked for one.

Slices, rolls, stacks and pads are only maps of indices, so they cost nothing; a loop over a
concatenation is cut where the pieces meet. Nodes are evaluated with :class:`Index` objects, whose
range is known while the kernel is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pullback.lanes.values import INT64, Value


class Index:
    """A position along an axis: ``value + offset``, known to lie in ``low .. high - 1``.

    `value` is the counter of the loop that owns the axis (None for a fixed position), `axis` the
    number of that loop.
    """

    __slots__ = ("axis", "high", "low", "offset", "value")

    def __init__(self, axis: int, value: Value | None, offset: int, low: int, high: int) -> None:
        self.axis = axis
        self.value = value
        self.offset = offset
        self.low = low
        self.high = high

    def shifted(self, by: int) -> Index:
        """Return the position `by` further."""
        return Index(self.axis, self.value, self.offset + by, self.low + by, self.high + by)

    @property
    def fixed(self) -> bool:
        """Whether only one position is possible."""
        return self.high - self.low <= 1


def at_position(i: int) -> Index:
    """Return the fixed position `i`."""
    return Index(-1, None, i, i, i + 1)


class Cut(Exception):
    """Raised by `Node.check`: the loop over `axis` must be cut before counter `position`."""

    def __init__(self, axis: int, position: int) -> None:
        super().__init__(axis, position)
        self.axis = axis
        self.position = position


class Node:
    """An array that is not in registers."""

    shape: tuple[int, ...]
    dtype: np.dtype
    is_view = True

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def check(self, index: Sequence[Index]) -> None:
        """Raise `Cut` if the ranges of `index` are too wide to evaluate in one loop."""
        raise NotImplementedError

    def at(self, index: Sequence[Index]) -> Value:
        """Emit the element at `index`."""
        raise NotImplementedError


class Registers(Node):
    """A small array seen as a node."""

    def __init__(self, values: np.ndarray, dtype: np.dtype) -> None:
        self.values = values
        self.shape = values.shape
        self.dtype = dtype

    def check(self, index: Sequence[Index]) -> None:
        """Only fixed positions can be read."""
        for i in index:
            if not i.fixed:
                raise Cut(i.axis, i.low - i.offset + 1)

    def at(self, index: Sequence[Index]) -> Value:
        """Return the value at fixed positions."""
        return self.values[tuple(i.low for i in index)]


class Strided(Node):
    """Elements in memory: interleaved over the lanes, or shared by all of them."""

    def __init__(
        self,
        builder: Any,
        pointer: str,
        shape: Sequence[int],
        dtype: np.dtype,
        *,
        strides: Sequence[int] | None = None,
        offset: int = 0,
        shared: bool = False,
        keep: Any = None,
    ) -> None:
        self.builder = builder
        self.pointer = pointer
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.strides = list(row_major(self.shape) if strides is None else strides)
        self.offset = offset
        self.shared = shared
        self.keep = keep

    @property
    def contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps."""
        return self.strides == list(row_major(self.shape))

    def view(self, shape: Sequence[int], strides: Sequence[int], offset: int) -> Strided:
        """Return another view of the same memory."""
        return Strided(
            self.builder,
            self.pointer,
            shape,
            self.dtype,
            strides=strides,
            offset=offset,
            shared=self.shared,
            keep=self,
        )

    def check(self, index: Sequence[Index]) -> None:
        """Any range can be read."""

    def address(self, index: Sequence[Index]) -> str:
        """Return the pointer to the element at `index`."""
        b = self.builder
        fixed, moving = self.offset, b.constant(0, INT64)
        for i, stride in zip(index, self.strides, strict=True):
            fixed += i.offset * stride
            if i.value is not None and stride:
                scaled = b.integer("mul", i.value, b.constant(stride, INT64))
                moving = scaled if moving.is_constant else b.integer("add", moving, scaled)
        return b.element_pointer(self.pointer, self.dtype, moving, fixed, shared=self.shared)

    def at(self, index: Sequence[Index]) -> Value:
        """Load the element."""
        return self.builder.load(self.address(index), self.dtype, shared=self.shared)

    def store(self, index: Sequence[Index], value: Value) -> None:
        """Overwrite the element in all lanes."""
        self.builder.store(self.address(index), value)


class Expression(Node):
    """A function of scalars applied to each element of other arrays."""

    is_view = False

    def __init__(
        self,
        function: Callable[..., Value],
        operands: Sequence[Node],
        shape: tuple[int, ...],
        dtype: np.dtype,
    ) -> None:
        self.function = function
        self.operands = list(operands)
        self.shape = shape
        self.dtype = np.dtype(dtype)

    def check(self, index: Sequence[Index]) -> None:
        """Every operand must be readable."""
        for x in self.operands:
            x.check(index if x.shape else ())

    def at(self, index: Sequence[Index]) -> Value:
        """Apply the function to the operands' elements."""
        return self.function(*[x.at(index if x.shape else ()) for x in self.operands])


class Remapped(Node):
    """Another array with its indices rearranged."""

    def __init__(
        self, x: Node, shape: Sequence[int], place: Callable[[Sequence[Index]], list[Index]]
    ) -> None:
        self.x = x
        self.shape = tuple(shape)
        self.dtype = x.dtype
        self.place = place
        self.is_view = x.is_view

    def check(self, index: Sequence[Index]) -> None:
        """Check the array behind."""
        self.x.check(self.place(index))

    def at(self, index: Sequence[Index]) -> Value:
        """Read the array behind."""
        return self.x.at(self.place(index))


class Joined(Node):
    """Arrays one after the other along an axis."""

    def __init__(self, parts: Sequence[Node], axis: int, shape: Sequence[int]) -> None:
        self.parts = [p for p in parts if p.shape[axis]]
        self.axis = axis
        self.shape = tuple(shape)
        self.dtype = parts[0].dtype
        self.is_view = all(p.is_view for p in self.parts)

    def _find(self, index: Sequence[Index]) -> tuple[Node, list[Index]]:
        here, start = index[self.axis], 0
        for part in self.parts:
            end = start + part.shape[self.axis]
            if here.low < end:
                if here.high > end:
                    raise Cut(here.axis, end - here.offset)
                inner = list(index)
                inner[self.axis] = here.shifted(-start)
                return part, inner
            start = end
        raise AssertionError("an index beyond the end of a concatenation")

    def check(self, index: Sequence[Index]) -> None:
        """The range must lie in one part."""
        part, inner = self._find(index)
        part.check(inner)

    def at(self, index: Sequence[Index]) -> Value:
        """Read the part that holds the range."""
        part, inner = self._find(index)
        return part.at(inner)


class Filled(Node):
    """One value everywhere."""

    def __init__(self, value: Value, shape: Sequence[int]) -> None:
        self.value = value
        self.shape = tuple(shape)
        self.dtype = value.dtype

    def check(self, index: Sequence[Index]) -> None:
        """Any range can be read."""

    def at(self, index: Sequence[Index]) -> Value:
        """Return the value."""
        return self.value


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of an array without gaps."""
    return tuple(math.prod(shape[a + 1 :]) for a in range(len(shape)))


def domain(node: Node, shape: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """Yield boxes that cover `shape`, each of which `node` can evaluate in one loop nest."""
    todo = [[(0, n) for n in shape]]
    while todo:
        box = todo.pop()
        if any(low >= high for low, high in box):
            continue
        probe = [
            Index(k, None, low, low, high) if high - low == 1 else Index(k, None, 0, low, high)
            for k, (low, high) in enumerate(box)
        ]
        try:
            node.check(probe)
        except Cut as cut:
            low, high = box[cut.axis]
            left, right = list(box), list(box)
            left[cut.axis], right[cut.axis] = (low, cut.position), (cut.position, high)
            todo += [right, left]
            continue
        yield box


def nest(
    builder: Any,
    box: Sequence[tuple[int, int]],
    body: Callable[[list[Index]], None],
    first: int = 0,
) -> None:
    """Emit loops over a box, in row-major order, and `body` inside them."""
    index: list[Index] = []

    def enter(axis: int) -> None:
        if axis == len(box):
            body(list(index))
            return
        low, high = box[axis]
        if high - low == 1:
            index.append(Index(first + axis, None, low, low, high))
            enter(axis + 1)
        else:
            with builder.counted(low, high) as counter:
                index.append(Index(first + axis, counter, 0, low, high))
                enter(axis + 1)
        index.pop()

    enter(0)
