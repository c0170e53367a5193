"""The floating leaves of `y0` decide the precision; nothing changes it silently."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def field(t, y, params):
    return jax.tree.map(lambda x: -x, y)


def solve(y0, **options):
    t_span = options.pop("t_span", (0.0, 1.0))
    problem = pb.ODEProblem(options.pop("field", field), y0, t_span, options.pop("params", None))
    return pb.solve(problem, pb.Tsit5(), ANY, **options)


def dtypes(sol):
    return {leaf.dtype for leaf in jax.tree.leaves((sol.t, sol.y, sol.t_end, sol.y_end))}


@pytest.mark.parametrize(
    ("y0", "expected"),
    [
        (1.0, F64),
        (np.float32(1.0), F32),
        (jnp.float32(1.0), F32),
        (np.ones(2), F64),
        ((1.0, np.ones(2, np.float32)), F32),
        ({"a": np.float32(1.0), "b": np.float64(1.0)}, F64),
        (jnp.asarray(1.0), F64),
    ],
)
def test_widest_explicit_leaf_decides(y0, expected):
    assert dtypes(solve(y0)) == {expected}


def test_everything_else_is_cast_to_the_state():
    y0 = np.float32(1.0)
    sol = solve(
        y0,
        t_span=np.array([0.0, 1.0]),
        saveat=np.linspace(0.0, 1.0, 3),
        rtol=np.float64(1e-4),
        atol=np.array(1e-6),
        dt_max=np.float64(0.5),
    )
    assert dtypes(sol) == {F32}
    assert {sol.status.dtype, sol.n_saved.dtype, sol.stats["n_rhs"].dtype} == {np.dtype(np.int32)}


def test_python_numbers_in_params_are_weak():
    sol = solve(
        np.float32(1.0), params={"k": 2.0, "n": 3}, field=lambda t, y, p: -p["k"] * y ** p["n"]
    )
    assert dtypes(sol) == {F32}


def test_integer_times_are_cast():
    np.testing.assert_allclose(solve(1.0, t_span=(0, 1), rtol=1e-8).y_end, np.exp(-1), rtol=1e-6)


def test_without_x64_python_numbers_are_float32():
    with jax.enable_x64(False):
        assert dtypes(solve(1.0, t_span=np.array([0.0, 1.0]), saveat=np.linspace(0, 1, 3))) == {F32}


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"y0": np.ones(2)}, "y0"),
        ({"y0": {"a": 1.0, "b": np.float64(2.0)}}, r"y0\['b'\]"),
        ({"y0": 1.0, "params": {"w": np.ones(3)}}, r"params\['w'\]"),
    ],
)
def test_explicit_float64_without_x64(arguments, path):
    with (
        jax.enable_x64(False),
        pytest.raises(TypeError, match=f"`{path}` is float64, .*jax_enable_x64.*astype"),
    ):
        solve(**arguments)


@pytest.mark.parametrize("y0", [1, np.arange(3), True, jnp.arange(3)])
def test_integer_state(y0):
    with pytest.raises(
        TypeError, match=r"`y0` has dtype (int|bool).*must be floating.*1.0 instead"
    ):
        solve(y0)


@pytest.mark.parametrize("y0", [1j, np.ones(2, np.complex64)])
def test_complex_state(y0):
    with pytest.raises(TypeError, match=r"`y0` is complex .* split it into real and imaginary"):
        solve(y0)


def test_half_precision_state():
    with pytest.raises(TypeError, match=r"`y0` has dtype float16, .* float32 or float64"):
        solve(np.ones(2, np.float16))


@pytest.mark.parametrize("y0", [{}, np.zeros(0), None])
def test_empty_state(y0):
    with pytest.raises(ValueError, match="`y0` holds no numbers"):
        solve(y0)


def test_state_that_is_not_a_number():
    with pytest.raises(TypeError, match=r"`y0\['a'\]` must be a real floating .* a str arrived"):
        solve({"a": "one"})


# ------------------------------------------------------- what the vector field returns


def test_vector_field_of_wrong_structure():
    with pytest.raises(TypeError, match=r"`vector_field` .* must return the structure of `y0`"):
        solve({"a": 1.0}, field=lambda t, y, p: y["a"])


def test_vector_field_of_wrong_shape():
    with pytest.raises(ValueError, match=r"expected shape \(2,\), got \(3,\)"):
        solve(np.ones(2), field=lambda t, y, p: jnp.zeros(3))


def test_vector_field_of_wrong_dtype():
    with pytest.raises(TypeError, match=r"dtype float32, .* float64.*cast the parameters"):
        solve(np.ones(2, np.float32), params=np.ones(2), field=lambda t, y, p: -p * y)


def test_vector_field_with_side_effects():
    def printing(t, y, p):
        jax.debug.print("{}", t)
        return y

    with pytest.raises(ValueError, match=r"printing has side effects .*remove printing"):
        solve(1.0, field=printing)


def test_parameters_that_are_not_arrays_are_passed_on():
    params = {"activation": jnp.tanh, "w": np.ones(()), "kind": "plain"}

    def network(t, y, p):
        assert p["kind"] == "plain"
        return p["activation"](p["w"] * y)

    expected = solve(1.0, field=lambda t, y, p: jnp.tanh(y)).y_end
    np.testing.assert_allclose(solve(1.0, field=network, params=params).y_end, expected, rtol=1e-14)
