"""Exceptions and warnings of the package that are more specific than Python's own.

Mistakes in arguments raise `ValueError` or `TypeError`; what stands here has a meaning of its own
that a caller may want to catch.
"""

from __future__ import annotations

__all__ = [
    "ForeignAbiError",
    "GradientUnresolvedError",
    "GradientUnresolvedWarning",
    "KernelFallbackWarning",
    "ScheduleError",
    "SolveFailedError",
    "TransposeUnsupported",
    "UnsupportedBackend",
    "UnsupportedPrimitive",
]


class UnsupportedPrimitive(NotImplementedError):
    """An executor has no rule for a JAX primitive in the traced program."""


class UnsupportedBackend(NotImplementedError):
    """A lane program was asked to run on a backend that is not available here."""


class TransposeUnsupported(NotImplementedError):
    """Reverse mode was asked of a program that only forward mode supports."""


class ForeignAbiError(TypeError):
    """A compiled function's signature does not match what was declared."""


class ScheduleError(ValueError):
    """A checkpointing schedule breaks its own contract."""


class SolveFailedError(RuntimeError):
    """At least one trajectory of a solve failed and the caller asked for an exception."""


class GradientUnresolvedError(RuntimeError):
    """A gradient's estimated error is too large and the caller asked for an exception."""


class GradientUnresolvedWarning(UserWarning):
    """A gradient's estimated error is too large compared with the gradient itself."""


class KernelFallbackWarning(UserWarning):
    """A solve runs on another executor than the fastest one."""
