"""Problems of second order: symplectic methods, their invariants and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor, each_executor_slow_on_array
from pullback.testing import convergence_order, dot_test, taylor_test

METHODS = [pb.VelocityVerlet(), pb.Yoshida4()]
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)


def swing(t, x, v, p):
    """A pendulum whose support moves; nothing about it is linear."""
    return -p[0] * jnp.sin(x) + p[1] * jnp.cos(t)


def pendulum(y0=(1.0, 0.2), t1=2.0, p=(1.3, 0.4)):
    return pb.SecondOrderODEProblem(swing, y0, (0.0, t1), jnp.asarray(p))


def spring(t, x, v, k):
    return -k * x


def kepler(t, x, v, p):
    return -p * x / jnp.sum(x * x) ** 1.5


def orbit(e, n_periods):
    """An ellipse of period 2 pi, from where it is nearest to the centre."""
    x0, v0 = np.array([1.0 - e, 0.0]), np.array([0.0, np.sqrt((1.0 + e) / (1.0 - e))])
    return pb.SecondOrderODEProblem(kepler, (x0, v0), (0.0, 2 * np.pi * n_periods), 1.0)


# ------------------------------------------------------------------------ accuracy


@each_method
def test_order(method):
    steps = [0.1, 0.05, 0.025, 0.0125]
    exact = pb.solve(pendulum(), pb.Vern9(), ANY, rtol=1e-13, atol=1e-13).y_end
    ends = [pb.solve(pendulum(), method, ANY, dt=h).y_end for h in steps]
    errors = [max(abs(a - b) for a, b in zip(end, exact, strict=True)) for end in ends]
    assert convergence_order(errors, steps) == pytest.approx(method.order, abs=0.1)


@each_method
def test_order_of_rows_inside_a_step(method):
    """One step, so that what the ends have lost does not hide the cubic between them."""
    steps = [0.05, 0.025, 0.0125, 0.00625]
    errors = []
    for h in steps:
        at = jnp.array([0.35 * h])
        row = pb.solve(pendulum(t1=h), method, ANY, dt=h, saveat=at).y
        exact = pb.solve(pendulum(t1=0.35 * h), pb.Vern9(), ANY, rtol=1e-13, atol=1e-14).y_end
        errors.append(max(abs(a[0] - b) for a, b in zip(row, exact, strict=True)))
    expected = method.tableau.dense_order + 1
    assert convergence_order(errors, steps) == pytest.approx(expected, abs=0.15)


@each_executor
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_executors_agree_with_the_formula(executor, dtype):
    h, n = 0.125, 16
    x, v = dtype(1.0), dtype(0.5)
    for _ in range(n):
        half = v - dtype(h / 2) * np.sin(x)
        x = x + dtype(h) * half
        v = half - dtype(h / 2) * np.sin(x)
    problem = pb.SecondOrderODEProblem(
        lambda t, x, v, p: -jnp.sin(x), (dtype(1.0), dtype(0.5)), (0.0, h * n)
    )
    sol = pb.solve(problem, pb.VelocityVerlet(), executor, dt=h)
    assert sol.y_end[0].dtype == dtype
    # Some roundings in each of 16 steps.
    np.testing.assert_allclose(sol.y_end, (x, v), rtol=100 * np.finfo(dtype).eps)
    assert int(sol.stats["n_rhs"]) == n + 1


@pytest.mark.parametrize(
    "method", [pb.Tsit5(), pb.Rodas5P(), pb.Kvaerno5(), pb.KenCarp4()], ids=lambda m: m.name
)
def test_every_method_solves_a_problem_of_second_order(method):
    def damped(t, x, v, p):
        return {"a": -p * x["a"] - 0.1 * v["a"], "b": -x["b"] * p}

    y0 = {"a": np.array([1.0, 2.0]), "b": 0.5}, {"a": np.zeros(2), "b": 0.0}
    problem = pb.SecondOrderODEProblem(damped, y0, (0.0, 1.0), 4.0)
    x, v = pb.solve(problem, method, ANY, rtol=1e-8, atol=1e-8).y_end
    np.testing.assert_allclose(x["b"], 0.5 * np.cos(2.0), rtol=2e-6)
    np.testing.assert_allclose(v["b"], -np.sin(2.0), rtol=2e-6)
    w = np.sqrt(4.0 - 0.05**2)
    decay = np.exp(-0.05) * (np.cos(w) + 0.05 / w * np.sin(w))
    np.testing.assert_allclose(x["a"], decay * np.array([1.0, 2.0]), rtol=2e-6)


# ------------------------------------------------------------------------ geometry


@each_method
def test_steps_can_be_taken_back(method):
    there = pb.solve(pendulum(t1=8.0), method, ANY, dt=2.0**-5)
    problem = pendulum(y0=there.y_end).replace(t_span=(8.0, 0.0))
    back = pb.solve(problem, method, ANY, dt=2.0**-5).y_end
    # 512 steps there and back.
    np.testing.assert_allclose(back, (1.0, 0.2), rtol=1e-12)


@each_method
def test_jacobian_of_a_step_is_symplectic(method):
    """J^T Omega J = Omega, of two bodies on a plane, in one step and in twenty."""

    def attraction(t, x, v, p):
        gap = x[0] - x[1]
        force = -p * gap / jnp.sum(gap * gap) ** 1.5
        return jnp.stack([force, -force])

    def end(z, n_steps):
        y0 = z[:4].reshape(2, 2), z[4:].reshape(2, 2)
        problem = pb.SecondOrderODEProblem(attraction, y0, (0.0, 0.1 * n_steps), 1.0)
        x, v = pb.solve(problem, method, ANY, dt=0.1).y_end
        return jnp.concatenate([x.ravel(), v.ravel()])

    z = jnp.array([1.0, 0.0, -0.3, 0.4, 0.0, 0.5, 0.1, -0.6])
    omega = np.kron(np.array([[0.0, 1.0], [-1.0, 0.0]]), np.eye(4))
    for n_steps in (1, 20):
        jac = np.asarray(jax.jacfwd(lambda z, n=n_steps: end(z, n))(z))
        assert np.abs(jac - np.eye(8)).max() > 0.05
        np.testing.assert_allclose(jac.T @ omega @ jac, omega, atol=1e-13 * np.abs(jac).max() ** 2)


def test_energy_error_is_bounded_over_ten_thousand_periods():
    """Of the last hundred periods as of the first: a method that drifts is not symplectic."""
    period = 6.69998  # of the pendulum that swings by one radian
    problem = pb.SecondOrderODEProblem(
        lambda t, x, v, p: -jnp.sin(x), (1.0, 0.0), (0.0, 1e4 * period)
    )
    times = period * np.concatenate([np.linspace(0, 100, 4000), np.linspace(9900, 1e4, 4000)])
    options = {"saveat": times, "max_steps": 2_000_000}

    def errors(method, dt):
        x, v = pb.solve(problem, method, ANY, dt=dt, **options).y
        error = np.abs(v**2 / 2 - np.cos(x) + np.cos(1.0))
        return error[:4000].max(), error[4000:].max()

    for method in METHODS:
        first, last = errors(method, 0.1)
        coarse, _ = errors(method, 0.2)
        assert last < 1.05 * first
        # The energy error falls with the order of the method.
        assert np.log2(coarse / first) == pytest.approx(method.order, abs=0.3)
    first, last = errors(pb.RK4(), 0.1)
    assert last > 20 * first


@each_method
def test_angular_momentum_is_conserved_to_rounding(method):
    """A kick along x and a drift along v both leave x cross v alone."""
    sol = pb.solve(orbit(0.5, 100), method, ANY, dt=2 * np.pi / 400, saveat=2 * np.pi)
    x, v = sol.y
    momentum = x[:, 0] * v[:, 1] - x[:, 1] * v[:, 0]
    # 40 000 steps of roundings that add up at random.
    np.testing.assert_allclose(momentum, momentum[0], rtol=1e-12)


def test_kepler_energy_does_not_drift():
    every = {"saveat": "steps", "max_saves": 200_000, "max_steps": 200_000}
    sol = pb.solve(orbit(0.5, 1000), pb.Yoshida4(), ANY, dt=2 * np.pi / 200, **every)
    x, v = sol.y
    energy = jnp.sum(v * v, axis=1) / 2 - 1.0 / jnp.sqrt(jnp.sum(x * x, axis=1))
    error = np.abs(np.asarray(energy) + 0.5)
    assert error[-2000:].max() < 1.02 * error[:2000].max() < 1e-3


# ------------------------------------------------------------------------ gradients


@each_executor_slow_on_array
@each_method
def test_gradient_of_the_spring_in_closed_form(executor, method):
    t1 = 2.0

    def end(y0, k):
        problem = pb.SecondOrderODEProblem(spring, y0, (0.0, t1), k)
        return pb.solve(problem, method, executor, dt=2e-3).y_end[0]

    y0, k = (0.7, -0.4), 4.0
    w = np.sqrt(k)
    c, s = np.cos(w * t1), np.sin(w * t1)
    by_w = -y0[0] * t1 * s + y0[1] * (t1 * c / w - s / w**2)
    reverse = jax.grad(end, argnums=(0, 1))(y0, k)
    forward = jax.jacfwd(end, argnums=(0, 1))(y0, k)
    # Errors of the methods at this step: (w h)^2 / 12 for one, its square for the other.
    rtol = 1e-5 if method.order == 2 else 1e-9
    np.testing.assert_allclose(jax.tree.leaves(reverse), (c, s / w, by_w / (2 * w)), rtol=rtol)
    np.testing.assert_allclose(jax.tree.leaves(forward), jax.tree.leaves(reverse), rtol=1e-12)


@each_executor_slow_on_array
def test_gradient_in_float32(executor):
    def end(k, dtype):
        problem = pb.SecondOrderODEProblem(spring, (dtype(1.0), dtype(0.0)), (0.0, 2.0), k)
        return pb.solve(problem, pb.Yoshida4(), executor, dt=0.02).y_end[0]

    k = np.float32(4.0)
    right = jax.grad(lambda k: end(k, np.float64))(4.0)
    for derivative in (jax.grad, jax.jacfwd):
        got = derivative(lambda k: end(k, np.float32))(k)
        assert got.dtype == np.float32
        # A hundred steps.
        np.testing.assert_allclose(got, right, rtol=2e-6)


@pytest.mark.parametrize(
    "method",
    [pb.Yoshida4(), pytest.param(pb.VelocityVerlet(), marks=pytest.mark.slow)],
    ids=lambda m: m.name,
)
def test_gradient_is_that_of_the_executed_steps(method):
    """Also of rows inside steps, of the end of the span and of what the force closes over."""

    def loss(z):
        def force(t, x, v, p):
            return -p * jnp.sin(x) + z["held"] * jnp.sin(t)

        problem = pb.SecondOrderODEProblem(force, (z["x"], z["v"]), (0.0, 1.03), z["p"])
        sol = pb.solve(problem, method, ANY, dt=0.125, saveat=np.array([0.3, 0.55, 1.0, 1.03]))
        return jnp.sum(sol.y[0] ** 2) + jnp.sum(jnp.sin(sol.y[1]))

    z = {"x": jnp.array([1.0, 0.3]), "v": jnp.array([0.2, -0.7]), "p": 1.7, "held": 0.4}
    taylor_test(loss, z, order=3)
    dot_test(lambda z: loss(z)[None], z)


def test_gradient_by_the_end_time_moves_along_the_field():
    def end(t1):
        return pb.solve(pendulum(t1=t1), pb.Yoshida4(), ANY, dt=0.01).y_end[0]

    speed = pb.solve(pendulum(t1=1.5), pb.Yoshida4(), ANY, dt=0.01).y_end[1]
    np.testing.assert_allclose(jax.grad(end)(1.5), speed, rtol=1e-8)
    np.testing.assert_allclose(jax.jacfwd(end)(1.5), speed, rtol=1e-8)


# ------------------------------------------------------------------------ with the rest


def test_ensembles_of_both_kinds():
    problem = pb.SecondOrderODEProblem(spring, (1.0, 0.0), (0.0, 1.0), 1.0)
    rates = np.array([1.0, 4.0, 9.0])
    by_leaves = pb.EnsembleProblem(problem, params=rates, y0=(None, np.array([0.0, 1.0, 2.0])))
    sol = pb.solve(by_leaves, pb.Yoshida4(), ANY, dt=0.01)
    w = np.sqrt(rates)
    right = np.cos(w) + np.array([0.0, 1.0, 2.0]) * np.sin(w) / w
    np.testing.assert_allclose(sol.y_end[0], right, rtol=1e-6)

    def prepare(problem, ctx):
        n = ctx.sim_id + 1.0
        return problem.replace(params=n**2, y0=(problem.y0[0], n - 1.0))

    by_function = pb.EnsembleProblem(problem, prepare)
    other = pb.solve(by_function, pb.Yoshida4(), ANY, dt=0.01, trajectories=3)
    np.testing.assert_array_equal(other.y_end[0], sol.y_end[0])


def test_a_ball_that_falls():
    """An event cuts a step; the method is exact where the acceleration is constant."""
    ground = pb.Event(lambda t, y, p: y[0], terminate=True)

    def fall(t, x, v, g):
        return -g

    def landing(g):
        problem = pb.SecondOrderODEProblem(fall, (2.0, 0.0), (0.0, 5.0), g, events=[ground])
        sol = pb.solve(problem, pb.VelocityVerlet(), ANY, dt=0.1)
        return sol.t_end, sol.y_end[1]

    (time, speed), rates = landing(9.81), jax.jacrev(landing)(9.81)
    np.testing.assert_allclose(time, np.sqrt(4.0 / 9.81), rtol=1e-12)
    np.testing.assert_allclose(speed, -np.sqrt(4.0 * 9.81), rtol=1e-12)
    np.testing.assert_allclose(rates[0], -time / (2 * 9.81), rtol=1e-10)
    np.testing.assert_allclose(rates[1], speed / (2 * 9.81), rtol=1e-10)
