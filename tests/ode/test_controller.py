import jax.numpy as jnp
import numpy as np
import pytest

from pullback.ode import PIController
from pullback.ode.controller import fast_power

DTYPES = (np.float32, np.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [-0.5, -0.2, -1 / 12, 0.04, 1.0])
def test_fast_power_is_right_to_a_few_per_cent(dtype, exponent):
    x = np.logspace(-30, 30, 2001).astype(dtype)
    ratio = np.asarray(fast_power(jnp.asarray(x), exponent)) / x.astype(float) ** exponent
    # A mantissa stands for its logarithm to +-0.043, once in x and once in the result.
    assert np.abs(np.log2(ratio)).max() < 0.0435 * (1 + abs(exponent))
    assert fast_power(jnp.asarray(x), exponent).dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", [2, 5, 8])
def test_factor_follows_the_formula(dtype, order):
    controller = PIController()
    err, old = np.meshgrid(np.logspace(-3, 2, 41), np.logspace(-3, 0, 7))
    memory = controller.factor(jnp.asarray(old**2, dtype), controller.initial_memory(dtype), order)
    factor, _ = controller.factor(jnp.asarray(err**2, dtype), memory[1], order)
    exact = 0.9 * err ** -(1 / order - 0.75 * 0.04) * old**0.04
    exact = np.clip(exact, controller.factor_min, controller.factor_max)
    assert np.abs(np.asarray(factor) / exact - 1).max() < 0.06
    assert factor.dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_errors_give_extreme_factors(dtype):
    controller = PIController()
    q2 = jnp.asarray([0.0, 1e-37, 1e37, np.inf, np.nan, -np.nan], dtype)
    factor, _ = controller.factor(q2, controller.initial_memory(dtype), 5)
    wanted = [10.0, 10.0, 0.2, 0.2, 0.2, 0.2]
    # Bit patterns are cut to 32 bits, and rounded to their dtype.
    assert np.allclose(factor, wanted, rtol=2e-6, atol=0.0)


def test_a_rejected_step_is_always_made_smaller():
    controller = PIController()
    q2 = jnp.asarray(np.logspace(0, 12, 5001)) * (1 + 1e-15)
    for start in (1e-8, 1e-4, 1.0):
        memory = controller.factor(jnp.asarray(start), controller.initial_memory(np.float64), 5)[1]
        factor, _ = controller.factor(q2, memory, 5)
        assert float(factor.max()) < 0.95
        assert float(factor.min()) > 0.2 * (1 - 2e-6)


@pytest.mark.parametrize(
    ("kwargs", "name"),
    [
        ({"safety": 1.5}, "safety"),
        ({"factor_min": 2.0}, "factor_min"),
        ({"factor_max": 0.5}, "factor_max"),
        ({"beta": -0.1}, "beta"),
    ],
)
def test_bad_parameters_are_refused(kwargs, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        PIController(**kwargs)
