"""A builder seen through one floating dtype: what the elementary functions are written against.

Additions here are never fused and products never remembered: the functions rely on every rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.lanes.values import BOOL, Value

_INT = {8: np.dtype(np.int64), 4: np.dtype(np.int32)}


class FloatView:
    """Operations of one float dtype on a builder; Python numbers stand for literals."""

    def __init__(self, builder: Any, dtype: np.dtype) -> None:
        self.builder = builder
        self.float_dtype = np.dtype(dtype)
        self.int_dtype = _INT[self.float_dtype.itemsize]
        self.dtype = "f64" if self.float_dtype.itemsize == 8 else "f32"

    def c(self, x: Any) -> Value:
        """Return a float, made from a Python number if it is one."""
        return x if isinstance(x, Value) else self.builder.constant(x, self.float_dtype)

    def ic(self, i: Any) -> Value:
        """Return an integer of the float's width, wrapped to it."""
        if isinstance(i, Value):
            return i
        bits = 8 * self.float_dtype.itemsize
        wrapped = (int(i) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
        return self.builder.constant(wrapped, self.int_dtype)

    def _plain(self, operation: str, x: Any, y: Any) -> Value:
        return self.builder.plain(operation, self.c(x), self.c(y))

    def add(self, x: Any, y: Any) -> Value:
        """Return the rounded sum."""
        return self._plain("fadd", x, y)

    def sub(self, x: Any, y: Any) -> Value:
        """Return the rounded difference."""
        return self._plain("fsub", x, y)

    def mul(self, x: Any, y: Any) -> Value:
        """Return the rounded product."""
        return self._plain("fmul", x, y)

    def div(self, x: Any, y: Any) -> Value:
        """Return the rounded quotient."""
        return self._plain("fdiv", x, y)

    def fma(self, x: Any, y: Any, z: Any) -> Value:
        """Return ``x*y + z`` with one rounding."""
        return self.builder.intrinsic("fma", self.c(x), self.c(y), self.c(z))

    def neg(self, x: Any) -> Value:
        """Return the value with its sign flipped."""
        return self.builder.apply("fneg", (self.c(x),), self.float_dtype)

    def abs(self, x: Any) -> Value:
        """Return the magnitude."""
        return self.builder.intrinsic("fabs", self.c(x))

    def sqrt(self, x: Any) -> Value:
        """Return the correctly rounded square root."""
        return self.builder.intrinsic("sqrt", self.c(x))

    def rint_native(self, x: Any) -> Value:
        """Round to the nearest integer, ties to even."""
        return self.builder.intrinsic("rint", self.c(x))

    def bits(self, x: Any) -> Value:
        """Return the bits of a float as an integer."""
        return self.builder.bitcast(self.c(x), self.int_dtype)

    def fl(self, i: Any) -> Value:
        """Return the float that has these bits."""
        return self.builder.bitcast(self.ic(i), self.float_dtype)

    def _integer(self, operation: str, i: Any, j: Any) -> Value:
        return self.builder.integer(operation, self.ic(i), self.ic(j))

    def iadd(self, i: Any, j: Any) -> Value:
        """Return the wrapping sum."""
        return self._integer("add", i, j)

    def isub(self, i: Any, j: Any) -> Value:
        """Return the wrapping difference."""
        return self._integer("sub", i, j)

    def iand(self, i: Any, j: Any) -> Value:
        """Return the bitwise and."""
        return self._integer("and", i, j)

    def ior(self, i: Any, j: Any) -> Value:
        """Return the bitwise or."""
        return self._integer("or", i, j)

    def ixor(self, i: Any, j: Any) -> Value:
        """Return the bitwise exclusive or."""
        return self._integer("xor", i, j)

    def shl(self, i: Any, count: int) -> Value:
        """Shift left by a constant."""
        return self.builder.shift("shl", self.ic(i), self.ic(count))

    def lshr(self, i: Any, count: int) -> Value:
        """Shift right by a constant, filling with zeros."""
        return self.builder.shift("lshr", self.ic(i), self.ic(count))

    def _compare(self, order: str, x: Any, y: Any) -> Value:
        return self.builder.compare(order, self.c(x), self.c(y))

    def lt(self, x: Any, y: Any) -> Value:
        """Return the mask of ``x < y``."""
        return self._compare("lt", x, y)

    def le(self, x: Any, y: Any) -> Value:
        """Return the mask of ``x <= y``."""
        return self._compare("le", x, y)

    def gt(self, x: Any, y: Any) -> Value:
        """Return the mask of ``x > y``."""
        return self._compare("gt", x, y)

    def ge(self, x: Any, y: Any) -> Value:
        """Return the mask of ``x >= y``."""
        return self._compare("ge", x, y)

    def eq(self, x: Any, y: Any) -> Value:
        """Return the mask of ``x == y``, or of equal masks."""
        if isinstance(x, Value) and x.dtype == BOOL:
            return self.mnot(self.builder.integer("xor", x, y))
        return self._compare("eq", x, y)

    def ne(self, x: Any, y: Any) -> Value:
        """Return the mask of ``x != y`` (true for NaN)."""
        return self._compare("ne", x, y)

    def isnan(self, x: Any) -> Value:
        """Return the mask of NaN."""
        return self._compare("ne", x, x)

    def ieq0(self, i: Any) -> Value:
        """Return the mask of integer zero."""
        return self.builder.compare("eq", self.ic(i), self.ic(0))

    def ineg(self, i: Any) -> Value:
        """Return the mask of negative integers: the sign bit."""
        return self.builder.compare("lt", self.ic(i), self.ic(0))

    def mand(self, m: Value, n: Value) -> Value:
        """Return where both masks hold."""
        return self.builder.integer("and", m, n)

    def mor(self, m: Value, n: Value) -> Value:
        """Return where either mask holds."""
        return self.builder.integer("or", m, n)

    def mnot(self, m: Value) -> Value:
        """Return where the mask does not hold."""
        return self.builder.integer("xor", m, self.builder.constant(True, BOOL))

    def select(self, mask: Value, x: Any, y: Any) -> Value:
        """Return `x` where the mask holds, else `y`."""
        return self.builder.select(mask, self.c(x), self.c(y))

    def iselect(self, mask: Value, i: Any, j: Any) -> Value:
        """Return `i` where the mask holds, else `j`."""
        return self.builder.select(mask, self.ic(i), self.ic(j))

    def when_any(self, mask: Value, slow: Callable[[], Any], fast: Any) -> Any:
        """Return `slow()` in lanes of the mask, `fast` elsewhere; branch over `slow` if unused."""
        single = isinstance(fast, Value)
        as_list = (lambda: [slow()]) if single else slow
        merged = self.builder.when_any(mask, as_list, [fast] if single else list(fast))
        return merged[0] if single else merged

    def outlined(
        self, name: str, function: Callable[..., Sequence[Value]], *operands: Value
    ) -> list[Value]:
        """Return ``function(self, *operands)`` by a call: for large code that seldom runs."""
        return self.builder.outlined(
            f"{name}_{self.dtype}", lambda *inner: list(function(self, *inner)), operands
        )

    def gather_row(self, name: str, table: np.ndarray, index: Value) -> list[Value]:
        """Return the numbers in row `index` of a constant table."""
        return self.builder.gather_row(name, np.asarray(table, self.float_dtype), index)
