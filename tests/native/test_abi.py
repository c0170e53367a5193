"""The layout tables: XLA's against its own C header, ours against the kernel contract."""

import shutil
import subprocess
from pathlib import Path

import jax
import pytest

from pullback.native import abi

# Our field name -> member of the C structure, where they differ.
_C_STRUCTS = {
    "CallFrame": "XLA_FFI_CallFrame",
    "Api": "XLA_FFI_Api",
    "Buffer": "XLA_FFI_Buffer",
    "Extension": "XLA_FFI_Metadata_Extension",
    "Metadata": "XLA_FFI_Metadata",
    "ErrorCreateArgs": "XLA_FFI_Error_Create_Args",
    "ErrorDestroyArgs": "XLA_FFI_Error_Destroy_Args",
    "NumThreadsArgs": "XLA_FFI_ThreadPool_NumThreads_Args",
    "ScheduleArgs": "XLA_FFI_ThreadPool_Schedule_Args",
    "FutureCreateArgs": "XLA_FFI_Future_Create_Args",
    "SetAvailableArgs": "XLA_FFI_Future_SetAvailable_Args",
    "SetErrorArgs": "XLA_FFI_Future_SetError_Args",
}
_C_MEMBERS = {
    ("CallFrame", "context"): "ctx",
    ("CallFrame", "n_args"): "args.size",
    ("CallFrame", "args"): "args.args",
    ("CallFrame", "n_results"): "rets.size",
    ("CallFrame", "results"): "rets.rets",
    ("Api", "major"): "api_version.major_version",
    ("Api", "minor"): "api_version.minor_version",
    ("Extension", "struct_size"): "extension_base.struct_size",
    ("Extension", "type"): "extension_base.type",
    ("Extension", "next"): "extension_base.next",
    ("Metadata", "major"): "api_version.major_version",
    ("Metadata", "minor"): "api_version.minor_version",
    ("ErrorCreateArgs", "code"): "errc",
    ("NumThreadsArgs", "context"): "ctx",
    ("NumThreadsArgs", "out"): "num_threads",
    ("ScheduleArgs", "context"): "ctx",
}
# Structures that XLA allocates may be longer than what we know of them.
_SIZES = {name for name in _C_STRUCTS if name.endswith("Args") or name == "CallFrame"}


def _member(struct: str, field: str) -> str:
    default = "extension_start" if field == "extension" else field
    if struct == "Api" and field[0].isupper():
        default = f"XLA_FFI_{field}"
    return _C_MEMBERS.get((struct, field), default)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_tables_agree_with_the_c_header(tmp_path: Path) -> None:
    header = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()
    checks = []
    for struct in abi.XLA_STRUCTS:
        c_struct = _C_STRUCTS[struct.name]
        for field, where in struct.fields.items():
            if (struct.name, field) == ("Extension", "extension"):
                continue  # an extension has a chain of its own, not a start of one
            member = _member(struct.name, field)
            if struct.name == "Api" and member.split(".")[0] not in header:
                continue  # renamed in a later header; what the handler calls is in all of them
            checks.append(f"offsetof({c_struct}, {member}) == {where.offset}")
        if struct.name in _SIZES:
            checks.append(f"{c_struct}_STRUCT_SIZE == {struct.size}")
    checks.append(f"XLA_FFI_API_MAJOR == {abi.XLA_FFI_MAJOR}")
    checks.append(f"XLA_FFI_ExecutionStage_EXECUTE == {abi.STAGE_EXECUTE}")
    checks.append(f"XLA_FFI_Extension_Metadata == {abi.METADATA_EXTENSION}")
    for name in ("CANCELLED", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"):
        checks.append(f"XLA_FFI_Error_Code_{name} == {getattr(abi, f'CODE_{name}')}")
    source = tmp_path / "check.c"
    source.write_text(
        '#include "xla/ffi/api/c_api.h"\n'
        + "".join(f'_Static_assert({check}, "{check}");\n' for check in checks)
    )
    command = ["cc", "-fsyntax-only", "-I", jax.ffi.include_dir(), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert len(checks) > 60


def test_work_is_what_the_kernel_contract_says() -> None:
    offsets = {name: field.offset for name, field in abi.WORK.fields.items()}
    assert offsets == {
        "next": 0,
        "n": 8,
        "chunk": 16,
        "interrupt": 24,
        "seen": 32,
        "lane_steps": 40,
        "vector_steps": 48,
    }


@pytest.mark.parametrize("struct", [abi.STATE, abi.DESCRIPTOR, abi.PROCESS], ids=lambda s: s.name)
def test_own_structures_do_not_overlap_and_hold_their_fields(struct: abi.Struct) -> None:
    offsets = [field.offset for field in struct.fields.values()]
    assert len(set(offsets)) == len(offsets)
    assert all(offset % 8 == 0 for offset in offsets)
    last_is_open_ended = struct is abi.STATE  # the list of buffers follows
    assert max(offsets) + (0 if last_is_open_ended else 8) <= struct.size


def test_the_stub_reads_the_handler_from_the_descriptor_s_first_word() -> None:
    assert abi.DESCRIPTOR["handler"].offset == 0
    slots = abi.DESCRIPTOR["scratch_slots"].offset
    assert abi.DESCRIPTOR.size - slots == 8 * abi.N_SCRATCH_SLOTS


def test_the_polled_word_has_a_cache_line_of_its_own() -> None:
    others = [f.offset for name, f in abi.PROCESS.fields.items() if name != "interrupt"]
    assert abi.PROCESS["interrupt"].offset == 0
    assert min(others) >= 64


def test_an_unknown_field_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(KeyError, match="`Work` has no field `nxt`; it has: next, n, chunk"):
        abi.WORK["nxt"]
