"""Telling the user that gradients are unresolved: a warning or an exception, once per call.

The number of unresolved gradients is summed over everything `jax.vmap` batches, and Python is
called only if it is not zero.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from pullback.core.errors import GradientUnresolvedError, GradientUnresolvedWarning
from pullback.core.typing import Array

__all__ = ["report_unresolved"]


def report_unresolved(count: Array, action: str) -> None:
    """Report a traced number of unresolved gradients.

    Args:
        count: How many, in any floating dtype.
        action: "warn", "error", or anything else for silence.
    """
    reporter = _REPORTERS.get(action)
    if reporter is not None:
        reporter(lax.stop_gradient(jnp.sum(count)))


def _make_reporter(tell: Any) -> Any:
    @jax.custom_batching.custom_vmap
    def report(count: Array) -> Array:
        lax.cond(count > 0, lambda: jax.debug.callback(tell, count), lambda: None)
        return count

    @report.def_vmap
    def _report_all(axis_size: int, in_batched: list[bool], count: Array) -> tuple[Array, bool]:
        del axis_size, in_batched
        return report(jnp.sum(count)), False

    return report


def _message(count: Any) -> str:
    return (
        f"{int(count)} gradient(s) of a solve are unresolved: the estimated error is above one "
        f"per cent of the gradient. Tighten `rtol` and `atol`, lower `slack` of "
        f"`DiscreteAdjoint`, or look at the estimate with `pullback.value_and_grad`."
    )


def _warn(count: Any) -> None:
    warnings.warn(_message(count), GradientUnresolvedWarning, stacklevel=2)


def _raise(count: Any) -> None:
    raise GradientUnresolvedError(_message(count))


_REPORTERS = {"warn": _make_reporter(_warn), "error": _make_reporter(_raise)}
