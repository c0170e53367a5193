"""`taylor_test`: right gradients pass, slightly wrong ones do not, on functions known by heart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pullback.testing import taylor_test

X = jnp.array([0.3, -1.2, 0.7])


def smooth(x):
    return jnp.sum(jnp.exp(x) * jnp.sin(x)) + x[0] * x[1] * x[2]


def pytree_function(tree):
    return jnp.sum(tree["a"] ** 3) * jnp.sin(tree["b"][0]) + tree["b"][1] * tree["n"]


PYTREE = {"a": jnp.arange(1.0, 4.0), "b": (jnp.float64(0.4), 2.0), "n": 3}


@jax.custom_jvp
def with_wrong_second_derivative(x):
    return jnp.cos(x)


@with_wrong_second_derivative.defjvp
def _(primals, tangents):
    return jnp.cos(*primals), -jnp.sin(*primals) * 1.01 * tangents[0]


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_slopes_of_a_smooth_function(mode):
    result = taylor_test(smooth, X, mode=mode)
    np.testing.assert_allclose(result.slopes, [1.0, 2.0], rtol=0, atol=0.01)
    assert result.remainders.shape == (2, 11)
    assert result.steps[0] == 2.0**-4
    assert result.steps[-1] == 2.0**-14


def test_remainders_are_those_of_the_series():
    # f = exp at 0 along 1: the remainders are h + h^2/2 + ..., h^2/2 + h^3/6 + ..., h^3/6 + ...
    result = taylor_test(jnp.exp, jnp.float64(0.0), jnp.float64(1.0), order=3)
    h = result.steps
    exact = [np.expm1(h), h**2 / 2 + h**3 / 6 + h**4 / 24, h**3 / 6 + h**4 / 24 + h**5 / 120]
    # Left out: h^5/120 and h^6/720 relative to the first kept term; a few roundings of f = 1.
    for row, series in zip(result.remainders, exact, strict=True):
        np.testing.assert_allclose(row, series, rtol=h[0] ** 3 / 20, atol=1e-15)
    assert result.directional == 1.0


@pytest.mark.parametrize("factor", [1.01, 0.99, -1.0, 0.0])
def test_wrong_gradient_fails(factor):
    wrong = factor * jax.grad(smooth)(X)
    with pytest.raises(AssertionError, match=r"order 2 falls with slope (0\.9|1\.)") as caught:
        taylor_test(smooth, X, gradient=wrong)
    assert "the gradient is wrong" in str(caught.value)
    assert "|... - h g.v|" in str(caught.value)


def test_one_wrong_component_fails():
    wrong = jax.grad(smooth)(X).at[1].multiply(1.05)
    with pytest.raises(AssertionError, match="order 2"):
        taylor_test(smooth, X, gradient=wrong)


def test_given_right_gradient_passes():
    taylor_test(smooth, X, gradient=jax.grad(smooth)(X))


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_wrong_rule_fails_in_both_modes(mode):
    def f(x):
        return jnp.sum(with_wrong_second_derivative(x))

    with pytest.raises(AssertionError, match="order 2"):
        taylor_test(f, X, mode=mode)


@pytest.mark.parametrize("order", [2, 3])
def test_pytrees_with_numbers_and_integers(order):
    result = taylor_test(pytree_function, PYTREE, order=order)
    np.testing.assert_allclose(result.slopes, [1, 2, 3][:order], rtol=0, atol=0.05)


def test_pytree_with_one_wrong_leaf_fails():
    gradient = {
        "a": 3 * PYTREE["a"] ** 2 * jnp.sin(0.4),
        "b": (36 * jnp.cos(0.4), 3.0),
        "n": 0,
    }
    taylor_test(pytree_function, PYTREE, gradient=gradient)
    with pytest.raises(AssertionError, match="order 2"):
        taylor_test(pytree_function, PYTREE, gradient=gradient | {"b": (36 * jnp.cos(0.4), 3.1)})


def test_third_order_checks_the_hessian():
    v = jnp.array([1.0, 0.5, -0.2])
    hv = jax.hessian(smooth)(X) @ v
    assert taylor_test(smooth, X, v, order=3, hessian_vector=hv).slopes[2] == pytest.approx(
        3, abs=0.05
    )
    for wrong in (1.01 * hv, -hv):
        with pytest.raises(AssertionError, match=r"order 3 .*Hessian-vector product is wrong"):
            taylor_test(smooth, X, v, order=3, hessian_vector=wrong)


def test_exact_expansions_are_rounding_only():
    assert taylor_test(lambda x: 2 * jnp.sum(x), X).slopes[1] == np.inf
    assert taylor_test(lambda x: jnp.sum(x**2), X, order=3).slopes[2] == np.inf


def test_wrong_gradient_of_a_linear_function_fails():
    with pytest.raises(AssertionError, match=r"order 2 falls with slope 1\.000"):
        taylor_test(lambda x: 2 * jnp.sum(x), X, gradient=2.0001 * jnp.ones(3))


def test_vanishing_second_derivative_is_no_fault():
    # sin'' is 0 at 0: the remainder falls with slope 3.
    assert taylor_test(jnp.sin, jnp.float64(0), jnp.float64(1)).slopes[1] == pytest.approx(
        3, abs=0.01
    )


def test_float32():
    x = X.astype(jnp.float32)
    result = taylor_test(smooth, x)
    assert result.noise > 1e-6
    for factor in (1.05, -1.0):
        with pytest.raises(AssertionError, match="order 2"):
            taylor_test(smooth, x, gradient=factor * jax.grad(smooth)(x))


def test_large_point_does_not_blur_the_displacement():
    # x + h v is rounded to 1e-16 * 1e6; the test uses the displacement that took place.
    taylor_test(lambda x: jnp.sin(x - 1e6), jnp.float64(1e6 + 0.3), jnp.float64(1.0))


def test_nothing_checked_is_a_failure():
    with pytest.raises(AssertionError, match="does not change along the direction"):
        taylor_test(lambda x: 1e12 + jnp.sum(x), X)


def test_kink_fails():
    with pytest.raises(AssertionError, match="order 2"):
        taylor_test(lambda x: jnp.sum(jnp.abs(x - X)), X)


def test_nan_fails():
    with pytest.raises(AssertionError, match="slope nan"):
        taylor_test(lambda x: jnp.sqrt(x), jnp.float64(0.0), jnp.float64(-1.0), gradient=1.0)


def controlled_quadrature(x):
    """Sum of steps whose number depends on x, as a step controller's does: not smooth."""
    n = jnp.round(50 + 4e3 * (x - 1.0))
    return fixed_quadrature(x, n)


def fixed_quadrature(x, n):
    # Left-end rule for the integral of exp(x t) over (0, 1) with n steps.
    h = 1 / jax.lax.stop_gradient(n)
    return h * jnp.expm1(x) / jnp.expm1(x * h)


def freeze(_, x):
    n = jnp.round(50 + 4e3 * (x - 1.0))
    return lambda z: fixed_quadrature(z, n)


def test_frozen_mesh():
    x, v = jnp.float64(1.0), jnp.float64(1.0)
    assert taylor_test(controlled_quadrature, x, v, replay=freeze).slopes[1] == pytest.approx(
        2, abs=0.01
    )
    taylor_test(controlled_quadrature, x, v, mesh="frozen", replay=freeze)
    for loose in ({}, {"mesh": "free", "replay": freeze}):
        with pytest.raises(AssertionError):
            taylor_test(controlled_quadrature, x, v, **loose)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mesh": "frozen"}, "`f` made no `pullback.solve` that could be recorded"),
        ({"mesh": "cold"}, "`mesh`: expected one of None, 'free', 'frozen', got 'cold'"),
        ({"mode": "both"}, "`mode`: expected one of 'reverse', 'forward', got 'both'"),
        ({"order": 4}, "`order`: expected one of 2, 3, got 4"),
        ({"direction": jnp.zeros(3)}, "`direction`: expected one that is not zero"),
        ({"direction": jnp.ones(2)}, r"`direction`: expected floating leaves of shapes \[\(3,\)\]"),
        ({"gradient": jnp.ones(2)}, r"`gradient`: .* got \[\(2,\)\]"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        taylor_test(smooth, X, **arguments)


def test_result_must_be_a_scalar():
    with pytest.raises(ValueError, match=r"one real scalar as its result, got .* \[\(3,\)\]"):
        taylor_test(jnp.sin, X)


def test_default_direction_has_the_size_of_the_point():
    # Parameters of very different size: the step along each stays a fraction of it.
    def f(tree):
        return jnp.sin(tree["big"] / 1e8) * jnp.exp(tree["small"] * 1e8)

    taylor_test(f, {"big": jnp.float64(1e8), "small": jnp.float64(1e-8)})
