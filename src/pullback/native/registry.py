"""Kernels to XLA FFI targets, by content: the same kernel is compiled and registered once."""

from __future__ import annotations

import ctypes
import dataclasses
import threading
from dataclasses import dataclass

import jax

from pullback.native import abi, cache, fork, handler_ir, host, interrupt, memory_ir, process
from pullback.native.compile import CompileOptions, load_object

_DESCRIPTOR_SYMBOL = "pullback_descriptor"
_STUB_SYMBOL = "pullback_stub"

# Appended to each kernel's text. The descriptor is data of the object itself, filled in after
# loading, so the object holds no address and serves every process.
_STUB = f"""
@{_DESCRIPTOR_SYMBOL} = dso_local global [{abi.DESCRIPTOR.size} x i8] zeroinitializer, align 64
define dso_local ptr @{_STUB_SYMBOL}(ptr %frame) {{
  %handler = load ptr, ptr @{_DESCRIPTOR_SYMBOL}
  %error = tail call ptr %handler(ptr %frame, ptr @{_DESCRIPTOR_SYMBOL})
  ret ptr %error
}}
"""


@dataclass(frozen=True)
class KernelSource:
    """A kernel's LLVM IR and how to call it.

    Attributes:
        ir: Text of an LLVM module that defines `entry` as
            `i64 (ptr noalias %work, ptr noalias %buffers, ptr noalias %scratch)`.
        entry: The function's name.
        n_args: Number of argument buffers.
        n_results: Number of result buffers, which follow the arguments.
        count_buffer: Index of the buffer whose size tells the number of trajectories.
        count_size: Elements per trajectory in that buffer.
        scratch_bytes: Private memory of each thread.
        min_per_thread: A thread is added for each so many trajectories.
        chunk: Trajectories to claim at once.
    """

    ir: str
    entry: str
    n_args: int
    n_results: int
    count_buffer: int
    count_size: int = 1
    scratch_bytes: int = 0
    min_per_thread: int = 1
    chunk: int = 1

    def __post_init__(self) -> None:
        """Refuse numbers that the handler would divide by or index with."""
        least = {
            "n_args": 0,
            "n_results": 0,
            "count_buffer": 0,
            "count_size": 1,
            "scratch_bytes": 0,
            "min_per_thread": 1,
            "chunk": 1,
        }
        for name, minimum in least.items():
            value = getattr(self, name)
            if value < minimum:
                raise ValueError(f"`{name}` must be at least {minimum}, got {value}")
        if self.count_buffer >= self.n_args + self.n_results:
            raise ValueError(
                f"`count_buffer` must be below the number of buffers, "
                f"{self.n_args + self.n_results}, got {self.count_buffer}"
            )


class KernelTarget:
    """A kernel that XLA can call: `jax.ffi.ffi_call(target.name, ...)`."""

    def __init__(self, name: str, descriptor: process.Words, *, from_cache: bool) -> None:
        """Wrap a registered kernel; made by `register_kernel` only."""
        self.name = name
        self.from_cache = from_cache
        self._descriptor = descriptor

    def __repr__(self) -> str:
        """Show the target's name."""
        return f"KernelTarget({self.name!r})"

    @property
    def kernel(self) -> int:
        """Address of the kernel itself, see `KernelSource.ir`: for callers that are not XLA."""
        return self._descriptor["kernel"]

    def stats(self) -> dict[str, int]:
        """Return the figures of the most recent call; with calls in flight, of any of them.

        `lane_steps` and `vector_steps` are the kernel's own counts (their ratio is the share of
        busy lanes), `threads` how many worked on the call, `calls` and `interrupted` count
        since the kernel was registered.
        """
        words = self._descriptor
        return {
            "lane_steps": words["lane_steps"],
            "vector_steps": words["vector_steps"],
            "threads": words["n_threads"],
            "calls": words["n_calls"],
            "interrupted": words["n_stopped"],
        }

    def free_scratch(self) -> None:
        """Give back the memory that idle threads' scratch blocks hold."""
        address = process.runtime().addresses[memory_ir.FREE_SCRATCH_SYMBOL]
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(self._descriptor.address)


_lock = threading.RLock()
_targets: dict[str, KernelTarget] = {}


def register_kernel(source: KernelSource, options: CompileOptions | None = None) -> KernelTarget:
    """Compile a kernel and register it with XLA, or return what an equal one became.

    The target's name is a hash of the arguments and holds no address, so XLA's persistent
    compilation cache stays valid between processes. Thread-safe.

    Raises:
        UnsupportedBackend: This machine cannot run kernels.
        CompileError: LLVM refused the IR.
        RuntimeError: This process is a forked child.
    """
    fork.require_not_forked()
    options = options or CompileOptions()
    name = "pullback_" + _content_hash(source, options)
    with _lock:
        if name not in _targets:
            host.require_supported()
            _targets[name] = _register(name, source, options)
        target = _targets[name]
    interrupt.arm_interrupts()
    return target


def registered_kernels() -> tuple[KernelTarget, ...]:
    """Return every kernel of this process, in the order of registration."""
    with _lock:
        return tuple(_targets.values())


def free_scratch() -> None:
    """Give back the scratch memory of every kernel; the next calls allocate it again."""
    for target in registered_kernels():
        target.free_scratch()


def _content_hash(source: KernelSource, options: CompileOptions) -> str:
    numbers = repr(dataclasses.replace(source, ir=""))
    return cache.cache_key(str(abi.KERNEL_ABI_VERSION), source.ir, numbers, repr(options))[:32]


def _register(name: str, source: KernelSource, options: CompileOptions) -> KernelTarget:
    runtime = process.runtime()
    exports = (source.entry, _STUB_SYMBOL, _DESCRIPTOR_SYMBOL)
    data, from_cache = process.cached_object(source.ir + _STUB, options, exports)
    addresses = load_object(data, exports)
    descriptor = process.Words(abi.DESCRIPTOR, addresses[_DESCRIPTOR_SYMBOL])
    values = {
        "handler": runtime.addresses[handler_ir.HANDLER_SYMBOL],
        "kernel": addresses[source.entry],
        "process": runtime.words.address,
        "scratch_bytes": source.scratch_bytes,
        "n_args": source.n_args,
        "n_results": source.n_results,
        "count_buffer": source.count_buffer,
        "count_size": source.count_size,
        "chunk": source.chunk,
        "min_per_thread": source.min_per_thread,
    }
    for field, value in values.items():
        descriptor[field] = value
    capsule = jax.ffi.pycapsule(ctypes.c_void_p(addresses[_STUB_SYMBOL]))
    jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    return KernelTarget(name, descriptor, from_cache=from_cache)
