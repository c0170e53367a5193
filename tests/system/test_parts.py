"""Solves in parts, with snapshots in between: the same steps, the same gradients, less memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor_slow_on_array

KERNEL = ANY
Y0 = jnp.array([2.0, 0.5])
PLAIN = pb.DiscreteAdjoint(resolve=False)


def lotka(t, y, p):
    return jnp.stack([y[0] * (p - y[1]), y[1] * (y[0] - 1.0)])


def in_parts(**options):
    return pb.DiscreteAdjoint(**({"resolve": False, "tape": 8, "scheme": pb.Online(3)} | options))


def solve(p, y0=Y0, adjoint=PLAIN, executor=KERNEL, method=None, t1=20.0, **options):
    problem = pb.ODEProblem(lotka, y0, (0.0, t1), p)
    options = {"rtol": 1e-6, "max_steps": 500} | options
    return pb.solve(problem, method or pb.Tsit5(), executor, adjoint=adjoint, **options)


def gradient(adjoint, **options):
    def loss(p, y0):
        return jnp.sum(solve(p, y0, adjoint, **options).y ** 2)

    return jax.grad(loss, (0, 1))(jnp.array(1.0), Y0)


@each_executor_slow_on_array
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"saveat": np.linspace(0, 20, 7)},
        {"method": pb.Vern7(), "controller": pb.PIDController()},
    ],
    ids=["final", "saveat", "pid"],
)
def test_same_steps_and_gradients(executor, options):
    options = {"executor": executor} | options
    plain, parts = (solve(1.0, adjoint=a, **options) for a in (PLAIN, in_parts()))
    np.testing.assert_array_equal(parts.y, plain.y)
    assert parts.stats.keys() == plain.stats.keys()
    for name in ("n_attempts", "n_accepted", "n_rejected"):
        assert int(parts.stats[name]) == int(plain.stats[name])
    assert int(parts.n_saved) == int(plain.n_saved)
    for a, b in zip(gradient(in_parts(), **options), gradient(PLAIN, **options), strict=True):
        # Cotangents of parameters are added up part by part.
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_fixed_steps_differ_by_rounding():
    options = {"dt": 0.05, "saveat": np.linspace(0, 20, 7)}
    plain, parts = (solve(1.0, adjoint=a, **options) for a in (PLAIN, in_parts()))
    # A part counts its steps from where it begins.
    np.testing.assert_allclose(parts.y, plain.y, rtol=1e-13)
    for a, b in zip(gradient(in_parts(), **options), gradient(PLAIN, **options), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("scheme", [pb.Revolve(3), pb.Periodic(4), pb.StoreAll()], ids=str)
def test_schemes(scheme):
    for a, b in zip(gradient(in_parts(scheme=scheme)), gradient(PLAIN), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_storage_on_disk(tmp_path):
    storage = pb.Disk(tmp_path)
    adjoint = in_parts(scheme=pb.Online(2), storage=storage)
    for a, b in zip(gradient(adjoint), gradient(PLAIN), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    assert any(path.stat().st_size > 0 for path in tmp_path.rglob("*") if path.is_file())
    slope = jax.grad(lambda p: solve(p, adjoint=adjoint).y[0, 0])
    np.testing.assert_allclose(jax.jit(slope)(1.0), slope(1.0), rtol=1e-13)


def test_resolved_gradients_are_right_to_the_tolerance():
    for a, b in zip(gradient(in_parts(resolve=True)), gradient(PLAIN, rtol=1e-10), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5)


def test_ensembles_of_unequal_length():
    rates = jnp.array([0.5, 1.0, 2.0, 1e3, 1.5])
    ends = jnp.array([1.0, 20.0, 7.0, 0.02, 3.0])

    def loss(rates, adjoint):
        problem = pb.ODEProblem(lotka, Y0, (0.0, 20.0), 1.0)
        ensemble = pb.EnsembleProblem(problem, params=rates, t_span=(jnp.zeros(5), ends))
        sol = pb.solve(ensemble, pb.Tsit5(), KERNEL, adjoint=adjoint, rtol=1e-6, max_steps=400)
        return jnp.sum(sol.y_end**2), sol

    grad = jax.grad(loss, has_aux=True)
    (plain, a), (parts, b) = (grad(rates, adjoint) for adjoint in (PLAIN, in_parts()))
    np.testing.assert_array_equal(a.y, b.y)
    np.testing.assert_array_equal(a.status, b.status)
    np.testing.assert_array_equal(a.stats["n_accepted"], b.stats["n_accepted"])
    np.testing.assert_allclose(parts, plain, rtol=1e-12)


def test_a_trajectory_that_fails_disturbs_no_other():
    def blow_up(t, y, p):
        return p * y**2

    def loss(p, adjoint):
        problem = pb.ODEProblem(blow_up, jnp.array(1.0), (0.0, 1.0), 1.0)
        ensemble = pb.EnsembleProblem(problem, params=p)
        sol = pb.solve(ensemble, pb.Tsit5(), KERNEL, adjoint=adjoint, rtol=1e-6, max_steps=900)
        return jnp.sum(jnp.where(sol.ok, sol.y_end, 0.0)), sol.status

    p = jnp.array([0.5, 3.0, 0.25])
    found, status = jax.grad(loss, has_aux=True)(p, in_parts())
    assert status[1] >= 10
    assert status[::2].tolist() == [0, 0]
    # y(1) = 1 / (1 - p)
    np.testing.assert_allclose(found, [4.0, 0.0, 1 / 0.75**2], rtol=1e-4)


def test_max_steps_bounds_all_parts():
    sol = solve(1.0, adjoint=in_parts(), max_steps=20)
    assert int(sol.status) == pb.Status.max_steps_reached
    # The last part is a whole one.
    assert int(sol.stats["n_attempts"]) == 24


def test_ends_move():
    def loss(t0, t1):
        problem = pb.ODEProblem(lotka, Y0, (t0, t1), 1.0)
        sol = pb.solve(problem, pb.Tsit5(), KERNEL, adjoint=in_parts(), rtol=1e-9, atol=1e-9)
        return sol.y_end[0], sol.y_end

    (by_t0, by_t1), y_end = jax.grad(loss, (0, 1), has_aux=True)(0.0, 7.0)
    np.testing.assert_allclose(by_t1, lotka(7.0, y_end, 1.0)[0], rtol=1e-12)
    np.testing.assert_allclose(by_t0, -by_t1, rtol=1e-6)  # an autonomous problem


@pytest.mark.slow
def test_stiff_methods_and_algebraic_equations():
    def robertson(t, y, k):
        slow = k * y[0] - 1e4 * y[1] * y[2]
        return jnp.stack([-slow, slow - 3e7 * y[1] ** 2, jnp.sum(y) - 1.0])

    def loss(k, adjoint, method, mass):
        y0 = jnp.array([1.0, 0.0, 0.3])
        problem = pb.ODEProblem(robertson, y0, (0.0, 40.0), k, mass_matrix=mass)
        sol = pb.solve(problem, method, KERNEL, adjoint=adjoint, rtol=1e-6, atol=1e-9)
        return sol.y_end[0]

    k = jnp.array(0.04)
    for method in (pb.Rodas5P(), pb.Kvaerno5()):
        found, plain = (jax.grad(loss)(k, a, method, (1.0, 1.0, 0.0)) for a in (in_parts(), PLAIN))
        np.testing.assert_allclose(found, plain, rtol=1e-9)


def test_forward_mode_says_what_to_do():
    with pytest.raises(TypeError, match="forward mode"):
        jax.jvp(lambda p: solve(p, adjoint=in_parts()).y, (1.0,), (1.0,))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"scheme": 3}, TypeError, "`scheme` of DiscreteAdjoint must be one such as pb.Online"),
        (
            {"storage": "disk"},
            TypeError,
            "`storage` of DiscreteAdjoint must be one such as pb.Disk",
        ),
    ],
)
def test_wrong_options(options, error, text):
    with pytest.raises(error, match=text):
        solve(1.0, adjoint=in_parts(**options))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"saveat": "steps"}, 'saveat="steps"'),
        ({"tstops": [1.0]}, "events or tstops"),
        ({"events": [pb.Event(lambda t, y, p: y[0])]}, "events or tstops"),
    ],
)
def test_what_cannot_be_made_in_parts(options, what):
    with pytest.raises(NotImplementedError, match=f"are not available with {what}"):
        solve(1.0, adjoint=in_parts(), **options)
