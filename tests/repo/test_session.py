"""The settings of `conftest.py` are in force, in this worker too."""

import os
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest


def test_precision_is_double():
    assert jnp.zeros(1).dtype == np.float64


def test_rank_promotion_is_an_error():
    with pytest.raises(ValueError, match="rank_promotion"):
        jnp.zeros((2, 3)) + jnp.zeros(3)


def test_warnings_are_errors():
    with pytest.raises(UserWarning, match="loud"):
        warnings.warn("loud", stacklevel=1)


def test_kernel_cache_is_the_sessions_own():
    folder = Path(os.environ["PULLBACK_CACHE_DIR"])
    assert folder.is_dir()
    assert folder.name.startswith("pullback-")


def test_random_numbers_are_the_same_for_every_test(rng):
    assert rng.integers(1000) == np.random.default_rng(20_240_601).integers(1000)
