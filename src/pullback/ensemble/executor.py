"""Executors: who runs the trajectories of an ensemble, and how many together.

The lane program is the same for all of them; an executor only chooses how it is run.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from pullback import native
from pullback.core import KernelFallbackWarning, UnsupportedBackend
from pullback.core.user_warning import warn_user


@dataclass(frozen=True)
class EnsembleArray:
    """All trajectories in lock-step through XLA (`jax.vmap` of the lane program).

    Runs on any device that JAX has. Every trajectory waits for the slowest.
    """


@dataclass(frozen=True)
class EnsembleKernel:
    """One fused kernel for the whole solve: each trajectory has its own steps and its own end.

    Args:
        backend: `"cpu"` (SIMD lanes on every core), or None for the best that is available here.
    """

    backend: str | None = None


Executor = EnsembleArray | EnsembleKernel
ARRAY = "array"

# What EnsembleKernel can be asked for; the last two have no kernels yet.
_BACKENDS = ("cpu", "cuda", "rocm")
_warned: set[str] = set()


def resolve_executor(executor: Executor | None) -> tuple[str, bool]:
    """Return the back end that runs `executor`, and whether another one may take its place.

    Raises:
        TypeError: `executor` is not an executor.
        UnsupportedBackend: its back end is not available here.
    """
    if executor is None:
        return _best_backend(), True
    if isinstance(executor, EnsembleArray):
        return ARRAY, False
    if isinstance(executor, EnsembleKernel):
        return _kernel_backend(executor.backend), False
    called = f"{executor.__name__}()" if isinstance(executor, type) else None
    hint = f"; write pb.{called}" if called in ("EnsembleArray()", "EnsembleKernel()") else ""
    raise TypeError(
        "`executor` must be None, pb.EnsembleArray() or pb.EnsembleKernel(), but "
        f"{executor!r} arrived{hint}."
    )


def warn_of_fallback(reason: str) -> None:
    """Say once for each reason that the kernel was not used where nothing else was asked for."""
    if reason not in _warned:
        _warned.add(reason)
        warn_user(
            f"EnsembleArray() is used, which gives the same results more slowly: {reason}. Pass "
            "executor=pb.EnsembleArray() to choose it silently.",
            KernelFallbackWarning,
        )


def kernel_backends() -> tuple[str, ...]:
    """Return the back ends of EnsembleKernel that work here, the preferred one first."""
    return ("cpu",) if native.is_supported() else ()


def _best_backend() -> str:
    device, here = jax.default_backend(), kernel_backends()
    if device in here:
        return device
    warn_of_fallback(f"there is no kernel for {device} devices here")
    return ARRAY


def _kernel_backend(backend: str | None) -> str:
    if backend is not None and backend not in _BACKENDS:
        raise ValueError(
            f"`backend` of EnsembleKernel must be None or one of {_BACKENDS}, but {backend!r} "
            "arrived."
        )
    here = kernel_backends()
    if here and backend in (None, *here):
        return here[0] if backend is None else backend
    reason = native.unsupported_reason() if backend in (None, "cpu") else None
    available = ", ".join(map(repr, here)) or "none"
    raise UnsupportedBackend(
        f"EnsembleKernel(backend={backend!r}) is not available here (available: {available}"
        f"{f'; {reason}' if reason else ''}); use pb.EnsembleArray(), which runs the same program "
        "on any device that JAX has."
    )
