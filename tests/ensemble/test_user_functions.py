"""A function that cannot be called with what it will get is refused by name."""

import jax.numpy as jnp
import pytest

import pullback as pb

ONE = jnp.ones(2)


def problem(field=lambda t, y, p: y, **options):
    return pb.ODEProblem(field, ONE, (0.0, 1.0), 1.0, **options)


def solve(**options):
    return pb.solve(problem(), pb.Tsit5(), **options)


MISTAKES = {
    "vector_field": lambda f: problem(f),
    "jac": lambda f: problem(jac=f),
    "drift": lambda f: pb.SDEProblem(f, lambda t, y, p: y, ONE, (0.0, 1.0)),
    "diffusion": lambda f: pb.SDEProblem(lambda t, y, p: y, f, ONE, (0.0, 1.0)),
    "explicit": lambda f: pb.SplitODEProblem(f, lambda t, y, p: y, ONE, (0.0, 1.0)),
    "acceleration": lambda f: pb.SecondOrderODEProblem(f, (ONE, ONE), (0.0, 1.0)),
    "condition": lambda f: pb.Event(f),
    "affect": lambda f: pb.Event(lambda t, y, p: y[0], f),
    "save_fn": lambda f: solve(save_fn=f),
    "is_valid": lambda f: solve(is_valid=f),
    "of": lambda f: pb.solve(
        pb.EnsembleProblem(problem(), params=ONE), pb.Tsit5(), pb.EnsembleKernel(), reduce=f
    ),
    "prob_func": lambda f: pb.EnsembleProblem(problem(), f),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_wrong_number_of_arguments(name):
    def mistaken(a, b, c, d, e):
        return a

    with pytest.raises(
        TypeError, match=rf"`{name}` must be .* mistaken takes \(a, b, c, d, e\); give"
    ):
        MISTAKES[name](mistaken)


def test_any_callable_that_takes_them_will_do():
    class Decay:
        def __call__(self, *args):
            return -args[1]

    for field in (Decay(), lambda *args: -args[1], lambda t, y, p, rate=1.0: -rate * y):
        end = pb.solve(problem(field), pb.Tsit5(), rtol=1e-9, atol=1e-9).y_end
        assert float(end[0]) == pytest.approx(float(jnp.exp(-1.0)), abs=1e-7)
