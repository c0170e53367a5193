"""`jax.jvp` and `jax.vjp` with respect to some arguments, the others held fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from pullback.core.typing import Array, MaybeArray

__all__ = ["pull_back", "push_forward"]


def push_forward(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[MaybeArray]
) -> tuple[Any, Any]:
    """Return `fun(*primals)` and its tangent; a tangent of None is zero."""
    moving = [i for i, tangent in enumerate(tangents) if tangent is not None]
    of_moving = _of_moving(fun, primals, moving)
    return jax.jvp(of_moving, [primals[i] for i in moving], [tangents[i] for i in moving])


def pull_back(
    fun: Callable[..., Any], primals: Sequence[Any], active: Sequence[bool]
) -> tuple[Any, Callable[[Any], list[MaybeArray]]]:
    """Return `fun(*primals)` and the map of cotangents; it gives None where not active."""
    moving = [i for i, flag in enumerate(active) if flag]
    outs, pull = jax.vjp(_of_moving(fun, primals, moving), *(primals[i] for i in moving))

    def cotangents(bars: Any) -> list[MaybeArray]:
        found = iter(pull(bars))
        return [next(found) if flag else None for flag in active]

    return outs, cotangents


def _of_moving(
    fun: Callable[..., Any], primals: Sequence[Any], moving: Sequence[int]
) -> Callable[..., Any]:
    def of_moving(*values: Array) -> Any:
        full = list(primals)
        for i, value in zip(moving, values, strict=True):
            full[i] = value
        return fun(*full)

    return of_moving
