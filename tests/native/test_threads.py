"""Threads: limits, many callers at once, the GIL, and memory over many calls."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from native import kernels
from pullback import native
from pullback.native import host


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    before = native.num_threads()
    yield
    native.set_num_threads(before)


def test_the_default_is_the_environment_s_or_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PULLBACK_NUM_THREADS", "3")
    assert host.default_num_threads() == 3
    monkeypatch.delenv("PULLBACK_NUM_THREADS")
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _pid: {0, 4, 5}, raising=False)
    assert host.default_num_threads() == 3
    monkeypatch.delattr(host.os, "sched_getaffinity")
    monkeypatch.setattr(host.os, "cpu_count", lambda: 6)
    assert host.default_num_threads() == 6


@pytest.mark.parametrize("setting", ["0", "-1", "two", "1.5"])
def test_a_setting_that_is_no_number_is_an_error(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("PULLBACK_NUM_THREADS", setting)
    with pytest.raises(ValueError, match=f"must be a positive whole number, got '{setting}'"):
        host.default_num_threads()


@pytest.mark.parametrize("n", [0, -2, 1.0, True, "2"])
def test_a_limit_that_is_no_number_is_an_error(n: object) -> None:
    with pytest.raises(ValueError, match="`n` must be a positive whole number of threads"):
        native.set_num_threads(n)


def test_the_limit_holds_and_does_not_change_results() -> None:
    target = native.register_kernel(kernels.double_plus("1.1"))
    call, x = kernels.caller(target), jnp.linspace(0.0, 1.0, 5000)
    results = []
    for limit in (1, 2, 64):
        native.set_num_threads(limit)
        assert native.num_threads() == limit
        results.append(np.asarray(call(x, jnp.float64(0.3))))
        assert target.stats()["threads"] <= limit
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_a_call_takes_as_many_threads_as_its_size_is_worth() -> None:
    native.set_num_threads(64)
    target = native.register_kernel(kernels.double_plus(min_per_thread=100, chunk=1))
    call = kernels.caller(target)
    for n in (1, 99, 199):
        call(jnp.zeros(n), jnp.float64(0.0)).block_until_ready()
        assert target.stats()["threads"] == 1
    few = native.register_kernel(kernels.double_plus(min_per_thread=1, chunk=1000))
    kernels.caller(few)(jnp.zeros(1000), jnp.float64(0.0)).block_until_ready()
    assert few.stats()["threads"] == 1  # one claim takes everything


def test_many_python_threads_call_at_once() -> None:
    sources = [kernels.double_plus(f"{c}.0", min_per_thread=16) for c in (2, 3)]
    wrong: list[object] = []

    def work(k: int) -> None:
        # Each thread registers too: the same kernels, at the same time.
        constant = 2 + k % 2
        call = kernels.caller(native.register_kernel(sources[k % 2]))
        x = jnp.arange(100.0 + k)
        expected = constant * np.arange(100.0 + k) + k
        for _ in range(60):
            y = np.asarray(call(x, jnp.float64(k)))
            if not np.array_equal(y, expected):
                wrong.append((k, y))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_gil_is_free_while_a_kernel_runs() -> None:
    target = native.register_kernel(kernels.slow_copy(3000))
    call, x = kernels.caller(target), jnp.arange(100.0)
    call(x[:1].repeat(100)).block_until_ready()
    ticks, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    before = ticks[0]
    y = call(x).block_until_ready()
    during = ticks[0] - before
    stop.set()
    ticker.join()
    np.testing.assert_array_equal(np.asarray(y), np.arange(100.0))
    # At least 150 ms on two threads; a busy machine may take most of the ticks away.
    assert during >= 10


_LEAK = """
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
target = native.register_kernel(kernels.double_plus(min_per_thread=16, scratch_bytes=4096))
call, p = kernels.caller(target), jnp.float64(1.0)
for n in (8, 256):  # on the calling thread, and with a future
    x = jnp.zeros(n)
    for count in (1000, 5000):
        before = resident()
        for _ in range(count):
            call(x, p)
    print(n, target.stats()["threads"], resident() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_calls(
    run_script: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    result = run_script(_LEAK)
    assert result.returncode == 0, result.stderr
    for line in result.stdout.splitlines():
        n, n_threads, growth = map(int, line.split())
        assert n_threads == 1 or n == 256
        # A leaked state would be 192 bytes * 5000 = 0.96 MB, a leaked block 20 MB; the allocator
        # and Python's own arenas account for some pages.
        assert growth < 0.7e6, line
    assert len(result.stdout.splitlines()) == 2


def test_several_calls_of_one_program_share_the_pool() -> None:
    target = native.register_kernel(kernels.double_plus(min_per_thread=16))
    call = kernels.caller(target)
    many = jax.jit(lambda xs, p: jnp.stack([call(x, p) for x in xs]))
    xs = jnp.arange(4.0 * 500).reshape(4, 500)
    y = np.asarray(many(xs, jnp.float64(1.0)))
    np.testing.assert_array_equal(y, 2.0 * np.arange(2000.0).reshape(4, 500) + 1.0)
