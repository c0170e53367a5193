"""`python -m benchmarks.checkpoint_small_steps`: loops of small steps and their gradients.

Native kernels, the same loops through XLA, and `jax.lax.scan`, in turns on the same data.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import pullback as pb
from benchmarks.tables import render
from benchmarks.timing import interleave, timed

_HEAD = ("loop", "peer", "steps", "primal", "gradient", "gradient / primal", "/ fastest", "first")
_DT = 0.01


class Loop(NamedTuple):
    """A loop to measure.

    Attributes:
        step: takes a carry and a parameter.
        init: the first carry.
        n_steps: steps, for all peers but `n_steps_of_scan` for `scan`'s gradient.
        n_scan: so many for `jax.lax.scan`, whose gradient keeps every step.
        options: of `checkpointed_scan`.
    """

    step: Callable[[Any, Any], Any]
    init: Any
    n_steps: int
    n_scan: int
    options: dict[str, Any]


def lorenz_96(y: Any, forcing: Any) -> Any:
    """One Runge-Kutta step of fourth order."""

    def field(y: Any) -> Any:
        return (jnp.roll(y, -1) - jnp.roll(y, 2)) * jnp.roll(y, 1) - y + forcing

    k1 = field(y)
    k2 = field(y + _DT / 2 * k1)
    k3 = field(y + _DT / 2 * k2)
    k4 = field(y + _DT * k3)
    return y + _DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def ring(arrays: list[Any], rate: Any) -> list[Any]:
    """Relax every array towards its neighbours, with a nonlinear sink."""
    around = zip(arrays[-1:] + arrays[:-1], arrays, arrays[1:] + arrays[:1], strict=True)
    return [b + _DT * (a - 2 * b + c) - _DT * rate * b * b * b for a, b, c in around]


def network(y: Any, bias: Any) -> Any:
    """A layer with 16 neurons."""
    weights = jnp.sin(jnp.arange(256.0)).reshape(16, 16) / 4
    return y + _DT * (jnp.tanh(weights @ y + bias) - y)


def loops(n_long: int) -> dict[str, Loop]:
    def waves(n: int, phase: float = 0.0) -> Any:
        return jnp.sin(jnp.arange(float(n)) + phase)

    many = {"scheme": pb.Revolve(1000)}
    short, few = 10_000, 1000
    return {
        "30 arrays of 8": Loop(ring, [waves(8, i) for i in range(30)], few, few, {}),
        "30 scalars": Loop(ring, [jnp.sin(1.0 * i) for i in range(30)], few, few, {}),
        "Lorenz-96, 8": Loop(lorenz_96, waves(8), short, short, {}),
        "Lorenz-96, 40": Loop(lorenz_96, waves(40), short, short, {}),
        "layer of 16": Loop(network, waves(16), few, few, {}),
        f"{n_long:.0e} steps, 8": Loop(lorenz_96, waves(8), n_long, short, many),
        f"{n_long:.0e} steps, blocks of 64": Loop(
            lorenz_96, waves(8), n_long, short, {**many, "block": 64}
        ),
    }


def run(loop: Loop, peer: str, rate: Any, init: Any) -> Any:
    """Return the last carry."""

    def step(carry: Any, _: None) -> tuple[Any, None]:
        return loop.step(carry, rate), None

    if peer == "jax.lax.scan":
        return jax.lax.scan(step, init, None, length=loop.n_scan)[0]
    how = pb.native_steps if peer == "native" else None
    return pb.checkpointed_scan(
        step, init, None, loop.n_steps, compile_step=how, **loop.options
    )[0]  # fmt: skip


def loss(loop: Loop, peer: str, rate: Any, init: Any) -> Any:
    return sum(jnp.sum(a**2) for a in jax.tree.leaves(run(loop, peer, rate, init)))


def measure(name: str, loop: Loop, peers: tuple[str, ...], repeats: int) -> list[tuple[str, ...]]:
    """Return a row for each peer."""
    rate, calls, first = jnp.asarray(1.0), {}, {}
    for peer in peers:
        functions = {
            "primal": jax.jit(functools.partial(run, loop, peer)),
            "gradient": jax.jit(jax.value_and_grad(functools.partial(loss, loop, peer), (0, 1))),
        }
        for work, function in functions.items():
            call = functools.partial(_waited, function, rate, loop.init)
            first[peer, work] = timed(call)[0]
            calls[f"{peer} {work}"] = call
    times = {key: t.best for key, t in interleave(calls, repeats).items()}
    steps = {p: loop.n_scan if p == "jax.lax.scan" else loop.n_steps for p in peers}
    each = {(p, w): times[f"{p} {w}"] / steps[p] for p in peers for w in ("primal", "gradient")}
    fastest = min(each[p, "primal"] for p in peers)
    return [
        (
            name, p, f"{steps[p]}", _nanoseconds(each[p, "primal"]),
            _nanoseconds(each[p, "gradient"]),
            f"{each[p, 'gradient'] / each[p, 'primal']:.1f}",
            f"{each[p, 'gradient'] / fastest:.1f}", f"{first[p, 'gradient']:.2f} s",
        )
        for p in peers
    ]  # fmt: skip


def _waited(function: Callable[..., Any], *args: Any) -> Any:
    return jax.block_until_ready(function(*args))


def _nanoseconds(seconds: float) -> str:
    return f"{seconds * 1e9:.0f} ns"


def main() -> None:
    """Measure and print a table: times are of one step."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint_small_steps")
    parser.add_argument("--long", type=int, default=1_000_000, help="steps of the long loops")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (default: %(default)s)")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = []
    for name, loop in loops(options.long).items():
        long = loop.n_steps > loop.n_scan
        peers = ("native", "jax.lax.scan") if long else ("native", "XLA", "jax.lax.scan")
        rows += measure(name, loop, peers, options.repeats)
    print(render(_HEAD, rows))


if __name__ == "__main__":
    main()
