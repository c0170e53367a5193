"""Kernels through `jax.ffi`: values, identity, memory, errors."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from native import kernels
from pullback import native
from pullback.core.errors import UnsupportedBackend
from pullback.native import abi, host


@pytest.fixture(scope="module")
def target() -> native.KernelTarget:
    return native.register_kernel(kernels.double_plus())


def _expected(n: int) -> np.ndarray:
    return 2.0 * np.arange(n) + 3.0


@pytest.mark.parametrize("n", [1, 7, 8, 9, 63, 64, 65, 1000, 100_003])
def test_values_for_serial_and_threaded_sizes(target: native.KernelTarget, n: int) -> None:
    before = target.stats()["calls"]
    y = kernels.caller(target)(jnp.arange(n, dtype=float), jnp.float64(3.0))
    np.testing.assert_array_equal(np.asarray(y), _expected(n))
    stats = target.stats()
    assert stats["calls"] == before + 1
    assert stats["lane_steps"] == n
    assert 1 <= stats["threads"] <= max(1, min(n // 64, native.num_threads()))


def test_an_empty_ensemble_returns_at_once(target: native.KernelTarget) -> None:
    before = target.stats()["calls"]
    y = kernels.caller(target)(jnp.zeros(0), jnp.float64(3.0))
    assert y.shape == (0,)
    assert target.stats()["calls"] == before


def test_equal_kernels_are_registered_once(target: native.KernelTarget) -> None:
    again = native.register_kernel(kernels.double_plus(), native.CompileOptions())
    assert again is target
    assert target.name.startswith("pullback_")
    assert target in native.registered_kernels()
    assert target.name in repr(target)


@pytest.mark.parametrize(
    "change",
    [
        {"chunk": 4},
        {"min_per_thread": 3},
        {"scratch_bytes": 64},
        {"count_size": 2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_difference_makes_another_target(target: native.KernelTarget, change: dict) -> None:
    other = native.register_kernel(dataclasses.replace(kernels.double_plus(), **change))
    assert other.name != target.name


def test_other_options_make_another_target(target: native.KernelTarget) -> None:
    options = native.CompileOptions(codegen_level=1)
    assert native.register_kernel(kernels.double_plus(), options).name != target.name


def test_inside_scan_and_while(target: native.KernelTarget) -> None:
    x, p = jnp.arange(130.0), jnp.float64(1.0)
    call = kernels.caller(target)
    halve = jax.jit(
        lambda x: jax.lax.scan(lambda c, _: (0.5 * call(c, p), None), x, None, length=40)[0]
    )
    # c -> c + 1/2, forty times; exact in binary.
    np.testing.assert_array_equal(np.asarray(halve(x)), np.arange(130.0) + 20.0)
    grow = jax.jit(lambda x: jax.lax.while_loop(lambda c: c[0] < 1000.0, lambda c: call(c, p), x))
    np.testing.assert_array_equal(np.asarray(grow(x))[:2], [1023.0, 2047.0])


def test_buffers_are_aliased_when_asked(target: native.KernelTarget) -> None:
    def call(x: jax.Array, p: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.ffi.ffi_call(target.name, shape, input_output_aliases={0: 0})(x, p)

    y = jax.jit(call, donate_argnums=0)(jnp.arange(8.0), jnp.float64(3.0))
    np.testing.assert_array_equal(np.asarray(y), _expected(8))


def test_the_count_comes_from_all_dimensions() -> None:
    source = kernels.write_integers(["  %a = add i64 %i, 0\n  %b = mul i64 %i, %i", "%a %b"])
    out = kernels.call_without_arguments(native.register_kernel(source), (3, 5, 2))
    i = np.arange(15)
    np.testing.assert_array_equal(out.reshape(15, 2), np.stack([i, i * i], axis=1))


def test_another_number_of_arguments_is_an_error(target: native.KernelTarget) -> None:
    x = jnp.ones(4)
    call = jax.jit(lambda: jax.ffi.ffi_call(target.name, jax.ShapeDtypeStruct((4,), x.dtype))(x))
    with pytest.raises(
        jax.errors.JaxRuntimeError,
        match="INVALID_ARGUMENT: pullback: a kernel was called with another number of arguments",
    ):
        call().block_until_ready()


_SCRATCH = """
  %address = ptrtoint ptr %scratch to i64
  %last = getelementptr i8, ptr %scratch, i64 SIZE
  store i64 %i, ptr %last
"""


def _scratch_kernel(n_bytes: int, **settings: int) -> native.KernelSource:
    line = _SCRATCH.replace("SIZE", str(n_bytes - 8))
    return kernels.write_integers([line, "%address"], scratch_bytes=n_bytes, **settings)


def test_scratch_is_aligned_and_used_again() -> None:
    target = native.register_kernel(_scratch_kernel(1000, min_per_thread=100))
    first = kernels.call_without_arguments(target, (4, 1))
    second = kernels.call_without_arguments(target, (4, 1))
    assert first[0, 0] % abi.ALIGNMENT == 0
    assert np.unique(first) == np.unique(second)
    target.free_scratch()
    target.free_scratch()  # nothing left: no harm
    assert kernels.call_without_arguments(target, (4, 1))[0, 0] % abi.ALIGNMENT == 0


def test_each_thread_has_its_own_scratch() -> None:
    line = _SCRATCH.replace("SIZE", "248") + "\n  %slept = call i32 @usleep(i32 2000)"
    source = kernels.write_integers(
        [line, "%address"], extra="declare i32 @usleep(i32)", scratch_bytes=256
    )
    target = native.register_kernel(source)
    addresses = kernels.call_without_arguments(target, (32, 1))
    assert len(np.unique(addresses)) == target.stats()["threads"]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_untouched_scratch_takes_no_memory() -> None:
    # The kernel writes the last word only: one page of a gigabyte.
    target = native.register_kernel(_scratch_kernel(2**30))
    before = _resident_bytes()
    kernels.call_without_arguments(target, (1, 1))
    assert _resident_bytes() - before < 2**26
    target.free_scratch()


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_scratch_that_cannot_be_had_is_an_error() -> None:
    target = native.register_kernel(_scratch_kernel(2**60))
    with pytest.raises(
        jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED: pullback: no memory for a kernel's"
    ):
        kernels.call_without_arguments(target, (1, 1))


@pytest.mark.skipif(host.machine_name() != "x86_64", reason="reads an x86-64 register")
def test_all_threads_of_a_call_round_alike() -> None:
    # Rounding mode, flush-to-zero and exception masks; not the flags that operations set.
    lines = """
  %slot = getelementptr i8, ptr %scratch, i64 0
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %m = load i32, ptr %slot
  %control = and i32 %m, 65472
  %mode = zext i32 %control to i64
  %thread = call i64 @pthread_self()
  %slept = call i32 @usleep(i32 2000)
"""
    extra = (
        "declare void @llvm.x86.sse.stmxcsr(ptr)\n"
        "declare i64 @pthread_self()\ndeclare i32 @usleep(i32)"
    )
    source = kernels.write_integers([lines, "%mode %thread"], extra, scratch_bytes=64)
    target = native.register_kernel(source)
    out = kernels.call_without_arguments(target, (32, 2))
    assert len(np.unique(out[:, 1])) == target.stats()["threads"]
    assert len(np.unique(out[:, 0])) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chunk": 0}, "`chunk` must be at least 1, got 0"),
        ({"min_per_thread": 0}, "`min_per_thread` must be at least 1, got 0"),
        ({"count_size": 0}, "`count_size` must be at least 1, got 0"),
        ({"scratch_bytes": -8}, "`scratch_bytes` must be at least 0, got -8"),
        ({"count_buffer": 3}, "`count_buffer` must be below the number of buffers, 3, got 3"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(kernels.double_plus(), **change)


def test_an_unsupported_host_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.platform, "machine", lambda: "riscv64")
    assert not native.is_supported()
    with pytest.raises(UnsupportedBackend, match="calls itself `riscv64`; use `EnsembleArray"):
        native.register_kernel(kernels.double_plus("9.0"))


def test_missing_features_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.platform, "machine", lambda: "AMD64")
    monkeypatch.setattr(host, "cpu_features", lambda: ("avx", "sse4.2"))
    assert "lacks avx2 and fma" in str(native.unsupported_reason())
    monkeypatch.setattr(host.platform, "machine", lambda: "arm64")
    assert native.unsupported_reason() is None
    monkeypatch.setattr(host.sys, "byteorder", "big")
    assert "64-bit little-endian host; this one is 64-bit big" in str(native.unsupported_reason())
