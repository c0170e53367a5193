"""What every function of the user's is asked before it is called."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["misfit", "require_function"]


def require_function(
    name: str, function: Any, arguments: str = "t, y, params", what_to_do: str | None = None
) -> None:
    """Raise unless `function` can be called with so many positional arguments.

    Args:
        name: How the caller has passed it.
        function: What came.
        arguments: Names of the arguments that it will be called with.
        what_to_do: What to write instead of something that is no function.

    Raises:
        TypeError: It is no function, or takes other arguments.
    """
    wanted = f"`{name}` must be a function `{name}({arguments})`, but"
    if not callable(function):
        hint = f"; {what_to_do}" if what_to_do else ""
        raise TypeError(f"{wanted} a {type(function).__name__} arrived{hint}.")
    names = arguments.split(", ")
    takes = misfit(function, len(names))
    if takes is not None:
        raise TypeError(
            f"{wanted} {takes}; give it {len(names)} positional arguments, used or not."
        )


def misfit(function: Any, n_arguments: int) -> str | None:
    """Return what a function takes if not so many positional arguments, else None."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # functions written in C may not tell
        return None
    try:
        signature.bind(*range(n_arguments))
    except TypeError:
        label = getattr(function, "__name__", type(function).__name__)
        return f"{label} takes {signature}"
    return None
