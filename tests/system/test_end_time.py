"""The derivative by the end of time where the tape is shorter than the run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import each_executor


@each_executor
@pytest.mark.parametrize("tape", [7, 10, None])
def test_end_time_with_a_tape_of_segments(executor, tape):
    def end(t1):
        problem = pb.ODEProblem(lambda t, y, p: -y, 1.0, (0.0, t1))
        adjoint = pb.DiscreteAdjoint(tape=tape)
        return pb.solve(problem, pb.Tsit5(), executor, dt=0.1, adjoint=adjoint).y_end

    np.testing.assert_allclose(jax.grad(end)(2.0), -np.exp(-2.0), rtol=1e-7)
    np.testing.assert_allclose(jax.jacfwd(jax.grad(end))(2.0), np.exp(-2.0), rtol=1e-5)


@each_executor
def test_every_end_of_an_ensemble(executor):
    def ends(t1):
        ensemble = pb.EnsembleProblem(
            pb.ODEProblem(lambda t, y, p: -y, 1.0, (0.0, 1.0)), t_span=(jnp.zeros(2), t1)
        )
        adjoint = pb.DiscreteAdjoint(tape=4)
        options = {"rtol": 1e-8, "atol": 1e-8, "adjoint": adjoint}
        return pb.solve(ensemble, pb.Tsit5(), executor, **options).y_end.sum()

    t1 = jnp.array([1.0, -2.0])
    np.testing.assert_allclose(jax.grad(ends)(t1), -np.exp(-t1), rtol=1e-7)
