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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import pullback as pb
from benchmarks.fresh import Growth
from benchmarks.shallow_water import (
    Friction,
    Loop,
    Peer,
    Water,
    diffrax_euler,
    equinox_scan,
    initial_water,
    nested_scan,
    pairs,
    plain_scan,
    step,
    stepper,
)
from benchmarks.tables import render, seconds
from benchmarks.timing import interleave, timed
from pullback.checkpoint.scan import traced_step
from pullback.checkpoint.step_kernels import block_size, with_kernels

HEAD = (
    "peer", "snapshots", "block", "gradient", "/ primal", "/ bound", "/ grad(scan)",
    "growth", "snapshots + tape", "first call", "error",
)  # fmt: skip
SCAN = "jax.lax.scan"
_PRIMAL, _PAIRS, _CALL = "primal", "pairs", "a call"
_SIZES = {"n": 64, "steps": 4096, "snapshots": 64}
_ROOT = Path(__file__).resolve().parent.parent
# On the host a block is a few calls from Python, and a snapshot a write.
_HOST_BLOCK = 16


def ours(
    loop: Loop,
    scheme: pb.AbstractScheme,
    block: int | None,
    storage: pb.AbstractStorage | None,
    mode: str,
) -> Peer:
    """Return a peer that follows a scheme."""
    options: dict[str, Any] = {"scheme": scheme, "block": block, "mode": mode}
    if storage is not None:
        options["storage"] = storage

    def run(water: Water, friction: Friction) -> Water:
        last, _ = pb.checkpointed_scan(stepper(friction), water, None, loop.n_steps, **options)
        return last

    unit = 1 if isinstance(scheme, pb.AbstractChunked) else unit_of(loop, block)
    cost = scheme.cost(loop.n_steps // unit)
    n_snapshots = cost.peak_ram + cost.peak_disk
    return Peer(run, n_snapshots, cost.peak_tape * unit, unit, mode == "jit")


def unit_of(loop: Loop, block: int | None) -> int:
    """Return the steps of a block where the package chooses them, too."""
    water, friction = initial_water(loop.n)
    traced = traced_step(stepper(friction), water)
    leaves = (*traced.consts, *water)
    body = with_kernels("auto", traced.body, leaves)
    return min(block_size(block, body, loop.n_steps), loop.n_steps)


def peers(loop: Loop, storages: Sequence[pb.AbstractStorage]) -> dict[str, Callable[[], Peer]]:
    """Return what makes each peer; `storages` are those of the last three of ours."""
    c, n_steps = loop.n_snapshots, loop.n_steps
    host = min(_HOST_BLOCK, max(1, n_steps // 8))

    def two_level(unit: int) -> pb.TwoLevel:
        # Half of the snapshots at fixed distances, half between them.
        n_fixed = max(1, c // 2)
        return pb.TwoLevel(-(-(n_steps // unit) // n_fixed), c - n_fixed)

    default = two_level(unit_of(loop, None))
    schemes: dict[str, tuple[pb.AbstractScheme, int | None, pb.AbstractStorage | None]] = {
        "Revolve": (pb.Revolve(c), None, None),
        "Online": (pb.Online(c), None, None),
        "TwoLevel": (default, None, None),
        f"Revolve, block={host}": (pb.Revolve(c), host, None),
        "Periodic": (pb.Periodic(min(c, n_steps)), None, None),
        "StoreAll": (pb.StoreAll(), None, None),
        f"Disk, block={host}": (pb.Revolve(c), host, storages[1]),
        "RAM, on the host": (pb.Revolve(c), host, storages[0]),
        "Disk, on the host": (pb.Revolve(c), host, storages[1]),
        "Tiered, on the host": (two_level(host), host, storages[2]),
    }
    found = {
        name: functools.partial(ours, loop, *chosen, mode="host" if "host" in name else "jit")
        for name, chosen in schemes.items()
    }
    others = {
        "equinox": ("equinox scan", equinox_scan),
        "diffrax": ("diffrax Euler", diffrax_euler),
    }
    installed = [pair for module, pair in others.items() if importlib.util.find_spec(module)]
    rest = [(SCAN, plain_scan), ("nested jax.checkpoint", nested_scan), *installed]
    return found | {name: functools.partial(make, loop) for name, make in rest}


def gradient(peer: Peer) -> Callable[[Water, Friction], tuple[Water, Friction]]:
    """Return the gradient of a quadratic loss by the initial state and the parameters."""

    def loss(water: Water, friction: Friction) -> Any:
        return sum(jnp.sum(field**2) for field in peer.run(water, friction))

    found = jax.grad(loss, (0, 1))
    return jax.jit(found) if peer.compiles else found


def largest_error(found: Any, truth: Any) -> float:
    """Return the largest error of any array, relative to its largest entry."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(truth), strict=True)
    return max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in pairs)


def bound_steps(loop: Loop, block: int) -> tuple[int, int]:
    """Return the forward steps, taped ones included, and reverse steps that no one can avoid.

    They are those of the optimal schedule with as many snapshots, for loops of whole blocks.
    """
    advanced = pb.Revolve(loop.n_snapshots).cost(loop.n_steps // block).forward_steps * block
    return advanced + loop.n_steps, loop.n_steps


def tape_bytes(loop: Loop) -> int:
    """Return what `jax.vjp` keeps of one step."""
    kept = jax.eval_shape(lambda *args: jax.vjp(step, *args)[1], *initial_water(loop.n))
    return _n_bytes(kept)


def _n_bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _carry_bytes(loop: Loop) -> int:
    return _n_bytes(initial_water(loop.n)[0])


def predicted(loop: Loop, peer: Peer) -> tuple[int, int]:
    """Return bytes of the snapshots and of the tape."""
    return peer.n_snapshots * _carry_bytes(loop), peer.n_taped * tape_bytes(loop)


class Measured(NamedTuple):
    """Figures of one peer; times in seconds, `growth` in bytes or None."""

    best: float
    first: float
    error: float
    growth: int | None


def measure(
    loop: Loop, found: dict[str, Peer], repeats: int
) -> tuple[dict[str, Measured], dict[str, float]]:
    """Return the figures of each peer, and the times of what they are compared with."""
    inputs = initial_water(loop.n)
    single = jax.jit(lambda *args: jax.vjp(step, *args)[1](args[0]))
    functions: dict[str, Callable[..., Any]] = {
        _PRIMAL: jax.jit(plain_scan(loop).run),
        _PAIRS: jax.jit(functools.partial(pairs, loop)),
        _CALL: single,
    } | {name: gradient(peer) for name, peer in found.items()}
    calls = {
        name: functools.partial(_waited, function, *inputs) for name, function in functions.items()
    }  # fmt: skip
    first = {name: timed(call) for name, call in calls.items()}  # compiles
    best = {name: times.best for name, times in interleave(calls, repeats).items()}
    truth = first[SCAN][1]
    figures = {
        name: Measured(best[name], first[name][0], largest_error(first[name][1], truth), None)
        for name in found
    }
    return figures, {name: best[name] for name in (_PRIMAL, _PAIRS, _CALL)}


def _waited(function: Callable[..., Any], *args: Any) -> Any:
    return jax.block_until_ready(function(*args))


def _step_times(loop: Loop, times: dict[str, float]) -> tuple[float, float]:
    forward = times[_PRIMAL] / loop.n_steps
    return forward, times[_PAIRS] / loop.n_steps - forward


def rows(
    loop: Loop,
    found: dict[str, Peer],
    figures: dict[str, Measured],
    times: dict[str, float],
) -> Iterable[tuple[str, ...]]:
    """Yield a row for each peer."""
    forward, reverse = _step_times(loop, times)
    for name, m in figures.items():
        peer = found[name]
        n_forward, n_reverse = bound_steps(loop, peer.block)
        bound = n_forward * forward + n_reverse * reverse
        snapshots, tape = predicted(loop, peer)
        yield (
            name, f"{peer.n_snapshots}", f"{peer.block}", seconds(m.best),
            f"{m.best / times[_PRIMAL]:.1f}", f"{m.best / bound:.2f}",
            f"{m.best / figures[SCAN].best:.2f}", "" if m.growth is None else _megabytes(m.growth),
            f"{_megabytes(snapshots)} + {_megabytes(tape)}", seconds(m.first), f"{m.error:.0e}",
        )  # fmt: skip


def growth_in_new_process(loop: Loop, name: str) -> int | None:
    """Return by how many bytes a new process grows in a gradient; None if it failed."""
    paths = [str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    # Arrays are given back to the system at once, so that none hides in what the compiler freed.
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        "MALLOC_MMAP_THRESHOLD_": "16384",
    }
    options = (f"--{option}={n}" for option, n in zip(_SIZES, loop, strict=True))
    command = [sys.executable, "-m", "benchmarks.checkpoint_fields", f"--grow={name}", *options]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )  # fmt: skip
    return json.loads(done.stdout) if done.returncode == 0 else None


def growth(loop: Loop, peer: Peer) -> int | None:
    """Return by how many bytes this process, which must be new, grows in a gradient."""
    inputs, function = initial_water(loop.n), gradient(peer)
    if peer.compiles:
        function = jax.jit(function).lower(*inputs).compile()
    else:
        _waited(function, *inputs)
    with Growth() as grown:
        _waited(function, *inputs)
    return grown.peak


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint_fields")
    for option, default in _SIZES.items():
        parser.add_argument(f"--{option}", type=int, default=default, help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=2, help="rounds (default: %(default)s)")
    parser.add_argument("--no-memory", action="store_true", help="start no further processes")
    parser.add_argument("--grow", help=argparse.SUPPRESS)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    loop = Loop(options.n, options.steps, options.snapshots)
    with (
        tempfile.TemporaryDirectory(prefix="pullback-") as folder,
        pb.RAM() as ram,
        pb.Disk(f"{folder}/all") as disk,
        pb.Tiered(pb.RAM(), pb.Disk(f"{folder}/some")) as tiered,
    ):
        makers = peers(loop, (ram, disk, tiered))
        if options.grow:
            print(json.dumps(growth(loop, makers[options.grow]())))
            return
        found = {name: make() for name, make in makers.items()}
        figures, times = measure(loop, found, options.repeats)
    if not options.no_memory:
        # Two at a time: memory does not depend on how busy the machine is.
        with ThreadPoolExecutor(2) as pool:
            grown = dict(
                zip(
                    found,
                    pool.map(functools.partial(growth_in_new_process, loop), found),
                    strict=True,
                )
            )
        figures = {name: m._replace(growth=grown[name]) for name, m in figures.items()}
    print(report(loop, found, figures, times))


def report(
    loop: Loop, found: dict[str, Peer], figures: dict[str, Measured], times: dict[str, float]
) -> str:
    """Return the table, and below it what its columns are compared with."""
    forward, reverse = _step_times(loop, times)
    table = render(HEAD, rows(loop, found, figures, times))
    return (
        f"{table}\n\nA forward step takes {seconds(forward)}, a reverse step"
        f" {seconds(reverse)}; both by a call of their own {seconds(times[_CALL])}."
        f" A state has {_megabytes(_carry_bytes(loop))}, the tape of a step"
        f" {_megabytes(tape_bytes(loop))}."
    )


if __name__ == "__main__":
    main()
