"""What a user or a bug report wants to know about this machine and this process."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from pullback.native import cache, host, interrupt, process, registry, threads


def info() -> dict[str, Any]:
    """Return versions, the processor, threads and the object cache; compiles nothing."""
    directory = cache.cache_directory()
    n_entries, n_bytes = cache.cache_size()
    return {
        "supported": host.is_supported(),
        "unsupported_reason": host.unsupported_reason(),
        "machine": host.machine_name(),
        "cpu": host.cpu_name(),
        "simd": host.simd_features(),
        "threads": threads.num_threads(),
        "llvm_version": ".".join(map(str, llvm.llvm_version_info)),
        "llvmlite_version": llvmlite.__version__,
        "jaxlib_version": metadata.version("jaxlib"),
        "xla_ffi_version": _ffi_version(),
        "interrupts_armed": interrupt.is_armed(),
        "kernels": len(registry.registered_kernels()),
        "cache_directory": None if directory is None else str(directory),
        "cache_entries": n_entries,
        "cache_bytes": n_bytes,
    }


def _ffi_version() -> str | None:
    """Return the FFI version that the runtime stated, or None before the first call."""
    runtime = process.loaded_runtime()
    if runtime is None or not runtime.words["api_size"]:
        return None
    return f"0.{runtime.words['api_minor']}"
