"""Ctrl-C, as LLVM IR text of the handler's module.

`@pullback_on_sigint` stands in front of Python's C signal handler. The rest lets an interrupted
call end as `KeyboardInterrupt`: Python holds the signal until the main thread runs bytecode, and
by then JAX has made an exception of the runtime's error, which no `except KeyboardInterrupt`
catches. So just before a call reports its error, it asks CPython to call `@pullback_trace` at
the main thread's next event, which is that exception, and the trace function delivers the signal
in the exception's place.
"""

from __future__ import annotations

INTERRUPT_SYMBOL = "pullback_interrupt"
SIGINT_SYMBOL = "pullback_on_sigint"
TRACE_SYMBOL = "pullback_trace"

ON_SIGINT = f"""
define dso_local void @{INTERRUPT_SYMBOL}() {{
  %interrupt = at Process.interrupt @pullback_process
  %was = atomicrmw add ptr %interrupt, i64 1 release
  ret void
}}

; Async-signal safe. Python first: when a kernel sees the counter, Python has the signal.
define dso_local void @{SIGINT_SYMBOL}(i32 %signal, ptr %info, ptr %context) {{
  %previous = get Process.previous_sigint @pullback_process
  %is.none = icmp eq ptr %previous, null
  br i1 %is.none, label %count, label %chain
chain:
  call void %previous(i32 %signal, ptr %info, ptr %context)
  br label %count
count:
  %untold = at Process.untold @pullback_process
  store atomic i64 1, ptr %untold monotonic, align 8
  call void @{INTERRUPT_SYMBOL}()
  ret void
}}
"""

TRACE = f"""
; A C trace function (`Py_tracefunc`), called with the GIL: ends the tracing, and raises what the
; signal's Python handler raises.
define dso_local i32 @{TRACE_SYMBOL}(ptr %self, ptr %frame, i32 %what, ptr %arg) {{
  %ident.function = get Process.py_thread_ident @pullback_process
  %ident = call i64 %ident.function()
  %main = get Process.main_ident @pullback_process
  %is.main = icmp eq i64 %ident, %main
  br i1 %is.main, label %act, label %leave
leave:
  ret i32 0
act:
  %set = get Process.py_set_trace @pullback_process
  %first = get Process.untrace_first @pullback_process
  call void %set(ptr %first, ptr null, ptr null)
  %check = get Process.py_check_signals @pullback_process
  %rc = call i32 %check()
  ret i32 %rc
}}

; On any thread, before the error of an interrupted call is reported: once for each Ctrl-C.
define internal void @tell_python() {{
  %untold = at Process.untold @pullback_process
  %was.untold = atomicrmw xchg ptr %untold, i64 0 monotonic
  %is.untold = icmp ne i64 %was.untold, 0
  %set = get Process.py_set_trace @pullback_process
  %is.ready = icmp ne ptr %set, null
  %both = and i1 %is.untold, %is.ready
  br i1 %both, label %look, label %done
look:
  %finalizing = get Process.py_is_finalizing @pullback_process
  %is.finalizing = call i32 %finalizing()
  %is.alive = icmp eq i32 %is.finalizing, 0
  br i1 %is.alive, label %ask, label %done
ask:
  %ensure = get Process.py_gil_ensure @pullback_process
  %gil = call i32 %ensure()
  %first = get Process.trace_first @pullback_process
  %second = get Process.trace_second @pullback_process
  call void %set(ptr %first, ptr %second, ptr null)
  %release = get Process.py_gil_release @pullback_process
  call void %release(i32 %gil)
  br label %done
done:
  ret void
}}
"""
