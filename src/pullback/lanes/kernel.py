"""Lane programs as compiled kernels, called from traced JAX code.

A kernel is compiled once per content (program, shapes, which operands carry a trajectory axis) and
then called through XLA's foreign-function interface, without copies and without the interpreter.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from pullback import native
from pullback.core.errors import UnsupportedPrimitive
from pullback.core.fingerprint import jaxpr_key
from pullback.core.sums import sum_over_trajectories
from pullback.lanes import rules
from pullback.lanes.cpu.layout import GROUP
from pullback.lanes.cpu.shell import build
from pullback.lanes.cpu.target import lane_width
from pullback.lanes.program_ir import from_jaxpr

__all__ = ["KernelReport", "call", "compile_program", "kernel_reports", "unsupported_reason"]

# A thread is worth waking for about so many trajectories.
_MIN_PER_THREAD = 32
_CHUNK = 8
# The walk has folded what can be folded: of a kernel with so many lines LLVM's own passes take a
# fifth of the compile time, and its run time is the same without them.
_LARGE = 16_000

# Importing the rules fills the table that the walk reads.
assert rules.control


@dataclass(frozen=True)
class _Kernel:
    target: native.KernelTarget
    label: str
    width: int


_lock = threading.Lock()
_kernels: dict[Any, _Kernel] = {}


@dataclass(frozen=True)
class KernelReport:
    """How the latest call of a kernel kept its lanes busy.

    Attributes:
        label: What the kernel computes.
        width: Lanes of a thread.
        threads: Threads that worked on the call.
        busy: Share of lane steps that advanced a trajectory, 0 to 1; NaN before the first call.
        calls: Calls since the kernel was compiled.
    """

    label: str
    width: int
    threads: int
    busy: float
    calls: int


def kernel_reports() -> tuple[KernelReport, ...]:
    """Return a report for every kernel of this process, in the order of compilation."""
    with _lock:
        kernels = tuple(_kernels.values())
    return tuple(_report(k) for k in kernels)


def _report(kernel: _Kernel) -> KernelReport:
    stats = kernel.target.stats()
    steps = stats["vector_steps"]
    busy = stats["lane_steps"] / steps if steps else float("nan")
    return KernelReport(kernel.label, kernel.width, stats["threads"], busy, stats["calls"])


def compile_program(
    closed: ClosedJaxpr,
    batched: Sequence[bool],
    *,
    reduced: Sequence[bool] = (),
    width: int | None = None,
    label: str = "program",
) -> native.KernelTarget:
    """Compile a lane program, or return the kernel an equal one became.

    Raises:
        UnsupportedPrimitive: The program uses something without a rule; the message names it.
    """
    width = lane_width(closed) if width is None else width
    key = (jaxpr_key(closed), tuple(batched), tuple(reduced), width)
    with _lock:
        kernel = _kernels.get(key)
    if kernel is None:
        kernel = _Kernel(_compile(closed, batched, reduced, width), label, width)
        with _lock:
            _kernels.setdefault(key, kernel)
    return kernel.target


def _compile(
    closed: ClosedJaxpr, batched: Sequence[bool], reduced: Sequence[bool], width: int
) -> native.KernelTarget:
    text = build(from_jaxpr(closed), batched, reduced, width)
    buffer, size = _counting_buffer(closed, batched)
    source = native.KernelSource(
        ir=text.ir,
        entry=text.entry,
        n_args=len(closed.in_avals),
        n_results=len(closed.out_avals),
        count_buffer=buffer,
        count_size=size,
        scratch_bytes=text.scratch_bytes,
        min_per_thread=_MIN_PER_THREAD,
        chunk=_CHUNK,
    )
    is_large = text.ir.count("\n") > _LARGE
    options = native.CompileOptions(speed_level=0) if is_large else native.CompileOptions()
    return native.register_kernel(source, options)


def _counting_buffer(closed: ClosedJaxpr, batched: Sequence[bool]) -> tuple[int, int]:
    """Return a buffer whose size tells the number of trajectories, and its size for one."""
    for i, (aval, is_batched) in enumerate(zip(closed.in_avals, batched, strict=True)):
        if is_batched and 0 not in aval.shape:
            return i, int(np.prod(aval.shape, dtype=np.int64))
    first = closed.out_avals[0]
    return len(closed.in_avals), max(int(np.prod(first.shape, dtype=np.int64)), 1)


def unsupported_reason(closed: ClosedJaxpr, batched: Sequence[bool]) -> str | None:
    """Return why a lane program cannot become a kernel, or None if it can."""
    if not native.is_supported():
        return native.unsupported_reason()
    try:
        build(from_jaxpr(closed), batched, (), lane_width(closed))
    except UnsupportedPrimitive as error:
        return str(error)
    return None


def call(
    closed: ClosedJaxpr,
    operands: Sequence[jax.Array],
    *,
    batched: Sequence[bool],
    n_traj: int | None,
    reduced: Sequence[bool] = (),
    width: int | None = None,
    label: str = "program",
) -> list[jax.Array]:
    """Run a lane program for `n_traj` trajectories (None: one, without the axis).

    Args:
        closed: The program for ONE trajectory.
        operands: Its operands; operand `i` has a leading axis of `n_traj` iff `batched[i]`.
        batched: Which operands have it.
        n_traj: Number of trajectories.
        reduced: Which results are summed over trajectories, in index order; none by default.
        width: Lanes; chosen for the host by default.
        label: What the kernel computes, for reports.

    Returns:
        The results, each with a leading axis of `n_traj` unless that is None or it is reduced.
    """
    sums = [False] * len(closed.out_avals)
    if n_traj is not None and any(reduced):
        sums = list(reduced)
    leads = [() if n_traj is None else (-(-n_traj // GROUP) if s else n_traj,) for s in sums]
    shapes = [
        jax.ShapeDtypeStruct((*lead, *a.shape), a.dtype)
        for lead, a in zip(leads, closed.out_avals, strict=True)
    ]
    if n_traj == 0:
        outs = [jnp.zeros(s.shape, s.dtype) for s in shapes]
    else:
        target = compile_program(
            closed, batched, reduced=sums if any(sums) else (), width=width, label=label
        )
        outs = jax.ffi.ffi_call(target.name, shapes)(*operands)
    return [sum_over_trajectories(x) if s else x for x, s in zip(outs, sums, strict=True)]
