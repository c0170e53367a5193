"""XLA's side of an FFI call, played by Python: what a real runtime does only on a bad day."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from pullback.native import abi, process
from pullback.native.handler_ir import HANDLER_SYMBOL

_POINTER = ctypes.c_void_p
_API_FUNCTION = ctypes.CFUNCTYPE(_POINTER, _POINTER)
_TASK = ctypes.CFUNCTYPE(None, _POINTER)
_FUTURE = 0xF00
_REFUSAL = 0xBAD


class Memory:
    """A structure in memory, filled in and read by field name."""

    def __init__(self, struct: str, address: int | None = None, **values: int) -> None:
        """Make a zeroed structure, or look at one that is there."""
        self._struct = abi.STRUCTS[struct]
        if address is None:
            self._owned = (ctypes.c_char * (self._struct.size + 64))()
            address = ctypes.addressof(self._owned)
        self.address = address
        for field, value in values.items():
            self[field] = value

    def _word(self, field: str) -> ctypes.c_int32 | ctypes.c_int64:
        where = self._struct[field]
        kind = ctypes.c_int32 if where.llvm_type == "i32" else ctypes.c_int64
        return kind.from_address(self.address + where.offset)

    def __getitem__(self, field: str) -> int:
        """Read a member."""
        return self._word(field).value

    def __setitem__(self, field: str, value: int) -> None:
        """Write a member."""
        self._word(field).value = value


class FakeRuntime:
    """One call of the handler. Everything that it asked of the runtime is kept.

    Attributes:
        tasks: Scheduled (function, data) pairs; they run only when a test says so.
        errors: (code, text) of each error made.
        dropped: Errors of ours that the handler destroyed.
        completed: "available" or "error", once for each completion of the future.
        refuse: API functions that answer with an error.
        pool_size: What `ThreadPool_NumThreads` answers.
        on_schedule: Called with each scheduled task.
    """

    def __init__(self, *, pool_size: int = 4, api_size: int = 176, minor: int = 3) -> None:
        self.pool_size = pool_size
        self.refuse: set[str] = set()
        self.tasks: list[Callable[[], None]] = []
        self.errors: list[tuple[int, str]] = []
        self.dropped = 0
        self.completed: list[str] = []
        self.on_schedule: Callable[[Callable[[], None]], None] = self.tasks.append
        self.api = Memory("Api", struct_size=api_size, major=0, minor=minor)
        self._functions = {
            name: _API_FUNCTION(function) for name, function in self._answers().items()
        }
        for name, function in self._functions.items():
            self.api[name] = ctypes.cast(function, _POINTER).value or 0

    def _answers(self) -> dict[str, Callable[[int], int | None]]:
        return {
            "Error_Create": self._create_error,
            "Error_Destroy": self._destroy_error,
            "ThreadPool_NumThreads": self._num_threads,
            "ThreadPool_Schedule": self._schedule,
            "Future_Create": self._create_future,
            "Future_SetAvailable": lambda address: self._complete("available", address),
            "Future_SetError": lambda address: self._complete("error", address),
        }

    def _create_error(self, address: int) -> int:
        args = Memory("ErrorCreateArgs", address)
        assert args["struct_size"] == 28
        self.errors.append((args["code"], ctypes.string_at(args["message"]).decode()))
        return len(self.errors)

    def _destroy_error(self, address: int) -> None:
        assert Memory("ErrorDestroyArgs", address)["error"] == _REFUSAL
        self.dropped += 1

    def _num_threads(self, address: int) -> int | None:
        if "ThreadPool_NumThreads" in self.refuse:
            return _REFUSAL
        ctypes.c_int64.from_address(Memory("NumThreadsArgs", address)["out"]).value = self.pool_size
        return None

    def _schedule(self, address: int) -> int | None:
        if "ThreadPool_Schedule" in self.refuse:
            return _REFUSAL
        args = Memory("ScheduleArgs", address)
        function, data = _TASK(args["task"]), args["data"]
        self.on_schedule(lambda: function(data))
        return None

    def _create_future(self, address: int) -> int | None:
        if "Future_Create" in self.refuse:
            return _REFUSAL
        Memory("FutureCreateArgs", address)["future"] = _FUTURE
        return None

    def _complete(self, how: str, address: int) -> None:
        args = "SetErrorArgs" if how == "error" else "SetAvailableArgs"
        assert Memory(args, address)["future"] == _FUTURE
        self.completed.append(how)

    def call(
        self,
        descriptor: int,
        args: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
        stage: int = abi.STAGE_EXECUTE,
    ) -> int | None:
        """Call the handler; returns the error's number or None, as XLA would see it."""
        self._kept = [_Buffers(args), _Buffers(results)]
        self.frame = Memory(
            "CallFrame",
            api=self.api.address,
            stage=stage,
            n_args=len(args),
            args=self._kept[0].address,
            n_results=len(results),
            results=self._kept[1].address,
        )
        return call_handler(self.frame.address, descriptor)


class _Buffers:
    """XLA's list of pointers to buffer structures."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self._dims = [(ctypes.c_int64 * max(a.ndim, 1))(*a.shape) for a in arrays]
        self._buffers = [
            Memory("Buffer", data=a.ctypes.data, rank=a.ndim, dims=ctypes.addressof(dims))
            for a, dims in zip(arrays, self._dims, strict=True)
        ]
        self._list = (_POINTER * max(len(arrays), 1))(*(b.address for b in self._buffers))
        self.address = ctypes.addressof(self._list)


def call_handler(frame: int, descriptor: int) -> int | None:
    """Call the generic handler as a kernel's stub does."""
    address = process.runtime().addresses[HANDLER_SYMBOL]
    return ctypes.CFUNCTYPE(_POINTER, _POINTER, _POINTER)(address)(frame, descriptor)
