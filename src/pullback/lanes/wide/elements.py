"""Arrays as lists of elements that need not have been moved: a scalar, or a place in a vector.

Shape operations only rearrange such lists. `assemble` makes one vector of a list when an operation
needs it: nothing at all if it is one already, else as few shuffles as the sources allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.lanes.cpu.text import element_type, literal
from pullback.lanes.values import Value, object_array

if TYPE_CHECKING:
    from pullback.lanes.wide.builder import WideBuilder

__all__ = ["Lane", "assemble", "scalar_of", "spread_out"]


class Lane(Value):
    """An element of a vector, which becomes a scalar of its own only where one is needed."""

    __slots__ = ("builder", "index", "vector", "width")

    def __init__(self, builder: WideBuilder, vector: Value, width: int, index: int) -> None:
        self.builder = builder
        self.vector = vector
        self.width = width
        self.index = index
        self.dtype = vector.dtype
        self.uniform = True
        self.product = None
        self.constant = None
        self.structural = False

    @property
    def text(self) -> str:
        """Name of the scalar."""
        return self.builder.lane(self.vector, self.width, self.index).text

    def __repr__(self) -> str:
        return f"Lane({self.vector.text}[{self.index}])"


def spread_out(b: WideBuilder, value: Value, shape: tuple[int, ...]) -> np.ndarray:
    """Return the elements of a vector, or of an array whose elements are all `value`."""
    n = int(np.prod(shape, dtype=np.int64))
    if value.uniform:
        return object_array(shape, [value] * n)
    return object_array(shape, [Lane(b, value, n, i) for i in range(n)])


def scalar_of(b: WideBuilder, item: Value) -> Value:
    """Return an element as a scalar."""
    return b.lane(item.vector, item.width, item.index) if isinstance(item, Lane) else item


def assemble(b: WideBuilder, items: Sequence[Value]) -> Value:
    """Return elements as one vector, or as one scalar if all are the same."""
    first = items[0]
    keys = [_key(item) for item in items]
    if all(key == keys[0] for key in keys):
        return scalar_of(b, first)
    if isinstance(first, Lane) and first.width == len(items):
        name = first.vector.text
        if all(key == ("lane", name, i) for i, key in enumerate(keys)):
            return first.vector
    return b.made(("vector", tuple(keys)), lambda: _gathered(b, items))


def _key(item: Value) -> tuple[Any, ...]:
    if isinstance(item, Lane):
        return "lane", item.vector.text, item.index
    return "scalar", item.text, item.dtype.str


def _gathered(b: WideBuilder, items: Sequence[Value]) -> Value:
    """Shuffle from vectors, then blend constants in, then insert scalars."""
    dtype, n = items[0].dtype, len(items)
    vectors = {item.vector.text: item for item in items if isinstance(item, Lane)}
    if len(vectors) > 2:
        items = _halves(b, items)
        vectors = {item.vector.text: item for item in items if isinstance(item, Lane)}
    constants = {i: x.constant for i, x in enumerate(items) if x.is_constant}
    filler = _literal([constants.get(i) for i in range(n)], dtype)
    if vectors:
        text = _from_vectors(b, list(vectors.values()), items)
        if constants:
            mask = [n + i if i in constants else i for i in range(n)]
            text = b.shuffle(text, filler, n, dtype, mask)
    else:
        text = filler
    kind, element = f"<{n} x {element_type(dtype)}>", element_type(dtype)
    for i, item in enumerate(items):
        if not isinstance(item, Lane) and not item.is_constant:
            b.cost += 1
            text = b.function.define(f"insertelement {kind} {text}, {element} {item.text}, i32 {i}")
    return Value(text, dtype)


def _halves(b: WideBuilder, items: Sequence[Value]) -> list[Value]:
    """Assemble the two halves: for elements of many vectors."""
    middle = len(items) // 2
    out: list[Value] = []
    for part in (items[:middle], items[middle:]):
        vector = assemble(b, part)
        out += (
            [vector] * len(part) if vector.uniform else spread_out(b, vector, (len(part),)).tolist()
        )
    return out


def _from_vectors(b: WideBuilder, sources: list[Lane], items: Sequence[Value]) -> str:
    """Take the elements that lie in one or two vectors, in one shuffle where widths agree."""
    dtype, width = items[0].dtype, max(lane.width for lane in sources)
    texts, start = [], {}
    for i, lane in enumerate(sources):
        start[lane.vector.text] = i * width
        text = lane.vector.text
        if lane.width < width:
            mask = [k if k < lane.width else -1 for k in range(width)]
            text = b.shuffle(text, "poison", lane.width, dtype, mask)
        texts.append(text)
    mask = [
        start[item.vector.text] + item.index if isinstance(item, Lane) else -1 for item in items
    ]
    return b.shuffle(texts[0], texts[1] if len(texts) > 1 else "poison", width, dtype, mask)


def _literal(numbers: Sequence[Any], dtype: np.dtype) -> str:
    element = element_type(dtype)
    if all(x is None for x in numbers):
        return "poison"
    return "<" + ", ".join(
        f"{element} " + ("poison" if x is None else literal(x, dtype)) for x in numbers
    ) + ">"  # fmt: skip
