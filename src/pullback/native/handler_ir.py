"""The XLA FFI handler, once for all kernels, as LLVM IR text.

Life of a call: the kernel's stub jumps to `@pullback_handle` with the kernel's descriptor;
`@execute` makes the call's state; one thread runs `@run` and returns, or `@start_threads`
gives the same state to XLA's pool and leaves a future behind. Nothing ever waits: every thread
claims trajectories until none are left, and the last one to leave the kernel completes the
future, which does not wait for tasks that the pool has not started.

The text uses the macros of `ir_text` and the tables of `abi`.
"""

from __future__ import annotations

from pullback.native import abi
from pullback.native.ir_text import expand
from pullback.native.memory_ir import FREE_SCRATCH_SYMBOL, MEMORY
from pullback.native.signals_ir import (
    INTERRUPT_SYMBOL,
    ON_SIGINT,
    SIGINT_SYMBOL,
    TRACE,
    TRACE_SYMBOL,
)
from pullback.native.work_ir import WORK

HANDLER_SYMBOL = "pullback_handle"
PROCESS_SYMBOL = "pullback_process"
EXPORTS = (
    HANDLER_SYMBOL,
    FREE_SCRATCH_SYMBOL,
    INTERRUPT_SYMBOL,
    SIGINT_SYMBOL,
    TRACE_SYMBOL,
    PROCESS_SYMBOL,
)

# What a user reads in the runtime's exception. `errors` recognises INTERRUPTED.
INTERRUPTED = "pullback: a compiled kernel was stopped by an interrupt (Ctrl-C)"
FORKED = (
    "pullback kernels cannot run in a forked child process: use multiprocessing with the "
    "'spawn' start method"
)
# Name of the error: XLA's code, our sentence.
_ERRORS = {
    "interrupted": (abi.CODE_CANCELLED, INTERRUPTED),
    "forked": (abi.CODE_FAILED_PRECONDITION, FORKED),
    "arity": (
        abi.CODE_INVALID_ARGUMENT,
        "pullback: a kernel was called with another number of arguments or results than it was "
        "compiled for; call a target only through the function that registered it",
    ),
    "memory": (
        abi.CODE_RESOURCE_EXHAUSTED,
        "pullback: no memory for a kernel's scratch space; use fewer saved steps, a smaller tape "
        "or a smaller batch",
    ),
}

_MAKE_ERROR = """
define internal ptr @make_error(ptr %api, i32 %code, ptr %message) {
  %args = new ErrorCreateArgs
  put ErrorCreateArgs.message %args, %message
  put ErrorCreateArgs.code %args, %code
  %create = get Api.Error_Create %api
  %error = call ptr %create(ptr %args)
  ret ptr %error
}

define internal void @drop_error(ptr %api, ptr %error) {
  %args = new ErrorDestroyArgs
  put ErrorDestroyArgs.error %args, %error
  %destroy = get Api.Error_Destroy %api
  call void %destroy(ptr %args)
  ret void
}
"""

_NAMED_ERRORS = "".join(
    f"""
define internal ptr @error.{name}(ptr %api) {{
  %error = call ptr @make_error(ptr %api, i32 {code}, ptr @text.{name})
  ret ptr %error
}}
"""
    for name, (code, _) in _ERRORS.items()
)

_START = f"""
; How many threads may work on n trajectories; 1 when the runtime lends none.
define internal i64 @choose_threads(ptr %frame, ptr %desc, i64 %n) {{
  %args = new NumThreadsArgs
  %pool.size = alloca i64, align 8
  store i64 1, ptr %pool.size
  %process = get Descriptor.process %desc
  %limit = get Process.max_threads %process
  %least = get Descriptor.min_per_thread %desc
  %by.n = udiv i64 %n, %least
  %chunk = get Descriptor.chunk %desc
  %rounded = add i64 %n, %chunk
  %rounded.less = sub i64 %rounded, 1
  %by.chunk = udiv i64 %rounded.less, %chunk
  %most.n = call i64 @llvm.smin.i64(i64 %by.n, i64 %by.chunk)
  %most = call i64 @llvm.smin.i64(i64 %limit, i64 %most.n)
  %api = get CallFrame.api %frame
  %size = get Api.struct_size %api
  %has.pool = icmp uge i64 %size, {abi.API_SIZE_WITH_FUTURE}
  %worth = icmp sgt i64 %most, 1
  %both = and i1 %has.pool, %worth
  br i1 %both, label %ask, label %one
ask:
  %context = get CallFrame.context %frame
  put NumThreadsArgs.context %args, %context
  put NumThreadsArgs.out %args, %pool.size
  %num.threads = get Api.ThreadPool_NumThreads %api
  %error = call ptr %num.threads(ptr %args)
  %is.error = icmp ne ptr %error, null
  br i1 %is.error, label %no.pool, label %answered
no.pool:
  call void @drop_error(ptr %api, ptr %error)
  br label %one
answered:
  %pool = load i64, ptr %pool.size
  %threads = call i64 @llvm.smin.i64(i64 %pool, i64 %most)
  %at.least.one = call i64 @llvm.smax.i64(i64 %threads, i64 1)
  ret i64 %at.least.one
one:
  ret i64 1
}}
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

; The asynchronous path: the calling thread works too, and returns when nothing is left to claim.
define internal ptr @start_threads(ptr %frame, ptr %state, i64 %threads) {{
entry:
  %create.args = new FutureCreateArgs
  %schedule.args = new ScheduleArgs
  put FutureCreateArgs.future %create.args, null
  %api = get CallFrame.api %frame
  %create = get Api.Future_Create %api
  %error = call ptr %create(ptr %create.args)
  %is.error = icmp ne ptr %error, null
  br i1 %is.error, label %no.future, label %ready
no.future:
  call void @drop_error(ptr %api, ptr %error)
  %serial = call ptr @run(ptr %state)
  ret ptr %serial
ready:
  %future = get FutureCreateArgs.future %create.args
  put State.future %state, %future
  put State.references %state, %threads
  put State.gate %state, 1
  put CallFrame.future %frame, %future
  %context = get CallFrame.context %frame
  put ScheduleArgs.context %schedule.args, %context
  put ScheduleArgs.task %schedule.args, @task
  put ScheduleArgs.data %schedule.args, %state
  %schedule = get Api.ThreadPool_Schedule %api
  br label %next
next:
  %i = phi i64 [1, %ready], [%i.next, %counted]
  %more = icmp slt i64 %i, %threads
  br i1 %more, label %one, label %own
one:
  %refused = call ptr %schedule(ptr %schedule.args)
  %is.refused = icmp ne ptr %refused, null
  br i1 %is.refused, label %undo, label %counted
undo:
  call void @drop_error(ptr %api, ptr %refused)
  call void @drop_reference(ptr %state)
  br label %counted
counted:
  %i.next = add i64 %i, 1
  br label %next
own:
  call void @work(ptr %state)
  call void @leave(ptr %state)
  call void @drop_reference(ptr %state)
  ret ptr null
}}
"""

_PREPARE = """
; n: how many elements the counted buffer has, divided by elements per trajectory.
define internal i64 @count_trajectories(ptr %desc, ptr %buffers) {
entry:
  %which = get Descriptor.count_buffer %desc
  %slot = getelementptr ptr, ptr %buffers, i64 %which
  %buffer = load ptr, ptr %slot
  %rank = get Buffer.rank %buffer
  %dims = get Buffer.dims %buffer
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %body]
  %total = phi i64 [1, %entry], [%total.next, %body]
  %more = icmp slt i64 %i, %rank
  br i1 %more, label %body, label %done
body:
  %dim.at = getelementptr i64, ptr %dims, i64 %i
  %dim = load i64, ptr %dim.at
  %total.next = mul i64 %total, %dim
  %i.next = add i64 %i, 1
  br label %loop
done:
  %each = get Descriptor.count_size %desc
  %n = udiv i64 %total, %each
  ret i64 %n
}

; Copy pointers to XLA's buffer structures, arguments then results.
define internal void @list_buffers(ptr %out, ptr %list, i64 %count) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %body]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %from = getelementptr ptr, ptr %list, i64 %i
  %buffer = load ptr, ptr %from
  %to = getelementptr ptr, ptr %out, i64 %i
  store ptr %buffer, ptr %to
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret void
}

; Replace pointers to buffer structures by pointers to their data.
define internal void @open_buffers(ptr %buffers, i64 %count) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i.next, %body]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %slot = getelementptr ptr, ptr %buffers, i64 %i
  %buffer = load ptr, ptr %slot
  %data = get Buffer.data %buffer
  store ptr %data, ptr %slot
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret void
}
"""

_HANDLE = f"""
@{PROCESS_SYMBOL} = dso_local global [{abi.PROCESS.size} x i8] zeroinitializer, align 64

define internal void @handshake(ptr %frame, ptr %extension) {{
  %api = get CallFrame.api %frame
  %metadata = get Extension.metadata %extension
  %minor = get Api.minor %api
  put Metadata.major %metadata, {abi.XLA_FFI_MAJOR}
  put Metadata.minor %metadata, %minor
  put Metadata.traits %metadata, 0
  %size = get Api.struct_size %api
  put Process.api_size @{PROCESS_SYMBOL}, %size
  %minor.wide = zext i32 %minor to i64
  put Process.api_minor @{PROCESS_SYMBOL}, %minor.wide
  ret void
}}

define internal ptr @execute(ptr %frame, ptr %desc) {{
  %api = get CallFrame.api %frame
  %process = get Descriptor.process %desc
  %is.forked = get Process.is_forked %process
  %forked = icmp ne i64 %is.forked, 0
  br i1 %forked, label %in.child, label %check
in.child:
  %error.forked = call ptr @error.forked(ptr %api)
  ret ptr %error.forked
check:
  %n.args = get CallFrame.n_args %frame
  %n.results = get CallFrame.n_results %frame
  %want.args = get Descriptor.n_args %desc
  %want.results = get Descriptor.n_results %desc
  %ok.args = icmp eq i64 %n.args, %want.args
  %ok.results = icmp eq i64 %n.results, %want.results
  %ok = and i1 %ok.args, %ok.results
  br i1 %ok, label %make, label %arity
arity:
  %error.arity = call ptr @error.arity(ptr %api)
  ret ptr %error.arity
make:
  %count = add i64 %n.args, %n.results
  %list.bytes = mul i64 %count, 8
  %bytes = add i64 %list.bytes, {abi.STATE.size}
  %state = call ptr @allocate(i64 %bytes)
  %no.memory = icmp eq ptr %state, null
  br i1 %no.memory, label %memory, label %fill
memory:
  %error.memory = call ptr @error.memory(ptr %api)
  ret ptr %error.memory
fill:
  call void @llvm.memset.p0.i64(ptr %state, i8 0, i64 {abi.STATE.size}, i1 false)
  %buffers = at State.buffers %state
  %args = get CallFrame.args %frame
  call void @list_buffers(ptr %buffers, ptr %args, i64 %n.args)
  %results.at = getelementptr ptr, ptr %buffers, i64 %n.args
  %results = get CallFrame.results %frame
  call void @list_buffers(ptr %results.at, ptr %results, i64 %n.results)
  %n = call i64 @count_trajectories(ptr %desc, ptr %buffers)
  %is.empty = icmp eq i64 %n, 0
  br i1 %is.empty, label %empty, label %start
empty:
  call void @release_memory(ptr %state)
  ret ptr null
start:
  call void @open_buffers(ptr %buffers, i64 %count)
  put State.n %state, %n
  %chunk = get Descriptor.chunk %desc
  put State.chunk %state, %chunk
  %interrupt = at Process.interrupt %process
  put State.interrupt %state, %interrupt
  %seen = load atomic i64, ptr %interrupt monotonic, align 8
  put State.seen %state, %seen
  put State.api %state, %api
  put State.descriptor %state, %desc
  %threads = call i64 @choose_threads(ptr %frame, ptr %desc, i64 %n)
  %is.one = icmp eq i64 %threads, 1
  br i1 %is.one, label %serial, label %parallel
serial:
  %error.serial = call ptr @run(ptr %state)
  ret ptr %error.serial
parallel:
  %error.parallel = call ptr @start_threads(ptr %frame, ptr %state, i64 %threads)
  ret ptr %error.parallel
}}

define dso_local ptr @{HANDLER_SYMBOL}(ptr %frame, ptr %desc) {{
  %extension = get CallFrame.extension %frame
  %is.plain = icmp eq ptr %extension, null
  br i1 %is.plain, label %stages, label %look
look:
  %type = get Extension.type %extension
  %is.metadata = icmp eq i32 %type, {abi.METADATA_EXTENSION}
  br i1 %is.metadata, label %metadata, label %stages
metadata:
  call void @handshake(ptr %frame, ptr %extension)
  ret ptr null
stages:
  %stage = get CallFrame.stage %frame
  %is.execute = icmp eq i32 %stage, {abi.STAGE_EXECUTE}
  br i1 %is.execute, label %go, label %ignore
go:
  %error = call ptr @execute(ptr %frame, ptr %desc)
  ret ptr %error
ignore:
  ret ptr null
}}
"""


def handler_text() -> str:
    """Return the LLVM IR of the handler module."""
    own = _MAKE_ERROR + _NAMED_ERRORS + _START + _PREPARE + _HANDLE
    texts = {name: text for name, (_, text) in _ERRORS.items()}
    return expand(MEMORY + WORK + own + ON_SIGINT + TRACE, texts)
