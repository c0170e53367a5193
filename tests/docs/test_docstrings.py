"""The examples in docstrings run and print what they say, under JAX's default settings."""

import doctest
import importlib

import jax
import pytest

from repo_files import module_of, name_of, python_files

WITH_EXAMPLES = [path for path in python_files() if ">>> " in path.read_text()]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name_of)
def test_docstring_examples(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(module_of(path))
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        result = doctest.testmod(
            module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )
    assert result.attempted > 0
    assert result.failed == 0, "see the captured output"
