"""Inside a lane kernel the functions give the same bits as on the tests' own builder."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lanes.elementary.builder import NUMPY, compiled
from lanes.elementary.points import seeded
from lanes.lane_check import run_kernel
from pullback.lanes.elementary import FUNCTIONS

N_TRAJ = 203
PRIMITIVES = sorted(set(FUNCTIONS) - {"log2"})  # log2 is no primitive of JAX
WIDTHS = {"f64": 8, "f32": 16}


def arguments(name: str, dtype: str) -> list[np.ndarray]:
    """Return ordinary numbers and some for the slow paths, but no subnormal results.

    XLA's threads flush subnormal numbers to zero; the tests' own loop does not.
    """
    rng, kind = seeded(name, dtype), NUMPY[dtype]
    columns = []
    for _ in range(FUNCTIONS[name][1]):
        x = rng.uniform(-4.0, 4.0, N_TRAJ)
        x[::7] = rng.choice([-1.0, 1.0], x[::7].size) * np.exp2(rng.uniform(-20, 20, x[::7].size))
        x[::50] = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan], x[::50].size)
        if name in ("sin", "cos", "tan"):
            x[3::20] = np.exp2(rng.uniform(46, 120, x[3::20].size))
        columns.append(x.astype(kind))
    return columns


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("name", PRIMITIVES)
def test_same_bits_in_a_kernel(name, dtype):
    columns = arguments(name, dtype)
    function = lax.pow if name == "pow" else getattr(lax, name)
    (got,) = run_kernel(lambda *x: [function(*x)], columns, width=WIDTHS[dtype])
    want = compiled(name, dtype)(*columns)
    np.testing.assert_array_equal(got, want)
    kept = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[kept]), np.signbit(want[kept]))


def test_gradient_of_a_network_layer_in_a_kernel():
    """tanh, its derivative and a constant argument, as a lane program uses them."""

    def layer(y):
        return [jax.grad(lambda v: jnp.tanh(v) * jnp.tanh(0.5) + jnp.sin(1e20) * v)(y)]

    y = np.linspace(-3.0, 3.0, 31)
    (got,) = run_kernel(layer, [y])
    want = (1 - np.tanh(y) ** 2) * np.tanh(0.5) + np.sin(1e20)
    np.testing.assert_allclose(got, want, rtol=0, atol=8 * np.finfo(np.float64).eps)
