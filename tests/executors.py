"""The executors that every test of the public interface runs on."""

import pytest

import pullback as pb
from pullback import native

_needs_kernels = pytest.mark.skipif(not native.is_supported(), reason="no kernels on this machine")
EXECUTORS = [
    pytest.param(pb.EnsembleArray(), id="array"),
    pytest.param(pb.EnsembleKernel(), id="kernel", marks=_needs_kernels),
]
each_executor = pytest.mark.parametrize("executor", EXECUTORS)

# For what the quick run sees on EnsembleArray elsewhere: XLA takes seconds to compile a gradient.
each_executor_slow_on_array = pytest.mark.parametrize(
    "executor",
    [
        pytest.param(
            p.values[0], id=p.id, marks=[*p.marks, *([pytest.mark.slow] if i == 0 else [])]
        )
        for i, p in enumerate(EXECUTORS)
    ],
)

# For tests of what does not depend on the executor: the one that compiles fastest.
ANY = pb.EnsembleKernel() if native.is_supported() else pb.EnsembleArray()
