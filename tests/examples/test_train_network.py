"""A network trained through the solver."""

import jax.numpy as jnp
import numpy as np


def test_loss_falls_and_gradients_are_right(example, capsys):
    result = example("train_network").main()
    assert len(result.losses) == 11
    assert np.all(np.diff(result.losses) < 0), result.losses
    # Ten epochs lead from 47.5 to the least loss that any parameters can reach.
    assert result.losses[0] > 8 * result.losses[-1]
    assert result.smallest_loss <= result.losses[-1] < 1.01 * result.smallest_loss
    # The tolerances of the solves, 1e-4 and 1e-10, with room for their accumulation.
    assert result.gradient_errors["float32"] < 1e-3
    assert result.gradient_errors["float64"] < 1e-8
    assert capsys.readouterr().out.count("\n") >= 13


def test_starts_count_from_zero_as_julias_count_from_one(example):
    module = example("train_network")
    starts = module.simulate(jnp.array([0.3, 0.4], jnp.float32), 3, rtol=1e-4)[:, 0, 0]
    assert starts.dtype == jnp.float32
    np.testing.assert_allclose(starts, [0.53, 0.56, 0.59], rtol=1e-6, atol=0.0)
