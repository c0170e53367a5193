"""What every compiled path shares: XLA FFI targets made from LLVM IR, without a C++ compiler.

`register_kernel` turns a kernel's IR into a target for `jax.ffi.ffi_call`. From the bottom up:

* `abi` byte layouts; `ir_text` the notation in which the handler's text is written; `memory_ir`,
  `work_ir`, `signals_ir`, `handler_ir` that text: the one function that XLA calls for all kernels;
* `host` the processor, `compile` IR to machine code, `cache` objects on disk, `process` the loaded
  handler;
* `threads` limits, `fork` the guard, `errors` and `interrupt` Ctrl-C, `registry` kernels, `info`.

What a kernel computes does not belong here.

Environment: `PULLBACK_NUM_THREADS`, `PULLBACK_CACHE_DIR`, `PULLBACK_NO_SIGINT`.
"""

from pullback.native.cache import cache_directory, clear_cache
from pullback.native.compile import CompileError, CompileOptions
from pullback.native.errors import is_interrupted, translate_errors
from pullback.native.fork import require_not_forked
from pullback.native.host import cpu_features, cpu_name, is_supported, unsupported_reason
from pullback.native.info import info
from pullback.native.interrupt import arm_interrupts, disarm_interrupts, interrupt_kernels
from pullback.native.registry import (
    KernelSource,
    KernelTarget,
    free_scratch,
    register_kernel,
    registered_kernels,
)
from pullback.native.threads import num_threads, set_num_threads

__all__ = [
    "CompileError",
    "CompileOptions",
    "KernelSource",
    "KernelTarget",
    "arm_interrupts",
    "cache_directory",
    "clear_cache",
    "cpu_features",
    "cpu_name",
    "disarm_interrupts",
    "free_scratch",
    "info",
    "interrupt_kernels",
    "is_interrupted",
    "is_supported",
    "num_threads",
    "register_kernel",
    "registered_kernels",
    "require_not_forked",
    "set_num_threads",
    "translate_errors",
    "unsupported_reason",
]
