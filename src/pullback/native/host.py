"""What the host can do: its processor, how many of them, and whether kernels can run here."""

from __future__ import annotations

import functools
import os
import platform
import sys

import llvmlite.binding as llvm

from pullback.core.errors import UnsupportedBackend

_REQUIRED_FEATURES = {"x86_64": ("avx2", "fma"), "aarch64": ()}
_MACHINE_NAMES = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}

# What a user wants to see of LLVM's hundred feature names.
_SIMD_FEATURES = ("sse4.2", "avx", "avx2", "fma", "avx512f", "avx512dq", "neon", "sve", "sve2")


@functools.cache
def initialize_llvm() -> None:
    """Make LLVM's native code generator available; needed before any use of `llvm.Target`."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def machine_name() -> str:
    """Return `x86_64`, `aarch64`, or the host's own name for itself in lower case."""
    name = platform.machine().lower()
    return _MACHINE_NAMES.get(name, name)


@functools.cache
def cpu_name() -> str:
    """Return LLVM's name of the host's processor, such as `znver3`."""
    return llvm.get_host_cpu_name()


@functools.cache
def cpu_features() -> tuple[str, ...]:
    """Return LLVM's names of the features that the host has, sorted."""
    features = llvm.get_host_cpu_features()
    return tuple(sorted(name for name, is_there in features.items() if is_there))


@functools.cache
def feature_string() -> str:
    """Return the host's features as LLVM wants them: `+avx2,-avx512f,...`."""
    return llvm.get_host_cpu_features().flatten()


def simd_features() -> tuple[str, ...]:
    """Return the vector extensions among `cpu_features`."""
    return tuple(name for name in _SIMD_FEATURES if name in cpu_features())


def default_num_threads() -> int:
    """Return `$PULLBACK_NUM_THREADS`, else the number of processors this process may use."""
    setting = os.environ.get("PULLBACK_NUM_THREADS")
    if setting:
        if not setting.isdecimal() or int(setting) < 1:
            raise ValueError(
                f"`PULLBACK_NUM_THREADS` must be a positive whole number, got {setting!r}"
            )
        return int(setting)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def unsupported_reason() -> str | None:
    """Return why kernels cannot be compiled here, or None when they can."""
    is_64_bit = sys.maxsize > 2**32
    if not is_64_bit or sys.byteorder != "little":
        arrived = f"{64 if is_64_bit else 32}-bit {sys.byteorder}-endian"
        return f"kernels need a 64-bit little-endian host; this one is {arrived}"
    machine = machine_name()
    if machine not in _REQUIRED_FEATURES:
        return f"kernels need an x86-64 or aarch64 processor; this one calls itself `{machine}`"
    missing = [name for name in _REQUIRED_FEATURES[machine] if name not in cpu_features()]
    if missing:
        return (
            f"kernels need the processor features AVX2 and FMA; this one (`{cpu_name()}`) "
            f"lacks {' and '.join(missing)}"
        )
    return None


def is_supported() -> bool:
    """Return whether kernels can be compiled and run on this machine."""
    return unsupported_reason() is None


def require_supported() -> None:
    """Raise `UnsupportedBackend` with the reason when kernels cannot run here."""
    reason = unsupported_reason()
    if reason is not None:
        raise UnsupportedBackend(f"{reason}; use `EnsembleArray()` instead of `EnsembleKernel()`")
