"""Any pytree as state and parameters: the same numbers as the flat formulation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor_slow_on_array


class Orbit(NamedTuple):
    position: jax.Array
    momentum: jax.Array


def flat(t, y, k):
    return jnp.stack([y[2], y[3], -k * y[0], -k * y[1]])


def as_dict(t, y, k):
    return {"px": -k * y["x"], "py": -k * y["y"], "x": y["px"], "y": y["py"]}


def as_tuple(t, y, k):
    (x, y_), (px, py) = y
    return [[px, py], [-k * x, -k * y_]]


def as_named(t, y, k):
    return Orbit(y.momentum, -k * y.position)


def as_mixed(t, y, k):
    return {"p": -k * y["q"].reshape(2), "q": y["p"].reshape(1, 2)}


Y0 = np.array([1.0, -0.5, 0.2, 0.7])
FORMS = {
    "dict of scalars": (
        as_dict,
        {"x": 1.0, "y": -0.5, "px": 0.2, "py": 0.7},
        ["x", "y", "px", "py"],
    ),
    "nested lists": (as_tuple, [[1.0, -0.5], [0.2, 0.7]], None),
    "named tuple": (as_named, Orbit(Y0[:2], Y0[2:]), None),
    "mixed shapes": (as_mixed, {"q": Y0[None, :2], "p": Y0[2:]}, ["q", "p"]),
}


def ordered(tree, order):
    leaves = [tree[name] for name in order] if order else jax.tree.leaves(tree)
    return np.concatenate([np.reshape(leaf, -1) for leaf in leaves])


@each_executor_slow_on_array
@pytest.mark.parametrize("name", FORMS)
def test_same_numbers_as_the_flat_state(name, executor):
    field, y0, order = FORMS[name]

    def end(field, y0, k):
        return pb.solve(pb.ODEProblem(field, y0, (0.0, 2.0), k), pb.RK4(), executor, dt=0.1).y_end

    expected = end(flat, Y0, 1.7)
    got = end(field, y0, 1.7)
    assert jax.tree.structure(got) == jax.tree.structure(y0)
    # The same operations on the same numbers.
    np.testing.assert_allclose(ordered(got, order), expected, rtol=1e-14)
    slope = jax.grad(lambda k: sum(jnp.sum(x) for x in jax.tree.leaves(end(field, y0, k))))(1.7)
    np.testing.assert_allclose(slope, jax.grad(lambda k: end(flat, Y0, k).sum())(1.7), rtol=1e-12)


def test_gradient_has_the_structure_of_state_and_parameters():
    def loss(y0, params):
        def field(t, y, p):
            return {"a": p["rate"] * y["a"], "b": (p["pair"][0] * y["b"][0] + p["pair"][1],)}

        sol = pb.solve(pb.ODEProblem(field, y0, (0.0, 1.0), params), pb.RK4(), ANY, dt=0.1)
        return sol.y_end["a"] + sol.y_end["b"][0].sum()

    y0 = {"a": 1.0, "b": (np.ones(3),)}
    params = {"rate": 0.5, "pair": [np.array([0.1, 0.2, 0.3]), 0.0]}
    by_y0, by_params = jax.grad(loss, (0, 1))(y0, params)
    assert jax.tree.structure(by_y0) == jax.tree.structure(y0)
    assert jax.tree.structure(by_params) == jax.tree.structure(params)
    np.testing.assert_allclose(by_y0["a"], np.exp(0.5), rtol=1e-6)
    np.testing.assert_allclose(by_y0["b"][0], np.exp([0.1, 0.2, 0.3]), rtol=1e-6)
    rates = np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(by_params["pair"][0], np.exp(rates), rtol=1e-6)
    np.testing.assert_allclose(by_params["pair"][1], (np.expm1(rates) / rates).sum(), rtol=1e-6)


def test_integers_and_keys_among_the_parameters():
    key = jax.random.key(0)

    def field(t, y, params):
        noise = jax.random.uniform(jax.random.fold_in(params["key"], params["n"]))
        return -params["rate"] * y + 0 * noise

    problem = pb.ODEProblem(field, 1.0, (0.0, 1.0), {"key": key, "n": 3, "rate": 1.0})

    def end(rate):
        params = {**problem.params, "rate": rate}
        return pb.solve(problem.replace(params=params), pb.RK4(), ANY, dt=0.1).y_end

    np.testing.assert_allclose(jax.grad(end)(1.0), -np.exp(-1.0), rtol=1e-5)


def test_keys_of_each_trajectory():
    def field(t, y, key):
        return jax.random.normal(key)

    problem = pb.ODEProblem(field, 0.0, (0.0, 1.0), jax.random.key(0))
    ensemble = pb.EnsembleProblem(problem, lambda p, ctx: p.replace(params=ctx.key))
    key = jax.random.key(7)
    sol = pb.solve(ensemble, pb.Euler(), ANY, trajectories=4, key=key, dt=0.25)
    expected = [jax.random.normal(jax.random.fold_in(key, i)) for i in range(4)]
    np.testing.assert_allclose(sol.y_end, expected, rtol=1e-14)
    by_leaf = pb.EnsembleProblem(problem, params=jax.random.split(key, 4))
    again = pb.solve(by_leaf, pb.Euler(), ANY, dt=0.25)
    expected = [jax.random.normal(k) for k in jax.random.split(key, 4)]
    np.testing.assert_allclose(again.y_end, expected, rtol=1e-14)
