"""A foreign function as the vector field of an equation, and as a step of a loop."""

import jax
import jax.numpy as jnp
import pytest

import pullback as pb
from foreign import programs
from foreign.programs import model_twin, needs_enzyme
from pullback.testing import assert_close

pytestmark = needs_enzyme

Y0, P = jnp.array([0.1, 0.2, -0.3]), jnp.array([1.3, 0.4, 2.0])


def problem(f):
    return pb.ODEProblem(lambda t, y, p: f(y, p) - y, Y0, (0.0, 1.0), P)


def test_a_vector_field():
    def end(f, executor):
        def of(y0, p):
            ensemble = pb.EnsembleProblem(problem(f).replace(params=p), y0=jnp.stack([y0, 2 * y0]))
            return pb.solve(ensemble, pb.Tsit5(), executor, rtol=1e-9, atol=1e-9).y_end.sum()

        return jax.jit(jax.value_and_grad(of, (0, 1)))(Y0, P)

    got, want = end(programs.model(), pb.EnsembleArray()), end(model_twin, pb.EnsembleArray())
    assert_close(got, want, rtol=1e-9, atol=1e-12)


def test_without_a_kernel_it_runs_on_arrays_and_says_so():
    with pytest.warns(pb.KernelFallbackWarning, match="foreign_f"):
        sol = pb.solve(problem(programs.model()), pb.Tsit5())
    want = pb.solve(problem(model_twin), pb.Tsit5(), pb.EnsembleArray())
    assert_close(sol.y_end, want.y_end, rtol=1e-12, atol=1e-14)


def test_a_step_of_a_checkpointed_loop():
    def end(f):
        def of(p):
            def step(y, _):
                return y + 0.05 * (f(y, p) - y), None

            y, _ = pb.checkpointed_scan(step, Y0, length=20, scheme=pb.Revolve(3))
            return jnp.sum(y**2)

        return jax.jit(jax.value_and_grad(of))(P)

    assert_close(end(programs.model()), end(model_twin), rtol=1e-12, atol=1e-14)
