"""`tol`: worst-case rounding, by dtype."""

import jax.numpy as jnp
import numpy as np
import pytest

from pullback.testing import tol
from pullback.testing.tolerances import coarsest_dtype


@pytest.mark.parametrize(("dtype", "eps"), [("float64", 2.0**-52), ("float32", 2.0**-23)])
def test_tol_is_linear_in_operations_and_condition(dtype, eps):
    assert tol(dtype) == eps
    assert tol(dtype, n_ops=10, cond=3.0) == 30 * eps


def test_tol_knows_bfloat16():
    assert tol(jnp.bfloat16) == 2.0**-7


def test_tol_bounds_a_long_sum(rng):
    values = rng.uniform(size=1000).astype(np.float32)
    in_order = np.float32(0)
    for value in values:
        in_order += value
    exact = values.astype(np.float64).sum()
    assert abs(float(in_order) - exact) / exact < tol(np.float32, n_ops=1000)


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex128"])
def test_tol_refuses_what_has_no_rounding(dtype):
    with pytest.raises(TypeError, match=f"`dtype`: expected a real floating dtype, got {dtype}"):
        tol(dtype)


def test_coarsest_dtype_of_mixed_leaves():
    leaves = [jnp.zeros(2, jnp.float64), jnp.zeros((), jnp.float32)]
    assert coarsest_dtype(leaves) == np.float32
    assert coarsest_dtype(leaves[:1]) == np.float64
