"""Sums over trajectories: the values and derivatives of `jnp.sum`, in an order of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pullback.core.sums import spread_over_trajectories, sum_over_trajectories
from threads import needs_processors, printed_on_one_and_on_all


@pytest.mark.parametrize("n", [0, 1, 2, 255, 256, 257, 1000, 20_000])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_sum_and_its_derivatives(rng, n, shape):
    x = rng.normal(size=(n, *shape))
    total, pull = jax.vjp(sum_over_trajectories, x)
    # Blocks of rows: rounding grows with their number, not with n.
    np.testing.assert_allclose(total, x.sum(0), rtol=0, atol=1e-13 * max(n, 1))
    weights = rng.normal(size=shape)
    np.testing.assert_array_equal(pull(jnp.asarray(weights))[0], np.broadcast_to(weights, x.shape))
    moved = jax.jvp(sum_over_trajectories, (x,), (2 * x,))[1]
    np.testing.assert_array_equal(moved, 2 * total)


def test_copies_and_their_derivative(rng):
    value, weights = rng.normal(size=3), rng.normal(size=(1000, 3))
    many, pull = jax.vjp(lambda v: spread_over_trajectories(v, 1000), value)
    np.testing.assert_array_equal(many, np.broadcast_to(value, (1000, 3)))
    np.testing.assert_array_equal(pull(jnp.asarray(weights))[0], sum_over_trajectories(weights))


BITS = """
import jax, jax.numpy as jnp
import pullback as pb
problem = pb.ODEProblem(lambda t, y, k: jnp.stack([y[1], -k * y[0]]), jnp.ones(2), (0.0, 1.0), 1.0)

def ends(y0):
    params = 1.0 + 0.001 * jnp.arange(30_000)
    ensemble = pb.EnsembleProblem(problem.replace(y0=y0), params=params)
    return pb.solve(ensemble, pb.Tsit5(), pb.EnsembleKernel()).y_end

ends, pull = jax.vjp(ends, jnp.ones(2))
print(*(float(x).hex() for x in pull(jnp.ones_like(ends))[0]))
"""


@needs_processors
def test_gradient_by_what_trajectories_share_has_the_same_bits_on_any_number_of_threads():
    one, every = printed_on_one_and_on_all(BITS)
    assert one == every
    assert len(one.split()) == 2
