"""Five JAX primitives, one for each mode of a foreign function, closed under jvp and transpose."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from pullback.core.compat import (
    lower_fun,
    primitive_batchers,
    primitive_jvps,
    primitive_transposes,
    register_lowering,
)
from pullback.core.typing import Array
from pullback.foreign.calls import PRIMITIVES, Call, Group, avals_of, bind, results_of, shape_of
from pullback.foreign.derivatives import jvp, transpose
from pullback.foreign.modes import MODES, Mode
from pullback.foreign.program import Program

__all__ = ["call"]

_BUFFERS = np.uint8


def call(program: Program, lengths: dict[str, int], operands: Sequence[Array]) -> list[Array]:
    """Call a foreign function.

    Args:
        program: The function.
        lengths: Its axis lengths.
        operands: What the caller passes, with the right shapes and dtypes.
    """
    x = Group(tuple(operands), (False,) * len(operands))
    return bind("f", Call(program, tuple(lengths.items()), None), {"x": x})


def _evaluate(
    mode: Mode, *values: Array, fixed: Call, batched: tuple[bool, ...]
) -> Sequence[Array]:
    """Call the kernel of a mode."""
    fixed.program.require(mode)
    lengths = dict(fixed.lengths)
    avals = avals_of(mode, fixed)
    counted = next((i for i, aval in enumerate(avals) if aval.size), None)
    if counted is None:
        return [jnp.zeros(aval.shape, aval.dtype) for aval in avals]
    slots = fixed.program.slots(mode)
    one = math.prod(shape_of(fixed, results_of(mode, fixed.program)[counted]))
    target = fixed.program.target(mode, counted, one, slots.scratch_bytes(lengths))
    words = slots.control_words(lengths, batched, fixed.n_batch is not None)
    # Bytes, because JAX has no 64-bit integers unless asked for them.
    return jax.ffi.ffi_call(target.name, avals)(*values, words.view(_BUFFERS))


@functools.partial(jax.jit, static_argnums=0, static_argnames=("fixed", "batched"))
def _evaluate_eagerly(mode: Mode, *values: Array, fixed: Call, batched: Any) -> Sequence[Array]:
    return _evaluate(mode, *values, fixed=fixed, batched=batched)


def _abstract(mode: Mode, *avals: Any, fixed: Call, batched: Any) -> list[jax.core.ShapedArray]:
    del avals, batched
    # Reverse mode traces the jvp, which it then transposes: it may be missing until it is run.
    return [jax.core.ShapedArray(aval.shape, aval.dtype) for aval in avals_of(mode, fixed)]


def _elsewhere(ctx: Any, *operands: Any, fixed: Call, batched: Any) -> Any:
    del ctx, operands, batched
    raise NotImplementedError(
        f"the foreign function `{fixed.program.symbol}` runs on CPUs only; put its arguments there "
        "with jax.device_put."
    )


def _batch(mode: Mode, values: Any, axes: Any, *, fixed: Call, batched: Any) -> Any:
    n = next(x.shape[axis] for x, axis in zip(values, axes, strict=True) if axis is not None)
    m = fixed.n_batch
    moved, flags = [], []
    for x, axis, has_batch in zip(values, axes, batched, strict=True):
        flags.append(axis is not None or has_batch)
        if axis is not None:
            x = jnp.moveaxis(x, axis, 0)
        if flags[-1] and m is not None:
            x = x if axis is not None else x[None]
            x = x if has_batch else x[:, None]
            own = x.shape[2:]
            x = jnp.broadcast_to(x, (n, m, *own)).reshape(n * m, *own)
        moved.append(x)
    whole = fixed._replace(n_batch=n if m is None else n * m)
    out = PRIMITIVES[mode].bind(*moved, fixed=whole, batched=tuple(flags))
    if m is not None:
        out = [y.reshape(n, m, *y.shape[1:]) for y in out]
    return out, [0] * len(out)


def _make(mode: Mode) -> jex.Primitive:
    primitive = jex.Primitive(f"foreign_{mode}")
    primitive.multiple_results = True
    primitive.def_abstract_eval(functools.partial(_abstract, mode))
    primitive.def_impl(functools.partial(_evaluate_eagerly, mode))
    lowered = lower_fun(functools.partial(_evaluate, mode), multiple_results=True)
    register_lowering(primitive, lowered, platform="cpu")
    register_lowering(primitive, _elsewhere)
    primitive_batchers[primitive] = functools.partial(_batch, mode)
    primitive_jvps[primitive] = functools.partial(jvp, mode)
    if mode != "f":
        primitive_transposes[primitive] = functools.partial(transpose, mode)
    return primitive


PRIMITIVES.update({mode: _make(mode) for mode in MODES})
