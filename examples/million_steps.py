"""The gradient of a million steps, by a process that is killed on the way and started again.

Forty numbers on a circle (Lorenz, 1996) are forced so weakly that they are not chaotic: the
gradient of the energy at the end with respect to the initial state and the forcing at each place is
well defined after a million Runge-Kutta steps. A thousand snapshots are kept on disk. A first
process is killed with SIGKILL half-way back; a second one goes on. The gradient is checked by a
forward derivative in one direction over all steps.

Needs nothing but pullback.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pullback.checkpoint import Disk, Revolve, save_adjoint_fields, value_and_grad_loop

N_PLACES = 40
STEP = 0.01
FORCING = 3.5
BLOCK = 64
PATIENCE = 600.0  # [s]


class Result(NamedTuple):
    """The gradient, and how it was found.

    Attributes:
        energy: half the sum of squares at the end.
        by_state: its derivative with respect to the initial state, (40,).
        by_forcing: with respect to the forcing, (40,).
        dot_product_error: of the gradient against a forward derivative, relative.
        seconds: of the killed process and of the one that went on.
    """

    energy: float
    by_state: np.ndarray
    by_forcing: np.ndarray
    dot_product_error: float
    seconds: tuple[float, float]


def rates(x, forcing):
    return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + forcing


def runge_kutta(x, _, forcing):
    k1 = rates(x, forcing)
    k2 = rates(x + STEP / 2 * k1, forcing)
    k3 = rates(x + STEP / 2 * k2, forcing)
    k4 = rates(x + STEP * k3, forcing)
    return x + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def energy(x, forcing):
    return 0.5 * jnp.sum(x**2)


def start():
    places = jnp.arange(N_PLACES)
    return FORCING + 0.1 * jnp.sin(places), FORCING + 0.2 * jnp.cos(0.3 * places)


def differentiate(folder: Path, n_steps: int, n_snapshots: int, progress: bool = False):
    """Begin the run that `folder` belongs to, or go on with it."""
    # Half-way back there is a file that tells how far the run is.
    every = max(n_steps // 2 // BLOCK, 1) * BLOCK
    with Disk(folder / "snapshots") as storage:
        return value_and_grad_loop(
            runge_kutta, energy, *start(), directory=folder / "run", length=n_steps,
            scheme=Revolve(n_snapshots), storage=storage, block=BLOCK, progress=progress,
            callback=save_adjoint_fields(folder / "adjoints"), every=every,
        )  # fmt: skip


def run_until_killed(folder: Path, n_steps: int, n_snapshots: int) -> None:
    """Start a process, and kill it when it is half-way back."""
    command = [sys.executable, __file__, str(folder), str(n_steps), str(n_snapshots)]
    process = subprocess.Popen(command, env=os.environ | {"JAX_ENABLE_X64": "1"})
    deadline = time.monotonic() + PATIENCE
    half_way = n_steps // 2 // BLOCK * BLOCK
    while not (folder / "adjoints" / f"adjoint_{half_way:09d}.npz").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError("the process ended before it was half-way back")
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()


@jax.jit
def forward_derivative(x, forcing, x_dot, forcing_dot, n_steps):
    """Return the derivative of the energy in one direction."""

    def advance(x, forcing):
        # Of known type, but of any length: forward mode needs no memory.
        return jax.lax.fori_loop(0, n_steps, lambda _, x: runge_kutta(x, None, forcing), x)

    return jax.jvp(lambda x, f: energy(advance(x, f), f), (x, forcing), (x_dot, forcing_dot))[1]


def main(n_steps: int = 1_000_000, n_snapshots: int = 1000, progress: bool = True) -> Result:
    with jax.enable_x64(True), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times = [time.monotonic()]
        run_until_killed(folder, n_steps, n_snapshots)
        times.append(time.monotonic())
        value, (by_state, by_forcing) = differentiate(folder, n_steps, n_snapshots, progress)
        times.append(time.monotonic())
        random = np.random.default_rng(1)
        x_dot, forcing_dot = (jnp.asarray(random.normal(size=N_PLACES)) for _ in range(2))
        wanted = forward_derivative(*start(), x_dot, forcing_dot, n_steps)
        found = jnp.vdot(by_state, x_dot) + jnp.vdot(by_forcing, forcing_dot)
        scale = jnp.linalg.norm(by_state) + jnp.linalg.norm(by_forcing)
        result = Result(
            float(value), np.asarray(by_state), np.asarray(by_forcing),
            float(jnp.abs(found - wanted) / scale), (times[1] - times[0], times[2] - times[1]),
        )  # fmt: skip
    print(f"energy after {n_steps} steps: {result.energy:.12f}")
    print(f"norm of the gradient by the initial state: {np.linalg.norm(by_state):.6e}")
    print(f"norm of the gradient by the forcing:       {np.linalg.norm(by_forcing):.6e}")
    print(f"against a forward derivative: {result.dot_product_error:.1e}")
    print("killed after {:.1f} s, finished after another {:.1f} s".format(*result.seconds))
    return result


if __name__ == "__main__":
    if len(sys.argv) == 4:
        differentiate(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
