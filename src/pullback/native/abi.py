"""Byte layouts that compiled code shares with XLA, with kernels and with Python.

Three groups of tables: XLA's FFI structures (its C header, FFI API 0.3, 64-bit hosts), the
structures of this package (`Work`, `State`, `Descriptor`, `Process`), and a few constants.
The handler's LLVM IR is written with the names of these fields; nothing else knows an offset.
"""

from __future__ import annotations

from dataclasses import dataclass

# Changes whenever a compiled object of an older package must not be used: a new kernel
# signature, a new `Work` or `Descriptor` layout, a new stub.
KERNEL_ABI_VERSION = 1

# XLA refuses a handler that states another major version, so a stated 0 is also the check
# that these tables still describe the runtime. The minor version is echoed.
XLA_FFI_MAJOR = 0

METADATA_EXTENSION = 1
STAGE_EXECUTE = 3
CODE_CANCELLED = 1
CODE_INVALID_ARGUMENT = 3
CODE_RESOURCE_EXHAUSTED = 8
CODE_FAILED_PRECONDITION = 9

# `Api.struct_size` of a runtime that has everything up to `Future_SetError`; with less, calls
# run on the calling thread only.
API_SIZE_WITH_FUTURE = 176

ALIGNMENT = 64
# Idle scratch blocks that a kernel keeps: threads beyond so many allocate theirs for each call.
N_SCRATCH_SLOTS = 64
GATE_CLOSED = 1 << 62


@dataclass(frozen=True)
class Field:
    """One member of a structure: its byte offset and its LLVM type."""

    offset: int
    llvm_type: str


@dataclass(frozen=True)
class Struct:
    """A structure by name: `size` is what `struct_size` must say, or what is allocated."""

    name: str
    size: int
    fields: dict[str, Field]

    def __getitem__(self, field: str) -> Field:
        """Return a field, or raise `KeyError` naming the structure and what it has."""
        try:
            return self.fields[field]
        except KeyError:
            known = ", ".join(self.fields)
            raise KeyError(f"`{self.name}` has no field `{field}`; it has: {known}") from None


def _struct(name: str, size: int, **fields: tuple[int, str]) -> Struct:
    return Struct(name, size, {key: Field(*value) for key, value in fields.items()})


def _words(name: str, size: int, *fields: str) -> Struct:
    """Make a structure of 8-byte members; a name that starts with `*` is a pointer."""
    table = {
        field.lstrip("*"): Field(8 * i, "ptr" if field.startswith("*") else "i64")
        for i, field in enumerate(fields)
    }
    return Struct(name, size, table)


def _args(name: str, size: int, **fields: tuple[int, str]) -> Struct:
    """Make one of XLA's argument structures: all begin with a size and an extension pointer."""
    return _struct(name, size, struct_size=(0, "i64"), extension=(8, "ptr"), **fields)


# In the order of the C header; every entry is a function pointer.
_API_FUNCTIONS = (
    "Error_Create",
    "Error_GetMessage",
    "Error_Destroy",
    "Handler_Register",
    "Stream_Get",
    "Type_Register",
    "ExecutionContext_Get",
    "State_Set",
    "State_Get",
    "DeviceMemory_Allocate",
    "DeviceMemory_Free",
    "ThreadPool_Schedule",
    "ThreadPool_NumThreads",
    "Future_Create",
    "Future_SetAvailable",
    "Future_SetError",
)

XLA_STRUCTS = (
    _args(
        "CallFrame",
        168,
        api=(16, "ptr"),
        context=(24, "ptr"),
        stage=(32, "i32"),
        n_args=(56, "i64"),
        args=(72, "ptr"),
        n_results=(96, "i64"),
        results=(112, "ptr"),
        future=(168, "ptr"),  # written by us; beyond what the header counts as the size
    ),
    _struct(
        "Api",
        API_SIZE_WITH_FUTURE,
        struct_size=(0, "i64"),
        major=(32, "i32"),
        minor=(36, "i32"),
        **{name: (48 + 8 * i, "ptr") for i, name in enumerate(_API_FUNCTIONS)},
    ),
    _args("Buffer", 48, dtype=(16, "i32"), data=(24, "ptr"), rank=(32, "i64"), dims=(40, "ptr")),
    _args("Extension", 24, type=(8, "i32"), next=(16, "ptr"), metadata=(24, "ptr")),
    # The runtime hands over a zeroed structure; newer ones have more members, left alone here.
    _struct("Metadata", 36, major=(24, "i32"), minor=(28, "i32"), traits=(32, "i32")),
    _args("ErrorCreateArgs", 28, message=(16, "ptr"), code=(24, "i32")),
    _args("ErrorDestroyArgs", 24, error=(16, "ptr")),
    _args("NumThreadsArgs", 32, context=(16, "ptr"), out=(24, "ptr")),
    _args("ScheduleArgs", 40, context=(16, "ptr"), task=(24, "ptr"), data=(32, "ptr")),
    # The header counts this one without its last member, and the runtime checks for that.
    _args("FutureCreateArgs", 16, future=(16, "ptr")),
    _args("SetAvailableArgs", 24, future=(16, "ptr")),
    _args("SetErrorArgs", 32, future=(16, "ptr"), error=(24, "ptr")),
)

# What a kernel sees of a call; shared by all threads of the call. The first 56 bytes of State.
WORK = _words("Work", 56, "next", "n", "chunk", "*interrupt", "seen", "lane_steps", "vector_steps")

# One call in flight: Work, then what only the handler reads, then the buffers' data pointers.
STATE = _struct(
    "State",
    128,
    **{name: (field.offset, field.llvm_type) for name, field in WORK.fields.items()},
    references=(64, "i64"),  # threads that may still look at the state
    api=(72, "ptr"),
    future=(80, "ptr"),
    descriptor=(88, "ptr"),
    gate=(96, "i64"),  # threads inside the kernel, plus GATE_CLOSED when nothing is left
    n_workers=(104, "i64"),  # threads that got scratch memory, so really ran the kernel
    stopped=(112, "i64"),  # some thread's kernel returned non-zero
    buffers=(128, "ptr"),
)

# One per kernel, inside the kernel's own object, so that it lives as long as the code.
# Python fills it in after loading; `handler` is what the stub jumps to.
DESCRIPTOR = _words(
    "Descriptor",
    15 * 8 + N_SCRATCH_SLOTS * 8,
    "*handler",
    "*kernel",
    "*process",
    "scratch_bytes",
    "n_args",
    "n_results",
    "count_buffer",
    "count_size",
    "chunk",
    "min_per_thread",
    "lane_steps",  # from here to `n_calls`: written at the end of each call
    "vector_steps",
    "n_threads",
    "n_calls",
    "n_stopped",
    "scratch_slots",
)

# One per process, inside the handler's object. `interrupt` has a cache line of its own: every
# thread of every kernel polls it.
PROCESS = _struct(
    "Process",
    256,
    interrupt=(0, "i64"),
    is_forked=(64, "i64"),
    max_threads=(72, "i64"),
    previous_sigint=(80, "ptr"),
    api_size=(88, "i64"),  # of the runtime, as it said at the last registration
    api_minor=(96, "i64"),
    untold=(104, "i64"),  # a SIGINT came that no interrupted call has told Python of
    main_ident=(128, "i64"),  # Python's main thread; from here on see `signals_ir`
    py_check_signals=(136, "ptr"),
    py_thread_ident=(144, "ptr"),
    py_is_finalizing=(152, "ptr"),
    py_gil_ensure=(160, "ptr"),
    py_gil_release=(168, "ptr"),
    py_set_trace=(176, "ptr"),
    trace_first=(184, "ptr"),
    trace_second=(192, "ptr"),
    untrace_first=(200, "ptr"),
)

STRUCTS: dict[str, Struct] = {
    struct.name: struct for struct in (*XLA_STRUCTS, WORK, STATE, DESCRIPTOR, PROCESS)
}
