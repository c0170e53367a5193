"""Programs in a process of their own, for what a test process must not do to itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_PRELUDE = '''
import os, signal, sys, threading, time
import jax, jax.numpy as jnp
import numpy as np
from native import kernels
from pullback import native

def sigint_after(seconds):
    """Send SIGINT until the result is set: one that comes before the kernel starts is not seen."""
    handled = threading.Event()
    def send():
        time.sleep(seconds)
        while not handled.is_set():
            print("sent", time.monotonic(), flush=True)
            os.kill(os.getpid(), signal.SIGINT)
            handled.wait(4.0)
    threading.Thread(target=send, daemon=True).start()
    return handled
'''


@pytest.fixture
def run_script() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run text as a program: `run_script(text, argument, ..., VARIABLE="value")`."""

    def run(text: str, *args: object, **environment: str) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join((str(_HERE.parents[1] / "src"), str(_HERE.parent)))
        return subprocess.run(
            [sys.executable, "-c", _PRELUDE + text, *map(str, args)],
            env={**os.environ, "PYTHONPATH": paths, "JAX_ENABLE_X64": "1", **environment},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return run
