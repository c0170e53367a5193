"""What goes wrong with foreign functions."""

from __future__ import annotations

__all__ = ["ForeignError", "ForeignMissing"]


class ForeignError(RuntimeError):
    """Foreign code cannot be compiled, differentiated or loaded; the message says why and where."""


class ForeignMissing(ImportError):
    """A tool is not installed; the message says which, and how to install it."""
