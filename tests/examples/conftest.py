"""The programs in `examples/`, loaded as modules without being run."""

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from repo_files import ROOT


@pytest.fixture(scope="session")
def example() -> Callable[[str], ModuleType]:
    """Return a function that loads an example by its name."""

    def load(name: str) -> ModuleType:
        full_name = f"example_{name}"
        if full_name not in sys.modules:
            spec = importlib.util.spec_from_file_location(
                full_name, ROOT / "examples" / f"{name}.py"
            )
            sys.modules[full_name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return sys.modules[full_name]

    return load
