"""What a measurement is, once made."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from pullback import native


@dataclass(frozen=True)
class Record:
    """One peer at one size and tolerance.

    Attributes:
        part: part of the programme.
        case: name of the case.
        work: "primal" or "gradient".
        dtype: precision.
        tol: relative and absolute tolerance.
        peer: who.
        n: trajectories that are reported.
        n_measured: trajectories that were run; fewer where the time is scaled.
        median: median seconds of a call, for `n_measured`.
        best: the smallest.
        count: calls.
        first: seconds of the first call in this process: trace, compile, run.
        error: median error.
        largest_error: largest error.
        mean_steps: tried steps of a trajectory.
        n_failed: trajectories that failed; gradients that are not finite or, where the peer
            estimates their error, unresolved.
        busy: share of lane steps that advanced a trajectory; None where there are no lanes.
    """

    part: str
    case: str
    work: str
    dtype: str
    tol: float
    peer: str
    n: int
    n_measured: int
    median: float
    best: float
    count: int
    first: float | None
    error: float
    largest_error: float
    mean_steps: float
    n_failed: int
    busy: float | None

    @property
    def factor(self) -> float:
        """What times are scaled by."""
        return self.n / self.n_measured

    @property
    def seconds(self) -> float:
        """Median seconds for `n` trajectories, scaled if need be."""
        return self.median * self.factor

    @property
    def per_second(self) -> float:
        """Trajectories per second."""
        return self.n_measured / self.median


@dataclass(frozen=True)
class FreshRecord:
    """What a new process with an empty kernel cache needed.

    Attributes:
        question: "first call" or "memory".
        case: name of the case.
        work: "primal" or "gradient".
        peer: who.
        n: trajectories.
        seconds: first call with so many: trace, compile, run; for memory nothing was to compile
            but what depends on the number.
        growth: bytes by which the process grew meanwhile; None where not asked or unknown.
        arrays: bytes of what goes in and comes out.
    """

    question: str
    case: str
    work: str
    peer: str
    n: int
    seconds: float
    growth: int | None
    arrays: int


def machine() -> dict[str, Any]:
    """Describe this machine and the versions, for tables and JSON."""
    info = native.info()
    names = ("jax", "jaxlib", "diffrax", "scipy", "numpy", "llvmlite")
    return {
        "cpu": info["cpu"],
        "simd": list(info["simd"]),
        "threads": info["threads"],
        "python": platform.python_version(),
        "system": platform.system(),
        "load": [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "versions": {name: _version(name) for name in names},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
