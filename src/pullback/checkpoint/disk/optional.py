"""Import of packages that only some options need."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["import_optional"]


def import_optional(module: str, option: str, extra: str) -> Any:
    """Import a package, or say which extra installs it.

    Args:
        module: Name to import.
        option: What the user asked for, as typed.
        extra: The extra of this package that brings it.

    Raises:
        ImportError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"`{option}`: expected the package {module}, which is not installed. Install it with"
            f' pip install "pullback[{extra}]".'
        ) from error
