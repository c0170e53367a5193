"""`checkpointed_scan`: `jax.lax.scan` whose gradient takes bounded memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax

from pullback.checkpoint.arguments import (
    array_leaves,
    check_carry,
    check_function,
    check_options,
    loop_length,
    promote_weak,
    row_avals,
)
from pullback.checkpoint.body import Body, TracedFunction, trace
from pullback.checkpoint.chunked_scan import ChunkedScan, chunked_scan
from pullback.checkpoint.compiled_scan import CompiledScan, compiled_scan
from pullback.checkpoint.host_scan import HostScan, host_scan
from pullback.checkpoint.leaves import Leaves, is_weak, strong
from pullback.checkpoint.mode import Mode, follows_on_host, naming_forward_mode
from pullback.checkpoint.recorded_scan import RecordedScan, recorded_scan
from pullback.checkpoint.schedules import AbstractChunked, AbstractScheme, Revolve
from pullback.checkpoint.slots import slots_of
from pullback.checkpoint.step_kernels import CompileStep, block_size, with_kernels
from pullback.checkpoint.storage import AbstractStorage
from pullback.checkpoint.storage_ram import RAM
from pullback.checkpoint.table import schedule_table
from pullback.core.typing import Array, PyTree

__all__ = ["checkpointed_scan", "traced_step"]

_Run: TypeAlias = Callable[[Leaves, Leaves, Leaves], tuple[Leaves, Leaves]]

_DEFAULT_SCHEME = Revolve(64)
_DEFAULT_STORAGE = RAM()


def checkpointed_scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: PyTree,
    xs: PyTree = None,
    length: int | None = None,
    *,
    scheme: AbstractScheme = _DEFAULT_SCHEME,
    storage: AbstractStorage = _DEFAULT_STORAGE,
    block: int | None = None,
    mode: Mode = "auto",
    compile_step: CompileStep = "auto",
) -> tuple[PyTree, PyTree]:
    """Run `step` over `xs`, as `jax.lax.scan` does; its gradient takes bounded memory.

    The reverse sweep needs the states in reverse order. Instead of keeping all of them it keeps
    snapshots, as many as `scheme` says, and runs steps again from there.

    Args:
        step: Function `(carry, x) -> (carry, y)`. It may close over arrays, which are
            differentiated too, and must have no side effects: steps run more than once.
        init: The first carry: a pytree of arrays and numbers; integers and random keys too.
        xs: A pytree of arrays with one row per step, or None. A step that needs its index gets
            it from `jnp.arange` here.
        length: Number of steps; may be left out if `xs` has arrays.
        scheme: Where snapshots are placed; counts blocks, or, if it tapes whole chunks
            (`StoreAll`, `Periodic`, `Nested`), steps.
        storage: Where snapshots are kept.
        block: Steps that are taped and reversed together. Snapshots lie between blocks. None is
            one step, which XLA reverses fastest, and a 65 536th of longer loops; 16 where Python
            follows the schedule; and for native code as many as 4 MiB of tape hold, 64 at least.
        mode: `"jit"` follows the schedule inside compiled code, which calls Python for each
            snapshot if the storage is not memory; `"host"` follows it in Python wherever values
            are not traced. `"auto"` is `"host"` for such a storage, else `"jit"`.
        compile_step: What runs blocks of steps. `"auto"` is native code where the step is small
            enough for it, on CPUs, else XLA; None is XLA. Or a step compiler, with a warning that
            gives the reason if it declines: see `pullback.interop.native_steps`.

    Returns:
        The last carry, and the `y` of all steps stacked.

    Raises:
        TypeError: `step` does not return a pair with a carry like `init`, or a leaf is no array;
            or a derivative in forward mode reached a scheme that has none.
        ValueError: Lengths disagree, an option is out of range, or `step` has side effects.
        CheckpointModeError: A storage elsewhere than in memory met forward mode over the gradient.
        ScheduleError: The scheme cannot be followed in this mode.

    Differentiation:
        Reverse mode, exact, with respect to `init`, `xs` and what `step` closes over; forward
        mode over it (`jvp(grad)`, `jacfwd(grad)`). `StoreAll`, `Periodic` and `Nested` have
        forward mode and any order. The cost of the gradient is `scheme.cost(blocks)`.

    Example:
        >>> import jax
        >>> def decay(rate):
        ...     return checkpointed_scan(lambda y, _: (y - rate * y, None), 1.0, length=1000)[0]
        >>> round(float(jax.grad(decay)(1e-3)), 1)
        -368.1
    """
    check_function("step", step, "carry, x")
    check_options(scheme, storage, block)
    on_host = follows_on_host(mode, storage)
    rows = array_leaves("xs", xs)
    n_steps = loop_length(xs, rows, length)
    traced, carry = _trace(step, init, xs, rows)
    if isinstance(scheme, AbstractChunked):
        unit, body = 1, traced.body
        run = _chunked(body, n_steps, scheme.chunk_sizes(n_steps))
    else:
        body = with_kernels(compile_step, traced.body, (*traced.consts, *carry, *rows))
        unit = min(block_size(block, body, None if on_host else n_steps), n_steps)
        if n_steps > unit:
            run = _scheduled(body, n_steps, unit, scheme, storage, on_host)
        elif n_steps and body.kernels is not None:
            run = functools.partial(recorded_scan, RecordedScan(body, n_steps))
        else:
            run = _chunked(body, n_steps, ())
    with naming_forward_mode("checkpointed_scan"):
        carry, ys = run(traced.consts, carry, rows)
    last, y = jax.tree.structure(traced.out[0]), jax.tree.structure(traced.out[1])
    return jax.tree.unflatten(last, carry), jax.tree.unflatten(y, ys)


def _trace(
    step: Callable[..., Any], init: PyTree, xs: PyTree, rows: Leaves
) -> tuple[TracedFunction, Leaves]:
    """Trace the step; return it and the leaves of `init` in the dtypes that it keeps."""
    carry_tree, row_tree = jax.tree.structure(init), jax.tree.structure(xs)

    def flat(carry: list[Array], row: list[Array]) -> tuple[Any, Any]:
        out = step(jax.tree.unflatten(carry_tree, carry), jax.tree.unflatten(row_tree, row))
        if not isinstance(out, tuple) or len(out) != 2:
            raise TypeError(
                f"`step`: expected a pair (carry, y), got {type(out).__name__}."
                " Return (carry, None) if there is no y."
            )
        return jax.tree.map(strong, out)

    leaves, avals = array_leaves("init", init), row_avals(rows)
    traced = trace(flat, "step", lambda out: len(jax.tree.leaves(out[0])), list(leaves), avals)
    check_carry("step", init, leaves, traced.out[0])
    if any(is_weak(leaf) for leaf in leaves):
        leaves = promote_weak(leaves, jax.tree.leaves(traced.out[0]))
        traced = trace(flat, "step", lambda out: len(leaves), list(leaves), avals)
        check_carry("step", init, leaves, traced.out[0])
    return traced, leaves


def traced_step(step: Callable[..., Any], init: PyTree, xs: PyTree = None) -> TracedFunction:
    """Trace the step of a loop over `xs` that begins with `init`."""
    return _trace(step, init, xs, array_leaves("xs", xs))[0]


def _chunked(body: Body, n_steps: int, chunk_sizes: tuple[int, ...]) -> _Run:
    return functools.partial(chunked_scan, ChunkedScan(body, n_steps, chunk_sizes))


def _scheduled(
    body: Body,
    n_steps: int,
    block: int,
    scheme: AbstractScheme,
    storage: AbstractStorage,
    on_host: bool,
) -> _Run:
    def compiled(storage: AbstractStorage, *operands: Leaves) -> tuple[Leaves, Leaves]:
        table, n_slots = schedule_table(scheme, n_steps // block)
        loop = CompiledScan(body, n_steps, block, slots_of(storage, n_slots))
        return compiled_scan(loop, table, *operands)

    if not on_host:
        return functools.partial(compiled, storage)
    plain, traced = (functools.partial(compiled, kept) for kept in (_DEFAULT_STORAGE, storage))
    return functools.partial(
        host_scan, HostScan(body, n_steps, block, scheme, storage, plain, traced)
    )
