"""The dot-product test: forward and reverse mode are adjoint to each other."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from pullback.testing.floating import floating_part, inner, like, random_like
from pullback.testing.tolerances import coarsest_dtype

__all__ = ["DotResult", "dot_test"]

# Rounding in a long chain of operations stays far below these; a wrong rule is far above them.
_RTOL = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 5e-2, "float16": 5e-3}


class DotResult(NamedTuple):
    """The two sides of the identity, and their difference in units of the sums' own size.

    Attributes:
        forward: <J v, w>, from `jax.jvp`.
        reverse: <v, J^T w>, from `jax.vjp`.
        error: |forward - reverse| over the larger of the sums of absolute products.
    """

    forward: float
    reverse: float
    error: float


def dot_test(
    f: Callable[[Any], Any],
    x: Any,
    *,
    tangent: Any = None,
    cotangent: Any = None,
    rtol: float | None = None,
    seed: int = 0,
) -> DotResult:
    """Assert that `jax.jvp` and `jax.vjp` of `f` at `x` are each other's transpose.

    <J v, w> = <v, J^T w> for a tangent v and a cotangent w. It says nothing about whether J is the
    derivative of `f`: `taylor_test` does. Leaves that are not floating are held fixed in `x` and
    left out of f(x). The sums are taken in float64 whatever the dtypes are.

    Args:
        f: A function from a pytree to a pytree.
        x: The point.
        tangent: v, a pytree like `x`; drawn from a normal distribution if not given.
        cotangent: w, a pytree like `f(x)`; drawn likewise if not given.
        rtol: Largest `error`; by default 1e-12 in float64 and 1e-5 in float32.
        seed: Seed of what is drawn.

    Raises:
        AssertionError: If the two sides differ, with both of them.
        ValueError: If `x` has no floating leaf, or `tangent` or `cotangent` does not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> result = dot_test(jnp.cumsum, jnp.arange(4.0))
        >>> result.error < 1e-5
        True
    """
    restricted, point = floating_part(f, x)
    v = random_like(point, seed) if tangent is None else like("tangent", tangent, point)
    value, pushed = jax.jvp(restricted, (point,), (v,))
    w = random_like(value, seed + 1) if cotangent is None else like("cotangent", cotangent, value)
    (pulled,) = jax.vjp(restricted, point)[1](w)

    forward, forward_size = inner(pushed, w)
    reverse, reverse_size = inner(v, pulled)
    size = max(forward_size, reverse_size)
    difference = abs(forward - reverse)
    result = DotResult(forward, reverse, difference / size if size > 0 else difference)
    limit = _RTOL[coarsest_dtype([point, value]).name] if rtol is None else rtol
    if not result.error <= limit:  # a NaN fails too
        raise AssertionError(
            "dot_test: forward and reverse mode are not adjoint to each other:\n"
            f"  <J v, w>   = {forward!r}  (jvp)\n"
            f"  <v, J^T w> = {reverse!r}  (vjp)\n"
            f"  difference {result.error:.3e} of the sums' size {size:.3e}, allowed {limit:.1e}"
        )
    return result
