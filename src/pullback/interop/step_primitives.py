"""Three JAX primitives, blocks of native steps: on CPUs a kernel, in all else what XLA would run.

Operands and results are those of the kernels in `pullback.lanes.wide.kernels`, in their order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex

from pullback.checkpoint.body import Body
from pullback.checkpoint.chunked_scan import ChunkedScan, chunked_scan
from pullback.checkpoint.compiled_scan import Gradients, advance, u_turn
from pullback.checkpoint.leaves import Leaves, floating
from pullback.core.compat import (
    Zero,
    lower_fun,
    primitive_batchers,
    primitive_jvps,
    register_lowering,
    zero_tangent,
)
from pullback.core.typing import Array
from pullback.interop.step_programs import kernel_target, tape_bytes, while_target

__all__ = ["advance_p", "pull_p", "while_p"]

_LONGEST_WHOLE = 64


def _groups(operands: Sequence[Any], first: int, sizes: Sequence[int]) -> list[tuple[Any, ...]]:
    out = []
    for size in sizes:
        out.append(tuple(operands[first : first + size]))
        first += size
    return [*out, tuple(operands[first:])]


def _sizes(body: Body) -> list[int]:
    """Return how many arrays the step closes over, has in a row, and carries."""
    n_all = len(body.jaxpr.invars)
    return [len(body.jaxpr.constvars), n_all - body.n_carry, body.n_carry]


# -- run steps: (lower, upper, *consts, *xs, *carry, *ys) -> (*carry, *ys), and a tape if asked ---
def _advance_by_xla(*operands: Array, body: Body, n_recorded: int) -> Leaves:
    consts, xs, carry, ys = _groups(operands, 2, _sizes(body))
    state, ys = advance(body, consts, xs, operands[0], operands[1], carry, ys)
    # Where steps are reversed by XLA, the tape is not used.
    tapes = [jnp.zeros(a.shape, a.dtype) for a in _tapes(body, n_recorded)]
    return (*state, *ys, *tapes)


def _advance_natively(*operands: Array, body: Body, n_recorded: int) -> Leaves:
    n_ys = len(_groups(operands, 2, _sizes(body))[3])
    kind = "record" if n_recorded else "advance with y" if n_ys else "advance"
    target = kernel_target(body, kind, np.dtype(operands[0].dtype))
    first = len(operands) - n_ys
    aliases = {first + i: body.n_carry + i for i in range(n_ys)}
    return _call(target.name, _advance_results(operands, body, n_recorded), operands, aliases)


def _advance_results(operands: Sequence[Any], body: Body, n_recorded: int) -> list[Any]:
    _, _, carry, ys = _groups(operands, 2, _sizes(body))
    return [*carry, *ys, *_tapes(body, n_recorded)]


def _tapes(body: Body, n_steps: int) -> list[Any]:
    shape = (n_steps, tape_bytes(body)) if n_steps else ()
    return [jax.ShapeDtypeStruct(shape, np.uint8)] if n_steps else []


# -- reverse steps: (start, *tape, *consts, *xs, *carry, *bars of ys, consts, carry, xs) ----------
# -> the last three. The tape is there if the steps have been recorded.
def _bars(operands: Sequence[Any], body: Body) -> list[Leaves]:
    """Return the cotangents of the rows of ys, of consts, of the carry and of the rows of xs."""
    consts, xs, carry, rest = _groups(operands, 0, _sizes(body))
    sizes = [len(floating(group)) for group in (consts, carry, xs)]
    return _groups(rest, 0, (len(rest) - sum(sizes), *sizes[:2]))


def _pull_by_xla(*operands: Array, body: Body, n_steps: int, is_recorded: bool) -> Leaves:
    rest = operands[1 + is_recorded :]
    consts, xs, carry, _ = _groups(rest, 0, _sizes(body))
    ys_bar, *grads = _bars(rest, body)
    given = (consts, xs, operands[0], carry, ys_bar, Gradients(*grads))
    out = u_turn(body, n_steps, *given, run=_in_chunks)
    return (*out.consts, *out.carry, *out.xs)


def _in_chunks(body: Body, n_steps: int, *operands: Leaves) -> tuple[Leaves, Leaves]:
    """Run steps so that their derivative does not keep all of them, where they are many.

    A block of kernels is long because their tape is small; XLA's is not, and there may be one for
    each of many trajectories.
    """
    sizes = (math.isqrt(n_steps),) if n_steps > _LONGEST_WHOLE else ()
    return chunked_scan(ChunkedScan(body, n_steps, sizes), *operands)


def _pull_natively(*operands: Array, body: Body, n_steps: int, is_recorded: bool) -> Leaves:
    index = np.dtype(operands[0].dtype)
    if is_recorded:
        target = kernel_target(body, "pull recorded", index)
    else:
        target = kernel_target(body, "pull", index, n_steps)
    results = _pull_results(operands, body, n_steps, is_recorded)
    n_xs = len(_bars(operands[1 + is_recorded :], body)[3])
    n_in, n_out = len(operands) + 1, len(results)
    aliases = {n_in - n_xs + i: n_out - n_xs + i for i in range(n_xs)}
    return _call(target.name, results, (np.asarray(n_steps, index), *operands), aliases)


def _pull_results(
    operands: Sequence[Any], body: Body, n_steps: int, is_recorded: bool
) -> list[Any]:
    del n_steps
    _, *grads = _bars(operands[1 + is_recorded :], body)
    return [value for group in grads for value in group]


# -- run steps while a condition holds: (most, *its consts, *consts, *carry) -> (count, *carry) ----
def _while_by_xla(*operands: Array, cond: Body, body: Body) -> Leaves:
    most, cond_consts, consts, carry = _while_groups(operands, cond)

    def goes_on(carry: tuple[Array, Leaves]) -> Array:
        return (carry[0] < most) & cond(cond_consts, carry[1])[1][0]

    def step(carry: tuple[Array, Leaves]) -> tuple[Array, Leaves]:
        return carry[0] + 1, body(consts, carry[1])[0]

    count, carry = lax.while_loop(goes_on, step, (jnp.int32(0), carry))
    return (count, *carry)


def _while_natively(*operands: Array, cond: Body, body: Body) -> Leaves:
    target = while_target(cond, body)
    return _call(target.name, _while_results(operands, cond, body), operands, {})


def _while_results(operands: Sequence[Any], cond: Body, body: Body) -> list[Any]:
    del cond
    return [jax.ShapeDtypeStruct((), np.int32), *operands[len(operands) - body.n_carry :]]


def _while_groups(operands: Sequence[Any], cond: Body) -> tuple[Any, ...]:
    n_cond, n_carry = len(cond.jaxpr.constvars), len(cond.jaxpr.invars)
    n_consts = len(operands) - 1 - n_cond - n_carry
    return (operands[0], *_groups(operands, 1, (n_cond, n_consts)))


# -- what all have in common --------------------------------------------------------------------
def _call(
    name: str, results: Sequence[Any], operands: Sequence[Any], aliases: dict[int, int]
) -> Leaves:
    """Call a kernel; rows that results share with operands are changed where they are."""
    shapes = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in results]
    return tuple(jax.ffi.ffi_call(name, shapes, input_output_aliases=aliases)(*operands))


def _primitive(name: str, natively: Any, by_xla: Any, results: Any) -> jex.Primitive:
    """Make a primitive that has a kernel on CPUs and is `by_xla` to every transformation."""
    primitive = jex.Primitive(name)
    primitive.multiple_results = True

    def abstract_eval(*avals: Any, **params: Any) -> list[Any]:
        return [jax.core.ShapedArray(v.shape, v.dtype) for v in results(avals, **params)]

    @functools.lru_cache(maxsize=256)
    def compiled(params: tuple[tuple[str, Any], ...]) -> Any:
        return jax.jit(functools.partial(primitive.bind, **dict(params)))

    def impl(*operands: Array, **params: Any) -> Any:
        with jax.disable_jit(False):
            return compiled(tuple(sorted(params.items())))(*operands)

    def batch(operands: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        # XLA's steps leave no tape: one empty one serves all.
        tapes = _tapes(params["body"], params.get("n_recorded", 0))
        plain = {**params, "n_recorded": 0} if tapes else params
        out = jax.vmap(functools.partial(by_xla, **plain), tuple(dims), 0)(*operands)
        blank = [jnp.zeros(tape.shape, tape.dtype) for tape in tapes]
        return [*out, *blank], [*([0] * len(out)), *([None] * len(tapes))]

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        out = primitive.bind(*primals, **params)
        return out, _tangents(functools.partial(by_xla, **params), primals, tangents, out)

    def lower(ctx: Any, *operands: Any, **params: Any) -> Any:
        run = functools.partial(by_xla, **params)
        return lower_fun(run, multiple_results=True)(ctx, *operands)

    def lower_on_cpu(ctx: Any, *operands: Any, **params: Any) -> Any:
        if _is_exported(ctx):
            return lower(ctx, *operands, **params)
        run = functools.partial(natively, **params)
        return lower_fun(run, multiple_results=True)(ctx, *operands)

    primitive.def_abstract_eval(abstract_eval)
    primitive.def_impl(impl)
    primitive_batchers[primitive] = batch
    primitive_jvps[primitive] = jvp
    register_lowering(primitive, lower)
    register_lowering(primitive, lower_on_cpu, platform="cpu")
    return primitive


def _is_exported(ctx: Any) -> bool:
    """Whether code is lowered for `jax.export`: kernels exist in this process only."""
    context = getattr(ctx, "module_context", None)
    return bool(getattr(getattr(context, "lowering_parameters", None), "for_export", False))


def _tangents(
    by_xla: Any, primals: Sequence[Any], tangents: Sequence[Any], out: Sequence[Any]
) -> list[Any]:
    """Return the tangents of the results, with respect to the operands that have one."""
    moving = [i for i, t in enumerate(tangents) if type(t) is not Zero]
    still = [zero_tangent(jax.typeof(v)) for v in out]
    real = [i for i, v in enumerate(out) if np.issubdtype(v.dtype, np.inexact)]
    if not moving:
        return still

    def run(*given: Any) -> list[Any]:
        operands = list(primals)
        for i, value in zip(moving, given, strict=True):
            operands[i] = value
        results = by_xla(*operands)
        return [results[i] for i in real]

    moved = jax.jvp(run, [primals[i] for i in moving], [tangents[i] for i in moving])[1]
    for i, tangent in zip(real, moved, strict=True):
        still[i] = tangent
    return still


advance_p = _primitive("native_advance", _advance_natively, _advance_by_xla, _advance_results)
pull_p = _primitive("native_pull", _pull_natively, _pull_by_xla, _pull_results)
while_p = _primitive("native_while", _while_natively, _while_by_xla, _while_results)
