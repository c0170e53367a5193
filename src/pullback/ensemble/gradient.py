"""Gradients with their own error estimate."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback.core import GradientUnresolvedError, GradientUnresolvedWarning
from pullback.core.typing import Array
from pullback.ensemble.leaf import is_array
from pullback.ensemble.probe import PROBE_SHAPE, evaluate, recording


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GradStats:
    """How far a gradient can be trusted.

    Attributes:
        error_estimate: estimated error of the gradient relative to its size, over all solves and
            trajectories that it passed through. 0 if it passed through none; NaN if one of them
            made no estimate (fixed steps, `resolve=False`, a gradient by times alone).
        n_unresolved: number of trajectories whose own estimate is above one per cent.
    """

    error_estimate: Array
    n_unresolved: Array

    @property
    def resolved(self) -> Array:
        """Whether every trajectory's gradient is known to be resolved."""
        return (self.n_unresolved == 0) & jnp.isfinite(self.error_estimate)


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any, GradStats]]:
    """Return a function that computes `f`, its gradient and the gradient's estimated error.

    Like `jax.value_and_grad`, with a third result. The estimate comes from the same backward pass
    as the gradient, through `jit`, `vmap`, `scan`, `cond` and `jax.checkpoint` inside `f`; a solve
    inside a `custom_vjp` or a `while_loop` contributes none.

    Args:
        f: function that returns a real scalar, or `(scalar, aux)` with `has_aux`. It is traced, so
            the arguments that it is differentiated by are abstract in it, as under `jax.jit`.
        argnums: which positional arguments to differentiate by.
        has_aux: whether `f` returns auxiliary data too.

    Returns:
        A function of `f`'s arguments that returns `(value, gradient, GradStats)`, where value is
        `(value, aux)` with `has_aux`. Put it inside `jax.jit` in a training loop.

    Differentiation:
        The gradient equals that of `jax.value_and_grad`.

    Example:
        >>> import jax, pullback as pb
        >>> def loss(rate):
        ...     problem = pb.ODEProblem(lambda t, y, p: -p * y, 1.0, (0.0, 1.0), rate)
        ...     return pb.solve(problem, pb.Tsit5(), pb.EnsembleArray(), rtol=1e-5).y_end
        >>> value, grad, stats = pb.value_and_grad(loss)(2.0)
        >>> bool(stats.resolved)
        True
    """
    if not callable(f):
        raise TypeError(f"`f` must be a function, but a {type(f).__name__} arrived.")
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(f, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> tuple[Any, Any, GradStats]:
        moving = [args[i] for i in _checked_argnums(numbers, len(args))]
        differentiable, rebuild = _traced(f, numbers, args, kwargs, moving, has_aux)
        probe = jnp.zeros(PROBE_SHAPE, jnp.result_type(float))
        with _own_error():
            (value, extra), (grads, probe_bar) = jax.value_and_grad(
                differentiable, argnums=(0, 1), has_aux=True
            )(moving, probe)
        grad = grads[0] if isinstance(argnums, int) else tuple(grads)
        return rebuild(value, extra), grad, _stats(probe_bar)

    return wrapped


@contextlib.contextmanager
def _own_error() -> Iterator[None]:
    """Raise what was raised about an unresolved gradient, not the runtime's report of it."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        # The warning is raised where the user turned warnings into errors.
        for kind in (GradientUnresolvedError, GradientUnresolvedWarning):
            _, found, text = str(error).partition(f"{kind.__name__}: ")
            if found:
                raise kind(text.splitlines()[0]) from error
        raise


def _checked_argnums(numbers: tuple[int, ...], n_args: int) -> tuple[int, ...]:
    for i in numbers:
        if not -n_args <= i < n_args:
            raise ValueError(
                f"`argnums`={i} does not name one of the {n_args} positional arguments of this "
                "call; count from 0 and pass what is differentiated by position."
            )
    if len({i % n_args for i in numbers}) < len(numbers):
        raise ValueError(
            f"`argnums`={numbers} names an argument twice, of {n_args}; name each once, since the "
            "gradient with respect to it is one."
        )
    return numbers


def _traced(
    f: Callable[..., Any],
    numbers: tuple[int, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    moving: list[Any],
    has_aux: bool,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Trace `f` with probes in its solves.

    Returns a function of `(moving, probe)` that gives the value and the arrays of the auxiliary
    data, and a function that puts these two together as `f` returned them.
    """
    shape: list[Any] = []

    def of_moving(*values: Any) -> tuple[Any, list[Any]]:
        full = list(args)
        for i, value in zip(numbers, values, strict=True):
            full[i] = value
        out = f(*full, **kwargs)
        value, aux = out if has_aux else (out, None)
        leaves, tree = jax.tree.flatten(aux)
        # Only which leaves are arrays matters later on; a tracer must not outlive its trace.
        shape[:] = [[0.0 if is_array(leaf) else leaf for leaf in leaves], tree]
        return value, [leaf for leaf in leaves if is_array(leaf)]

    with recording(True):
        closed, out = jax.make_jaxpr(of_moving, return_shape=True)(*moving)
    _check_scalar(out[0])

    def differentiable(moving: list[Any], probe: Array) -> tuple[Array, list[Array]]:
        flat = jax.tree.leaves(moving)
        value, *extra = evaluate(closed.jaxpr, closed.consts, probe, *flat)
        return value, extra

    def rebuild(value: Array, extra: list[Array]) -> Any:
        if not has_aux:
            return value
        new = iter(extra)
        leaves, tree = shape
        return value, jax.tree.unflatten(
            tree, [next(new) if is_array(leaf) else leaf for leaf in leaves]
        )

    return differentiable, rebuild


def _check_scalar(value: Any) -> None:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape != () or dtype is None or not jnp.issubdtype(dtype, np.floating):
        raise TypeError(
            "`f` of value_and_grad must return one real number, but it returned "
            f"{f'{dtype} of shape {shape}' if shape is not None else value!r}; reduce it, for "
            "example with jnp.sum, and pass has_aux=True if it returns more."
        )


def _stats(probe_bar: Array) -> GradStats:
    """Read what the backward passes summed: unresolved gradients, squared error, squared scale."""
    n_unresolved, error, scale = probe_bar
    estimate = jnp.where(error == 0, 0.0, jnp.sqrt(error / jnp.where(scale == 0, 1.0, scale)))
    return GradStats(estimate, jnp.round(n_unresolved).astype(np.int32))
