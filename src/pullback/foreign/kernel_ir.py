"""A unit's module as a kernel of `pullback.native`: claims elements of the batch and runs them."""

from __future__ import annotations

import llvmlite.binding as llvm

from pullback.native.abi import WORK

__all__ = ["KERNEL", "kernel_text"]

KERNEL = "pullback_foreign"
_BATCH = "pullback_foreign_batch"

_TEXT = f"""
define i64 @{KERNEL}(ptr noalias %work, ptr noalias %buffers, ptr noalias %scratch) {{
start:
  %range = alloca [3 x i64], align 16
  %outs = alloca ptr, align 16
  %ins = alloca ptr, align 16
  store ptr %buffers, ptr %outs
  store ptr %range, ptr %ins
  %range.to = getelementptr i8, ptr %range, i64 8
  %range.memory = getelementptr i8, ptr %range, i64 16
  store ptr %scratch, ptr %range.memory
  %next = getelementptr i8, ptr %work, i64 {WORK["next"].offset}
  %n.at = getelementptr i8, ptr %work, i64 {WORK["n"].offset}
  %n = load i64, ptr %n.at
  %chunk.at = getelementptr i8, ptr %work, i64 {WORK["chunk"].offset}
  %chunk = load i64, ptr %chunk.at
  %interrupt.at = getelementptr i8, ptr %work, i64 {WORK["interrupt"].offset}
  %interrupt = load ptr, ptr %interrupt.at
  %seen.at = getelementptr i8, ptr %work, i64 {WORK["seen"].offset}
  %seen = load i64, ptr %seen.at
  br label %claim
claim:
  %from = atomicrmw add ptr %next, i64 %chunk monotonic
  %none = icmp sge i64 %from, %n
  br i1 %none, label %done, label %look
look:
  %now = load atomic i64, ptr %interrupt monotonic, align 8
  %stops = icmp ne i64 %now, %seen
  br i1 %stops, label %stopped, label %run
run:
  %end = add i64 %from, %chunk
  %is.less = icmp slt i64 %end, %n
  %to = select i1 %is.less, i64 %end, i64 %n
  store i64 %from, ptr %range
  store i64 %to, ptr %range.to
  call void @{_BATCH}(ptr %outs, ptr %ins)
  br label %claim
stopped:
  ret i64 1
done:
  ret i64 0
}}
"""


def kernel_text(module: llvm.ModuleRef, names: list[str]) -> str:
    """Return the text of a kernel around the module of a unit.

    Args:
        module: What Enzyme's compiler made; its entry is `entry`.
        names: Set to the functions that the text calls and does not define.
    """
    module.get_function("entry").name = _BATCH
    for function in module.functions:
        if not function.is_declaration:
            function.linkage = "internal"
        elif not function.name.startswith("llvm."):
            names.append(function.name)
    return str(module) + _TEXT
