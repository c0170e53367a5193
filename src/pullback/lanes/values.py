"""Values of the lane walk: one scalar of every lane, known to the builder by its IR text.

An array of the lane program is a NumPy object array of :class:`Value` (small arrays) or one of the
memory-resident kinds of :mod:`pullback.lanes.memory` (large arrays).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

BOOL = np.dtype(np.bool_)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
UINT32 = np.dtype(np.uint32)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)

# What a lane can hold, by kind and bytes of the dtype.
_HELD = frozenset({"f8", "f4", "b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"})


def is_key(aval: Any) -> bool:
    """Whether a JAX type is that of a random key."""
    return not isinstance(aval.dtype, np.dtype) and str(aval.dtype).startswith("key<")


@functools.lru_cache(maxsize=64)
def is_lane_dtype(dtype: Any) -> bool:
    """Whether lanes hold values of this dtype; a random key is held as two words."""
    if not isinstance(dtype, np.dtype) and str(dtype).startswith("key<"):
        return str(dtype) == "key<fry>"
    return np.dtype(dtype).kind + str(np.dtype(dtype).itemsize) in _HELD


class Value:
    """One scalar of the lane program, held by every lane at once.

    ``uniform`` values are the same in all lanes and kept as ONE scalar until an operand that
    varies needs them. ``product`` remembers the factors of a multiplication, so that an addition
    that uses it becomes one fused multiply-add. ``constant`` is the Python number of a literal;
    a ``structural`` zero (a basis vector, padding, an absent cotangent) absorbs what it multiplies.
    """

    __slots__ = ("constant", "dtype", "product", "structural", "text", "uniform")

    def __init__(
        self,
        text: str,
        dtype: np.dtype,
        *,
        uniform: bool = False,
        product: tuple[Value, Value] | None = None,
        constant: Any = None,
        structural: bool = False,
    ) -> None:
        self.text = text
        self.dtype = dtype
        self.uniform = uniform
        self.product = product
        self.constant = constant
        self.structural = structural

    @property
    def is_constant(self) -> bool:
        """Whether the number is known while the kernel is built."""
        return self.constant is not None

    def __repr__(self) -> str:
        return f"Value({self.text}, {self.dtype})"


def object_array(shape: tuple[int, ...], items: list[Any]) -> np.ndarray:
    """Arrange `items` in row-major order as an object array of `shape`."""
    out = np.empty(len(items), object)
    for i, item in enumerate(items):
        out[i] = item
    return out.reshape(shape)


def scalar(value: Value) -> np.ndarray:
    """Wrap one value as an array without axes."""
    out = np.empty((), object)
    out[()] = value
    return out
