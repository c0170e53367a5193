"""The loop of the tests of restarts; as a program, what a process runs until it is killed.

It writes the bits of the result to `directory.bits`.

Usage: python restart_loop.py directory kind seconds (to wait after each U-turn)
"""

import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from pullback.checkpoint import RAM, Disk, Revolve, Tiered, TwoLevel, value_and_grad_loop

N_STEPS, BLOCK = 61, 4
INIT = (0, jnp.array([0.1, 0.5, -0.3]), {"key": jax.random.key(5)})
PARAMS = {"rate": 1.3, "weights": jnp.arange(3.0)}


def step(carry, x, params):
    i, v, more = carry
    noise = jax.random.normal(jax.random.fold_in(more["key"], i), (3,))
    v = v + 0.1 * jnp.sin(params["rate"] * v + x) + 0.01 * noise * params["weights"]
    return i + 1, v, more


def loss(carry, params):
    return jnp.sum(carry[1] ** 2 * (1.0 + params["weights"]))


def forcing():
    return jnp.cos(jnp.arange(N_STEPS * 3.0)).reshape(N_STEPS, 3)


KINDS = {
    "default": (Revolve(4), lambda path: None),
    "RAM": (Revolve(4), lambda path: RAM()),
    "tiered": (TwoLevel(4, 2), lambda path: Tiered(RAM(), Disk(path))),
    "other disk": (Revolve(4), Disk),
}


def run(directory, kind="default", **options):
    scheme, make = KINDS[kind]
    storage = make(f"{directory}-storage")
    try:
        return value_and_grad_loop(
            step, loss, INIT, PARAMS, xs=forcing(), directory=directory, scheme=scheme,
            storage=storage, block=BLOCK, **options,
        )  # fmt: skip
    finally:
        if storage is not None:
            storage.close()


def bits(result):
    return b"".join(
        np.asarray(x).tobytes() for x in jax.tree.leaves(result) if x.dtype != jax.dtypes.float0
    ).hex()


if __name__ == "__main__":
    wait = float(sys.argv[3])
    print("began", flush=True)

    def after_turn(_):
        print("turned", flush=True)
        time.sleep(wait)

    result = bits(run(sys.argv[1], sys.argv[2], callback=after_turn))
    pathlib.Path(f"{sys.argv[1]}.bits").write_text(result)
