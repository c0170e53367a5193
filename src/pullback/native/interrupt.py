"""Ctrl-C reaches running kernels: a C signal handler in front of Python's own.

Python runs its SIGINT handler between bytecodes, so not before a kernel has ended. Ours counts
the signal in a word that kernels poll, then calls the C function that Python had installed.

It is put in place when a kernel is registered, on Linux, if Python's handler for SIGINT is the
default one (which raises `KeyboardInterrupt`). Python code that calls `signal.signal(SIGINT, ...)`
replaces it: from then on a kernel runs to its end before that handler runs, until
`arm_interrupts` finds the default handler again. `PULLBACK_NO_SIGINT=1` keeps it out.

A signal stops the calls that run when it comes, also those that end without having polled. One
that comes while XLA is busy with something else, before a kernel starts, does not stop the kernel:
the user presses Ctrl-C again.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import threading
from typing import Any

from pullback.native import errors, process, signals_ir

# More than any libc's `struct sigaction`. Its first member is the function on Linux, with
# glibc and with musl; the rest (flags, mask) is kept as Python set it.
_SIGACTION_BYTES = 256
_SIG_DFL, _SIG_IGN = 0, 1
_SIGINT = int(signal.SIGINT)

_lock = threading.Lock()


def arm_interrupts() -> bool:
    """Put our handler in front of Python's default one if it is not there; cheap to repeat.

    Returns:
        Whether Ctrl-C stops kernels now.
    """
    if not _is_wanted():
        return False
    runtime = process.runtime()
    errors.enable_exchange()
    ours = runtime.addresses[signals_ir.SIGINT_SYMBOL]
    with _lock:
        action = _read_action()
        current = _function(action)
        if current.value == ours:
            return True
        if current.value in (_SIG_DFL, _SIG_IGN):
            return False
        # Everything before the last line: once ours is in place, a signal may come at any time.
        runtime.words["previous_sigint"] = current.value
        current.value = ours
        _write_action(action)
    _follow_ipython()
    return True


def disarm_interrupts() -> None:
    """Take our handler out again, if it is still the one in place."""
    runtime = process.loaded_runtime()
    if runtime is None or not _is_available():
        return
    with _lock:
        action = _read_action()
        current = _function(action)
        if current.value == runtime.addresses[signals_ir.SIGINT_SYMBOL]:
            current.value = runtime.words["previous_sigint"]
            _write_action(action)


def is_armed() -> bool:
    """Return whether Ctrl-C stops kernels now."""
    runtime = process.loaded_runtime()
    if runtime is None or not _is_available():
        return False
    return _function(_read_action()).value == runtime.addresses[signals_ir.SIGINT_SYMBOL]


def interrupt_kernels() -> None:
    """Stop every kernel that runs now in this process, as Ctrl-C does; not later ones.

    The calls end with the error that `translate_errors` turns into `KeyboardInterrupt`.
    """
    ctypes.CFUNCTYPE(None)(process.runtime().addresses[signals_ir.INTERRUPT_SYMBOL])()


def _follow_ipython() -> None:
    """Arm again before each cell: Jupyter calls `signal.signal` around every one of them."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is not None and shell not in _followed:
        _followed.append(shell)
        shell.events.register("pre_run_cell", lambda _info: arm_interrupts())


_followed: list[Any] = []


def _is_available() -> bool:
    return sys.platform.startswith("linux")


def _is_wanted() -> bool:
    return (
        _is_available()
        and os.environ.get("PULLBACK_NO_SIGINT") != "1"
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def _function(action: ctypes.Array[ctypes.c_char]) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_buffer(action)


def _read_action() -> ctypes.Array[ctypes.c_char]:
    action = ctypes.create_string_buffer(_SIGACTION_BYTES)
    _sigaction(None, action)
    return action


def _write_action(action: ctypes.Array[ctypes.c_char]) -> None:
    _sigaction(action, None)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _sigaction(new: Any, old: Any) -> None:
    if _libc().sigaction(_SIGINT, new, old) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"sigaction: {os.strerror(number)}")
