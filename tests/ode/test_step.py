import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ode.lane_problems import LV_PARAMS, LV_Y0, lotka_volterra
from pullback.ode import RK4, Bosh3, Dopri5, Euler, Heun, Midpoint, Tsit5, Vern7
from pullback.ode.step import advance, dense_output, take_step
from pullback.testing import assert_close, convergence_order, tol

METHODS = (Euler(), Heun(), Midpoint(), RK4(), Bosh3(), Tsit5(), Dopri5(), Vern7())
ids = [type(m).__name__ for m in METHODS]
Y = jnp.asarray(LV_Y0)
BOUND = tol("float64", n_ops=100)


def field(t, y):
    return lotka_volterra(t, y, LV_PARAMS) * jnp.cos(t)


@pytest.mark.parametrize("method", METHODS, ids=ids)
def test_step_is_the_textbook_sum(method):
    tableau, t, h = method.tableau, 0.3, jnp.asarray(0.1)
    step = take_step(tableau, field, t, Y, h)
    stages = []
    for row, node in zip(tableau.a, tableau.c, strict=True):
        inner = sum((a * k for a, k in zip(row, stages, strict=True)), jnp.zeros(2))
        stages.append(field(t + node * h, Y + h * inner))
    y1 = Y + h * sum(b * k for b, k in zip(tableau.b, stages, strict=True))
    assert_close(step.y1, y1, rtol=BOUND, atol=0.0)
    assert_close(list(step.stages), stages, rtol=BOUND, atol=0.0)
    assert_close(advance(tableau, field, t, Y, h), step.y1, rtol=BOUND, atol=0.0)
    if tableau.b_err is None:
        assert step.err is None
    else:
        err = h * sum(e * k for e, k in zip(tableau.b_err, stages, strict=True))
        assert_close(step.err, err, rtol=0.0, atol=BOUND)


@pytest.mark.parametrize("method", METHODS, ids=ids)
def test_known_first_stage_is_used(method):
    h, k1 = jnp.asarray(0.1), field(0.3, Y)
    given = take_step(method.tableau, field, 0.3, Y, h, k1)
    found = take_step(method.tableau, field, 0.3, Y, h)
    assert_close(given.y1, found.y1, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("method", METHODS, ids=ids)
def test_dense_output_passes_through_both_ends(method):
    h = jnp.asarray(0.1)
    step = take_step(method.tableau, field, 0.3, Y, h)

    def at(time):
        return dense_output(method.tableau, field, 0.3, Y, h, step.stages, time)

    assert_close(at(0.3), Y, rtol=0.0, atol=0.0)
    assert_close(at(0.3 + h), step.y1, rtol=tol("float64", n_ops=1000), atol=0.0)


@pytest.mark.parametrize("method", METHODS, ids=ids)
def test_dense_output_has_its_order(method):
    def exact(t):
        return 2.0 * jnp.exp(jnp.sin(t))

    def error(h):
        def of(t, y):
            return y * jnp.cos(t)

        t, y = 0.3, jnp.atleast_1d(exact(0.3))
        step = take_step(method.tableau, of, t, y, h)
        times = t + h * jnp.linspace(0.1, 0.9, 7)
        rows = jax.vmap(lambda s: dense_output(method.tableau, of, t, y, h, step.stages, s))(times)
        return jnp.abs(rows[:, 0] - exact(times)).max()

    sizes = 0.5 * 2.0 ** -np.arange(5)
    errors = jax.jit(jax.vmap(error))(sizes)
    slope = convergence_order(errors, sizes, scale=2.0)
    # One step: the local error has one order more. Steps are large for low orders and rounding
    # is near for high ones, so that the slope is off by up to a half.
    order = min(method.tableau.dense_order, method.order) + 1
    assert order - 0.5 < slope < order + 1.3
