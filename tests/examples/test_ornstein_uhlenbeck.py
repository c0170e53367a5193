"""A stochastic process calibrated by pathwise gradients."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def result(example):
    return example("ornstein_uhlenbeck").main(n_paths=4000, n_updates=10)


def test_finds_the_truth_up_to_sampling(result, example):
    # The moments of 4000 paths are off by one or two per cent, and so are the parameters.
    for name, value in example("ornstein_uhlenbeck").TRUTH.items():
        assert result.parameters[name] == pytest.approx(value, rel=0.06), name


def test_converges(result):
    # To the smallest sum of squares there is: the samples' moments are not exactly those known.
    assert result.history[-1] < 1e-3 * result.history[0]
    assert result.history[-1] == pytest.approx(result.history[-2], rel=1e-6)


def test_pathwise_derivatives_are_those_of_the_moments(result):
    assert np.isfinite(result.derivative_error)
    assert result.derivative_error < 0.02  # of numbers up to one
