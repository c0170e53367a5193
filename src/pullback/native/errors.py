"""An interrupted kernel's error becomes `KeyboardInterrupt`.

What JAX 0.10 raises when Ctrl-C stopped a kernel: `JaxRuntimeError` ("CANCELLED: ...") from the
first call of a jitted function and from `block_until_ready`, `ValueError` with the same text from
later calls, which take a path in C++. In the main thread `enable_exchange` has CPython put
`KeyboardInterrupt` in its place. In other threads, which never see signals, and while a debugger
or a coverage tool traces the program, the runtime's error stays; `translate_errors` is for those.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Iterator

from pullback.native import handler_ir, process, signals_ir


def is_interrupted(error: BaseException) -> bool:
    """Return whether an exception says that Ctrl-C stopped a kernel."""
    return isinstance(error, (RuntimeError, ValueError)) and handler_ir.INTERRUPTED in str(error)


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Raise `KeyboardInterrupt` in place of the runtime's error for an interrupted kernel.

    Python code that runs or waits for kernels wraps this around the call.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if is_interrupted(error):
            raise KeyboardInterrupt from error
        raise


def enable_exchange() -> bool:
    """Let `signals_ir.TRACE` work: tell it where Python's functions are. Cheap to repeat.

    Returns:
        Whether it works now. It does not when first called off the main thread, or under a
        debugger or coverage tool, whose trace function it would replace.
    """
    runtime = process.runtime()
    if runtime.words["py_set_trace"]:
        return True
    if threading.current_thread() is not threading.main_thread() or sys.gettrace() is not None:
        return False
    values = _python_functions() | _trace_arguments(runtime.addresses[signals_ir.TRACE_SYMBOL])
    if 0 in (values["py_set_trace"], values["py_is_finalizing"]):
        return False
    set_trace = values.pop("py_set_trace")
    for field, value in values.items():
        runtime.words[field] = value
    runtime.words["py_set_trace"] = set_trace  # last: it says that the others are there
    return True


def _python_functions() -> dict[str, int]:
    return {
        "main_ident": threading.get_ident(),
        "py_check_signals": _python_address("PyErr_CheckSignals"),
        "py_thread_ident": _python_address("PyThread_get_thread_ident"),
        "py_gil_ensure": _python_address("PyGILState_Ensure"),
        "py_gil_release": _python_address("PyGILState_Release"),
        # The underscore went away in 3.13.
        "py_is_finalizing": _python_address("Py_IsFinalizing")
        or _python_address("_Py_IsFinalizing"),
    }


def _trace_arguments(trace: int) -> dict[str, int]:
    """Return which function sets a trace function, and what it takes before a null `self`."""
    for_all = _python_address("PyEval_SetTraceAllThreads")  # (function, self), from 3.12
    if for_all:
        arguments = (trace, 0, 0)
        return dict(zip(_TRACE_FIELDS, (for_all, *arguments), strict=True))
    for_one = _python_address("_PyEval_SetTrace")  # (thread state, function, self)
    state = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThreadState_Get", ctypes.pythonapi))() or 0
    return dict(zip(_TRACE_FIELDS, (for_one, state, trace, state), strict=True))


_TRACE_FIELDS = ("py_set_trace", "trace_first", "trace_second", "untrace_first")


def _python_address(name: str) -> int:
    try:
        function = getattr(ctypes.pythonapi, name)
    except AttributeError:
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
