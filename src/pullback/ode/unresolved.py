"""Telling the user that gradients are unresolved: a warning or an exception for all of a call.

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
from pullback.core.user_warning import warn_user

__all__ = ["report_unresolved", "warn_of_custom_vjp"]


def report_unresolved(count: Array, action: str) -> None:
    """Report a traced number of unresolved gradients.

    Args:
        count: How many, in any floating dtype.
        action: "warn", "error"; anything else is silent.
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


def warn_of_custom_vjp(name: str) -> None:
    """Say that a gradient's mesh cannot be controlled, because no tangent can be carried."""
    warn_user(
        f"the vector field `{name}` uses `jax.custom_vjp`, through which no tangent can be pushed, "
        "so the mesh of its gradient follows the state alone: define the rule with "
        "`jax.custom_jvp`, or say `adjoint=DiscreteAdjoint(resolve=False)`.",
        GradientUnresolvedWarning,
    )


_WHAT = (
    "of a solve are unresolved: the estimated error is above one per cent of the gradient. "
    "Tighten `rtol` and `atol`, lower `slack` of `DiscreteAdjoint`, or look at the estimate with "
    "`pullback.value_and_grad`."
)


def _warn(count: Any) -> None:
    # The same text at the same place every time, so that Python's default filter shows it once.
    # The user's line is nowhere on the stack: the runtime calls this.
    del count
    warnings.warn(f"Some gradients {_WHAT}", GradientUnresolvedWarning, stacklevel=1)


def _raise(count: Any) -> None:
    raise GradientUnresolvedError(f"{int(count)} gradient(s) {_WHAT}")


_REPORTERS = {"warn": _make_reporter(_warn), "error": _make_reporter(_raise)}
