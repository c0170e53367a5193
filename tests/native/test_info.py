"""The report about the machine."""

from pathlib import Path

import jax.numpy as jnp
import pytest

from native import kernels
from pullback import native
from pullback.native import process


def test_info_describes_this_machine() -> None:
    target = native.register_kernel(kernels.double_plus())
    kernels.caller(target)(jnp.zeros(1), jnp.float64(0.0)).block_until_ready()
    report = native.info()
    assert report["supported"] is native.is_supported() is True
    assert report["unsupported_reason"] is None
    assert report["machine"] in ("x86_64", "aarch64")
    assert report["cpu"] == native.cpu_name()
    assert set(report["simd"]) <= set(native.cpu_features())
    assert report["threads"] == native.num_threads() >= 1
    assert report["llvm_version"].split(".")[0].isdecimal()
    assert report["xla_ffi_version"].startswith("0.")
    assert report["kernels"] >= 1
    assert report["cache_directory"] == str(native.cache_directory())
    assert report["cache_bytes"] > report["cache_entries"] > 0


def test_info_works_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process, "_runtime", None)
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "none"))
    report = native.info()
    assert process.loaded_runtime() is None
    assert report["xla_ffi_version"] is None
    assert report["interrupts_armed"] is False
    assert (report["cache_entries"], report["cache_bytes"]) == (0, 0)
