"""Problems hold what was given, are pytrees, and refuse what cannot be a problem."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb


def decay(t, y, rate):
    return -rate * y


def test_replace_changes_only_what_is_named():
    problem = pb.ODEProblem(decay, 1.0, (0.0, 2.0), 0.5)
    other = problem.replace(params=0.25, t_span=(1.0, 3.0))
    assert (other.y0, other.t_span, other.params) == (1.0, (1.0, 3.0), 0.25)
    assert (problem.t_span, problem.params) == ((0.0, 2.0), 0.5)
    assert other.vector_field is decay


def test_replace_names_the_parts():
    problem = pb.ODEProblem(decay, 1.0, (0.0, 2.0), 0.5)
    with pytest.raises(
        TypeError, match=r"`replace` got `u0`.*`vector_field`, `y0`, `t_span`, `params`"
    ):
        problem.replace(u0=2.0)


def test_problem_is_a_pytree_with_named_leaves():
    problem = pb.ODEProblem(decay, {"a": 1.0, "b": 2.0}, (0.0, 2.0), 0.5)
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(problem)]
    assert paths == [".y0['a']", ".y0['b']", ".t_span[0]", ".t_span[1]", ".params"]
    doubled = jax.tree.map(lambda x: 2 * x, problem)
    assert doubled.y0 == {"a": 2.0, "b": 4.0}
    assert doubled.t_span == (0.0, 4.0)
    assert doubled.vector_field is decay


def test_problem_passes_through_jit():
    problem = pb.ODEProblem(decay, 1.0, (0.0, 2.0), 0.5)
    out = jax.jit(lambda p: p.replace(y0=3 * p.y0))(problem)
    assert float(out.y0) == 3.0
    assert out.vector_field is decay


def test_vector_field_that_is_a_pytree_contributes_its_leaves():
    field = jax.tree_util.Partial(lambda w, t, y, params: w * y, jnp.float32(2.0))
    problem = pb.ODEProblem(field, 1.0, (0.0, 2.0))
    assert [float(x) for x in jax.tree.leaves(problem)] == [2.0, 1.0, 0.0, 2.0]
    scaled = jax.tree.map(lambda x: 10 * x, problem)
    assert float(scaled.vector_field(0.0, 1.0, None)) == 20.0


def test_plain_partial_is_static():
    problem = pb.ODEProblem(
        functools.partial(lambda t, y, params, rate: -rate * y, rate=2.0), 1.0, (0.0, 2.0)
    )
    assert len(jax.tree.leaves(problem)) == 3


@pytest.mark.parametrize("t_span", [np.array([0.0, 2.0]), jnp.array([0.0, 2.0]), [0.0, 2.0]])
def test_t_span_may_be_an_array_of_two(t_span):
    problem = pb.ODEProblem(decay, 1.0, t_span, 0.5)
    assert [float(t) for t in problem.t_span] == [0.0, 2.0]


@pytest.mark.parametrize(
    ("t_span", "got"),
    [
        ((0.0, 1.0, 2.0), "3 entries"),
        (np.zeros((4, 2)), r"array of shape \(4, 2\)"),
        (1.0, "a float"),
    ],
)
def test_t_span_must_be_a_pair(t_span, got):
    with pytest.raises(ValueError, match=rf"`t_span` must be the pair \(t0, t1\), but .*{got}"):
        pb.ODEProblem(decay, 1.0, t_span)


def test_vector_field_must_be_callable():
    with pytest.raises(TypeError, match=r"`vector_field` must be a function .* a float arrived"):
        pb.ODEProblem(1.0, decay, (0.0, 1.0))


def test_jacobian_is_a_function():
    problem = pb.ODEProblem(decay, 1.0, (0.0, 1.0), 0.5, jac=lambda t, y, rate: -rate)
    assert problem.functions == (decay, problem.jac)
    assert problem.replace(y0=2.0).jac is problem.jac
    assert jax.tree.map(lambda x: 2 * x, problem).jac is problem.jac
    assert problem.replace(jac=None).functions == (decay,)
    with pytest.raises(TypeError, match=r"`jac` must be a function `jac\(t, y, params\)`"):
        pb.ODEProblem(decay, 1.0, (0.0, 1.0), jac=np.eye(1))


def test_mass_matrix_is_static():
    problem = pb.ODEProblem(decay, 1.0, (0.0, 1.0), mass_matrix=[[2.0]])
    same = pb.ODEProblem(decay, 3.0, (0.0, 1.0), mass_matrix=np.array([[2]]))
    assert jax.tree.structure(problem) == jax.tree.structure(same)
    assert problem.replace(y0=2.0).mass_matrix == ((2.0,),)
    other = problem.replace(mass_matrix=[3.0])
    assert jax.tree.structure(problem) != jax.tree.structure(other)
    with pytest.raises(TypeError, match="`mass_matrix` must be known numbers, but a traced"):
        jax.jit(lambda m: pb.ODEProblem(decay, 1.0, (0.0, 1.0), mass_matrix=m).y0)(np.eye(1))
    with pytest.raises(TypeError, match="`mass_matrix` must be real numbers of shape"):
        pb.ODEProblem(decay, 1.0, (0.0, 1.0), mass_matrix=[1j])


def test_empty_events_are_none():
    assert pb.ODEProblem(decay, 1.0, (0.0, 1.0), events=[]).y0 == 1.0


def test_repr_names_the_function():
    problem = pb.ODEProblem(decay, 1.0, (0.0, 2.0), 0.5)
    assert repr(problem) == "ODEProblem(decay, y0=1.0, t_span=(0.0, 2.0), params=0.5)"
