"""Gradients that other libraries are known to get wrong, with their right answers."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from ode.lane_problems import BACKENDS, FAST, lotka_volterra, make_solve, solve
from pullback.core import GradientUnresolvedWarning, Status
from pullback.ode import DiscreteAdjoint, solve_lanes
from pullback.ode.probe_tangent import UNRESOLVED
from pullback.testing import assert_close

RTOLS = np.array([1e-3, 1e-6, 1e-9])
NO_PROBE = jnp.zeros(3)


def relative(found, wanted):
    return float(jnp.linalg.norm(found - wanted) / jnp.linalg.norm(wanted))


def equilibrium(t, y, p):
    """u' = p (u - 1): constant from u(0) = 1, with du(T)/du(0) = exp(p T)."""
    return p * (y - 1.0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_tangent_of_a_constant_solution(mode, backend):
    def end(u0, rtol, rate, t1):
        spec, operands = make_solve(equilibrium, u0, rate, (0.0, t1), rtol=rtol, atol=rtol)
        return solve_lanes(spec, operands, backend).y_end[0]

    rates, ends = np.repeat([-50.0, 2.0], 3), np.repeat([1.0, 5.0], 3)
    rtols = np.tile(RTOLS, 2)
    derivative = jax.grad(end) if mode == "reverse" else jax.jacfwd(end)
    found = jax.jit(jax.vmap(derivative, (None, 0, 0, 0)))(1.0, rtols, rates, ends)
    exact = np.exp(rates * ends)
    error = np.abs(found - exact) / np.maximum(1.0, exact)
    bound = np.where(rtols == 1e-3, 2e-2, 30 * rtols)
    assert np.all(error <= bound), error / rtols


def test_a_plain_mesh_is_known_to_be_wrong_there():
    def end(u0):
        adjoint = DiscreteAdjoint(resolve=False)
        return solve(equilibrium, u0, 2.0, (0.0, 5.0), adjoint=adjoint).y_end[0]

    assert abs(float(jax.grad(end)(1.0)) / np.exp(10.0) - 1) > 0.1


def heat(t, y, p):
    """Heat conduction with a reaction on n points: stiff enough to bounce on stability."""
    n = y.shape[0]
    padded = jnp.pad(y, 1)
    return p[0] * (n + 1) ** 2 * (padded[2:] - 2 * y + padded[:-2]) + p[1] * jnp.sin(y)


def test_heat_equation_is_resolved():
    x = np.arange(1, 21) / 21
    y0 = jnp.asarray(np.sin(np.pi * x) + 0.3 * np.sin(7 * np.pi * x))
    p, weight = jnp.ones(2), jnp.asarray(np.cos(1.7 * np.arange(20)) + 0.3)

    def reference(y0):
        h = 0.1 / 4000  # error 7e-14, by halving

        def step(y, _):
            k1 = heat(0.0, y, p)
            k2 = heat(0.0, y + h / 2 * k1, p)
            k3 = heat(0.0, y + h / 2 * k2, p)
            k4 = heat(0.0, y + h * k3, p)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        return weight @ lax.scan(step, y0, None, length=4000)[0]

    def ours(y0, rtol, resolve):
        adjoint = DiscreteAdjoint(resolve=resolve)
        sol = solve(heat, y0, p, (0.0, 0.1), rtol=rtol, atol=rtol, adjoint=adjoint, backend="array")
        return weight @ sol.y_end

    exact = jax.jit(jax.grad(reference))(y0)
    gradients = jax.jit(jax.vmap(jax.grad(lambda y0, r: ours(y0, r, True)), (None, 0)))
    for found, rtol in zip(gradients(y0, RTOLS), RTOLS, strict=True):
        assert relative(found, exact) <= 30 * rtol
    plain = jax.jit(jax.grad(lambda y0: ours(y0, 1e-6, False)))(y0)
    assert relative(plain, exact) > 0.1


def growth_beside_oscillator(t, y, p):
    """One unstable mode nobody looks at, and a neutral oscillator about a constant."""
    a, b, c = y
    return jnp.stack([6 * p[0] * (a - 1.0), p[1] * (c - 1.0), -p[1] * (b - 1.0)])


def test_oscillator_beside_a_growing_mode():
    def loss(y0, probe, rtol):
        spec, operands = make_solve(
            growth_beside_oscillator,
            y0,
            jnp.array([1.0, 30.0]),
            (0.0, 5.0),
            rtol=rtol,
            atol=rtol,
        )
        sol = solve_lanes(spec, operands._replace(probe=probe), FAST)
        return sol.y_end[1] + 0.5 * sol.y_end[2]

    gradients = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1)), (None, None, 0)))
    with pytest.warns(GradientUnresolvedWarning, match="Some gradients"):
        found, probe = gradients(jnp.ones(3), NO_PROBE, RTOLS)
        jax.effects_barrier()
    cos, sin = np.cos(150.0), np.sin(150.0)
    exact = np.array([0.0, cos - 0.5 * sin, sin + 0.5 * cos])
    for g, bound in zip(found, (0.2, 1e-3, 1e-6), strict=True):
        assert relative(g, exact) <= bound
    assert list(probe[:, 0]) == [1.0, 0.0, 0.0]
    estimates = np.sqrt(probe[:, 1] / probe[:, 2])
    assert estimates[0] > UNRESOLVED > estimates[1]
    forward = jax.jit(jax.vmap(jax.jacfwd(loss), (None, None, 0)))(jnp.ones(3), NO_PROBE, RTOLS)
    for g, bound in zip(forward, (0.2, 1e-4, 1e-7), strict=True):
        assert relative(g, exact) <= bound


@pytest.mark.parametrize("backend", BACKENDS)
def test_scaled_tangent_has_the_same_mesh(backend):
    def rows(y0):
        return solve(
            lotka_volterra,
            y0,
            np.array([1.5, 1.0, 1.0, 3.0]),
            (0.0, 3.0),
            saveat=[1.1, 3.0],
            backend=backend,
        ).y

    def derivative(scale):
        seed = scale * jnp.array([0.3, -0.7])
        return jax.jvp(rows, (jnp.array([1.0, 1.0]),), (seed,))[1] / scale

    found = jax.jit(jax.vmap(derivative))(jnp.array([1.0, 2.0**-20, 2.0**20]))
    # Powers of two scale without rounding: the same bits, if the mesh is the same.
    for other in found[1:]:
        assert_close(other, found[0], rtol=0.0, atol=0.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_through_an_ensemble(backend):
    rng = np.random.default_rng(7)
    starts, rates = rng.uniform(0.1, 10.0, 64), rng.uniform(0.5, 2.0, 64)

    def end(u0, p):
        return solve(lambda t, u, p: 1.01 * u * p, u0, p, rtol=1e-8, backend=backend).y_end[0]

    def total(starts, rates):
        return jnp.sum(jax.vmap(end)(starts, rates))

    found = jax.jit(jax.grad(total, argnums=(0, 1)))(starts, rates)
    exact = np.exp(1.01 * rates)
    assert_close(found, (exact, 1.01 * starts * exact), rtol=1e-5, atol=0.0)
    single = jax.jit(jax.grad(end, argnums=(0, 1)))
    bound = 0.0 if backend == "cpu" else 1e-12  # XLA may fuse the two differently
    for i in (0, 31, 63):
        alone = single(starts[i], rates[i])
        assert_close([g[i] for g in found], list(alone), rtol=bound, atol=0.0)


def test_tangent_that_overflows_does_not_stop_the_solve():
    # The tangent grows like exp(300 t): beyond float64 at t = 2.4, while the state is constant.
    def run(u0):
        sol = solve(equilibrium, u0, 300.0, (0.0, 3.0), saveat=[0.5, 3.0], max_steps=5000)
        return sol.y[:, 0], sol.status

    tangents, status = jax.jvp(lambda u: run(u)[0], (1.0,), (1.0,))[1], run(1.0)[1]
    assert int(status) == Status.success
    assert_close(tangents[0], jnp.exp(150.0), rtol=1e-3, atol=0.0)
    assert not np.isfinite(float(tangents[1]))


class TestUnresolved:
    """Lotka-Volterra at rtol 1e-3 has a gradient 1.5 per cent off."""

    POINT = jnp.array([1.5, 1.0, 1.0, 3.0])

    def end(self, action, p, probe, backend=FAST):
        spec, operands = make_solve(
            lotka_volterra,
            jnp.array([1.0, 1.0]),
            p,
            (0.0, 10.0),
            rtol=1e-3,
            atol=1e-3,
            adjoint=DiscreteAdjoint(on_unresolved=action),
        )
        return solve_lanes(spec, operands._replace(probe=probe), backend).y_end[0]

    def gradient(self, action, p, probe=NO_PROBE, backend=FAST):
        return jax.grad(lambda p, probe: self.end(action, p, probe, backend), argnums=(0, 1))(
            p, probe
        )

    def test_one_warning_for_a_batch(self):
        batch = jnp.stack([self.POINT, 0.5 * self.POINT, 1.001 * self.POINT])
        run = jax.jit(jax.vmap(lambda p: self.gradient("warn", p)))
        with pytest.warns(GradientUnresolvedWarning, match="estimated error") as caught:
            probe = run(batch)[1]
            jax.effects_barrier()
        assert int(probe[:, 0].sum()) >= 1
        assert len(caught) == 1
        assert str(caught[0].message).startswith("Some gradients of a solve are unresolved: ")

    def test_warning_is_shown_once_by_default(self):
        run = jax.jit(lambda p: self.gradient("warn", p))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for scale in (1.0, 1.0, 1.001):
                assert float(run(scale * self.POINT)[1][0]) == 1.0
            jax.effects_barrier()
        assert [w.category for w in caught] == [GradientUnresolvedWarning]

    def test_warning_as_error_names_itself(self):
        with pytest.raises(Exception, match="GradientUnresolvedWarning: Some gradients of a solve"):
            jax.block_until_ready(jax.jit(lambda p: self.gradient("warn", p))(self.POINT))
            jax.effects_barrier()

    def test_ignore_is_silent_and_changes_nothing(self):
        (ignored, probe), poisoned = (
            self.gradient("ignore", self.POINT),
            self.gradient("nan", self.POINT),
        )
        assert float(probe[0]) == 1.0
        assert np.isfinite(np.asarray(ignored)).all()
        np.testing.assert_array_equal(probe, poisoned[1])

    def test_error_raises(self):
        with pytest.raises(Exception, match="GradientUnresolvedError") as caught:
            jax.block_until_ready(jax.jit(lambda p: self.gradient("error", p))(self.POINT))
            jax.effects_barrier()
        assert "are unresolved" in str(caught.value)

    def test_nan_poisons_only_what_is_unresolved(self):
        batch = jnp.stack([self.POINT, 0.5 * self.POINT])
        gradient, probe = jax.jit(jax.vmap(lambda p: self.gradient("nan", p)))(batch)
        assert list(probe[:, 0]) == [1.0, 0.0]
        assert np.isnan(np.asarray(gradient[0])).all()
        assert np.isfinite(np.asarray(gradient[1])).all()

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_refine_runs_again(self, backend):
        exact = jax.jit(
            jax.jacfwd(
                lambda p: solve(
                    lotka_volterra, jnp.array([1.0, 1.0]), p, (0.0, 10.0), rtol=1e-9, atol=1e-9
                ).y_end[0]
            )
        )(self.POINT)
        found, probe = jax.jit(lambda p: self.gradient("refine", p, backend=backend))(self.POINT)
        assert float(probe[0]) == 0.0
        assert relative(found * self.POINT, exact * self.POINT) < 0.5 * UNRESOLVED

    def test_refine_runs_only_what_is_unresolved_again(self):
        points = [self.POINT, 0.5 * self.POINT, 1.001 * self.POINT]
        single = [self.gradient("refine", p) for p in points]
        ignored = self.gradient("ignore", points[1])
        assert float(ignored[1][0]) == 0.0
        np.testing.assert_array_equal(single[1][0], ignored[0])
        refined = jax.jit(jax.vmap(lambda p: self.gradient("refine", p)))(jnp.stack(points))
        for i, (gradient, probe) in enumerate(single):
            np.testing.assert_array_equal(refined[0][i], gradient)
            np.testing.assert_array_equal(refined[1][i], probe)

        def total(p, probe):
            scales = jnp.array([1.0, 0.5, 1.001])
            # One vjp of the ensemble: gradients of shared parameters are summed by the executor.
            return jax.vjp(
                lambda p, probe: jax.vmap(lambda s: self.end("refine", s * p, probe))(scales),
                p,
                probe,
            )[1](jnp.ones(3))

        gradient, probe = jax.jit(total)(self.POINT, NO_PROBE)
        expected = sum(s * g for s, (g, _) in zip((1.0, 0.5, 1.001), single, strict=True))
        assert_close(gradient, expected, rtol=1e-12, atol=0.0)
        assert_close(probe, sum(p for _, p in single), rtol=1e-12, atol=0.0)

    def test_refine_has_second_derivatives(self):
        def curvature(action):
            return jax.jacfwd(lambda p: self.gradient(action, p)[0])(self.POINT)

        refined, plain = jax.jit(lambda: (curvature("refine"), curvature("ignore")))()
        # The meshes differ, and neither is exact at this tolerance.
        assert 0.0 < relative(refined, plain) < 0.05
