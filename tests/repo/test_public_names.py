"""What `import pullback` offers."""

import importlib
import inspect

import pytest

import pullback

NAMES = {
    "problems": {"ODEProblem", "EnsembleProblem", "TrajectoryContext"},
    "solving": {"solve", "Solution", "Status", "EnsembleArray", "EnsembleKernel"},
    "methods": {"Euler", "Heun", "Midpoint", "RK4", "Bosh3", "Tsit5", "Dopri5", "Vern7"},
    "gradients": {"DiscreteAdjoint", "GradStats", "value_and_grad"},
}
NAMESPACES = ["pullback.data", "pullback.foreign", "pullback.testing"]


@pytest.mark.parametrize("group", NAMES)
def test_documented_names_exist(group):
    missing = NAMES[group] - set(dir(pullback))
    assert missing == set()
    assert set(pullback.__all__) >= NAMES[group]


@pytest.mark.parametrize("module", ["pullback", *NAMESPACES])
def test_all_is_true_and_documented(module):
    module = importlib.import_module(module)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert inspect.getdoc(value), f"{name} has no docstring"


def test_all_has_no_duplicates():
    assert len(pullback.__all__) == len(set(pullback.__all__))


def test_nothing_private_or_foreign_is_public():
    for name in pullback.__all__:
        value = getattr(pullback, name)
        assert not name.startswith("_") or name == "__version__"
        assert getattr(value, "__module__", "pullback").startswith("pullback")
