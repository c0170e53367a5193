"""Problems of second order and split ones: pytrees, messages, and which method takes them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY


def spring(t, x, v, k):
    return -k * x


def slow(t, y, k):
    return jnp.cos(t) * jnp.ones_like(y)


def fast(t, y, k):
    return -k * y


def test_second_order_problem_is_a_pytree():
    problem = pb.SecondOrderODEProblem(spring, ({"a": 1.0}, {"a": 2.0}), (0.0, 2.0), 0.5)
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(problem)]
    assert paths == [".y0[0]['a']", ".y0[1]['a']", ".t_span[0]", ".t_span[1]", ".params"]
    doubled = jax.tree.map(lambda x: 2 * x, problem)
    assert doubled.y0 == ({"a": 2.0}, {"a": 4.0})
    assert doubled.acceleration is spring
    assert problem.replace(params=3.0).params == 3.0
    assert repr(problem.replace(y0=(1.0, 0.0))) == (
        "SecondOrderODEProblem(spring, y0=(1.0, 0.0), t_span=(0.0, 2.0), params=0.5)"
    )
    with pytest.raises(TypeError, match=r"`replace` got `vector_field`.*`acceleration`, `y0`"):
        problem.replace(vector_field=spring)


def test_split_problem_is_a_pytree():
    held = jax.tree_util.Partial(lambda w, t, y, p: -w * y, jnp.float32(2.0))
    problem = pb.SplitODEProblem(slow, held, 1.0, (0.0, 2.0))
    assert [float(x) for x in jax.tree.leaves(problem)] == [2.0, 1.0, 0.0, 2.0]
    other = jax.jit(lambda p: p.replace(y0=3 * p.y0))(problem)
    assert float(other.y0) == 3.0
    assert other.explicit is slow
    assert repr(pb.SplitODEProblem(slow, fast, 1.0, (0.0, 1.0))) == (
        "SplitODEProblem(slow, fast, y0=1.0, t_span=(0.0, 1.0), params=None)"
    )


@pytest.mark.parametrize(
    ("y0", "sentence"),
    [
        (1.0, r"must be the pair \(x, v\) of positions and velocities, but a float arrived"),
        ((1.0, 2.0, 3.0), "but a tuple of 3 entries arrived"),
        (({"a": 1.0}, 2.0), "positions and velocities of one structure"),
    ],
)
def test_state_must_be_a_pair(y0, sentence):
    with pytest.raises(ValueError, match=sentence):
        pb.SecondOrderODEProblem(spring, y0, (0.0, 1.0))


def solve(problem, method=None, **options):
    return pb.solve(problem, method or pb.VelocityVerlet(), ANY, **({"dt": 0.1} | options))


def test_shapes_of_positions_and_velocities_must_agree():
    problem = pb.SecondOrderODEProblem(spring, (np.ones(2), np.ones(3)), (0.0, 1.0), 1.0)
    with pytest.raises(ValueError, match=r"the same shapes, but \(\(2,\),\) and \(\(3,\),\)"):
        solve(problem)


@pytest.mark.parametrize(
    ("acceleration", "error", "sentence"),
    [
        (lambda t, x, v, p: (x, x), TypeError, "must return the structure of the positions"),
        (lambda t, x, v, p: jnp.ones(3), ValueError, r"`acceleration` <lambda> must return leaves"),
        (lambda t, x, v, p: np.array([1, 2]), TypeError, "`acceleration` <lambda> must return lea"),
    ],
)
def test_acceleration_must_be_like_the_positions(acceleration, error, sentence):
    problem = pb.SecondOrderODEProblem(acceleration, (np.ones(2), np.ones(2)), (0.0, 1.0))
    with pytest.raises(error, match=sentence):
        solve(problem)


def test_functions_must_be_callable():
    with pytest.raises(TypeError, match=r"`acceleration` must be a function `acceleration\(t, x,"):
        pb.SecondOrderODEProblem((1.0, 0.0), spring, (0.0, 1.0))
    with pytest.raises(TypeError, match=r"`implicit` must be a function .* a float arrived; write"):
        pb.SplitODEProblem(slow, 1.0, 1.0, (0.0, 1.0))


@pytest.mark.parametrize("method", [pb.VelocityVerlet(), pb.Yoshida4()], ids=lambda m: m.name)
def test_symplectic_methods_refuse_what_they_would_get_wrong(method):
    problem = pb.ODEProblem(fast, 1.0, (0.0, 1.0), 1.0)
    sentence = f"`method` {method.name} is for problems of second order, but a problem of class ODE"
    for given in (problem, pb.EnsembleProblem(problem, params=np.ones(2))):
        with pytest.raises(TypeError, match=sentence):
            solve(given, method)
    damped = pb.SecondOrderODEProblem(lambda t, x, v, p: -x - p * v, (1.0, 0.0), (0.0, 1.0), 0.1)
    with pytest.raises(ValueError, match="do not depend on the velocity, but `acceleration` <lam"):
        solve(damped, method)
    with pytest.raises(ValueError, match=f"`dt` is missing: {method.name} has no error estimate"):
        solve(pb.SecondOrderODEProblem(spring, (1.0, 0.0), (0.0, 1.0), 1.0), method, dt=None)


def test_velocity_that_is_not_used_is_no_dependence():
    inner = jax.jit(lambda x, v: (-x, 2 * v))

    def acceleration(t, x, v, p):
        return inner(x, v)[0] + jnp.zeros_like(v)

    x, _ = solve(pb.SecondOrderODEProblem(acceleration, (1.0, 0.0), (0.0, 1.0)), dt=0.001).y_end
    np.testing.assert_allclose(x, np.cos(1.0), rtol=1e-6)


def test_prob_func_must_keep_the_functions():
    problem = pb.SecondOrderODEProblem(spring, (1.0, 0.0), (0.0, 1.0), 1.0)
    other = pb.EnsembleProblem(
        problem, lambda p, ctx: p.replace(acceleration=lambda t, x, v, k: -x)
    )
    with pytest.raises(ValueError, match="another `acceleration`; put what differs"):
        solve(other, trajectories=2)
    split = pb.SplitODEProblem(slow, fast, 1.0, (0.0, 1.0), 1.0)
    other = pb.EnsembleProblem(split, lambda p, ctx: p.replace(implicit=slow))
    with pytest.raises(ValueError, match="another `explicit` or `implicit`"):
        solve(other, pb.KenCarp4(), trajectories=2)


def test_parts_must_return_the_state():
    wrong = pb.SplitODEProblem(slow, lambda t, y, p: jnp.ones(3), np.ones(2), (0.0, 1.0))
    with pytest.raises(ValueError, match="`implicit` <lambda> must return leaves shaped like"):
        solve(wrong, pb.KenCarp4())


def test_stochastic_methods_take_neither():
    problem = pb.SecondOrderODEProblem(spring, (1.0, 0.0), (0.0, 1.0), 1.0)
    with pytest.raises(TypeError, match="an ordinary one arrived, SecondOrderODEProblem"):
        solve(problem, pb.EulerMaruyama())


def test_parameters_that_are_no_arrays():
    """A name among the parameters is fixed where the functions are traced."""

    def force(t, x, v, p):
        return -p["k"] * x if p["law"] == "spring" else -x

    problem = pb.SecondOrderODEProblem(force, (1.0, 0.0), (0.0, 1.0), {"k": 4.0, "law": "spring"})
    x, _ = solve(problem, pb.Yoshida4(), dt=0.01).y_end
    np.testing.assert_allclose(x, np.cos(2.0), rtol=1e-6)
