"""`dot_test`: right pairs pass, broken transposes fail, whatever the pytree and dtype."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pullback.testing import dot_test

MATRIX = jnp.asarray(np.random.default_rng(1).standard_normal((4, 3)))


def with_transpose(scale):
    """A linear map whose transpose is `scale` times the right one."""

    def matvec(matrix, x):
        return matrix @ x

    def solve_transpose(matrix, x):
        return scale * (matrix.T @ x)

    def apply(x):
        return jax.custom_derivatives.linear_call(matvec, solve_transpose, MATRIX, x)

    return apply


def test_right_pair_passes_and_reports():
    result = dot_test(lambda x: jnp.sin(MATRIX @ x), jnp.arange(3.0))
    assert result.error < 1e-15 * 100
    assert result.forward == pytest.approx(result.reverse, rel=1e-13)
    assert result.forward != 0


def test_given_vectors_are_used():
    result = dot_test(
        lambda x: MATRIX @ x, jnp.zeros(3), tangent=jnp.eye(3)[1], cotangent=jnp.eye(4)[2]
    )
    assert result.forward == result.reverse == MATRIX[2, 1]


@pytest.mark.parametrize("scale", [1.01, -1.0])
def test_wrong_transpose_fails(scale):
    with pytest.raises(AssertionError, match="not adjoint") as caught:
        dot_test(with_transpose(scale), jnp.ones(3))
    assert "<J v, w>" in str(caught.value)
    assert "allowed 1.0e-12" in str(caught.value)


def test_right_transpose_passes():
    dot_test(with_transpose(1.0), jnp.ones(3))


def test_pytrees_with_integers_and_keys():
    def f(tree):
        noise = jax.random.normal(tree["key"], (3,), tree["y"].dtype)
        return {"y": jnp.tanh(tree["y"] + noise) * tree["n"], "count": tree["n"] + 1}

    tree = {"y": jnp.arange(3.0), "n": jnp.int32(4), "key": jax.random.key(0)}
    assert dot_test(f, tree).error < 1e-12


@pytest.mark.parametrize(
    ("dtype", "limit"), [(jnp.float64, 1e-12), (jnp.float32, 1e-5), (jnp.bfloat16, 5e-2)]
)
def test_tolerance_follows_the_dtype(dtype, limit):
    x = jnp.linspace(0.1, 2.0, 50, dtype=dtype)
    assert dot_test(jnp.cumprod, x).error <= limit
    with pytest.raises(AssertionError, match=f"allowed {limit:.1e}"):
        dot_test(partial(wrong_by, 2 * limit), x, tangent=jnp.ones(50), cotangent=jnp.ones(50))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def wrong_by(_, x):
    return x


@wrong_by.defjvp
def _(fraction, primals, tangents):
    return primals[0], Off.scale(fraction, tangents[0])


class Off:
    """The identity with a transpose that is off by a fraction."""

    @staticmethod
    def scale(fraction, x):
        return jax.custom_derivatives.linear_call(
            lambda _, v: v, lambda _, v: v * (1 + fraction), (), x
        )


def test_nan_fails():
    with pytest.raises(AssertionError, match="not adjoint"):
        dot_test(lambda x: jnp.sqrt(x) * 0, jnp.zeros(2))


def test_zero_derivative_passes():
    assert dot_test(jnp.floor, jnp.ones(3) * 0.5).error == 0


def test_bad_arguments():
    with pytest.raises(ValueError, match="`x`: expected at least one floating leaf"):
        dot_test(jnp.abs, jnp.arange(3))
    with pytest.raises(ValueError, match=r"`tangent`: expected floating leaves of shapes \[\(3,\)"):
        dot_test(jnp.sin, jnp.zeros(3), tangent=jnp.zeros(2))
    with pytest.raises(ValueError, match=r"`cotangent`: .* got \[\(2,\)\]"):
        dot_test(jnp.sin, jnp.zeros(3), cotangent=jnp.zeros(2))
