import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pullback.ode import trace_vector_field
from pullback.testing import assert_close

Y0 = {"angle": 1.0, "rates": jnp.array([0.5, -0.5])}


def pendulum(t, y, p):
    return {"angle": y["rates"][0], "rates": -p["k"] * jnp.sin(y["rates"]) + t}


def test_state_and_parameters_are_ravelled():
    traced = trace_vector_field(pendulum, Y0, {"k": jnp.array(2.0), "unused": jnp.arange(3)})
    assert_close(traced.y0, np.array([1.0, 0.5, -0.5]), rtol=0.0, atol=0.0)
    assert traced.field.n == 3
    assert traced.field.floating == (True, False)
    dy = traced.field(jnp.array(0.25), traced.y0, traced.theta)
    wanted = np.array([0.5, *(-2 * np.sin([0.5, -0.5]) + 0.25)])
    assert_close(dy, wanted, rtol=1e-15, atol=1e-15)
    back = traced.layout.unravel(jnp.stack([traced.y0, 2 * traced.y0]))
    assert back["angle"].shape == (2,)
    assert_close(back["rates"][1], np.array([1.0, -1.0]), rtol=0.0, atol=0.0)


def test_closed_over_arrays_become_operands_once():
    w = jnp.array([[0.0, 1.0], [-1.0, 0.0]])
    traced = trace_vector_field(lambda t, y, p: w @ (w @ y) + w[0], jnp.ones(2))
    assert len(traced.theta) == 1
    assert traced.theta[0] is w or np.array_equal(traced.theta[0], w)
    assert not traced.field.jaxpr.consts


def test_traced_closure_is_differentiable():
    def value(w):
        traced = trace_vector_field(lambda t, y, p: w * y, jnp.ones(2))
        return traced.field(0.0, traced.y0, traced.theta).sum()

    assert float(jax.grad(value)(3.0)) == 2.0


def test_field_is_traced_once_and_equal_by_content():
    calls = []

    def make(factor):
        def field(t, y, p):
            calls.append(1)
            return -factor * p * jax.nn.softplus(y)

        return trace_vector_field(field, jnp.ones(2), 1.5).field

    first, second, other = make(2.0), make(2.0), make(3.0)
    assert len(calls) == 3
    assert first == second
    assert hash(first) == hash(second)
    assert first != other


def test_closed_over_values_do_not_enter_the_key():
    def make(w):
        return trace_vector_field(lambda t, y, p: w * y, jnp.ones(2)).field

    assert make(jnp.ones(2)) == make(jnp.zeros(2))
    assert make(jnp.ones(2)) != make(jnp.ones(()))


def test_widest_dtype_of_the_state_decides_and_python_numbers_follow():
    narrow = trace_vector_field(lambda t, y, p: p * y * 2, np.float32(1.0), 3.0)
    assert narrow.y0.dtype == narrow.theta[0].dtype == np.float32
    assert narrow.field.jaxpr.out_avals[0].dtype == np.float32
    mixed = trace_vector_field(lambda t, y, p: y, (np.float32(1.0), np.float64(2.0), 3.0))
    assert mixed.y0.dtype == np.float64


def test_keys_and_integers_may_be_parameters():
    def noisy(t, y, p):
        key, n = p
        return y * n + jax.random.normal(key, y.shape)

    traced = trace_vector_field(noisy, jnp.ones(2), (jax.random.key(3), 2))
    assert traced.field.floating == (False, False)
    dy = traced.field(0.0, traced.y0, traced.theta)
    wanted = 2.0 + jax.random.normal(jax.random.key(3), (2,))
    assert_close(dy, wanted, rtol=1e-15, atol=0.0)


def test_plain_number_may_be_returned():
    traced = trace_vector_field(lambda t, y, p: (1, y[0]), (1.0, 2.0))
    assert_close(traced.field(0.0, traced.y0, ()), np.array([1.0, 1.0]), rtol=0.0, atol=0.0)


BAD_FIELDS = {
    "structure": (lambda t, y, p: (y, y), TypeError, r"must return the structure of `y0`"),
    "shape": (lambda t, y, p: y[None], ValueError, r"expected shape \(2,\), got \(1, 2\)"),
    "integers": (lambda t, y, p: y.astype(int), TypeError, "dtype float64, but one has dtype int"),
    "complex": (lambda t, y, p: y + 1j, TypeError, "one has dtype complex128"),
    "nothing": (lambda t, y, p: None, TypeError, "structure of `y0`"),
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_wrong_results_are_explained(name):
    field, error, text = BAD_FIELDS[name]
    with pytest.raises(error, match=text):
        trace_vector_field(field, jnp.ones(2))


def test_wider_result_says_what_to_cast():
    with pytest.raises(TypeError, match=r"state's dtype float32, .* float64.*y0` as float64"):
        trace_vector_field(lambda t, y, p: y * p, np.float32(1.0), np.float64(2.0))


BAD_STATES = {
    "integer": (1, "floating leaves.*int"),
    "complex": (1j, "real.*complex128: split"),
    "half": (np.float16(1.0), "float32 or float64.*float16"),
}


@pytest.mark.parametrize("name", BAD_STATES)
def test_wrong_states_are_explained(name):
    y0, text = BAD_STATES[name]
    with pytest.raises(TypeError, match=text):
        trace_vector_field(lambda t, y, p: y, y0)


def test_empty_state_is_refused():
    with pytest.raises(ValueError, match="at least one leaf"):
        trace_vector_field(lambda t, y, p: y, ())


def test_side_effects_are_refused():
    def field(t, y, p):
        jax.debug.print("{}", y)
        return y

    with pytest.raises(ValueError, match="`vector_field` field has side effects"):
        trace_vector_field(field, 1.0)


@pytest.mark.parametrize("where", ["y0", "params"])
def test_explicit_float64_without_x64_is_refused(where):
    values = {"y0": np.float32(1.0), "params": np.float32(1.0), where: np.ones(2)}
    with (
        jax.enable_x64(False),
        pytest.raises(TypeError, match=f"`{where}` holds a float64.*jax_enable_x64"),
    ):
        trace_vector_field(lambda t, y, p: y, values["y0"], values["params"])
