"""The one JAX primitive that carries a lane program through every JAX transformation.

`lane_p` calls a program on operands with or without a trajectory axis:

    operands[i]: (n_traj, *shape) where batched[i], else (*shape)
    results[j]:  (n_traj, *shape), or (*shape) summed over trajectories where reduced[j];
                 all (*shape) when no operand is batched (n_traj is None)

Every `jax.vmap` is folded into the one trajectory axis, so an executor sees a single N whatever
the nesting. Derivative rules belong to the program; see `LaneProgram`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.core
import jax.numpy as jnp
from jax.extend import core as jex

from pullback.core.compat import (
    UndefinedPrimal,
    Zero,
    lower_fun,
    primitive_batchers,
    primitive_jvps,
    primitive_transposes,
    register_lowering,
    zero_tangent,
)
from pullback.core.errors import UnsupportedBackend
from pullback.core.sums import sum_over_trajectories
from pullback.core.typing import Array
from pullback.lanes import kernel
from pullback.lanes.loop import LANE_AXIS, lock_step
from pullback.lanes.program import LaneCall, LaneProgram, program_jaxpr

__all__ = ["Backend", "lane_call", "lane_p"]

Backend = Literal["array", "cpu"]

lane_p = jex.Primitive("lane_call")
lane_p.multiple_results = True


def lane_call(
    program: LaneProgram,
    *operands: Array,
    batched: Sequence[bool] | None = None,
    n_traj: int | None = None,
    reduced: Sequence[bool] | None = None,
    backend: Backend = "array",
) -> tuple[Array, ...]:
    """Call a lane program; by default on one trajectory, to be batched by `jax.vmap`.

    Args:
        program: What runs.
        operands: Its arrays.
        batched: Which operands have a leading trajectory axis; None means none.
        n_traj: Number of trajectories, where any operand is batched.
        reduced: Which results are summed over trajectories; None means none.
        backend: "array" runs all trajectories in lock step through XLA, "cpu" compiles them into
            one kernel.

    Returns:
        The results.

    Differentiation:
        jvp and transpose as the program's rules say; exact for a frozen mesh.
    """
    if backend not in _LOWERINGS:
        raise UnsupportedBackend(
            f"`backend` must be one of {', '.join(map(repr, _LOWERINGS))}, got {backend!r}."
        )
    arrays = [jnp.asarray(x) for x in operands]
    flags = (False,) * len(arrays) if batched is None else tuple(batched)
    return tuple(_bind(program, arrays, flags, reduced, n_traj=n_traj, backend=backend))


def _bind(
    program: LaneProgram,
    operands: Sequence[Array],
    batched: Sequence[bool],
    reduced: Sequence[bool] | None = None,
    *,
    n_traj: int | None,
    backend: Backend,
) -> list[Array]:
    batched = tuple(map(bool, batched))
    n_traj = n_traj if any(batched) else None
    if reduced is None or n_traj is None:
        reduced = ()  # stands for none, whatever the number of results
    elif not any(reduced):
        reduced = ()
    return lane_p.bind(
        *operands,
        program=program,
        batched=batched,
        n_traj=n_traj,
        reduced=tuple(map(bool, reduced)),
        backend=backend,
    )


def _lane_aval(aval: Any, is_batched: bool) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape[1:] if is_batched else aval.shape, aval.dtype)


def _traced(program: LaneProgram, avals: Sequence[Any], batched: Sequence[bool]) -> jex.ClosedJaxpr:
    lane_avals = (_lane_aval(a, b) for a, b in zip(avals, batched, strict=True))
    return program_jaxpr(program, tuple(lane_avals))


def _all_reduced(reduced: Sequence[bool], n_results: int) -> tuple[bool, ...]:
    return tuple(reduced) if reduced else (False,) * n_results


@lane_p.def_abstract_eval
def _abstract_eval(
    *avals: Any, program: LaneProgram, batched: Any, n_traj: Any, reduced: Any, backend: Any
) -> list[Any]:
    outs = _traced(program, avals, batched).out_avals
    lead = () if n_traj is None else (n_traj,)
    return [
        jax.core.ShapedArray(out.shape if r else lead + out.shape, out.dtype)
        for out, r in zip(outs, _all_reduced(reduced, len(outs)), strict=True)
    ]


@lane_p.def_impl
def _impl(*operands: Array, **params: Any) -> list[Array]:
    # Under `jax.disable_jit` the compiled function would only come back here.
    with jax.disable_jit(False):
        return _compiled(tuple(sorted(params.items())))(*operands)


@functools.lru_cache(maxsize=512)
def _compiled(params: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(functools.partial(lane_p.bind, **dict(params)))


def _batch(
    operands: Sequence[Array],
    dims: Sequence[int | None],
    *,
    program: LaneProgram,
    batched: tuple[bool, ...],
    n_traj: int | None,
    reduced: tuple[bool, ...],
    backend: Backend,
) -> tuple[list[Array], list[int]]:
    sizes = [x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None]
    size = sizes[0]
    folded = [_fold(x, d, b, size, n_traj) for x, d, b in zip(operands, dims, batched, strict=True)]
    now_batched = [b or d is not None for b, d in zip(batched, dims, strict=True)]
    total = size * (1 if n_traj is None else n_traj)
    outs = _bind(program, folded, now_batched, None, n_traj=total, backend=backend)
    if n_traj is not None:
        outs = [out.reshape(size, n_traj, *out.shape[1:]) for out in outs]
        flags = _all_reduced(reduced, len(outs))
        outs = [
            jax.vmap(sum_over_trajectories)(out) if r else out
            for out, r in zip(outs, flags, strict=True)
        ]
    return outs, [0] * len(outs)


def _fold(x: Array, dim: int | None, is_batched: bool, size: int, n_traj: int | None) -> Array:
    """Merge a new vmap axis with the trajectory axis, copying only what must be."""
    if dim is None and not is_batched:
        return x
    if dim is not None:
        x = jnp.moveaxis(x, dim, 0)
    if n_traj is None:
        return x
    shape = x.shape[1:] if dim is None else x.shape[(2 if is_batched else 1) :]
    missing = 0 if dim is None else 1  # position of the axis to be broadcast, if one is missing
    if dim is None or not is_batched:
        x = jnp.broadcast_to(jnp.expand_dims(x, missing), (size, n_traj, *shape))
    return x.reshape(size * n_traj, *shape)


def _lane_call_context(
    program: LaneProgram,
    n_results: int,
    *,
    batched: tuple[bool, ...],
    n_traj: int | None,
    reduced: tuple[bool, ...],
    backend: Backend,
) -> LaneCall:
    del program
    bind = functools.partial(_bind, n_traj=n_traj, backend=backend)
    return LaneCall(bind, batched, _all_reduced(reduced, n_results), n_traj)


def _jvp(
    primals: Sequence[Array], tangents: Sequence[Any], *, program: LaneProgram, **params: Any
) -> tuple[list[Array], list[Any]]:
    avals = [jax.typeof(x) for x in primals]
    n_results = len(_traced(program, avals, params["batched"]).out_avals)
    if all(type(t) is Zero for t in tangents):
        outs = lane_p.bind(*primals, program=program, **params)
        return outs, [zero_tangent(jax.typeof(out)) for out in outs]
    call = _lane_call_context(program, n_results, **params)
    return program.jvp(call, primals, tangents)


def _transpose(
    cotangents: Sequence[Any], *operands: Any, program: LaneProgram, **params: Any
) -> list[Any]:
    call = _lane_call_context(program, len(cotangents), **params)
    linear = [isinstance(x, UndefinedPrimal) for x in operands]
    if all(type(ct) is Zero for ct in cotangents):
        return [Zero(x.aval) if u else None for x, u in zip(operands, linear, strict=True)]
    return program.transpose(call, cotangents, operands)


def _run_in_lock_step(
    *operands: Array,
    program: LaneProgram,
    batched: tuple[bool, ...],
    n_traj: int | None,
    reduced: tuple[bool, ...],
    backend: Backend,
) -> list[Array]:
    avals = [jax.typeof(x) for x in operands]
    if n_traj is None:
        return jex.jaxpr_as_fun(_traced(program, avals, batched))(*operands)
    axes = tuple(0 if b else None for b in batched)
    with lock_step():
        outs = jax.vmap(program, axes, 0, axis_name=LANE_AXIS, axis_size=n_traj)(*operands)
    return _reduce(outs, reduced)


def _run_in_kernel(
    *operands: Array,
    program: LaneProgram,
    batched: tuple[bool, ...],
    n_traj: int | None,
    reduced: tuple[bool, ...],
    backend: Backend,
) -> list[Array]:
    avals = [jax.typeof(x) for x in operands]
    closed = _traced(program, avals, batched)
    label = type(program).__name__
    return kernel.call(
        closed, operands, batched=batched, n_traj=n_traj, reduced=reduced, label=label
    )


def _reduce(outs: Sequence[Array], reduced: tuple[bool, ...]) -> list[Array]:
    flags = _all_reduced(reduced, len(outs))
    return [sum_over_trajectories(out) if r else out for out, r in zip(outs, flags, strict=True)]


_LOWERINGS: dict[str, Any] = {"array": _run_in_lock_step, "cpu": _run_in_kernel}


def _lower(ctx: Any, *operands: Any, backend: Backend, **params: Any) -> Any:
    run = functools.partial(_LOWERINGS[backend], backend=backend, **params)
    return lower_fun(run, multiple_results=True)(ctx, *operands)


register_lowering(lane_p, _lower)
primitive_batchers[lane_p] = _batch
primitive_jvps[lane_p] = _jvp
primitive_transposes[lane_p] = _transpose
