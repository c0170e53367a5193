"""Ctrl-C: every way in which a running kernel's end reaches the user."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from native import kernels
from pullback import native
from pullback.native import errors, handler_ir, interrupt, process

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="Ctrl-C reaches kernels on Linux only"
)

Run = Callable[..., subprocess.CompletedProcess[str]]

# `direct` runs on the thread that calls; `large` is dispatched, so the main thread waits elsewhere.
# N = 1 is one endless loop; of N = 64 all are endless on XLA's pool; `tail`: only the last one.
_START = """
direct = kernels.caller(native.register_kernel(kernels.endless_where_nonzero()))
matrix = jnp.ones((300, 300))
@jax.jit
def large(x):
    a = matrix
    for _ in range(3):
        a = jnp.tanh(a @ a)
    return direct(x + 0.0 * a[0, 0])
def endless(n):
    return jnp.zeros(n).at[-1].set(1.0) if "tail" in sys.argv else jnp.ones(n)
for n in (1, 64):
    for call in (direct, large):
        call(jnp.zeros(n)).block_until_ready()
"""
_CAUGHT = (
    _START
    + """
def attempt(name, function, x):
    handled = sigint_after(0.2)
    try:
        function(x)
        print("returned", name)
    except KeyboardInterrupt as error:
        print("interrupted", time.monotonic())
    except Exception as error:
        print("masked", name, type(error).__name__)
    handled.set()

for n in (1, 64):
    x = endless(n)
    attempt(f"direct {n}", direct, x)
    attempt(f"block {n}", lambda x: large(x).block_until_ready(), x)
    attempt(f"array {n}", lambda x: np.asarray(large(x)), x)
    attempt(f"float {n}", lambda x: float(large(x)[0]), x)
    attempt(f"compile {n}", jax.jit(lambda x: direct(x) + 1.0), x)   # the slow path in Python
    assert sys.gettrace() is None
    direct(jnp.zeros(n)).block_until_ready()   # usable again
print("done")
"""
)
_UNCAUGHT = _START + "sigint_after(0.3)\ndirect(endless(64))\nprint('returned')\n"
_SWALLOWED = (
    _START
    + """
sigint_after(0.3)
for attempt in range(3):
    try:
        large(endless(1)).block_until_ready()
    except Exception:
        print("swallowed", attempt)
"""
)
_SHORT_CALLS = """
target = native.register_kernel(kernels.slow_copy(50))
call = kernels.caller(target)
loop = jax.jit(lambda x: jax.lax.fori_loop(0, 1_000_000, lambda i, c: call(c), x))
sigint_after(1.0)
try:
    loop(jnp.zeros(1)).block_until_ready()
except KeyboardInterrupt:
    print("interrupted", time.monotonic())
"""
_PYTHON_HANDLER = """
target = native.register_kernel(kernels.slow_copy(1000))
call = kernels.caller(target)
call(jnp.zeros(1)).block_until_ready()
def own(number, frame):
    handled.set()
    print("own handler", flush=True)
signal.signal(signal.SIGINT, own)
print("armed", native.arm_interrupts())
handled = sigint_after(0.1)
y = call(jnp.ones(600)).block_until_ready()
print("finished", float(y.sum()))
signal.signal(signal.SIGINT, signal.default_int_handler)
print("armed", native.arm_interrupts())
"""
_WORKER = (
    _START
    + """
def work():
    try:
        with native.translate_errors():
            direct(endless(64)).block_until_ready()
    except KeyboardInterrupt as error:
        print("worker", type(error.__cause__).__name__, flush=True)
worker = threading.Thread(target=work)
worker.start()
handled = sigint_after(0.3)
try:
    while True:
        time.sleep(0.01)
except KeyboardInterrupt:
    print("main", flush=True)
handled.set()
worker.join()
print("traced", sys.gettrace())
"""
)
_TRACED = (
    """
sys.settrace(lambda *_: None)   # a debugger that was there before
"""
    + _START
    + """
print("exchange", bool(native.process.runtime().words["py_set_trace"]))
sigint_after(0.3)
try:
    with native.translate_errors():
        direct(endless(1))
except KeyboardInterrupt:
    print("interrupted")
"""
)


def _delays(output: str) -> list[float]:
    """Seconds from the last signal before each KeyboardInterrupt to that."""
    delays, sent = [], float("nan")
    for line in output.splitlines():
        word, *rest = line.split()
        if word == "sent":
            sent = float(rest[0])
        elif word == "interrupted":
            delays.append(float(rest[0]) - sent)
    return delays


@pytest.mark.parametrize("where", ["all", "tail"])
def test_keyboard_interrupt_reaches_an_except_clause(run_script: Run, where: str) -> None:
    result = run_script(_CAUGHT, where)
    assert result.returncode == 0, result.stderr
    assert "returned" not in result.stdout
    assert "masked" not in result.stdout
    assert result.stdout.splitlines()[-1] == "done"
    delays = _delays(result.stdout)
    assert len(delays) == 10
    assert max(delays) < 1.0


def test_an_uncaught_interrupt_ends_the_program_as_python_does(run_script: Run) -> None:
    result = run_script(_UNCAUGHT)
    assert result.returncode == -signal.SIGINT
    assert result.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "returned" not in result.stdout


def test_a_broad_except_does_not_swallow_it(run_script: Run) -> None:
    result = run_script(_SWALLOWED)
    assert result.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "swallowed" not in result.stdout


def test_a_loop_of_calls_too_short_to_poll_ends_too(run_script: Run) -> None:
    result = run_script(_SHORT_CALLS)
    assert result.returncode == 0, result.stderr
    (delay,) = _delays(result.stdout)
    assert delay < 1.0


def test_a_python_handler_replaces_ours_until_the_default_returns(run_script: Run) -> None:
    result = run_script(_PYTHON_HANDLER)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if not line.startswith("sent")]
    assert lines == ["armed False", "own handler", "finished 600.0", "armed True"]


def test_a_worker_thread_gets_keyboard_interrupt_from_translate_errors(run_script: Run) -> None:
    result = run_script(_WORKER)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "main" in lines
    assert any(line in ("worker ValueError", "worker JaxRuntimeError") for line in lines)
    assert lines[-1] == "traced None"


def test_a_debugger_s_trace_function_is_left_alone(run_script: Run) -> None:
    result = run_script(_TRACED)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if not line.startswith("sent")]
    assert lines == ["exchange False", "interrupted"]


def test_the_handler_can_be_kept_out(run_script: Run) -> None:
    text = """
native.register_kernel(kernels.double_plus())
print(native.info()["interrupts_armed"], native.process.runtime().words["py_set_trace"] > 0)
"""
    result = run_script(text, PULLBACK_NO_SIGINT="1")
    assert result.stdout.split() == ["False", "False"], result.stderr


def test_arming_is_reversible_and_repeatable() -> None:
    native.register_kernel(kernels.double_plus())
    assert native.arm_interrupts()
    assert interrupt.is_armed()
    native.disarm_interrupts()
    native.disarm_interrupts()
    assert not interrupt.is_armed()
    assert native.arm_interrupts()
    assert native.arm_interrupts()
    assert interrupt.is_armed()


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt.sys, "platform", "win32")
    assert not native.arm_interrupts()
    assert not interrupt.is_armed()
    native.disarm_interrupts()


@pytest.mark.parametrize("n", [1, 64])
def test_interrupt_kernels_stops_what_runs_but_not_what_follows(n: int) -> None:
    target = native.register_kernel(kernels.endless_where_nonzero())
    call = kernels.caller(target)
    call(jnp.zeros(n)).block_until_ready()
    before = target.stats()["interrupted"]
    timer = threading.Timer(0.1, native.interrupt_kernels)
    timer.start()
    with pytest.raises(KeyboardInterrupt), native.translate_errors():
        call(jnp.ones(n)).block_until_ready()
    timer.join()
    assert target.stats()["interrupted"] == before + 1
    call(jnp.zeros(n)).block_until_ready()
    assert target.stats()["interrupted"] == before + 1


def test_ipython_cells_arm_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Events:
        def __init__(self) -> None:
            self.registered: list[tuple[str, Callable]] = []

        def register(self, event: str, function: Callable) -> None:
            self.registered.append((event, function))

    class Shell:
        events = Events()

    shell = Shell()
    module = type(jax)("IPython")
    module.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", module)
    native.disarm_interrupts()
    native.arm_interrupts()
    native.disarm_interrupts()
    native.arm_interrupts()
    ((event, function),) = shell.events.registered
    assert event == "pre_run_cell"
    native.disarm_interrupts()
    function(object())
    assert interrupt.is_armed()


def test_only_our_error_is_translated() -> None:
    with pytest.raises(ValueError, match="mine"), native.translate_errors():
        raise ValueError("mine")
    with pytest.raises(KeyboardInterrupt), native.translate_errors():
        raise RuntimeError(f"CANCELLED: {handler_ir.INTERRUPTED}")
    assert not native.is_interrupted(KeyError(handler_ir.INTERRUPTED))


def test_the_exchange_is_enabled_from_the_main_thread_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = process.runtime().words
    before = words["py_set_trace"]
    try:
        words["py_set_trace"] = 0
        results: list[bool] = []
        thread = threading.Thread(target=lambda: results.append(errors.enable_exchange()))
        thread.start()
        thread.join()
        assert results == [False]
        if sys.gettrace() is None:  # not under coverage
            assert errors.enable_exchange()
            assert errors.enable_exchange()
            assert words["py_set_trace"] != 0
            words["py_set_trace"] = 0
        monkeypatch.setattr(errors, "_python_address", lambda _name: 0)
        assert not errors.enable_exchange()
        assert words["py_set_trace"] == 0
    finally:
        words["py_set_trace"] = before
