"""A loop on disk whose blocks are native code: the gradient, and the same bits after a stop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from interop.native_loops import lorenz_96
from pullback.testing import assert_close, tol

N, BLOCK = 61, 8
INIT = {"y": jnp.cos(jnp.arange(7.0)), "n": jnp.int32(0)}
PARAMS = {"forcing": 2.0, "weights": jnp.arange(7.0)}
XS = jnp.sin(jnp.arange(float(N)))
EXACT = tol("float64", n_ops=20 * N, cond=40.0)


def step(carry, x, params):
    y, _ = lorenz_96(params["forcing"] + 0.1 * x, carry["y"], None)
    return {"y": y, "n": carry["n"] + 1}


def loss(carry, params):
    return jnp.sum(params["weights"] * carry["y"] ** 2)


def run(directory, compile_step=pb.native_steps, **options):
    value, (init_bar, params_bar) = pb.value_and_grad_loop(
        step, loss, INIT, PARAMS, xs=XS, directory=directory, block=BLOCK, scheme=pb.Revolve(2),
        compile_step=compile_step, **options,
    )  # fmt: skip
    return value, init_bar["y"], params_bar


@pytest.mark.parametrize("compile_step", [pb.native_steps, "auto", None])
def test_is_the_gradient(compile_step, tmp_path):
    def whole(y, params):
        start = {"y": y, "n": INIT["n"]}
        end, _ = jax.lax.scan(lambda carry, x: (step(carry, x, params), None), start, XS)
        return loss(end, params)

    value, (y_bar, params_bar) = jax.value_and_grad(whole, (0, 1))(INIT["y"], PARAMS)
    got = run(tmp_path, compile_step)
    assert_close(got, (value, y_bar, params_bar), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("n_turns", [1, 4, 7])
def test_goes_on_with_the_same_bits(n_turns, tmp_path):
    left = n_turns

    def stop(_):
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", callback=stop)
    jax.tree.map(
        np.testing.assert_array_equal, run(tmp_path / "stopped"), run(tmp_path / "through")
    )


def test_goes_on_with_what_it_was_begun_with(tmp_path):
    run(tmp_path)
    with pytest.raises(pb.ResumeError, match="steps run by: NativeSteps there, XLA here"):
        run(tmp_path, None)


def test_what_is_no_compiler_is_refused(tmp_path):
    with pytest.raises(TypeError, match="`compile_step`: expected"):
        run(tmp_path, "fast")
