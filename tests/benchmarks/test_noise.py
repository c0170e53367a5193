"""The noise benchmark: its closed forms are right, and all peers have the same distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.noise import KERNEL, NOISY, PEERS
from benchmarks.solver import GRADIENT, PRIMAL
from benchmarks.tables import render

import pullback as pb
from benchmarks import noise

# They compile other libraries' solvers, and say nothing about the package.
pytestmark = pytest.mark.slow

N = 256
KEY = jax.random.key(3)
# Of a normal number, in some tens of comparisons with fixed keys. One step too many, of 256, moves
# the mean of geometric Brownian motion by nine standard errors.
SIGMAS = 4.5


def params(name, dtype="float64"):
    return jnp.asarray(NOISY[name].params, dtype)


def everyone(work):
    for peer in PEERS:
        for name in NOISY:
            if work in peer.work and peer.n_threads is None:
                yield pytest.param(peer, name, id=f"{name}-{peer.name}")


@pytest.mark.parametrize(("peer", "name"), list(everyone(PRIMAL)))
def test_mean_of_end_states(peer, name):
    if peer.name.startswith("diffrax"):
        pytest.importorskip("diffrax")
    found = np.asarray(jax.jit(peer.make(NOISY[name], N))(params(name), KEY))
    assert found.shape == (N, *NOISY[name].y0.shape)
    expected = noise.truth(name, PRIMAL, peer.method, N)
    mean = found.reshape(N, -1).mean(axis=0)
    assert expected.standard_errors(mean, N) < SIGMAS
    # A standard deviation of n nearly normal numbers is known to one part in (2 n)^(1/2).
    spread = found.reshape(N, -1).std(axis=0)
    np.testing.assert_allclose(spread, expected.deviation, rtol=SIGMAS / np.sqrt(2 * N))


@pytest.mark.parametrize(("peer", "name"), list(everyone(GRADIENT)))
def test_gradient(peer, name):
    if peer.name.startswith("diffrax"):
        pytest.importorskip("diffrax")
    ends = peer.make(NOISY[name], N)
    found = np.asarray(jax.jit(peer.derivative(noise.objective(ends)))(params(name), KEY))
    expected = noise.truth(name, GRADIENT, peer.method, N)
    assert found.shape == NOISY[name].params.shape
    assert expected.standard_errors(found, N) < SIGMAS


def test_single_precision():
    for make in (noise._EULER, noise.scan_at_once(False)):
        found = jax.jit(make(NOISY["geometric"], N))(params("geometric", "float32"), KEY)
        assert found.dtype == np.float32
        expected = noise.truth("geometric", PRIMAL, pb.EulerMaruyama(), N)
        assert expected.standard_errors(np.asarray(found, float).mean(), N) < SIGMAS


@pytest.mark.parametrize("method", [pb.EulerMaruyama(), pb.SRIW1()], ids=lambda m: m.name)
def test_closed_gradient_is_that_of_the_closed_mean(method):
    problem, step = NOISY["geometric"], 1e-4

    def mean(a):
        moved = problem._replace(params=np.array([a, problem.params[1]]))
        return noise._geometric(moved, PRIMAL, method).mean[0]

    a = problem.params[0]
    slope = (mean(a + step) - mean(a - step)) / (2 * step)
    found = noise._geometric(problem, GRADIENT, method).mean
    # The difference is off by a sixth of the step squared.
    np.testing.assert_allclose(found, [slope, 0.0], rtol=1e-8)


def test_closed_deviations_are_those_of_trajectories():
    problem, n = NOISY["geometric"], 4000
    ends = noise._EULER(problem, n)
    values = np.asarray(ends(params("geometric"), KEY))
    expected = noise.truth("geometric", PRIMAL, pb.EulerMaruyama(), n)
    # A standard deviation of n normal numbers is known to one part in (2 n)^(1/2).
    bound = SIGMAS / np.sqrt(2 * n)
    np.testing.assert_allclose(values.std(), expected.deviation[0], rtol=bound)
    each = jnp.broadcast_to(params("geometric"), (n, 2))
    slopes = jax.jit(jax.grad(lambda p: jnp.sum(ends(p, KEY))))(each)
    expected = noise.truth("geometric", GRADIENT, pb.EulerMaruyama(), n)
    np.testing.assert_allclose(np.std(slopes, axis=0), expected.deviation, rtol=bound)


def test_standard_errors():
    expected = noise.Truth(np.array([1.0, 2.0]), np.array([1.0, 4.0]), np.inf)
    # 0.2 is two standard errors of 100 trajectories, 0.4 of the other one is one.
    assert expected.standard_errors(np.array([1.2, 1.6]), 100) == pytest.approx(2.0)
    # An expectation from as many trajectories makes the error larger by the root of two.
    estimated = expected._replace(n=100.0)
    assert estimated.standard_errors(np.array([1.2, 2.0]), 100) == pytest.approx(2.0**0.5)


def test_table_renders():
    few = tuple(p for p in PEERS if p.name in (KERNEL, "kernel, 1 thread", "jit(scan)"))
    for work, peers in ((PRIMAL, 3), (GRADIENT, 3)):
        lines = noise.rows("geometric", "float64", work, N, 1, few)
        assert [line[3] for line in lines] == [KERNEL, "kernel, 1 thread", "jit(scan)"]
        assert lines[0][6] == "1"
        text = render(noise._HEAD, lines).splitlines()
        assert len(text) == 2 + peers
        assert len({len(line) for line in text}) == 1
