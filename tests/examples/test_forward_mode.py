"""Tangents of Lorenz systems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pullback.testing import assert_close


@pytest.fixture(scope="module")
def module(example):
    return example("forward_mode")


def test_volume_shrinks_at_the_rate_of_the_divergence(module):
    # Liouville: det(dy(t)/dy(0)) = exp(-(sigma + 1 + beta) t), whatever the trajectory does.
    params = np.random.default_rng(3).random((16, 3)) * module.CLASSIC
    y0 = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.0]), (16, 3))
    times = np.array([0.0, 0.25, 0.5])
    _, derivative = module.tangent_map(y0, params, times, tolerance=1e-10)
    assert_close(derivative[:, 0], np.broadcast_to(np.eye(3), (16, 3, 3)), rtol=0.0, atol=1e-15)
    wanted = np.exp(-(params[:, 0] + 1.0 + params[:, 2])[:, None] * times)
    # The determinant is smaller than the entries by up to exp(-7), which amplifies their error.
    assert_close(np.linalg.det(derivative), wanted, rtol=1e-5, atol=0.0)


def test_tangents_solve_the_variational_equation(module):
    params = np.array([[10.0, 28.0, 8.0 / 3.0], [4.0, 15.0, 1.0]])
    y0 = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.0]), (2, 3))
    y, derivative = module.tangent_map(y0, params, np.array([0.0, 2.0]), tolerance=1e-10)

    def rate(state, p):
        u, tangent = state
        jacobian = jax.jacfwd(lambda u: module.lorenz(0.0, u, p))(u)
        return module.lorenz(0.0, u, p), jacobian @ tangent

    def step(state, p, h):  # the classic method, as independent of ours as it can be
        add = lambda a, b, c: jax.tree.map(lambda x, k: x + c * k, a, b)  # noqa: E731
        k1 = rate(state, p)
        k2 = rate(add(state, k1, h / 2), p)
        k3 = rate(add(state, k2, h / 2), p)
        k4 = rate(add(state, k3, h), p)
        for k, weight in ((k1, 1), (k2, 2), (k3, 2), (k4, 1)):
            state = add(state, k, h / 6 * weight)
        return state

    n = 8000
    for i, p in enumerate(params):
        start = (y0[i], jnp.eye(3))
        state, tangent = jax.lax.fori_loop(0, n, lambda _, s, p=p: step(s, p, 2.0 / n), start)
        # Fourth order with h = 2.5e-4 and the tolerance 1e-10, both amplified a hundredfold.
        assert_close(y[i, 1], state, rtol=0.0, atol=1e-6)
        assert_close(derivative[i, 1], tangent, rtol=1e-6, atol=1e-5)


def test_small_run_finds_chaos_where_it_is(module, tmp_path, capsys):
    path = tmp_path / "out.png"
    result = module.main(n_traj=200, t1=60.0, picture=path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert result.growth.shape == (200, 61)
    assert np.all(np.isfinite(result.growth))
    assert_close(result.growth[:, 0], np.zeros(200), rtol=0.0, atol=1e-12)
    # 0.9056 is the limit of infinitely long runs; these measure 30 time units of 256 starts.
    assert abs(result.classic_exponent - module.PUBLISHED_EXPONENT) < 0.03
    # At rho <= 1 everything falls into the origin; the share of the rest was 23 % of 10 000.
    assert not result.is_chaotic[result.params[:, 1] <= 1.0].any()
    assert 0.1 < result.is_chaotic.mean() < 0.4
    assert np.median(result.exponent[result.is_chaotic]) > 0.2
    assert np.max(result.exponent) < 1.1
    printed = capsys.readouterr().out
    assert "Lyapunov exponents" in printed
    assert "What it means" in printed
