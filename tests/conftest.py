"""Settings shared by every test: precision, strictness, seeds and a private kernel cache."""

import gc
import os
import pathlib
import shutil
import tempfile

import hypothesis
import jax
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# Reproducible and without a time limit per example (the first one compiles).
hypothesis.settings.register_profile(
    "pullback", derandomize=True, deadline=None, database=None, max_examples=50
)
hypothesis.settings.load_profile("pullback")

_CACHE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Give the session its own kernel cache; xdist's workers inherit it from the controller."""
    if hasattr(config, "workerinput"):
        return
    config.stash[_CACHE] = os.environ["PULLBACK_CACHE_DIR"] = tempfile.mkdtemp(prefix="pullback-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _CACHE in config.stash:
        shutil.rmtree(config.stash[_CACHE], ignore_errors=True)


@pytest.fixture
def rng() -> np.random.Generator:
    """A random generator in the same state for every test."""
    return np.random.default_rng(20_240_601)


@pytest.fixture(autouse=True, scope="module")
def _few_memory_maps():
    """Forget compiled code before the process has as many memory maps as Linux allows, 65 530.

    Compilers crash there, and each of some thousand tests compiles its own functions. It takes
    gigabytes, too.
    """
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 10_000:
        jax.clear_caches()
        gc.collect()
