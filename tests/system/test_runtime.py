"""What must not depend on how a program runs `solve`: threads, traces, caches."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from executors import ANY, each_executor

DECAY = pb.ODEProblem(lambda t, y, rate: -rate * y, 1.0, (0.0, 1.0), 1.0)


def total(rate):
    ensemble = pb.EnsembleProblem(DECAY, lambda p, ctx: p.replace(params=rate * ctx.sim_id))
    return pb.solve(ensemble, pb.RK4(), ANY, dt=0.1, trajectories=3).y_end.sum()


def test_no_tracer_outlives_its_trace():
    with jax.checking_leaks():
        for rate in (0.3, 0.4):
            expected = np.exp(-rate * np.arange(3)).sum()
            np.testing.assert_allclose(jax.jit(total)(rate), expected, rtol=1e-5)
        jax.jit(jax.grad(total))(0.3)
        jax.jit(pb.value_and_grad(total))(0.3)


def test_from_several_threads():
    rates = np.linspace(0.0, 2.0, 40)

    def end(rate):
        sol = pb.solve(DECAY.replace(params=rate), pb.RK4(), ANY, dt=0.1)
        return float(sol.y_end), float(jax.grad(total)(rate))

    alone = [end(rate) for rate in rates[:3]]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(end, rates))
    assert together[:3] == alone
    np.testing.assert_allclose([y for y, _ in together], np.exp(-rates), rtol=1e-4)


def test_same_call_same_answer():
    problem = pb.ODEProblem(
        lambda t, y, p: jnp.stack([10 * (y[1] - y[0]), y[0] * (p - y[2]) - y[1],
                                   y[0] * y[1] - 8 / 3 * y[2]]),
        np.array([1.0, 0.0, 0.0]), (0.0, 10.0), 28.0,
    )  # fmt: skip
    ensemble = pb.EnsembleProblem(problem, params=np.linspace(20.0, 28.0, 40))
    first, second = (pb.solve(ensemble, pb.Tsit5(), ANY, rtol=1e-6) for _ in range(2))
    jitted = jax.jit(lambda e: pb.solve(e, pb.Tsit5(), ANY, rtol=1e-6))(ensemble)
    for a, b, c in zip(*map(jax.tree.leaves, (first, second, jitted)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


@each_executor
def test_throw_works_under_grad(executor):
    def end(rate):
        problem = DECAY.replace(params=rate)
        return pb.solve(problem, pb.RK4(), executor, dt=0.1, throw=True).y_end

    np.testing.assert_allclose(jax.grad(end)(1.0), -np.exp(-1.0), rtol=1e-5)


def test_value_of_value_and_grad_is_that_of_the_plain_call():
    def end(rate):
        return pb.solve(DECAY.replace(params=rate), pb.Tsit5(), ANY).y_end

    assert pb.value_and_grad(end)(1.3)[0] == end(1.3)
