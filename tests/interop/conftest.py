"""Programs here are small and many: compiling them well would take longer than running them."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="package", autouse=True)
def quick_compilation() -> Iterator[None]:
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
