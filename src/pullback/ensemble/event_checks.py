"""Checks of what an event is made of, while it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.core import Tracer

from pullback.core.user_function import require_function

__all__ = ["Function", "check_parts", "checked_time"]

Function = Callable[[Any, Any, Any], Any]


def check_parts(affect: Any, terminate: Any) -> None:
    """Raise unless `affect` and `terminate` are what every event may have."""
    if affect is not None:
        require_function("affect", affect)
    if not isinstance(terminate, bool):
        raise TypeError(f"`terminate` must be True or False, but {terminate!r} arrived.")


def checked_time(name: str, value: Any, *, is_length: bool) -> Any:
    """Return a time as a number, so that equal events compare equal; or as the function it is.

    Args:
        name: its name.
        value: a number, a traced number, or a function of `params`.
        is_length: whether it must be positive.
    """
    if isinstance(value, Tracer):
        return value
    if callable(value):
        require_function(name, value, "params")
        return value
    number = np.asarray(value)
    if number.shape != () or number.dtype.kind not in "fiu" or not np.isfinite(number):
        raise ValueError(
            f"`{name}` must be one finite number or a function of `params` that returns one, but "
            f"{value!r} arrived."
        )
    if is_length and not number > 0:
        raise ValueError(
            f"`{name}` must be positive, but {value!r} arrived; the direction of time comes from "
            "`t_span`."
        )
    return float(number)
