"""What every function of the user's is asked before it is called."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["require_function"]


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
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # functions written in C may not tell
        return
    names = arguments.split(", ")
    try:
        signature.bind(*names)
    except TypeError:
        label = getattr(function, "__name__", type(function).__name__)
        raise TypeError(
            f"{wanted} {label} takes {signature}; give it {len(names)} positional arguments, used"
            " or not."
        ) from None
