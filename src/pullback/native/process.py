"""The handler's code and the words that it shares with Python: one of each per process."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import llvmlite
import llvmlite.binding as llvm

from pullback.native import abi, cache, handler_ir, host
from pullback.native.compile import CompileOptions, compile_object, load_object


class Words:
    """Reads and writes the 8-byte members of a structure that compiled code uses."""

    def __init__(self, struct: abi.Struct, address: int) -> None:
        """Look at the `struct` at `address`, which must stay valid for ever."""
        self._struct = struct
        self.address = address

    def __getitem__(self, field: str) -> int:
        """Return a member's value."""
        return self._word(field).value

    def __setitem__(self, field: str, value: int) -> None:
        """Set a member."""
        self._word(field).value = value

    def _word(self, field: str) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self.address + self._struct[field].offset)


@dataclass(frozen=True)
class Runtime:
    """What the handler's module holds: addresses by symbol, and the process's words."""

    addresses: dict[str, int]
    words: Words


_lock = threading.Lock()
_runtime: Runtime | None = None


def runtime() -> Runtime:
    """Return the handler, compiled and loaded at the first call."""
    global _runtime
    if _runtime is None:
        with _lock:
            if _runtime is None:
                _runtime = _load()
    return _runtime


def loaded_runtime() -> Runtime | None:
    """Return the handler if it has been loaded; never waits."""
    return _runtime


def _load() -> Runtime:
    exports = handler_ir.EXPORTS
    data, _ = cached_object(handler_ir.handler_text(), CompileOptions(), exports)
    addresses = load_object(data, exports)
    words = Words(abi.PROCESS, addresses[handler_ir.PROCESS_SYMBOL])
    words["max_threads"] = host.default_num_threads()
    return Runtime(addresses, words)


def cached_object(ir: str, options: CompileOptions, exports: Sequence[str]) -> tuple[bytes, bool]:
    """Return the object for some IR, and whether it came from the disk cache."""
    key = cache.cache_key(
        ir,
        repr(options),
        host.machine_name(),
        host.cpu_name(),
        host.feature_string(),
        llvm.get_default_triple(),
        llvmlite.__version__,
        repr(llvm.llvm_version_info),
        str(abi.KERNEL_ABI_VERSION),
    )
    data = cache.read_entry(key)
    if data is not None:
        return data, True
    data = compile_object(ir, options, exports)
    cache.write_entry(key, data)
    return data, False
