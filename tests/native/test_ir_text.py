"""The macros of the handler's text."""

import llvmlite.binding as llvm
import pytest

from pullback.native import abi, handler_ir
from pullback.native.ir_text import expand


def _lines(source: str) -> list[str]:
    return [line.strip() for line in expand(source).splitlines()]


def test_get_loads_the_field_at_its_offset() -> None:
    assert _lines("  %x = get Buffer.rank %b") == [
        "%m0 = getelementptr i8, ptr %b, i64 32",
        "%x = load i64, ptr %m0",
    ]


def test_put_stores_the_field_with_its_type() -> None:
    assert _lines("  put Metadata.minor @meta, 3") == [
        "%m0 = getelementptr i8, ptr @meta, i64 28",
        "store i32 3, ptr %m0",
    ]


def test_at_is_the_address() -> None:
    assert _lines("  %x = at State.buffers %s") == ["%x = getelementptr i8, ptr %s, i64 128"]


def test_new_sets_the_size_that_the_runtime_checks() -> None:
    lines = _lines("  %a = new FutureCreateArgs")
    assert "store i64 16, ptr %a" in lines
    assert lines[0] == "%a = alloca [32 x i8], align 8"  # the last member is not in the size


def test_other_lines_stay_as_they_are() -> None:
    source = "  %x = call ptr @f(ptr %get)\n  ret ptr %x\n"
    assert expand(source) == source


def test_texts_become_c_strings() -> None:
    expected = '@text.a = private constant [5 x i8] c"b\\22\\5Cc\\00"\n'
    assert expand("", {"a": 'b"\\c'}).endswith(expected)


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(KeyError, match="`Api` has no field `Error_Crate`"):
        expand("  %x = get Api.Error_Crate %api")


def test_an_unknown_structure_is_an_error() -> None:
    with pytest.raises(KeyError, match="Apo"):
        expand("  %x = get Apo.Error_Create %api")


def test_the_handler_s_text_is_valid_and_defines_its_exports() -> None:
    module = llvm.parse_assembly(handler_ir.handler_text())
    module.verify()
    values = [*module.functions, *module.global_variables]
    defined = {value.name for value in values if not value.is_declaration}
    assert set(handler_ir.EXPORTS) <= defined
    assert f"[{abi.PROCESS.size} x i8]" in str(module.get_global_variable("pullback_process"))


@pytest.mark.parametrize(
    "triple", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-macosx"]
)
def test_the_handler_compiles_for_every_supported_machine(triple: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(reloc="pic", codemodel="small")
    module = llvm.parse_assembly(handler_ir.handler_text())
    module.triple = triple
    module.data_layout = str(machine.target_data)
    module.verify()
    assembly = machine.emit_assembly(module)
    assert "pullback_handle:" in assembly
    assert ("ldadd" in assembly or "ldxr" in assembly) == (not triple.startswith("x86"))
