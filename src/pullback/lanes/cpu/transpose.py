"""Rows of lanes to lanes of rows: transposing small blocks in registers.

A row per lane lies contiguously in memory, while the kernel holds a vector over the lanes per
element. Storing element by element costs one store per lane and element; a transposed block is
stored and loaded as whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.lanes.cpu.text import FunctionText

# Rows are handled in blocks of so many elements.
BLOCK = 8


def transposed(f: FunctionText, vectors: Sequence[str], length: int, element: str) -> list[str]:
    """Transpose `k` vectors of `length` elements into `length` vectors of `k`.

    Args:
        f: The function under construction.
        vectors: Their IR texts; `k` is a power of two.
        length: Elements of each, a power of two.
        element: IR type of an element.
    """
    unit, current = 1, list(vectors)
    k = len(current)
    while len(current) > 1:
        current = [
            _interleaved(f, a, b, length, unit, element)
            for a, b in zip(current[::2], current[1::2], strict=True)
        ]
        unit *= 2
    return [_part(f, current[0], i * k, k, length * k, element) for i in range(length)]


def _interleaved(f: FunctionText, a: str, b: str, length: int, unit: int, element: str) -> str:
    """Alternate units of two vectors of `length` units."""
    size = length * unit
    order = [
        start + i * unit + j for i in range(length) for start in (0, size) for j in range(unit)
    ]
    return _shuffled(f, a, b, size, order, element)


def _part(f: FunctionText, a: str, start: int, count: int, size: int, element: str) -> str:
    if count == size:
        return a
    return _shuffled(f, a, "poison", size, list(range(start, start + count)), element)


def _shuffled(
    f: FunctionText, a: str, b: str, size: int, order: Sequence[int], element: str
) -> str:
    kind = f"<{size} x {element}>"
    indices = ", ".join(f"i32 {i}" for i in order)
    return f.define(f"shufflevector {kind} {a}, {kind} {b}, <{len(order)} x i32> <{indices}>")


def padded(count: int) -> int:
    """Return the elements that a row of `count` takes where rows may be padded to whole blocks."""
    return 1 << (count - 1).bit_length() if count <= BLOCK else -(-count // BLOCK) * BLOCK


def blocks(count: int, *, is_padded: bool) -> list[tuple[int, int]]:
    """Cut a row into blocks of a power of two: pairs of start and size."""
    out, start = [], 0
    while start < count:
        rest = count - start
        size = min(BLOCK, padded(rest) if is_padded else 1 << (rest.bit_length() - 1))
        out.append((start, size))
        start += size
    return out
