"""Run a function of one trajectory as a lane kernel and as `jax.vmap`, and compare."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from pullback.lanes import kernel


def run_kernel(
    function: Callable[..., Any],
    operands: Sequence[Any],
    *,
    shared: Sequence[int] = (),
    width: int | None = None,
    label: str = "test",
) -> list[Any]:
    """Evaluate `function` for every trajectory by a kernel."""
    batched = tuple(i not in shared for i in range(len(operands)))
    one = [
        jax.tree.map(lambda a: a[0], x) if b else x for x, b in zip(operands, batched, strict=True)
    ]
    closed = jax.make_jaxpr(function)(*one)
    n_traj = next(x.shape[0] for x, b in zip(operands, batched, strict=True) if b)

    def call(*args: Any) -> list[Any]:
        return kernel.call(closed, args, batched=batched, n_traj=n_traj, width=width, label=label)

    return [np.asarray(r) for r in jax.jit(call)(*operands)]


def run_vmap(
    function: Callable[..., Any], operands: Sequence[Any], *, shared: Sequence[int] = ()
) -> list[Any]:
    """Evaluate `function` for every trajectory by `jax.vmap`, which defines what is right."""
    axes = [None if i in shared else 0 for i in range(len(operands))]
    results = jax.jit(jax.vmap(function, in_axes=axes))(*operands)
    return [np.asarray(r) for r in jax.tree.leaves(results)]


def assert_same(
    function: Callable[..., Any],
    *operands: Any,
    shared: Sequence[int] = (),
    ulps: float = 0.0,
    of_largest: bool = False,
    width: int | None = None,
) -> None:
    """Assert that kernel and `vmap` agree to `ulps` units in the last place.

    `of_largest` takes the unit of the largest element, for sums that cancel.
    """
    got = run_kernel(function, operands, shared=shared, width=width)
    want = run_vmap(function, operands, shared=shared)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, b.shape, a.dtype, b.dtype)
        if a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        both_nan = np.isnan(a) & np.isnan(b)
        size = np.nanmax(np.abs(b)) if of_largest else np.abs(b)
        with np.errstate(invalid="ignore", over="ignore"):
            spacing = np.spacing(np.maximum(size, np.finfo(b.dtype).tiny))
            off = np.where(both_nan | (a == b), 0.0, np.abs(a - b) / spacing)
        worst = np.nanmax(np.where(np.isnan(off), np.inf, off), initial=0.0)
        assert worst <= ulps, f"{worst} ulp, {a.ravel()[:4]} against {b.ravel()[:4]}"
