"""Values and expressions: the part of the SIMD builder that every other part emits through.

A value that varies over the lanes is `<W x type>`, a uniform one stays a scalar. An expression that
was emitted before, where it is still visible, is not emitted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pullback.lanes.cpu.text import FunctionText, element_type, literal
from pullback.lanes.values import Value

FLOAT_SUFFIX = {"double": "f64", "float": "f32"}


class Emitter:
    """Emit pure instructions over the lanes into the current function.

    Attributes:
        width: Number of lanes.
        register_bytes: Size of a vector register.
        function: The function under construction.
        declarations: External functions, by symbol.
    """

    def __init__(self, width: int, register_bytes: int = 32) -> None:
        self.width = width
        self.register_bytes = register_bytes
        self.tables: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self.globals: list[str] = []
        self.functions: dict[str, str] = {}
        self._outlined: dict[str, list[np.dtype]] = {}
        self._placed: dict[tuple[str, bytes], str] = {}
        self.function = FunctionText("")
        self._seen: list[dict[tuple[Any, ...], Value]] = [{}]

    # -- values ----------------------------------------------------------------------------------
    def type_of(self, dtype: np.dtype, *, uniform: bool = False) -> str:
        """Return the IR type of a value of `dtype`."""
        element = element_type(dtype)
        return element if uniform else f"<{self.width} x {element}>"

    def constant(self, number: Any, dtype: np.dtype, *, structural: bool = False) -> Value:
        """Return the literal `number`; `structural` marks a zero that absorbs products."""
        dtype = np.dtype(dtype)
        number = np.asarray(number).astype(dtype)[()]
        text = literal(number, dtype)
        return Value(text, dtype, uniform=True, constant=number, structural=structural)

    def operand(self, value: Value, *, uniform: bool = False) -> str:
        """Return the IR text of `value`, spread over the lanes unless `uniform`."""
        if value.uniform == uniform:
            return value.text
        if uniform:
            raise AssertionError("a value that varies over the lanes was used as uniform")
        element = element_type(value.dtype)
        if value.is_constant:
            return f"splat ({element} {value.text})"
        return self._splat(value, element).text

    def _splat(self, value: Value, element: str) -> Value:
        w, key = self.width, ("splat", value.dtype, value.text)
        known = self._recall(key)
        if known is None:
            first = self.function.define(
                f"insertelement <{w} x {element}> poison, {element} {value.text}, i32 0"
            )
            text = self.function.define(
                f"shufflevector <{w} x {element}> {first}, <{w} x {element}> poison, "
                f"<{w} x i32> zeroinitializer"
            )
            known = self._remember(key, Value(text, value.dtype))
        return known

    # -- one instruction per distinct expression -------------------------------------------------
    # The dtype belongs to it: 1.0 is the same text in single and double precision, and a number
    # keeps its register when it is only said to be unsigned.
    def _recall(self, key: tuple[Any, ...]) -> Value | None:
        for table in reversed(self._seen):
            if key in table:
                return table[key]
        return None

    def _remember(self, key: tuple[Any, ...], value: Value) -> Value:
        self._seen[-1][key] = value
        return value

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside is not visible after: the body of a loop or branch."""
        self._seen.append({})
        try:
            yield
        finally:
            self._seen.pop()

    def apply(
        self,
        operation: str,
        operands: Sequence[Value],
        result: np.dtype,
        form: str = "{op} {type} {args}",
    ) -> Value:
        """Emit one pure instruction over operands of one type, or return its earlier result."""
        uniform = all(x.uniform for x in operands)
        texts = [self.operand(x, uniform=uniform) for x in operands]
        key = (operation, operands[0].dtype, result, form, *texts)
        known = self._recall(key)
        if known is not None:
            return known
        type_text = self.type_of(operands[0].dtype, uniform=uniform)
        right = form.format(op=operation, type=type_text, args=", ".join(texts))
        text = self.function.define(right)
        return self._remember(key, Value(text, np.dtype(result), uniform=uniform))

    def intrinsic(self, name: str, *operands: Value) -> Value:
        """Call the LLVM intrinsic `llvm.<name>` on values of one float or integer type."""
        uniform = all(x.uniform for x in operands)
        dtype = operands[0].dtype
        element = element_type(dtype)
        type_text = self.type_of(dtype, uniform=uniform)
        suffix = FLOAT_SUFFIX.get(element, element)
        symbol = f"llvm.{name}.{suffix if uniform else f'v{self.width}{suffix}'}"
        types = ", ".join([type_text] * len(operands))
        self.declarations[symbol] = f"declare {type_text} @{symbol}({types})"
        texts = [self.operand(x, uniform=uniform) for x in operands]
        key = (symbol, dtype, *texts)
        known = self._recall(key)
        if known is None:
            args = ", ".join(f"{type_text} {t}" for t in texts)
            text = self.function.define(f"call {type_text} @{symbol}({args})")
            known = self._remember(key, Value(text, dtype, uniform=uniform))
        return known

    def outlined(
        self, name: str, emit: Callable[..., Sequence[Value]], operands: Sequence[Value]
    ) -> list[Value]:
        """Return `emit` of the operands by a call of a function that is emitted once per module."""
        if name not in self._outlined:
            self._outlined[name] = self._define(name, emit, operands)
        dtypes = self._outlined[name]
        kinds = [self.type_of(d) for d in dtypes]
        arguments = ", ".join(f"{self.type_of(x.dtype)} {self.operand(x)}" for x in operands)
        result = f"{{{', '.join(kinds)}}}"
        bundle = self.function.define(f"call {result} @{name}({arguments})")
        return [
            Value(self.function.define(f"extractvalue {result} {bundle}, {i}"), dtype)
            for i, dtype in enumerate(dtypes)
        ]

    def _define(
        self, name: str, emit: Callable[..., Sequence[Value]], operands: Sequence[Value]
    ) -> list[np.dtype]:
        """Emit a function of its own and return the dtypes of its results."""
        outer, seen = self.function, self._seen
        names = [f"%arg{i}" for i in range(len(operands))]
        kinds = [self.type_of(x.dtype) for x in operands]
        self._seen = [{}]
        self.function = FunctionText("")
        arguments = [Value(n, x.dtype) for n, x in zip(names, operands, strict=True)]
        results = list(emit(*arguments))
        bundle, types = "poison", [self.type_of(r.dtype) for r in results]
        result = f"{{{', '.join(types)}}}"
        for i, (value, kind) in enumerate(zip(results, types, strict=True)):
            part = f"{result} {bundle}, {kind} {self.operand(value)}, {i}"
            bundle = self.function.define(f"insertvalue {part}")
        self.function.emit(f"ret {result} {bundle}")
        parameters = ", ".join(f"{k} {n}" for k, n in zip(kinds, names, strict=True))
        self.function.header = (
            f"define internal {result} @{name}({parameters}) noinline cold alignstack(64)"
        )
        self.functions[name] = str(self.function)
        self.function, self._seen = outer, seen
        return [r.dtype for r in results]

    def procedure(
        self, name: str, emit: Callable[[Sequence[str]], None], pointers: Sequence[str]
    ) -> None:
        """Call a function of pointers that is emitted once per module, and at its first use."""
        if name not in self.functions:
            outer, seen = self.function, self._seen
            names = [f"%arg{i}" for i in range(len(pointers))]
            self._seen = [{}]
            parameters = ", ".join(f"ptr noalias {n}" for n in names)
            self.function = FunctionText(
                f"define internal void @{name}({parameters}) noinline alignstack(64)"
            )
            emit(names)
            self.function.emit("ret void")
            self.functions[name] = str(self.function)
            self.function, self._seen = outer, seen
        arguments = ", ".join(f"ptr {p}" for p in pointers)
        self.function.emit(f"call void @{name}({arguments})")

    def table(self, numbers: np.ndarray) -> str:
        """Place constant data in the module, once, and return its symbol."""
        numbers = np.ascontiguousarray(numbers)
        content = (numbers.dtype.str, numbers.tobytes())
        if content in self._placed:
            return self._placed[content]
        name = self._placed[content] = f"@table{len(self.globals)}"
        element = element_type(numbers.dtype) if numbers.dtype.kind != "b" else "i8"
        kept = numbers.astype(np.int8) if numbers.dtype.kind == "b" else numbers
        items = ", ".join(f"{element} {literal(x, kept.dtype)}" for x in kept.ravel())
        self.globals.append(
            f"{name} = internal constant [{kept.size} x {element}] [{items}], align 64"
        )
        return name

    def module(self) -> str:
        """Return the finished module text."""
        parts = [*self.globals, *self.functions.values(), str(self.function)]
        return "\n".join([*parts, *self.declarations.values()])
