"""The handler against a runtime played by Python: refusals, late tasks, old versions."""

import ctypes
import threading

import numpy as np
import pytest

from native import kernels
from native.fake_runtime import FakeRuntime, Memory, call_handler
from pullback import native
from pullback.native import abi, handler_ir, process

N = 1000


@pytest.fixture(scope="module")
def target() -> native.KernelTarget:
    return native.register_kernel(kernels.double_plus())


@pytest.fixture(autouse=True)
def many_threads():
    before = native.num_threads()
    native.set_num_threads(8)
    yield
    native.set_num_threads(before)


def _arrays() -> tuple[list[np.ndarray], np.ndarray]:
    return [np.arange(float(N)), np.array(3.0)], np.zeros(N)


EXPECTED = 2.0 * np.arange(N) + 3.0


def _run(runtime: FakeRuntime, target: native.KernelTarget) -> tuple[int | None, np.ndarray]:
    args, y = _arrays()
    return runtime.call(target._descriptor.address, args, [y]), y


def test_a_runtime_without_futures_runs_on_the_calling_thread(
    target: native.KernelTarget,
) -> None:
    runtime = FakeRuntime(api_size=abi.API_SIZE_WITH_FUTURE - 8)
    error, y = _run(runtime, target)
    assert error is None
    np.testing.assert_array_equal(y, EXPECTED)
    assert (runtime.tasks, runtime.completed) == ([], [])
    assert target.stats()["threads"] == 1


@pytest.mark.parametrize("function", ["ThreadPool_NumThreads", "Future_Create"])
def test_a_runtime_that_refuses_runs_on_the_calling_thread(
    target: native.KernelTarget, function: str
) -> None:
    runtime = FakeRuntime()
    runtime.refuse = {function}
    error, y = _run(runtime, target)
    assert error is None
    np.testing.assert_array_equal(y, EXPECTED)
    assert (runtime.tasks, runtime.completed, runtime.frame["future"]) == ([], [], 0)
    assert runtime.dropped == 1


def test_a_pool_that_takes_no_task_leaves_all_work_to_the_caller(
    target: native.KernelTarget,
) -> None:
    runtime = FakeRuntime(pool_size=4)
    runtime.refuse = {"ThreadPool_Schedule"}
    error, y = _run(runtime, target)
    assert error is None
    np.testing.assert_array_equal(y, EXPECTED)
    assert runtime.dropped == 3
    assert runtime.completed == ["available"]


def test_the_future_does_not_wait_for_tasks_that_did_not_start(
    target: native.KernelTarget,
) -> None:
    runtime = FakeRuntime(pool_size=4)
    error, y = _run(runtime, target)
    assert error is None
    np.testing.assert_array_equal(y, EXPECTED)
    assert runtime.frame["future"] != 0
    assert runtime.completed == ["available"]
    assert len(runtime.tasks) == 3
    stats = target.stats()
    assert (stats["threads"], stats["lane_steps"]) == (1, N)
    # Now XLA may use the buffers for something else: late tasks must not touch them.
    y[:] = -1.0
    for task in runtime.tasks:
        task()
    assert (y == -1.0).all()
    assert runtime.completed == ["available"]
    assert target.stats() == stats


def test_a_pool_that_runs_tasks_at_once_completes_once(target: native.KernelTarget) -> None:
    runtime = FakeRuntime(pool_size=4)
    runtime.on_schedule = lambda task: task()
    error, y = _run(runtime, target)
    assert error is None
    np.testing.assert_array_equal(y, EXPECTED)
    assert runtime.completed == ["available"]


def test_concurrent_tasks_complete_once(target: native.KernelTarget) -> None:
    for _ in range(50):
        runtime = FakeRuntime(pool_size=4)
        threads: list[threading.Thread] = []

        def start(task, threads=threads) -> None:
            threads.append(threading.Thread(target=task))
            threads[-1].start()

        runtime.on_schedule = start
        error, y = _run(runtime, target)
        for thread in threads:
            thread.join()
        assert error is None
        np.testing.assert_array_equal(y, EXPECTED)
        assert runtime.completed == ["available"]
        assert target.stats()["lane_steps"] == N


def test_an_interrupt_becomes_the_future_s_error() -> None:
    target = native.register_kernel(kernels.endless_where_nonzero())
    runtime = FakeRuntime(pool_size=2)
    timer = threading.Timer(0.1, native.interrupt_kernels)
    timer.start()
    result = runtime.call(target._descriptor.address, [np.ones(4)], [np.zeros(4)])
    timer.join()
    for task in runtime.tasks:
        task()
    assert result is None  # the error is the future's
    assert runtime.completed == ["error"]
    assert runtime.errors == [(abi.CODE_CANCELLED, handler_ir.INTERRUPTED)]


def test_an_interrupt_is_the_result_of_a_call_without_a_future() -> None:
    target = native.register_kernel(kernels.endless_where_nonzero())
    runtime = FakeRuntime(pool_size=1)
    timer = threading.Timer(0.1, native.interrupt_kernels)
    timer.start()
    assert runtime.call(target._descriptor.address, [np.ones(4)], [np.zeros(4)]) == 1
    timer.join()
    assert runtime.completed == []
    assert runtime.errors == [(abi.CODE_CANCELLED, handler_ir.INTERRUPTED)]


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_only_the_execute_stage_does_anything(target: native.KernelTarget, stage: int) -> None:
    args, y = _arrays()
    runtime = FakeRuntime()
    assert runtime.call(target._descriptor.address, args, [y], stage=stage) is None
    assert not y.any()


@pytest.mark.parametrize("n_args", [1, 3])
def test_another_number_of_buffers_is_refused(target: native.KernelTarget, n_args: int) -> None:
    runtime = FakeRuntime()
    y = np.zeros(N)
    assert runtime.call(target._descriptor.address, [y] * n_args, [y]) == 1
    ((code, text),) = runtime.errors
    assert code == abi.CODE_INVALID_ARGUMENT
    assert "another number of arguments or results" in text


def test_a_marked_child_is_refused(target: native.KernelTarget) -> None:
    words = process.runtime().words
    words["is_forked"] = 1
    try:
        runtime = FakeRuntime()
        error, y = _run(runtime, target)
    finally:
        words["is_forked"] = 0
    assert error == 1
    assert not y.any()
    assert runtime.errors == [(abi.CODE_FAILED_PRECONDITION, handler_ir.FORKED)]


def test_the_handshake_echoes_the_minor_version(target: native.KernelTarget) -> None:
    words = process.runtime().words
    saved = {field: words[field] for field in ("api_size", "api_minor")}
    metadata = (ctypes.c_char * 48)()
    metadata[40:48] = b"\xaa" * 8  # a member of newer runtimes, not ours to write
    extension = Memory(
        "Extension", type=abi.METADATA_EXTENSION, metadata=ctypes.addressof(metadata)
    )
    api = FakeRuntime(minor=7).api
    frame = Memory("CallFrame", api=api.address, extension=extension.address)
    assert call_handler(frame.address, target._descriptor.address) is None
    view = Memory("Metadata", ctypes.addressof(metadata))
    assert (view["major"], view["minor"], view["traits"]) == (abi.XLA_FFI_MAJOR, 7, 0)
    assert metadata[40:48] == b"\xaa" * 8
    assert (words["api_size"], words["api_minor"]) == (abi.API_SIZE_WITH_FUTURE, 7)
    for field, value in saved.items():
        words[field] = value
