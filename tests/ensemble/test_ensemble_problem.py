"""What differs between trajectories, and what stays shared."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback.ensemble import prob_func as module
from pullback.ensemble.members import resolve_members


def field(t, y, params):
    return -params["k"] * y["a"]


@pytest.fixture
def problem():
    y0 = {"a": 1.0, "b": jnp.array([1.0, 2.0])}
    params = {"k": 0.5, "w": jnp.ones((3, 4)), "name": "fixed"}
    return pb.ODEProblem(lambda t, y, p: y, y0, (0.0, 1.0), params)


def flags(members):
    leaves = [*members.y0, *members.t_span, *members.params]
    return {leaf.path for leaf in leaves if leaf.batched}


def test_single_problem_has_no_trajectories(problem):
    members = resolve_members(problem, None, None)
    assert members.n_traj is None
    assert flags(members) == set()


def test_leaves_with_a_leading_axis_are_batched_and_others_shared(problem):
    ensemble = pb.EnsembleProblem(
        problem,
        y0={"a": np.arange(5.0), "b": None},
        params={"k": 0.25, "w": np.zeros((5, 3, 4)), "name": None},
    )
    members = resolve_members(ensemble, None, None)
    assert members.n_traj == 5
    assert flags(members) == {"y0['a']", "params['w']"}
    assert {leaf.path: leaf.value for leaf in members.params}["params['k']"] == 0.25
    assert members.y0[1].value is problem.y0["b"]


def test_none_in_the_problem_itself_stays_none():
    problem = pb.ODEProblem(field, 1.0, (0.0, 1.0), {"a": None, "b": 2.0})
    ensemble = pb.EnsembleProblem(problem, params={"a": None, "b": np.ones(3)})
    assert resolve_members(ensemble, None, None).n_traj == 3
    wrong = pb.EnsembleProblem(problem, params={"a": np.ones(3), "b": None})
    with pytest.raises(ValueError, match=r"`params\['a'\]` .* is None in the problem itself"):
        resolve_members(wrong, None, None)


@pytest.mark.parametrize(
    "t_span",
    [
        np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]),
        [[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]],
        (0.0, np.array([1.0, 2.0, 3.0])),
        (0.0, [1.0, 2.0, 3.0]),
    ],
    ids=["rows", "lists", "pair", "pair with a list"],
)
def test_t_span_for_each_trajectory(problem, t_span):
    members = resolve_members(pb.EnsembleProblem(problem, t_span=t_span), None, None)
    assert members.n_traj == 3
    np.testing.assert_array_equal(members.t_span[1].value, [1.0, 2.0, 3.0])
    assert members.t_span[1].batched


def test_one_t_span_for_all(problem):
    members = resolve_members(pb.EnsembleProblem(problem, t_span=(2.0, 3.0)), 4, None)
    assert flags(members) == set()
    assert [leaf.value for leaf in members.t_span] == [2.0, 3.0]


def test_prob_func_shares_what_does_not_depend_on_the_trajectory(problem):
    def prob_func(problem, ctx):
        halved = jax.jit(lambda w, i: (w / 2, w[0, 0] * i))(problem.params["w"], ctx.sim_id)
        return problem.replace(
            y0={"a": problem.y0["a"] + ctx.sim_id, "b": 2 * problem.y0["b"]},
            params={**problem.params, "w": halved[0]},
        )

    members = resolve_members(pb.EnsembleProblem(problem, prob_func), 4, None)
    assert flags(members) == {"y0['a']"}
    by_path = {leaf.path: leaf for leaf in [*members.y0, *members.params]}
    np.testing.assert_array_equal(by_path["y0['a']"].value, [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(by_path["y0['b']"].value, [2.0, 4.0])
    np.testing.assert_array_equal(by_path["params['w']"].value, np.full((3, 4), 0.5))
    assert by_path["params['name']"].value == "fixed"


def test_prob_func_leaves_unchanged_leaves_alone(problem):
    weights = np.ones((3, 4))
    problem = problem.replace(params={"k": 0.5, "w": weights})
    ensemble = pb.EnsembleProblem(problem, lambda p, ctx: p.replace(y0={**p.y0, "a": 2.0}))
    members = resolve_members(ensemble, 3, None)
    assert members.params[1].value is weights
    assert [leaf.value for leaf in members.t_span] == [0.0, 1.0]


def test_sim_id_counts_from_zero_in_int32(problem):
    seen = []

    def prob_func(problem, ctx):
        seen.append(ctx.sim_id.dtype)
        return problem.replace(t_span=(0.0, ctx.sim_id + 1.0))

    members = resolve_members(pb.EnsembleProblem(problem, prob_func), 3, None)
    assert seen == [np.int32]
    np.testing.assert_array_equal(members.t_span[1].value, [1.0, 2.0, 3.0])


def test_key_of_a_trajectory_is_fold_in(problem):
    def prob_func(problem, ctx):
        return problem.replace(y0={**problem.y0, "a": jax.random.normal(ctx.key)})

    key = jax.random.key(3)
    for given in (key, jax.random.PRNGKey(3)):
        members = resolve_members(pb.EnsembleProblem(problem, prob_func), 4, given)
        expected = [jax.random.normal(jax.random.fold_in(key, i)) for i in range(4)]
        np.testing.assert_array_equal(members.y0[0].value, expected)


def test_ctx_key_without_a_key(problem):
    ensemble = pb.EnsembleProblem(problem, lambda p, c: p.replace(y0=jax.random.normal(c.key)))
    with pytest.raises(ValueError, match=r"`ctx.key`, but `solve` was called without `key`"):
        resolve_members(ensemble, 2, None)


@pytest.mark.parametrize("key", [0, np.zeros(2), jax.random.split(jax.random.key(0), 2)])
def test_key_must_be_one_key(problem, key):
    ensemble = pb.EnsembleProblem(problem, lambda p, ctx: p)
    with pytest.raises(TypeError, match="`key` must be one JAX random key"):
        resolve_members(ensemble, 2, key)


def test_prob_func_sees_traced_values_of_an_outer_transformation(problem):
    def total(scale):
        ensemble = pb.EnsembleProblem(
            problem, lambda p, ctx: p.replace(y0={**p.y0, "a": scale * ctx.sim_id})
        )
        return resolve_members(ensemble, 4, None).y0[0].value.sum()

    value, slope = jax.value_and_grad(total)(2.0)
    assert (float(value), float(slope)) == (12.0, 6.0)


def test_prob_func_is_traced_again_only_when_something_changed(monkeypatch):
    traces = []

    def counted(*args):
        traces.append(1)
        return trace(*args)

    trace = module._trace
    monkeypatch.setattr(module, "_trace", counted)
    problem = pb.ODEProblem(field, 1.0, (0.0, 1.0), 2.0)
    key, step = jax.random.key(1), [0.5]

    def values(n, problem=problem, key=key):
        ensemble = pb.EnsembleProblem(
            problem,
            lambda p, c: p.replace(y0=p.y0 + step[0] * c.sim_id, params=jax.random.normal(c.key)),
        )
        return resolve_members(ensemble, n, key)

    np.testing.assert_array_equal(values(3).y0[0].value, [1.0, 1.5, 2.0])
    np.testing.assert_array_equal(values(2).y0[0].value, [1.0, 1.5])
    other = values(2, problem.replace(y0=3.0), jax.random.key(2))
    np.testing.assert_array_equal(other.y0[0].value, [3.0, 3.5])
    folded = jax.random.fold_in(jax.random.key(2), 1)
    assert other.params[0].value[1] == jax.random.normal(folded)
    assert len(traces) == 1
    step[0] = 2.0
    np.testing.assert_array_equal(values(2).y0[0].value, [1.0, 3.0])
    np.testing.assert_array_equal(values(2, problem.replace(y0=1)).y0[0].value, [1.0, 3.0])
    assert len(traces) == 3


def test_a_key_that_prob_func_closes_over(problem):
    key = jax.random.key(5)

    def prob_func(problem, ctx):
        mine = jax.random.fold_in(key, ctx.sim_id)
        return problem.replace(y0={**problem.y0, "a": jax.random.normal(mine)})

    plain = problem.replace(params=1.0)
    for _ in range(2):
        members = resolve_members(pb.EnsembleProblem(plain, prob_func), 2, None)
        expected = [jax.random.normal(jax.random.fold_in(key, i)) for i in range(2)]
        np.testing.assert_array_equal(members.y0[0].value, expected)


def same(problem, ctx):
    del ctx
    return problem


def test_ensemble_is_a_pytree(problem):
    ensemble = pb.EnsembleProblem(problem.replace(params=1.0), params=jnp.arange(3.0))
    doubled = jax.jit(lambda e: jax.tree.map(lambda x: 2 * x, e))(ensemble)
    np.testing.assert_array_equal(doubled.params, [0.0, 2.0, 4.0])
    by_function = pb.EnsembleProblem(problem.replace(params=1.0), same)
    assert jax.tree.map(lambda x: x, by_function).prob_func is same


# ------------------------------------------------------------------------------- mistakes


def test_counts_that_disagree(problem):
    y0 = {"a": np.ones(4), "b": None}
    ensemble = pb.EnsembleProblem(problem, y0=y0, t_span=(0.0, np.ones(5)))
    with pytest.raises(
        ValueError, match=r"counts disagree: `y0\['a'\]` says 4, but `t_span\[1\]` has 5"
    ):
        resolve_members(ensemble, None, None)
    with pytest.raises(ValueError, match=r"`trajectories` says 3, but `y0\['a'\]` has 4"):
        resolve_members(pb.EnsembleProblem(problem, y0=y0), 3, None)


def test_wrong_shape_of_a_batched_leaf(problem):
    ensemble = pb.EnsembleProblem(problem, y0={"a": None, "b": np.ones((4, 3))})
    with pytest.raises(
        ValueError, match=r"`y0\['b'\]` .* shape \(trajectory, 2\).*\(4, 3\) arrived"
    ):
        resolve_members(ensemble, None, None)


def test_wrong_structure_of_batched_leaves(problem):
    ensemble = pb.EnsembleProblem(problem, y0={"a": np.ones(4)})
    with pytest.raises(ValueError, match="`y0` of EnsembleProblem must have the structure"):
        resolve_members(ensemble, None, None)


def test_unknown_number_of_trajectories(problem):
    with pytest.raises(ValueError, match="number of trajectories is unknown"):
        resolve_members(pb.EnsembleProblem(problem), None, None)
    with pytest.raises(ValueError, match="`trajectories` is missing"):
        resolve_members(pb.EnsembleProblem(problem, lambda p, ctx: p), None, None)


@pytest.mark.parametrize("trajectories", [-1, 2.5, True, "3", jnp.ones(2)])
def test_trajectories_must_be_a_count(problem, trajectories):
    with pytest.raises(TypeError, match="`trajectories` must be the number of trajectories"):
        resolve_members(pb.EnsembleProblem(problem, lambda p, ctx: p), trajectories, None)


def test_trajectories_of_a_single_problem(problem):
    with pytest.raises(ValueError, match="arrived with a single ODEProblem; leave it out"):
        resolve_members(problem, 3, None)


def test_prob_func_must_return_a_problem(problem):
    with pytest.raises(TypeError, match="must return an ODEProblem, but it returned a NoneType"):
        resolve_members(pb.EnsembleProblem(problem, lambda p, ctx: None), 3, None)


def test_prob_func_must_keep_the_vector_field(problem):
    def prob_func(problem, ctx):
        return problem.replace(vector_field=field)

    with pytest.raises(ValueError, match="returned a problem with another `vector_field`"):
        resolve_members(pb.EnsembleProblem(problem, prob_func), 3, None)


def test_either_prob_func_or_leaves(problem):
    with pytest.raises(ValueError, match=r"either `prob_func` or batched leaves.*`y0` arrived"):
        pb.EnsembleProblem(problem, same, y0=np.ones(3))


def test_ensemble_of_something_else():
    with pytest.raises(TypeError, match="`problem` of EnsembleProblem must be an ODEProblem"):
        pb.EnsembleProblem(field)
    with pytest.raises(TypeError, match=r"`prob_func` must be a function .* arrays go to y0="):
        pb.EnsembleProblem(pb.ODEProblem(field, 1.0, (0.0, 1.0)), np.ones(3))
    with pytest.raises(TypeError, match="`problem` must be an ODEProblem, an SDEProblem or an Ens"):
        resolve_members(field, None, None)


def test_t_span_with_too_many_axes(problem):
    with pytest.raises(ValueError, match=r"its entry 0 has shape \(2, 2\)"):
        resolve_members(pb.EnsembleProblem(problem, t_span=(np.ones((2, 2)), 1.0)), None, None)
    with pytest.raises(ValueError, match=r"an array of shape \(3, 4\) arrived"):
        resolve_members(pb.EnsembleProblem(problem, t_span=np.ones((3, 4))), None, None)
