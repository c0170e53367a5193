"""IR text to machine code: options, refusals, and what an object holds."""

import ctypes
import math

import llvmlite.binding as llvm
import pytest

from pullback.native import host
from pullback.native.compile import CompileError, CompileOptions, compile_object, load_object

_SUM = """
define i64 @sum(ptr %x, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %loop]
  %s = phi i64 [0, %entry], [%s.next, %loop]
  %at = getelementptr i64, ptr %x, i64 %i
  %v = load i64, ptr %at
  %s.next = add i64 %s, %v
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %loop, label %done
done:
  ret i64 %s.next
}
"""
_COSINE = """
@scale = dso_local global double 2.0
declare double @cos(double)
define double @f(double %x) {
  %s = load double, ptr @scale
  %c = call double @cos(double %x)
  %r = fmul double %c, %s
  ret double %r
}
"""


@pytest.mark.parametrize("speed_level", [0, 1, 3])
@pytest.mark.parametrize("codegen_level", [0, 2])
def test_every_effort_gives_working_code(speed_level: int, codegen_level: int) -> None:
    options = CompileOptions(codegen_level=codegen_level, speed_level=speed_level)
    address = load_object(compile_object(_SUM, options, ["sum"]), ["sum"])["sum"]
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(address)
    data = (ctypes.c_int64 * 5)(1, 2, 3, 4, 5)
    assert function(ctypes.addressof(data), 5) == 15


def test_the_vectoriser_is_off_unless_asked_for() -> None:
    plain = compile_object(_SUM, CompileOptions(speed_level=3), ["sum"])
    wide = compile_object(_SUM, CompileOptions(speed_level=3, loop_vectorization=True), ["sum"])
    assert _code_size(wide) > 2 * _code_size(plain)


def _code_size(data: bytes) -> int:
    sections = llvm.ObjectFileRef.from_data(data).sections()
    return sum(section.size() for section in sections if section.is_text())


def test_compiling_twice_gives_the_same_bytes() -> None:
    first, second = (compile_object(_SUM, CompileOptions(), ["sum"]) for _ in range(2))
    assert first == second


def test_functions_of_the_process_and_globals_are_reached() -> None:
    addresses = load_object(compile_object(_COSINE, CompileOptions(), ["f"]), ["f", "scale"])
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(addresses["f"])
    assert function(0.5) == 2.0 * math.cos(0.5)
    ctypes.c_double.from_address(addresses["scale"]).value = 3.0
    assert function(0.5) == 3.0 * math.cos(0.5)


def test_equal_symbols_of_two_objects_stay_apart() -> None:
    one = compile_object("define i64 @f() {\n ret i64 1\n}", CompileOptions(), ["f"])
    two = compile_object("define i64 @f() {\n ret i64 2\n}", CompileOptions(), ["f"])
    addresses = [load_object(data, ["f"])["f"] for data in (one, two)]
    assert [ctypes.CFUNCTYPE(ctypes.c_int64)(address)() for address in addresses] == [1, 2]


@pytest.mark.skipif(host.machine_name() != "x86_64", reason="names features of x86-64")
def test_features_can_be_taken_away() -> None:
    source = """
define void @f(ptr %x) {
  %v = load <8 x double>, ptr %x, align 8
  %w = fadd <8 x double> %v, %v
  store <8 x double> %w, ptr %x, align 8
  ret void
}
"""
    options = CompileOptions(features=("-avx512f", "-avx2", "-avx"))
    plain = compile_object(source, CompileOptions(), ["f"])
    narrow = compile_object(source, options, ["f"])
    assert _code_size(narrow) > _code_size(plain)


def test_text_that_does_not_parse_is_refused() -> None:
    with pytest.raises(CompileError, match="LLVM refused a kernel's IR: LLVM IR parsing error"):
        compile_object("define i64 @f() { ret i32 0 }", CompileOptions(), ["f"])


def test_text_that_does_not_verify_is_refused() -> None:
    source = """
define i64 @f(i1 %c) {
  br i1 %c, label %a, label %b
a:
  %x = add i64 1, 1
  br label %b
b:
  ret i64 %x
}
"""
    with pytest.raises(CompileError, match="does not dominate all uses"):
        compile_object(source, CompileOptions(), ["f"])


def test_a_missing_export_is_named() -> None:
    with pytest.raises(CompileError, match="does not define kernel, other"):
        compile_object(_SUM, CompileOptions(), ["sum", "kernel", "other"])


def test_an_unknown_function_is_named_before_llvm_ends_the_process() -> None:
    source = (
        "declare i64 @no_such_function()\n"
        + """
define i64 @f() {
  %x = call i64 @no_such_function()
  ret i64 %x
}
"""
    )
    with pytest.raises(CompileError, match="uses unknown functions: no_such_function"):
        compile_object(source, CompileOptions(), ["f"])


@pytest.mark.parametrize("name", ["codegen_level", "speed_level"])
@pytest.mark.parametrize("level", [-1, 4])
def test_levels_that_llvm_does_not_have_are_refused(name: str, level: int) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be 0, 1, 2 or 3, got {level}"):
        CompileOptions(**{name: level})
