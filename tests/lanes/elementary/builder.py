"""A float view of its own for the tests: llvmlite IR, any width, called over NumPy arrays."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from pullback.lanes.elementary import FUNCTIONS

NUMPY = {"f64": np.float64, "f32": np.float32}
_INT32, _INT64 = ir.IntType(32), ir.IntType(64)
_POINTER = ir.PointerType()


class LlvmView:
    """The operations of a float view, emitted at `width` lanes by an llvmlite builder.

    With `branching`, `when_any` skips the slow path if no lane needs it; else it always runs.
    """

    def __init__(self, emit: ir.IRBuilder, dtype: str, width: int, *, branching: bool) -> None:
        self.emit, self.dtype, self.width, self.branching = emit, dtype, width, branching
        self.n_operations = 0
        self.bits_wide = 64 if dtype == "f64" else 32
        self.scalar = ir.DoubleType() if dtype == "f64" else ir.FloatType()
        self.float_type = self._wide(self.scalar)
        self.int_type = self._wide(ir.IntType(self.bits_wide))

    def _wide(self, scalar: ir.Type) -> ir.Type:
        return ir.VectorType(scalar, self.width) if self.width > 1 else scalar

    def _constant(self, kind: ir.Type, number: float) -> ir.Constant:
        return ir.Constant(kind, [number] * self.width if self.width > 1 else number)

    def c(self, x: Any) -> Any:
        return x if isinstance(x, ir.Value) else self._constant(self.float_type, float(x))

    def ic(self, i: Any) -> Any:
        if isinstance(i, ir.Value):
            return i
        assert -(1 << (self.bits_wide - 1)) <= i < 1 << (self.bits_wide - 1)
        return self._constant(self.int_type, i)

    def _count(self, value: Any) -> Any:
        self.n_operations += 1
        return value

    def _intrinsic(self, name: str, *operands: Any) -> Any:
        lanes = f"v{self.width}" if self.width > 1 else ""
        symbol = f"llvm.{name}.{lanes}{self.dtype}"
        module = self.emit.module
        kind = ir.FunctionType(self.float_type, [self.float_type] * len(operands))
        callee = module.globals.get(symbol) or ir.Function(module, kind, symbol)
        return self._count(self.emit.call(callee, [self.c(x) for x in operands]))

    def add(self, x: Any, y: Any) -> Any:
        return self._count(self.emit.fadd(self.c(x), self.c(y)))

    def sub(self, x: Any, y: Any) -> Any:
        return self._count(self.emit.fsub(self.c(x), self.c(y)))

    def mul(self, x: Any, y: Any) -> Any:
        return self._count(self.emit.fmul(self.c(x), self.c(y)))

    def div(self, x: Any, y: Any) -> Any:
        return self._count(self.emit.fdiv(self.c(x), self.c(y)))

    def neg(self, x: Any) -> Any:
        return self._count(self.emit.fneg(self.c(x)))

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return self._intrinsic("fma", x, y, z)

    def abs(self, x: Any) -> Any:
        return self._intrinsic("fabs", x)

    def sqrt(self, x: Any) -> Any:
        return self._intrinsic("sqrt", x)

    def rint_native(self, x: Any) -> Any:
        return self._intrinsic("rint", x)

    def bits(self, x: Any) -> Any:
        return self.emit.bitcast(self.c(x), self.int_type)

    def fl(self, i: Any) -> Any:
        return self.emit.bitcast(self.ic(i), self.float_type)

    def iadd(self, i: Any, j: Any) -> Any:
        return self._count(self.emit.add(self.ic(i), self.ic(j)))

    def isub(self, i: Any, j: Any) -> Any:
        return self._count(self.emit.sub(self.ic(i), self.ic(j)))

    def iand(self, i: Any, j: Any) -> Any:
        return self._count(self.emit.and_(self.ic(i), self.ic(j)))

    def ior(self, i: Any, j: Any) -> Any:
        return self._count(self.emit.or_(self.ic(i), self.ic(j)))

    def ixor(self, i: Any, j: Any) -> Any:
        return self._count(self.emit.xor(self.ic(i), self.ic(j)))

    def shl(self, i: Any, count: int) -> Any:
        return self._count(self.emit.shl(self.ic(i), self.ic(count)))

    def lshr(self, i: Any, count: int) -> Any:
        return self._count(self.emit.lshr(self.ic(i), self.ic(count)))

    def _compare(self, order: str, x: Any, y: Any) -> Any:
        return self._count(self.emit.fcmp_ordered(order, self.c(x), self.c(y)))

    def lt(self, x: Any, y: Any) -> Any:
        return self._compare("<", x, y)

    def le(self, x: Any, y: Any) -> Any:
        return self._compare("<=", x, y)

    def gt(self, x: Any, y: Any) -> Any:
        return self._compare(">", x, y)

    def ge(self, x: Any, y: Any) -> Any:
        return self._compare(">=", x, y)

    def eq(self, x: Any, y: Any) -> Any:
        return self._compare("==", x, y)

    def ne(self, x: Any, y: Any) -> Any:
        return self._count(self.emit.fcmp_unordered("!=", self.c(x), self.c(y)))

    def isnan(self, x: Any) -> Any:
        return self._count(self.emit.fcmp_unordered("uno", x, x))

    def ieq0(self, i: Any) -> Any:
        return self._count(self.emit.icmp_signed("==", i, self.ic(0)))

    def ineg(self, i: Any) -> Any:
        return self._count(self.emit.icmp_signed("<", i, self.ic(0)))

    def mand(self, m: Any, n: Any) -> Any:
        return self._count(self.emit.and_(m, n))

    def mor(self, m: Any, n: Any) -> Any:
        return self._count(self.emit.or_(m, n))

    def mnot(self, m: Any) -> Any:
        return self._count(self.emit.not_(m))

    def select(self, mask: Any, x: Any, y: Any) -> Any:
        return self._count(self.emit.select(mask, self.c(x), self.c(y)))

    def iselect(self, mask: Any, i: Any, j: Any) -> Any:
        return self._count(self.emit.select(mask, self.ic(i), self.ic(j)))

    def outlined(self, name: str, function: Callable[..., Any], *operands: Any) -> Any:
        """Emit in place."""
        return function(self, *operands)

    def when_any(self, mask: Any, slow: Callable[[], Any], fast: Any) -> Any:
        """Return `slow()` in lanes of the mask, `fast` elsewhere; one value or a list of them."""
        if isinstance(fast, ir.Value):
            return self.when_any(mask, lambda: [slow()], [fast])[0]
        if not self.branching:
            return [self.emit.select(mask, s, f) for s, f in zip(slow(), fast, strict=True)]
        counted = self.n_operations
        before = self.emit.block
        with self.emit.if_then(self._any(mask)):
            taken = [self.emit.select(mask, s, f) for s, f in zip(slow(), fast, strict=True)]
            after = self.emit.block
        self.n_operations = counted
        merged = []
        for old, new in zip(fast, taken, strict=True):
            phi = self.emit.phi(old.type)
            phi.add_incoming(old, before)
            phi.add_incoming(new, after)
            merged.append(phi)
        return merged

    def _any(self, mask: Any) -> Any:
        if self.width == 1:
            return mask
        packed = ir.IntType(self.width)
        return self.emit.icmp_unsigned("!=", self.emit.bitcast(mask, packed), packed(0))

    def gather_row(self, name: str, table: Sequence[Sequence[float]], index: Any) -> list[Any]:
        """Return the numbers in row `index` of a constant table."""
        symbol = self._table(name, table)
        columns = [ir.Constant(self.float_type, ir.Undefined) for _ in table[0]]
        for lane in range(self.width):
            row = self.emit.extract_element(index, _INT32(lane)) if self.width > 1 else index
            for column in range(len(columns)):
                flat = self.emit.add(self.emit.mul(row, row.type(len(columns))), row.type(column))
                address = self.emit.gep(symbol, [flat], source_etype=self.scalar)
                number = self.emit.load(address, typ=self.scalar)
                columns[column] = (
                    self.emit.insert_element(columns[column], number, _INT32(lane))
                    if self.width > 1
                    else number
                )
        return columns

    def _table(self, name: str, table: Sequence[Sequence[float]]) -> Any:
        known = self.emit.module.globals.get(name)
        if known is not None:
            return known
        flat = [float(number) for row in table for number in row]
        kind = ir.ArrayType(self.scalar, len(flat))
        symbol = ir.GlobalVariable(self.emit.module, kind, name)
        symbol.global_constant = True
        symbol.initializer = ir.Constant(kind, flat)
        return symbol


class Compiled:
    """A function of lanes, called over arrays of any length."""

    def __init__(
        self,
        function: Callable[..., Any],
        arity: int,
        dtype: str,
        width: int,
        *,
        branching: bool = True,
    ) -> None:
        self.dtype, self.width = NUMPY[dtype], width
        module, self.n_operations = emit_module(function, arity, dtype, width, branching=branching)
        self._engine = _compile(str(module))
        address = self._engine.get_function_address("loop")
        pointers = [ctypes.c_void_p] * (arity + 1)
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_int64, *pointers)(address)

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        """Evaluate; the last vector is filled with ones."""
        n = arrays[0].size
        padded = -(-n // self.width) * self.width
        inputs = []
        for array in arrays:
            whole = np.ones(padded, self.dtype)
            whole[:n] = array.ravel()
            inputs.append(whole)
        result = np.empty(padded, self.dtype)
        self._call(padded, *(x.ctypes.data for x in inputs), result.ctypes.data)
        return result[:n].reshape(arrays[0].shape)


@functools.cache
def compiled(name: str, dtype: str, width: int = 8, *, branching: bool = True) -> Compiled:
    """Return the elementary function `name`, compiled once per session."""
    return Compiled(*FUNCTIONS[name], dtype, width, branching=branching)


def emit_module(
    function: Callable[..., Any], arity: int, dtype: str, width: int, *, branching: bool
) -> tuple[ir.Module, int]:
    """Return the loop over arrays around a function, and how many operations the function takes."""
    module = ir.Module()
    module.triple = llvm.get_default_triple()
    kind = ir.FunctionType(ir.VoidType(), [_INT64, *[_POINTER] * (arity + 1)])
    loop = ir.Function(module, kind, "loop")
    count, *inputs, output = loop.args
    entry, body, done = (loop.append_basic_block(n) for n in ("entry", "body", "done"))
    emit = ir.IRBuilder(entry)
    emit.cbranch(emit.icmp_signed(">", count, _INT64(0)), body, done)
    emit.position_at_end(body)
    i = emit.phi(_INT64)
    i.add_incoming(_INT64(0), entry)
    view = LlvmView(emit, dtype, width, branching=branching)
    bytes_each = view.bits_wide // 8

    def at(pointer: Any) -> Any:
        return emit.gep(pointer, [i], source_etype=view.scalar)

    values = [emit.load(at(p), typ=view.float_type, align=bytes_each) for p in inputs]
    result = view.c(function(view, *values))
    emit.store(result, at(output), align=bytes_each)
    following = emit.add(i, _INT64(width))
    i.add_incoming(following, emit.block)
    emit.cbranch(emit.icmp_signed("<", following, count), body, done)
    emit.position_at_end(done)
    emit.ret_void()
    return module, view.n_operations


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _machine() -> llvm.TargetMachine:
    """Make a target machine; each engine takes one over."""
    _initialize()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )


def _compile(text: str) -> llvm.ExecutionEngine:
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
