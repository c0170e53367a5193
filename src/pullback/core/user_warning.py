"""Warnings that name the line of the user's code, however deep below it they arise."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import jax

__all__ = ["warn_user"]

_INNER = (str(Path(__file__).parents[1]), str(Path(jax.__file__).parent))


def warn_user(message: str, category: type[Warning]) -> None:
    """Issue a warning at the nearest caller that belongs to neither this package nor JAX.

    Args:
        message: One sentence: what happened and what to do.
        category: Class of the warning.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INNER):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
