"""Rules of elementwise primitives: one scalar function each, mapped over the array.

An entry gets the builder and the equation and returns the function of scalars; arrays, memory and
broadcasting are the walk's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.lanes import elementary
from pullback.lanes.float_view import FloatView
from pullback.lanes.program_ir import Equation
from pullback.lanes.values import BOOL, INT32, INT64, Value
from pullback.lanes.walk import RULES, Walk

Scalar = Callable[..., Value]
Maker = Callable[[Any, Equation], Scalar]

ELEMENTWISE: dict[str, Maker] = {}


def _register(name: str, maker: Maker) -> None:
    ELEMENTWISE[name] = maker

    def apply(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
        return walk.arrays.elementwise(walk, equation, maker(walk.builder, equation), inputs)

    RULES[name] = apply


def _direct(method: str) -> Maker:
    return lambda b, _: getattr(b, method)


def _compare(order: str) -> Maker:
    return lambda b, _: lambda x, y: b.compare(order, x, y)


def _total_order(strict: bool) -> Maker:
    """Order of sorting: like IEEE totalOrder, after -0 and NaN were made canonical."""

    def make(b: Any, equation: Equation) -> Scalar:
        order = "lt" if strict else "le"

        def compare(x: Value, y: Value) -> Value:
            if x.dtype.kind != "f":
                return b.compare(order, x, y)
            return b.compare(order, sortable(b, x), sortable(b, y))

        return compare

    return make


def sortable(b: Any, x: Value) -> Value:
    """Map a float to an integer that sorts like it, NaN last."""
    if x.dtype.kind != "f":
        return x
    wide = INT64 if x.dtype.itemsize == 8 else INT32
    bits = b.bitcast(x, wide)
    last = b.constant(8 * wide.itemsize - 1, wide)
    flip = b.shift("lshr", b.shift("ashr", bits, last), b.constant(1, wide))
    return b.integer("xor", bits, flip)


def _bitwise(operation: str) -> Maker:
    return lambda b, _: lambda x, y: b.integer(operation, x, y)


def _not(b: Any, _: Equation) -> Scalar:
    def invert(x: Value) -> Value:
        ones = (
            b.constant(True, BOOL)
            if x.dtype == BOOL
            else b.constant(np.array(-1).astype(x.dtype), x.dtype)
        )
        return b.integer("xor", x, ones)

    return invert


def _shift(operation: str) -> Maker:
    return lambda b, _: lambda x, y: b.shift(operation, x, y)


def _intrinsic(name: str) -> Maker:
    return lambda b, _: lambda x: b.intrinsic(name, x)


def _elementary(name: str) -> Maker:
    function, _ = elementary.FUNCTIONS[name]

    def make(b: Any, equation: Equation) -> Scalar:
        view = FloatView(b, np.dtype(equation.outputs[0].dtype))
        return lambda *operands: function(view, *operands)

    return make


def _abs(b: Any, _: Equation) -> Scalar:
    def magnitude(x: Value) -> Value:
        if x.dtype.kind == "f":
            return b.intrinsic("fabs", x)
        if x.dtype.kind == "u":
            return x
        return b.select(b.compare("lt", x, b.constant(0, x.dtype)), b.negate(x), x)

    return magnitude


def _sign(b: Any, _: Equation) -> Scalar:
    def sign(x: Value) -> Value:
        zero, one = b.constant(0, x.dtype), b.constant(1, x.dtype)
        positive = b.select(b.compare("gt", x, zero), one, x)
        if x.dtype.kind == "u":
            return positive
        return b.select(b.compare("lt", x, zero), b.constant(-1, x.dtype), positive)

    return sign


def _round(b: Any, equation: Equation) -> Scalar:
    nearest_even = int(equation.params["rounding_method"]) == 1
    return lambda x: b.intrinsic("rint" if nearest_even else "round", x)


def _is_finite(b: Any, _: Equation) -> Scalar:
    def finite(x: Value) -> Value:
        return b.compare("lt", b.intrinsic("fabs", x), b.constant(np.inf, x.dtype))

    return finite


def _square(b: Any, _: Equation) -> Scalar:
    return lambda x: b.multiply(x, x)


def _integer_pow(b: Any, equation: Equation) -> Scalar:
    exponent = int(equation.params["y"])

    def power(x: Value) -> Value:
        raised = _repeated_product(b, x, abs(exponent))
        return raised if exponent >= 0 else b.divide(b.constant(1, x.dtype), raised)

    return power


def _repeated_product(b: Any, x: Value, n: int) -> Value:
    result: Value | None = None
    square = x
    while n:
        if n & 1:
            result = square if result is None else b.multiply(result, square)
        n >>= 1
        if n:
            square = b.multiply(square, square)
    return b.constant(1, x.dtype) if result is None else result


def _pow(b: Any, equation: Equation) -> Scalar:
    function, _ = elementary.FUNCTIONS["pow"]
    dtype = np.dtype(equation.outputs[0].dtype)

    def power(x: Value, y: Value) -> Value:
        if dtype.kind != "f":
            raise NotImplementedError("integer powers with a traced exponent")
        if y.is_constant:
            special = _constant_power(b, x, float(y.constant))
            if special is not None:
                return special
        return function(FloatView(b, dtype), x, b.convert(y, dtype))

    return power


def _constant_power(b: Any, x: Value, exponent: float) -> Value | None:
    """Return x**exponent without logarithms where a few exact operations do."""
    if exponent == int(exponent) and abs(exponent) <= 4:
        raised = _repeated_product(b, x, int(abs(exponent)))
        return raised if exponent >= 0 else b.divide(b.constant(1, x.dtype), raised)
    return None


def _clamp(b: Any, _: Equation) -> Scalar:
    return lambda low, x, high: b.minimum(b.maximum(x, low), high)


def _select_n(b: Any, equation: Equation) -> Scalar:
    def choose(which: Value, *cases: Value) -> Value:
        if which.dtype == BOOL:
            return b.select(which, cases[-1], cases[0])
        result = cases[-1]
        for i in range(len(cases) - 2, -1, -1):
            chosen = b.compare("eq", which, b.constant(i, which.dtype))
            result = b.select(chosen, cases[i], result)
        return result

    return choose


def _convert(b: Any, equation: Equation) -> Scalar:
    dtype = np.dtype(equation.outputs[0].dtype)
    return lambda x: b.convert(x, dtype)


def _bitcast(b: Any, equation: Equation) -> Scalar:
    dtype = np.dtype(equation.outputs[0].dtype)
    return lambda x: b.bitcast(x, dtype)


def _reduce_precision(b: Any, equation: Equation) -> Scalar:
    dtype = np.dtype(equation.outputs[0].dtype)
    exponent, mantissa = {8: (11, 52), 4: (8, 23)}[dtype.itemsize]
    asked = equation.params["exponent_bits"], equation.params["mantissa_bits"]
    wide = np.dtype(f"uint{8 * dtype.itemsize}")

    def reduce(x: Value) -> Value:
        bits = b.bitcast(x, wide)
        if asked[1] < mantissa:
            bits = _round_mantissa(b, bits, mantissa - asked[1])
        if asked[0] < exponent:
            bits = _clip_exponent(b, bits, (exponent, mantissa), asked[0])
        return b.select(b.compare("ne", x, x), x, b.bitcast(bits, dtype))

    return reduce if asked[0] < exponent or asked[1] < mantissa else lambda x: x


def _round_mantissa(b: Any, bits: Value, n: int) -> Value:
    """Round the last `n` bits away, to even; a carry moves on into the exponent."""

    def number(k: int) -> Value:
        return b.constant(k, bits.dtype)

    is_odd = b.integer("and", b.shift("lshr", bits, number(n)), number(1))
    rounded = b.integer("add", bits, b.integer("add", is_odd, number((1 << (n - 1)) - 1)))
    all_ones = (1 << 8 * bits.dtype.itemsize) - 1
    return b.integer("and", rounded, number(all_ones ^ ((1 << n) - 1)))


def _clip_exponent(b: Any, bits: Value, own: tuple[int, int], asked: int) -> Value:
    """Let what a smaller exponent cannot hold become infinity or zero."""

    def number(k: int) -> Value:
        return b.constant(k, bits.dtype)

    exponent, mantissa = own
    bias, new_bias = (1 << (exponent - 1)) - 1, (1 << (asked - 1)) - 1
    mask = ((1 << exponent) - 1) << mantissa
    here = b.integer("and", bits, number(mask))
    sign = b.integer("and", bits, number(1 << (exponent + mantissa)))
    is_large = b.compare("gt", here, number((bias + new_bias) << mantissa))
    is_tiny = b.compare("le", here, number((bias - new_bias) << mantissa))
    infinity = b.integer("or", sign, number(mask))
    return b.select(is_tiny, sign, b.select(is_large, infinity, bits))


def _count_leading_zeros(b: Any, _: Equation) -> Scalar:
    """Count from above by halving: 'the upper half is empty' costs one comparison a time."""

    def count(x: Value) -> Value:
        dtype = x.dtype
        unsigned = np.dtype(f"uint{8 * dtype.itemsize}")
        rest, total = b.bitcast(x, unsigned), b.constant(0, unsigned)
        step = 4 * dtype.itemsize
        while step:
            shifted = b.shift("shl", rest, b.constant(step, unsigned))
            limit = b.constant(1 << (8 * dtype.itemsize - step), unsigned)
            is_empty = b.compare("lt", rest, limit)
            rest = b.select(is_empty, shifted, rest)
            more = b.integer("add", total, b.constant(step, unsigned))
            total = b.select(is_empty, more, total)
            step //= 2
        is_zero = b.compare("eq", b.bitcast(x, unsigned), b.constant(0, unsigned))
        full = b.constant(8 * dtype.itemsize, unsigned)
        return b.bitcast(b.select(is_zero, full, total), dtype)

    return count


def _nextafter(b: Any, equation: Equation) -> Scalar:
    dtype = np.dtype(equation.outputs[0].dtype)
    wide = INT64 if dtype.itemsize == 8 else INT32

    def step(x: Value, y: Value) -> Value:
        zero, one = b.constant(0, dtype), b.constant(1, wide)
        bits = b.bitcast(x, wide)
        away = b.integer("xor", b.compare("lt", x, y), b.compare("lt", x, zero))
        moved = b.select(away, b.integer("add", bits, one), b.integer("sub", bits, one))
        sign = b.integer("and", b.bitcast(y, wide), b.constant(np.iinfo(wide).min, wide))
        smallest = b.bitcast(b.integer("or", sign, one), dtype)
        result = b.select(b.compare("eq", x, zero), smallest, b.bitcast(moved, dtype))
        result = b.select(b.compare("eq", x, y), y, result)
        result = b.select(b.compare("ne", y, y), y, result)
        return b.select(b.compare("ne", x, x), x, result)

    return step


_TABLE: dict[str, Maker] = {
    "add": _direct("add"),
    "add_any": _direct("add"),
    "sub": _direct("subtract"),
    "mul": _direct("multiply"),
    "div": _direct("divide"),
    "rem": _direct("remainder"),
    "neg": _direct("negate"),
    "max": _direct("maximum"),
    "min": _direct("minimum"),
    "lt_to": _total_order(strict=True),
    "le_to": _total_order(strict=False),
    "and": _bitwise("and"),
    "or": _bitwise("or"),
    "xor": _bitwise("xor"),
    "not": _not,
    "shift_left": _shift("shl"),
    "shift_right_logical": _shift("lshr"),
    "shift_right_arithmetic": _shift("ashr"),
    "population_count": _intrinsic("ctpop"),
    "abs": _abs,
    "sign": _sign,
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "round": _round,
    "is_finite": _is_finite,
    "square": _square,
    "one_minus_square": lambda b, _: lambda x: b.subtract(b.constant(1, x.dtype), b.multiply(x, x)),
    "integer_pow": _integer_pow,
    "pow": _pow,
    "clamp": _clamp,
    "select_n": _select_n,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "sqrt": _intrinsic("sqrt"),
    "reduce_precision": _reduce_precision,
    "nextafter": _nextafter,
    "clz": _count_leading_zeros,
}
_ELEMENTARY_NAMES = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asin",
    "acos",
    "atan",
    "atan2",
    "asinh",
    "acosh",
    "atanh",
    "cbrt",
    "erf",
    "erfc",
    "erf_inv",
    "logistic",
    "rsqrt",
    "lgamma",
    "digamma",
)

for _name, _maker in _TABLE.items():
    _register(_name, _maker)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _register(_name, _compare(_name))


def register_elementary() -> None:
    """Register every elementary function that the package has."""
    for name in _ELEMENTARY_NAMES:
        if name in elementary.FUNCTIONS:
            _register(name, _elementary(name))


register_elementary()
