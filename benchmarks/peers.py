"""Who takes part, in which work, up to which size.

All of them run in one process on the same arrays. The largest sizes are left to the kernel: the
others have a cap, and their times are scaled and marked as such.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pullback as pb
from benchmarks import others, ours
from benchmarks.cases import Case, Inputs
from benchmarks.solver import GRADIENT, PRIMAL, Solver

KERNEL, KERNEL_DEFAULT = "kernel", "kernel, default"
KERNEL_VALUE = "kernel, value_and_grad"
KERNEL_ONE_THREAD = "kernel, 1 thread"
ARRAY, ARRAY_DEFAULT = "array", "array, default"
DIFFRAX, SCIPY, CPP = "diffrax", "SciPy, 1 thread", "C++ loop, 1 thread"

_PLAIN = pb.DiscreteAdjoint(resolve=False)
_DEFAULT = pb.DiscreteAdjoint()


@dataclass(frozen=True)
class Peer:
    """Someone to compare with.

    Attributes:
        name: in tables.
        make: returns a solver for a case and its inputs; may raise `SkippedError`.
        work: whether it solves or takes gradients.
        cap: most trajectories; None without a limit.
    """

    name: str
    make: Callable[[Case, Inputs], Solver]
    work: str
    cap: int | None = None


_FUSED, _ARRAYS = pb.EnsembleKernel(), pb.EnsembleArray()
PEERS = (
    Peer(KERNEL, ours.primal(_FUSED), PRIMAL),
    Peer(KERNEL_ONE_THREAD, ours.primal(_FUSED, n_threads=1), PRIMAL),
    Peer(ARRAY, ours.primal(_ARRAYS), PRIMAL, 20_000),
    Peer(DIFFRAX, others.diffrax_primal, PRIMAL, 20_000),
    Peer(CPP, others.cpp_primal, PRIMAL, 20_000),
    Peer(SCIPY, others.scipy_primal, PRIMAL, 20),
    Peer(KERNEL, ours.gradient(_FUSED, _PLAIN), GRADIENT),
    Peer(KERNEL_DEFAULT, ours.gradient(_FUSED, _DEFAULT), GRADIENT),
    Peer(KERNEL_VALUE, ours.value_and_gradient(_FUSED), GRADIENT),
    Peer(ARRAY, ours.gradient(_ARRAYS, _PLAIN), GRADIENT, 2_000),
    Peer(ARRAY_DEFAULT, ours.gradient(_ARRAYS, _DEFAULT), GRADIENT, 2_000),
    Peer(DIFFRAX, others.diffrax_gradient, GRADIENT, 2_000),
)


def peers_for(work: str) -> tuple[Peer, ...]:
    """Return the peers that do a kind of work."""
    return tuple(peer for peer in PEERS if peer.work == work)
