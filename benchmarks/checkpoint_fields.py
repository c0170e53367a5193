"""`python -m benchmarks.checkpoint_fields`: the gradient of a long loop of steps on a grid.

Schemes and storages, `jax.lax.scan`, nested `jax.checkpoint`, Equinox and Diffrax, in turns on the
same data; beside them the time that the schedule's steps alone would take.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

import pullback as pb
from benchmarks.fresh import Growth
from benchmarks.shallow_water import Friction, Water, initial_water, step
from benchmarks.tables import render, seconds
from benchmarks.timing import Times, interleave, timed

HEAD = (
    "peer", "snapshots", "block", "gradient", "/ primal", "/ bound", "/ grad(scan)",
    "peak memory", "snapshots + tape", "first call", "error",
)  # fmt: skip
SCAN = "jax.lax.scan"
_ROOT = Path(__file__).resolve().parent.parent
_WHOLE = "all"
# In units of the schedule; on the host each costs Python a call, on disk a snapshot a write.
_HOST_BLOCK = 64
_FEW_UNITS = 4


class Loop(NamedTuple):
    """What every peer runs.

    Attributes:
        n: Cells along each axis.
        n_steps: Number of steps.
        n_snapshots: For the schemes that take a number of snapshots.
    """

    n: int
    n_steps: int
    n_snapshots: int


class Peer(NamedTuple):
    """One way to run the loop.

    Attributes:
        run: Takes the initial state and the parameters, returns the last state.
        n_snapshots: States that it is said to keep.
        n_taped: Steps that are taped at a time.
        block: Steps between two places for snapshots.
        compiles: Whether the gradient may be compiled as a whole.
    """

    run: Callable[[Water, Friction], Water]
    n_snapshots: int
    n_taped: int
    block: int = 1
    compiles: bool = True


def ours(
    loop: Loop,
    scheme: pb.AbstractScheme,
    block: int | None = None,
    storage: pb.AbstractStorage | None = None,
) -> Peer:
    """Return a peer that follows a scheme; with a storage, on the host."""
    options: dict[str, Any] = {"scheme": scheme, "block": block}
    if storage is not None:
        options |= {"storage": storage, "mode": "host"}

    def run(water: Water, friction: Friction) -> Water:
        last, _ = pb.checkpointed_scan(_with(friction), water, None, loop.n_steps, **options)
        return last

    # The default of loops that are not native code; whole chunks have no blocks.
    unit = 1 if isinstance(scheme, pb.AbstractChunked) else min(block or 16, loop.n_steps)
    cost = scheme.cost(loop.n_steps // unit)
    n_snapshots = cost.peak_ram + cost.peak_disk
    return Peer(run, n_snapshots, cost.peak_tape * unit, unit, storage is None)


def _with(friction: Friction) -> Callable[[Water, Any], tuple[Water, None]]:
    return lambda water, _: (step(water, friction), None)


def _plain(loop: Loop) -> Peer:
    def run(water: Water, friction: Friction) -> Water:
        return lax.scan(_with(friction), water, None, length=loop.n_steps)[0]

    return Peer(run, 0, loop.n_steps)


def _nested(loop: Loop) -> Peer:
    """Return two nested scans, the inner one under `jax.checkpoint`; the steps must fill it."""
    inner = max(i for i in range(1, loop.n_steps + 1) if not loop.n_steps % i and i**2 <= loop.n_steps)

    def run(water: Water, friction: Friction) -> Water:
        @functools.partial(jax.checkpoint, prevent_cse=False)
        def outer(water: Water, _: None) -> tuple[Water, None]:
            return lax.scan(_with(friction), water, None, length=inner)[0], None

        return lax.scan(outer, water, None, length=loop.n_steps // inner)[0]

    return Peer(run, loop.n_steps // inner, inner, inner)


def _equinox(loop: Loop) -> Peer:
    import equinox.internal as eqxi  # noqa: PLC0415 - may be absent

    def run(water: Water, friction: Friction) -> Water:
        return eqxi.scan(
            _with(friction), water, None, loop.n_steps,
            kind="checkpointed", checkpoints=loop.n_snapshots,
        )[0]  # fmt: skip

    return Peer(run, loop.n_snapshots, 1)


def _diffrax(loop: Loop) -> Peer:
    """Return a solve by Euler's method, which adds the change of one step."""
    import diffrax  # noqa: PLC0415 - may be absent

    def change(t: Any, water: Water, friction: Friction) -> Water:
        return jax.tree.map(jnp.subtract, step(water, friction), water)

    def run(water: Water, friction: Friction) -> Water:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(change), diffrax.Euler(), 0.0, float(loop.n_steps), 1.0, water,
            args=friction, max_steps=loop.n_steps,
            adjoint=diffrax.RecursiveCheckpointAdjoint(checkpoints=loop.n_snapshots),
        )  # fmt: skip
        return jax.tree.map(lambda saved: saved[0], solution.ys)

    return Peer(run, loop.n_snapshots, 1)


def peers(loop: Loop, folder: str) -> dict[str, Callable[[], Peer]]:
    """Return what makes each peer; two keep snapshots in `folder`."""
    c = loop.n_snapshots
    host = min(_HOST_BLOCK, max(1, loop.n_steps // 8))

    def two_level(block: int) -> pb.TwoLevel:
        # Half of the snapshots at fixed distances, half between them.
        half = max(1, c // 2)
        return pb.TwoLevel(-(-(loop.n_steps // min(block, loop.n_steps)) // half), half)

    found: dict[str, Callable[[], Peer]] = {
        SCAN: lambda: _plain(loop),
        "Revolve": lambda: ours(loop, pb.Revolve(c)),
        "Revolve, block=1": lambda: ours(loop, pb.Revolve(c), 1),
        "Online": lambda: ours(loop, pb.Online(c)),
        "Online, block=1": lambda: ours(loop, pb.Online(c), 1),
        "TwoLevel": lambda: ours(loop, two_level(16)),
        "TwoLevel, block=1": lambda: ours(loop, two_level(1), 1),
        "Periodic": lambda: ours(loop, pb.Periodic(min(c, loop.n_steps))),
        "StoreAll": lambda: ours(loop, pb.StoreAll()),
        f"Revolve, block={host}": lambda: ours(loop, pb.Revolve(c), host),
        "host, RAM": lambda: ours(loop, pb.Revolve(c), host, pb.RAM()),
        "host, Disk": lambda: ours(loop, pb.Revolve(c), host, pb.Disk(f"{folder}/disk")),
        "host, Tiered": lambda: ours(
            loop, two_level(host), host, pb.Tiered(pb.RAM(), pb.Disk(f"{folder}/tiers"))
        ),
        "nested jax.checkpoint": lambda: _nested(loop),
    }
    others = {"equinox": ("equinox scan", _equinox), "diffrax": ("diffrax Euler", _diffrax)}
    for module, (name, make) in others.items():
        if importlib.util.find_spec(module):
            found[name] = functools.partial(make, loop)
    return found


def loss(peer: Peer, water: Water, friction: Friction) -> Any:
    return sum(jnp.sum(field**2) for field in peer.run(water, friction))


def gradient(peer: Peer) -> Callable[[Water, Friction], tuple[Water, Friction]]:
    """Return the gradient of a loss by the initial state and the parameters."""
    found = jax.grad(functools.partial(loss, peer), (0, 1))
    return jax.jit(found) if peer.compiles else found


def largest_error(found: Any, truth: Any) -> float:
    """Return the largest error of any array, relative to its largest entry."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(truth), strict=True)
    return max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in pairs)
