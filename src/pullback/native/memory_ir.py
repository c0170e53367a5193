"""Aligned memory and reusable scratch blocks, as LLVM IR text of the handler's module.

Each kernel keeps up to `abi.N_SCRATCH_SLOTS` idle blocks in its descriptor; taking one and giving
it back are single atomic operations, so threads never wait for each other. Pages that a kernel
does not touch are never backed by memory.
"""

from __future__ import annotations

from pullback.native import abi

FREE_SCRATCH_SYMBOL = "pullback_free_scratch"

MEMORY = f"""
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Aligned memory from plain malloc; what malloc returned is kept in the word before the result.
define internal ptr @allocate(i64 %size) {{
  %padded = add i64 %size, {abi.ALIGNMENT + 8}
  %raw = call ptr @malloc(i64 %padded)
  %failed = icmp eq ptr %raw, null
  br i1 %failed, label %none, label %some
none:
  ret ptr null
some:
  %address = ptrtoint ptr %raw to i64
  %past = add i64 %address, {abi.ALIGNMENT + 7}
  %aligned = and i64 %past, {-abi.ALIGNMENT}
  %result = inttoptr i64 %aligned to ptr
  %keep = getelementptr i8, ptr %result, i64 -8
  store ptr %raw, ptr %keep
  ret ptr %result
}}

define internal void @release_memory(ptr %memory) {{
  %keep = getelementptr i8, ptr %memory, i64 -8
  %raw = load ptr, ptr %keep
  call void @free(ptr %raw)
  ret void
}}

; A free scratch block of this kernel, else a new one; null when there is no memory.
define internal ptr @take_scratch(ptr %desc) {{
entry:
  %slots = at Descriptor.scratch_slots %desc
  br label %look
look:
  %i = phi i64 [0, %entry], [%i.next, %empty]
  %more = icmp ult i64 %i, {abi.N_SCRATCH_SLOTS}
  br i1 %more, label %try, label %fresh
try:
  %slot = getelementptr i64, ptr %slots, i64 %i
  %seen = load atomic i64, ptr %slot monotonic, align 8
  %is.worth = icmp ne i64 %seen, 0
  br i1 %is.worth, label %grab, label %empty
grab:
  %found = atomicrmw xchg ptr %slot, i64 0 acquire
  %is.found = icmp ne i64 %found, 0
  br i1 %is.found, label %reuse, label %empty
empty:
  %i.next = add i64 %i, 1
  br label %look
reuse:
  %block = inttoptr i64 %found to ptr
  ret ptr %block
fresh:
  %size = get Descriptor.scratch_bytes %desc
  %new = call ptr @allocate(i64 %size)
  ret ptr %new
}}

define internal void @give_scratch(ptr %desc, ptr %block) {{
entry:
  %word = ptrtoint ptr %block to i64
  %slots = at Descriptor.scratch_slots %desc
  br label %look
look:
  %i = phi i64 [0, %entry], [%i.next, %taken]
  %more = icmp ult i64 %i, {abi.N_SCRATCH_SLOTS}
  br i1 %more, label %try, label %full
try:
  %slot = getelementptr i64, ptr %slots, i64 %i
  %pair = cmpxchg ptr %slot, i64 0, i64 %word release monotonic
  %stored = extractvalue {{i64, i1}} %pair, 1
  br i1 %stored, label %done, label %taken
taken:
  %i.next = add i64 %i, 1
  br label %look
full:
  call void @release_memory(ptr %block)
  br label %done
done:
  ret void
}}

; Called from Python: give the memory of a kernel's idle scratch blocks back.
define dso_local void @{FREE_SCRATCH_SYMBOL}(ptr %desc) {{
entry:
  %slots = at Descriptor.scratch_slots %desc
  br label %look
look:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %more = icmp ult i64 %i, {abi.N_SCRATCH_SLOTS}
  br i1 %more, label %try, label %done
try:
  %slot = getelementptr i64, ptr %slots, i64 %i
  %found = atomicrmw xchg ptr %slot, i64 0 acquire
  %is.found = icmp ne i64 %found, 0
  br i1 %is.found, label %drop, label %next
drop:
  %block = inttoptr i64 %found to ptr
  call void @release_memory(ptr %block)
  br label %next
next:
  %i.next = add i64 %i, 1
  br label %look
done:
  ret void
}}
"""
