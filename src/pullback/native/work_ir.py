"""How the threads of one call share its work and end it, as LLVM IR text of the handler's module.

`State.gate` counts the threads inside the kernel. A kernel returns only when every trajectory is
claimed (or the user interrupted), so the first thread that comes back closes the gate, and the
last one that was inside completes the call. No thread waits for another, and none for the pool.
"""

from __future__ import annotations

from pullback.native import abi

WORK = f"""
; One thread's share of a call: claims trajectories until none are left.
define internal void @work(ptr %state) {{
  %desc = get State.descriptor %state
  %scratch = call ptr @take_scratch(ptr %desc)
  %no.scratch = icmp eq ptr %scratch, null
  ; A thread without scratch does nothing: the others claim its trajectories.
  br i1 %no.scratch, label %done, label %go
go:
  %workers = at State.n_workers %state
  %was = atomicrmw add ptr %workers, i64 1 monotonic
  %kernel = get Descriptor.kernel %desc
  %buffers = at State.buffers %state
  %rc = call i64 %kernel(ptr %state, ptr %buffers, ptr %scratch)
  %is.stopped = icmp ne i64 %rc, 0
  br i1 %is.stopped, label %stop, label %give
stop:
  %stopped = at State.stopped %state
  store atomic i64 1, ptr %stopped monotonic, align 8
  br label %give
give:
  call void @give_scratch(ptr %desc, ptr %scratch)
  br label %done
done:
  ret void
}}

; When all threads have left the kernel: statistics, and the call's error or null.
define internal ptr @finish(ptr %state) {{
  %desc = get State.descriptor %state
  %api = get State.api %state
  %lane = get State.lane_steps %state
  %vector = get State.vector_steps %state
  %workers = get State.n_workers %state
  %stopped = get State.stopped %state
  %seen = get State.seen %state
  %interrupt = get State.interrupt %state
  %now = load atomic i64, ptr %interrupt monotonic, align 8
  %lane.out = at Descriptor.lane_steps %desc
  store atomic i64 %lane, ptr %lane.out monotonic, align 8
  %vector.out = at Descriptor.vector_steps %desc
  store atomic i64 %vector, ptr %vector.out monotonic, align 8
  %threads.out = at Descriptor.n_threads %desc
  store atomic i64 %workers, ptr %threads.out monotonic, align 8
  %calls = at Descriptor.n_calls %desc
  %calls.was = atomicrmw add ptr %calls, i64 1 monotonic
  %nobody = icmp eq i64 %workers, 0
  br i1 %nobody, label %memory, label %check
memory:
  %error.memory = call ptr @error.memory(ptr %api)
  ret ptr %error.memory
check:
  ; A kernel that was too short to poll still ends its loop of calls when the user interrupts.
  %came = icmp ne i64 %now, %seen
  %was.stopped = icmp ne i64 %stopped, 0
  %is.interrupted = or i1 %came, %was.stopped
  br i1 %is.interrupted, label %interrupted, label %fine
interrupted:
  %stops = at Descriptor.n_stopped %desc
  %stops.was = atomicrmw add ptr %stops, i64 1 monotonic
  call void @tell_python()
  %error = call ptr @error.interrupted(ptr %api)
  ret ptr %error
fine:
  ret ptr null
}}

; Whether this thread may still go to work. After the gate is closed XLA may free the buffers.
define internal i1 @enter(ptr %state) {{
entry:
  %gate = at State.gate %state
  %first = load atomic i64, ptr %gate monotonic, align 8
  br label %try
try:
  %old = phi i64 [%first, %entry], [%found, %add]
  %is.open = icmp ult i64 %old, {abi.GATE_CLOSED}
  br i1 %is.open, label %add, label %done
add:
  %new = add i64 %old, 1
  %pair = cmpxchg ptr %gate, i64 %old, i64 %new acq_rel monotonic
  %found = extractvalue {{i64, i1}} %pair, 0
  %is.in = extractvalue {{i64, i1}} %pair, 1
  br i1 %is.in, label %done, label %try
done:
  %result = phi i1 [false, %try], [true, %add]
  ret i1 %result
}}

; A thread comes back from work, so nothing is left to claim: close the gate. The last thread
; inside completes the future; tasks that the pool has not started yet are not waited for.
define internal void @leave(ptr %state) {{
  %available = new SetAvailableArgs
  %failed = new SetErrorArgs
  %gate = at State.gate %state
  %was.open = atomicrmw or ptr %gate, i64 {abi.GATE_CLOSED} acq_rel
  %before = atomicrmw sub ptr %gate, i64 1 acq_rel
  %inside = sub i64 %before, {abi.GATE_CLOSED}
  %is.last = icmp eq i64 %inside, 1
  br i1 %is.last, label %last, label %done
last:
  %api = get State.api %state
  %future = get State.future %state
  %error = call ptr @finish(ptr %state)
  %is.error = icmp ne ptr %error, null
  br i1 %is.error, label %bad, label %good
bad:
  put SetErrorArgs.future %failed, %future
  put SetErrorArgs.error %failed, %error
  %set.error = get Api.Future_SetError %api
  %refused.bad = call ptr %set.error(ptr %failed)
  br label %done
good:
  put SetAvailableArgs.future %available, %future
  %set.available = get Api.Future_SetAvailable %api
  %refused.good = call ptr %set.available(ptr %available)
  br label %done
done:
  ret void
}}

; The state outlives the call until every scheduled task has seen it.
define internal void @drop_reference(ptr %state) {{
  %references = at State.references %state
  %before = atomicrmw sub ptr %references, i64 1 acq_rel
  %is.last = icmp eq i64 %before, 1
  br i1 %is.last, label %last, label %done
last:
  call void @release_memory(ptr %state)
  br label %done
done:
  ret void
}}

define internal void @task(ptr %state) {{
  %is.in = call i1 @enter(ptr %state)
  br i1 %is.in, label %go, label %out
go:
  call void @work(ptr %state)
  call void @leave(ptr %state)
  br label %out
out:
  call void @drop_reference(ptr %state)
  ret void
}}

define internal ptr @run(ptr %state) {{
  call void @work(ptr %state)
  %error = call ptr @finish(ptr %state)
  call void @release_memory(ptr %state)
  ret ptr %error
}}
"""
