"""Small kernels written by hand, as LLVM IR text that follows the kernel ABI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from pullback import native

# Claims `chunk` trajectories at a time and runs a body for each of them (%i); polls between
# claims. The body goes to %item.end, or to %give.up when it saw an interrupt.
_CLAIM_LOOP = """
define i64 @{entry}(ptr noalias %work, ptr noalias %buffers, ptr noalias %scratch) {{
entry:
  %n.at = getelementptr i8, ptr %work, i64 8
  %n = load i64, ptr %n.at
  %chunk.at = getelementptr i8, ptr %work, i64 16
  %chunk = load i64, ptr %chunk.at
  %interrupt.at = getelementptr i8, ptr %work, i64 24
  %interrupt = load ptr, ptr %interrupt.at
  %seen.at = getelementptr i8, ptr %work, i64 32
  %seen = load i64, ptr %seen.at
  {setup}
  br label %claim
claim:
  %done = phi i64 [0, %entry], [%count.next, %item.end]
  %now = load atomic i64, ptr %interrupt monotonic, align 8
  %is.stop = icmp ne i64 %now, %seen
  br i1 %is.stop, label %give.up, label %take
take:
  %first = atomicrmw add ptr %work, i64 %chunk monotonic
  %past = add i64 %first, %chunk
  %end = call i64 @llvm.smin.i64(i64 %past, i64 %n)
  %is.over = icmp sge i64 %first, %n
  br i1 %is.over, label %over, label %item
item:
  %i = phi i64 [%first, %take], [%i.next, %item.more]
  %count = phi i64 [%done, %take], [%count.next, %item.more]
  {body}
item.end:
  %i.next = add i64 %i, 1
  %count.next = add i64 %count, 1
  %more = icmp slt i64 %i.next, %end
  br i1 %more, label %item.more, label %claim
item.more:
  br label %item
give.up:
  ret i64 1
over:
  %lanes.at = getelementptr i8, ptr %work, i64 40
  %lanes.was = atomicrmw add ptr %lanes.at, i64 %done monotonic
  %steps.at = getelementptr i8, ptr %work, i64 48
  %steps.was = atomicrmw add ptr %steps.at, i64 1 monotonic
  ret i64 0
}}
declare i64 @llvm.smin.i64(i64, i64)
{extra}
"""


def claim_loop(body: str, *, setup: str = "", extra: str = "") -> str:
    """Return a module whose `kernel` runs `body` for each claimed trajectory."""
    return _CLAIM_LOOP.format(entry="kernel", setup=setup, body=body, extra=extra)


def buffer(name: str, index: int) -> str:
    """Load the data pointer of one buffer."""
    return f"""
  %{name}.slot = getelementptr ptr, ptr %buffers, i64 {index}
  %{name} = load ptr, ptr %{name}.slot
"""


def double_plus(constant: str = "2.0", **settings: Any) -> native.KernelSource:
    """y[i] = constant * x[i] + p, with p one number for all trajectories."""
    body = f"""
  %x.at = getelementptr double, ptr %x, i64 %i
  %xi = load double, ptr %x.at
  %p.value = load double, ptr %p
  %yi = call double @llvm.fma.f64(double %xi, double {constant}, double %p.value)
  %y.at = getelementptr double, ptr %y, i64 %i
  store double %yi, ptr %y.at
  br label %item.end
"""
    ir = claim_loop(
        body,
        setup=buffer("x", 0) + buffer("p", 1) + buffer("y", 2),
        extra="declare double @llvm.fma.f64(double, double, double)",
    )
    defaults = {"count_buffer": 2, "chunk": 8, "min_per_thread": 64}
    return native.KernelSource(ir, "kernel", n_args=2, n_results=1, **(defaults | settings))


def endless_where_nonzero() -> native.KernelSource:
    """Trajectory i never ends if x[i] != 0; then it polls once in 1024 iterations."""
    body = """
  %x.at = getelementptr double, ptr %x, i64 %i
  %xi = load double, ptr %x.at
  %is.zero = fcmp oeq double %xi, 0.0
  br i1 %is.zero, label %item.end, label %spin
spin:
  %k = phi i64 [0, %item], [%k.next, %spin.on]
  %k.next = add i64 %k, 1
  %low = and i64 %k.next, 1023
  %is.poll = icmp eq i64 %low, 0
  br i1 %is.poll, label %poll, label %spin.on
poll:
  %at.poll = load atomic i64, ptr %interrupt monotonic, align 8
  %is.stopped = icmp ne i64 %at.poll, %seen
  br i1 %is.stopped, label %give.up, label %spin.on
spin.on:
  br label %spin
"""
    ir = claim_loop(body, setup=buffer("x", 0))
    return native.KernelSource(ir, "kernel", n_args=1, n_results=1, count_buffer=0)


def slow_copy(microseconds: int) -> native.KernelSource:
    """y[i] = x[i], sleeping before each one; it never polls inside a trajectory."""
    body = f"""
  %slept = call i32 @usleep(i32 {microseconds})
  %x.at = getelementptr double, ptr %x, i64 %i
  %xi = load double, ptr %x.at
  %y.at = getelementptr double, ptr %y, i64 %i
  store double %xi, ptr %y.at
  br label %item.end
"""
    ir = claim_loop(body, setup=buffer("x", 0) + buffer("y", 1), extra="declare i32 @usleep(i32)")
    return native.KernelSource(ir, "kernel", n_args=1, n_results=1, count_buffer=0)


def write_integers(values: list[str], extra: str = "", **settings: Any) -> native.KernelSource:
    """y[i, :] = values, each an i64 that the lines before have defined; no arguments."""
    *lines, names = values
    stores = "".join(
        f"""
  %to.{j} = getelementptr [{len(names.split())} x i64], ptr %y, i64 %i, i64 {j}
  store i64 {name}, ptr %to.{j}
"""
        for j, name in enumerate(names.split())
    )
    body = "\n".join(lines) + stores + "\n  br label %item.end\n"
    ir = claim_loop(body, setup=buffer("y", 0), extra=extra)
    defaults = {"count_buffer": 0, "count_size": len(names.split())}
    return native.KernelSource(ir, "kernel", n_args=0, n_results=1, **(defaults | settings))


def caller(target: native.KernelTarget, like: int | None = 0) -> Callable[..., jax.Array]:
    """Return a jitted function that calls a target; its result has the shape of `args[like]`."""

    def call(*args: jax.Array) -> jax.Array:
        result = jax.ShapeDtypeStruct(args[like].shape, args[like].dtype)
        return jax.ffi.ffi_call(target.name, result)(*args)

    return jax.jit(call)


def call_without_arguments(
    target: native.KernelTarget, shape: tuple[int, ...], dtype: Any = np.int64
) -> np.ndarray:
    """Call a target that has one result and no arguments."""
    call = jax.jit(lambda: jax.ffi.ffi_call(target.name, jax.ShapeDtypeStruct(shape, dtype))())
    return np.asarray(call())
