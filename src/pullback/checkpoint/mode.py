"""Where the schedule is followed: inside compiled code or by Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal, TypeAlias

from pullback.checkpoint.storage import AbstractStorage

__all__ = ["CheckpointModeError", "Mode", "follows_on_host", "naming_forward_mode"]

Mode: TypeAlias = Literal["auto", "jit", "host"]


class CheckpointModeError(ValueError):
    """A scheme or storage was asked for something that it cannot do in this mode."""


def follows_on_host(mode: str, storage: AbstractStorage) -> bool:
    """Whether Python follows the schedule, wherever values are not traced; checks the mode."""
    if mode not in ("auto", "jit", "host"):
        raise ValueError(f'`mode`: expected "auto", "jit" or "host", got {mode!r}. Give one.')
    return mode == "host" or (mode == "auto" and not storage.compiles)


@contextlib.contextmanager
def naming_forward_mode(function: str) -> Iterator[None]:
    """Turn JAX's error about forward mode into one that says what to do.

    JAX raises it while the loop is called only for plain `jvp` and `jacfwd`; under `linearize` or
    an outer `jit` it comes later, in JAX's own words.
    """
    try:
        yield
    except TypeError as error:
        if "forward-mode" not in str(error) or "`scheme`" in str(error):
            raise
        raise TypeError(
            f"`scheme`: {function} with this scheme has no forward mode (jvp, linearize, jacfwd),"
            " only grad and vjp, and forward mode of those. Pass scheme=Nested(levels), or"
            " differentiate in reverse mode."
        ) from error
