"""Arithmetic of the SIMD builder: floating point, integers, bits, comparison, conversion.

Nothing carries a fast-math flag. A product that is added becomes one explicit fused multiply-add,
and structural zeros are folded here, because LLVM may not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.lanes.cpu.emitter import FLOAT_SUFFIX, Emitter
from pullback.lanes.cpu.text import element_type
from pullback.lanes.values import BOOL, INT32, Value

_FLOAT_COMPARE = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_INT_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}


class Arithmetic(Emitter):
    """Elementwise operations on values."""

    # -- floating point --------------------------------------------------------------------------
    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """Return ``x*y + z`` with one rounding."""
        return self.intrinsic("fma", x, y, z)

    def negate(self, x: Value) -> Value:
        """Return ``-x``."""
        if x.is_constant:
            return self.constant(-x.constant, x.dtype, structural=x.structural)
        if x.dtype.kind == "f":
            negated = self.apply("fneg", (x,), x.dtype)
            if x.product is not None and negated.product is None:
                left, right = x.product
                negated.product = (self.apply("fneg", (left,), x.dtype), right)
            return negated
        return self.apply("sub", (self.constant(0, x.dtype), x), x.dtype)

    def add(self, x: Value, y: Value) -> Value:
        """Return ``x + y``; a product among them is fused."""
        if x.dtype.kind != "f":
            return self.integer("add", x, y)
        for zero, other in ((x, y), (y, x)):
            if zero.is_constant and zero.constant == 0:
                return other
        for product, other in ((y, x), (x, y)):
            if product.product is not None:
                return self.fma(*product.product, other)
        return self.plain("fadd", x, y)

    def subtract(self, x: Value, y: Value) -> Value:
        """Return ``x - y``; a product among them is fused."""
        if x.dtype.kind != "f":
            return self.integer("sub", x, y)
        if y.is_constant and y.constant == 0:
            return x
        if x.is_constant and x.structural:
            return self.negate(y)
        if y.product is not None:
            left, right = y.product
            return self.fma(self.negate(left), right, x)
        if x.product is not None:
            return self.fma(*x.product, self.negate(y))
        return self.plain("fsub", x, y)

    def multiply(self, x: Value, y: Value) -> Value:
        """Return ``x * y``; a structural zero absorbs, a one is dropped."""
        if x.dtype.kind != "f":
            return self.integer("mul", x, y)
        for factor, other in ((x, y), (y, x)):
            if factor.structural:
                return factor
            if factor.is_constant and factor.constant == 1:
                return other
            if factor.is_constant and factor.constant == -1:
                return self.negate(other)
        result = self.plain("fmul", x, y)
        if result.product is None and not result.is_constant:
            result.product = (x, y)
        return result

    def divide(self, x: Value, y: Value) -> Value:
        """Return ``x / y`` (integers: rounded towards zero, XLA's answers for 0 and overflow)."""
        if x.dtype.kind == "f":
            if x.structural:
                return x
            if y.is_constant and y.constant == 1:
                return x
            return self.plain("fdiv", x, y)
        return self._integer_division("div", x, y)

    def plain(self, operation: str, x: Value, y: Value) -> Value:
        """Emit fadd, fsub, fmul, fdiv or frem as it stands: never fused, never remembered."""
        if x.is_constant and y.is_constant:
            with np.errstate(all="ignore"):
                return self.constant(_FOLD[operation](x.constant, y.constant), x.dtype)
        return self.apply(operation, (x, y), x.dtype)

    def maximum(self, x: Value, y: Value) -> Value:
        """Return the larger; NaN if either is NaN."""
        return self._extremum("gt", "max", x, y)

    def minimum(self, x: Value, y: Value) -> Value:
        """Return the smaller; NaN if either is NaN."""
        return self._extremum("lt", "min", x, y)

    def _extremum(self, order: str, name: str, x: Value, y: Value) -> Value:
        if x.dtype.kind == "b":
            return self.integer("or" if name == "max" else "and", x, y)
        if x.dtype.kind != "f":
            return self.intrinsic(("s" if x.dtype.kind == "i" else "u") + name, x, y)
        if y.is_constant and not np.isnan(y.constant):
            x, y = y, x
        best = self.select(self.compare(order, x, y), x, y)
        if x.is_constant:
            return best
        return self.select(self.compare("ne", x, x), x, best)

    # -- integers and bits -----------------------------------------------------------------------
    def integer(self, operation: str, x: Value, y: Value) -> Value:
        """Return a wrapping integer or bitwise operation: add, sub, mul, and, or, xor."""
        if x.is_constant and y.is_constant:
            with np.errstate(all="ignore"):
                return self.constant(_FOLD[operation](x.constant, y.constant), x.dtype)
        return self.apply(_INT_BINARY[operation], (x, y), x.dtype)

    def remainder(self, x: Value, y: Value) -> Value:
        """Return the remainder with the sign of `x`."""
        if x.dtype.kind == "f":
            return self.plain("frem", x, y)
        return self._integer_division("rem", x, y)

    def _integer_division(self, operation: str, x: Value, y: Value) -> Value:
        signed = x.dtype.kind == "i"
        zero, one = self.constant(0, x.dtype), self.constant(1, x.dtype)
        by_zero = self.compare("eq", y, zero)
        overflow = None
        if signed:
            lowest = self.constant(np.iinfo(x.dtype).min, x.dtype)
            minus_one = self.constant(-1, x.dtype)
            overflow = self.integer(
                "and", self.compare("eq", x, lowest), self.compare("eq", y, minus_one)
            )
        unsafe = by_zero if overflow is None else self.integer("or", by_zero, overflow)
        quotient = self.apply(
            ("s" if signed else "u") + operation, (x, self.select(unsafe, one, y)), x.dtype
        )
        if operation == "div":
            all_ones = self.constant(np.array(-1).astype(x.dtype), x.dtype)
            return self.select(by_zero, all_ones, quotient)
        result = self.select(by_zero, x, quotient)
        return result if overflow is None else self.select(overflow, zero, result)

    def shift(self, operation: str, x: Value, count: Value) -> Value:
        """Shift by `count` bits (shl, lshr, ashr); a count past the width gives 0 or the sign."""
        bits = 8 * x.dtype.itemsize
        if count.is_constant and 0 <= int(count.constant) < bits:
            return self.apply(operation, (x, count), x.dtype)
        top = self.constant(bits - 1, x.dtype)
        fits = self.apply("icmp ule", (count, top), BOOL)
        inside = self.select(fits, count, top)
        shifted = self.apply(operation, (x, inside), x.dtype)
        outside = shifted if operation == "ashr" else self.constant(0, x.dtype)
        return self.select(fits, shifted, outside)

    # -- comparison, selection, conversion -------------------------------------------------------
    def compare(self, order: str, x: Value, y: Value) -> Value:
        """Return the mask of ``x <order> y`` for lt le gt ge eq ne."""
        if x.is_constant and y.is_constant:
            return self.constant(_FOLD[order](x.constant, y.constant), BOOL)
        if x.dtype.kind == "f":
            return self.apply(f"fcmp {_FLOAT_COMPARE[order]}", (x, y), BOOL)
        sign = "" if order in ("eq", "ne") else ("s" if x.dtype.kind == "i" else "u")
        return self.apply(f"icmp {sign}{order}", (x, y), BOOL)

    def select(self, mask: Value, on_true: Value, on_false: Value) -> Value:
        """Return `on_true` where `mask` holds, else `on_false`."""
        if mask.is_constant:
            return on_true if mask.constant else on_false
        same = on_true.text == on_false.text and on_true.uniform == on_false.uniform
        if same:
            return (
                on_true
                if on_true.structural == on_false.structural
                else self.constant(on_true.constant, on_true.dtype)
            )
        uniform = mask.uniform and on_true.uniform and on_false.uniform
        m = self.operand(mask, uniform=uniform)
        t = self.operand(on_true, uniform=uniform)
        f = self.operand(on_false, uniform=uniform)
        key = ("select", on_true.dtype, m, t, f)
        known = self._recall(key)
        if known is None:
            kind = self.type_of(on_true.dtype, uniform=uniform)
            bits = self.type_of(BOOL, uniform=uniform)
            text = self.function.define(f"select {bits} {m}, {kind} {t}, {kind} {f}")
            known = self._remember(key, Value(text, on_true.dtype, uniform=uniform))
        return known

    def convert(self, x: Value, dtype: np.dtype) -> Value:
        """Convert the number; float to integer truncates and saturates."""
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        if x.is_constant:
            with np.errstate(all="ignore"):
                return self.constant(x.constant, dtype, structural=x.structural)
        if dtype.kind == "b":
            return self.compare("ne", x, self.constant(0, x.dtype))
        if x.dtype.kind == "f" and dtype.kind in "iu":
            return self._saturating(x, dtype)
        operation = _conversion(x.dtype, dtype)
        if operation is None:
            return Value(x.text, dtype, uniform=x.uniform)
        return self._cast(operation, x, dtype)

    def _cast(self, operation: str, x: Value, dtype: np.dtype) -> Value:
        target = self.type_of(dtype, uniform=x.uniform)
        return self.apply(operation, (x,), dtype, form="{op} {type} {args} to " + target)

    def _saturating(self, x: Value, dtype: np.dtype) -> Value:
        if dtype == INT32:
            return self._saturating_int32(x)
        sign = "s" if dtype.kind == "i" else "u"
        source, target = (self.type_of(t, uniform=x.uniform) for t in (x.dtype, dtype))
        names = [FLOAT_SUFFIX[element_type(x.dtype)], element_type(dtype)]
        lanes = "" if x.uniform else f"v{self.width}"
        symbol = f"llvm.fpto{sign}i.sat.{lanes}{names[1]}.{lanes}{names[0]}"
        self.declarations[symbol] = f"declare {target} @{symbol}({source})"
        return self.apply(f"call {target} @{symbol}", (x,), dtype, form="{op}({type} {args})")

    def _saturating_int32(self, x: Value) -> Value:
        """Truncate to int32 by clamping first: LLVM's own saturating form goes lane by lane."""
        low, top = -(2.0**31), 2.0**31
        high = np.nextafter(x.dtype.type(top), x.dtype.type(0))  # truncates to 2**31 - 1 in float64
        above = self.select(
            self.compare("gt", x, self.constant(low, x.dtype)), x, self.constant(low, x.dtype)
        )
        inside = self.select(
            self.compare("lt", above, self.constant(high, x.dtype)),
            above,
            self.constant(high, x.dtype),
        )
        result = self._cast("fptosi", inside, INT32)
        if x.dtype.itemsize < 8:
            is_beyond = self.compare("ge", x, self.constant(top, x.dtype))
            result = self.select(is_beyond, self.constant(2**31 - 1, INT32), result)
        return self.select(self.compare("eq", x, x), result, self.constant(0, INT32))

    def bitcast(self, x: Value, dtype: np.dtype) -> Value:
        """Reinterpret the bits as `dtype` of the same size."""
        dtype = np.dtype(dtype)
        if element_type(x.dtype) == element_type(dtype):
            return (
                Value(x.text, dtype, uniform=x.uniform)
                if not x.is_constant
                else self.constant(np.asarray(x.constant).view(dtype), dtype)
            )
        if x.is_constant:
            return self.constant(np.asarray(x.constant).view(dtype)[()], dtype)
        return self._cast("bitcast", x, dtype)


def _conversion(source: np.dtype, target: np.dtype) -> str | None:
    """Return the LLVM cast between two dtypes, None where the bits stay as they are."""
    if target.kind == "f":
        if source.kind == "f":
            return "fpext" if target.itemsize > source.itemsize else "fptrunc"
        return "sitofp" if source.kind == "i" else "uitofp"
    if source.kind == "b":
        return "zext"
    if source.itemsize == target.itemsize:
        return None
    if target.itemsize < source.itemsize:
        return "trunc"
    return "sext" if source.kind == "i" else "zext"


_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "fadd": np.add,
    "fsub": np.subtract,
    "fmul": np.multiply,
    "fdiv": np.divide,
    "frem": np.fmod,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
