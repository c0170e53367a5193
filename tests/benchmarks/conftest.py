"""The benchmarks are a package beside `src`, at the root of the repository."""

import sys

import jax
import pytest

from repo_files import ROOT

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


@pytest.fixture(autouse=True)
def _rank_promotion():
    """Other libraries may promote ranks."""
    with jax.numpy_rank_promotion("allow"):
        yield
