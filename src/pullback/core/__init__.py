"""What every layer shares: status codes, errors, types, and the one file that knows private JAX."""

from pullback.core.errors import (
    ForeignAbiError,
    GradientUnresolvedError,
    GradientUnresolvedWarning,
    KernelFallbackWarning,
    ScheduleError,
    SolveFailedError,
    TransposeUnsupported,
    UnsupportedBackend,
    UnsupportedPrimitive,
)
from pullback.core.status import FIRST_FAILURE, Status

__all__ = [
    "FIRST_FAILURE",
    "ForeignAbiError",
    "GradientUnresolvedError",
    "GradientUnresolvedWarning",
    "KernelFallbackWarning",
    "ScheduleError",
    "SolveFailedError",
    "Status",
    "TransposeUnsupported",
    "UnsupportedBackend",
    "UnsupportedPrimitive",
]
