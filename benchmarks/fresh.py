"""First calls and memory, each in a new process with an empty kernel cache.

`python -m benchmarks.fresh QUESTION CASE WORK PEER N` is that process; it prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import jax

from benchmarks.cases import CASES, Case, make_inputs
from benchmarks.peers import ARRAY, DIFFRAX, KERNEL, KERNEL_DEFAULT, Peer, peers_for
from benchmarks.records import FreshRecord
from benchmarks.solver import GRADIENT, PRIMAL
from benchmarks.timing import timed

_ROOT = Path(__file__).resolve().parent.parent
_STATM = Path("/proc/self/statm")

# First calls: trace, compile, run. Memory: growth during the first call of that size, after one
# with few trajectories has compiled.
FIRST, MEMORY = "first call", "memory"
_FEW = 256
LARGE = 1_000_000

# Question, case, work, peer, trajectories.
SHORT = (
    (FIRST, "lorenz", PRIMAL, KERNEL, 20_000),
    (FIRST, "lorenz", GRADIENT, KERNEL, 20_000),
    (FIRST, "lorenz", GRADIENT, KERNEL_DEFAULT, 20_000),
    (FIRST, "mlp", PRIMAL, KERNEL, 2_000),
    (FIRST, "mlp", GRADIENT, KERNEL, 2_000),
    (FIRST, "mlp", GRADIENT, KERNEL_DEFAULT, 2_000),
    (FIRST, "lorenz", PRIMAL, ARRAY, 2_000),
    (FIRST, "lorenz", PRIMAL, DIFFRAX, 2_000),
    (FIRST, "lorenz", GRADIENT, DIFFRAX, 2_000),
    (MEMORY, "lorenz", GRADIENT, KERNEL, LARGE),
    (MEMORY, "lorenz", GRADIENT, KERNEL_DEFAULT, LARGE),
)
LONG = (
    (FIRST, "lorenz", GRADIENT, ARRAY, 2_000),
    (FIRST, "lotka_volterra", PRIMAL, KERNEL, 2_000),
    (FIRST, "lotka_volterra", GRADIENT, KERNEL_DEFAULT, 2_000),
    (FIRST, "mlp", PRIMAL, DIFFRAX, 2_000),
    (FIRST, "mlp", GRADIENT, DIFFRAX, 2_000),
    (MEMORY, "lorenz", PRIMAL, KERNEL, LARGE),
    (MEMORY, "lorenz", GRADIENT, ARRAY, 2_000),
    (MEMORY, "lorenz", GRADIENT, DIFFRAX, 2_000),
)


def measure(question: str, case: str, work: str, peer: str, n: int) -> FreshRecord | None:
    """Answer one question in a new process; None if that failed."""
    with tempfile.TemporaryDirectory(prefix="pullback-") as cache:
        paths = [str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PULLBACK_CACHE_DIR": cache,
            "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.fresh", question, case, work, peer, str(n)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    return FreshRecord(**json.loads(done.stdout)) if done.returncode == 0 else None


class Growth:
    """Watches by how much this process grows; `peak` is None where the system does not tell."""

    def __init__(self) -> None:
        """Prepare; entering the context begins."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peak: int | None = None

    def __enter__(self) -> Growth:
        """Begin."""
        self._begin = _resident()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        stopped = self._begin is None
        while not stopped:
            stopped = self._stop.wait(0.002)  # looks once more after the end: work may be shorter
            self.peak = max(self.peak or 0, (_resident() or 0) - (self._begin or 0))


def _resident() -> int | None:
    if not _STATM.exists():
        return None
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _answer(question: str, case_name: str, work: str, peer_name: str, n: int) -> FreshRecord:
    """Measure in this process, which must be new."""
    jax.config.update("jax_enable_x64", True)
    case = CASES[case_name]
    peer = next(p for p in peers_for(work) if p.name == peer_name)
    jax.block_until_ready(jax.numpy.zeros(1) + 1)  # the back end itself is up
    if question == MEMORY:
        _call(peer, case, _FEW)
    with Growth() as growth:
        seconds, arrays = _call(peer, case, n)
    peak = growth.peak if question == MEMORY else None
    return FreshRecord(question, case_name, work, peer_name, n, seconds, peak, arrays)


def _call(peer: Peer, case: Case, n: int) -> tuple[float, int]:
    """Return the seconds of a first call, and the bytes of what goes in and comes out."""
    inputs = make_inputs(case, n)

    def run() -> Any:
        solver = peer.make(case, inputs)
        return solver, solver.run(case.tol)

    seconds, (solver, raw) = timed(run)
    leaves = [*jax.tree.leaves(inputs), solver.read(raw).values]
    return seconds, sum(leaf.nbytes for leaf in leaves)


if __name__ == "__main__":
    print(json.dumps(vars(_answer(*sys.argv[1:5], int(sys.argv[5])))))
