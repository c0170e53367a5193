"""Stochastic solves: orders on problems whose law is known, and pathwise gradients.

In the problems here the Wiener process of a path is a second component of the state, so that the
exact solution on the very same path is known at every step size.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor_slow_on_array
from pullback.ode.noise import Increments, normals
from pullback.testing import dot_test, tol

KEY = jax.random.key(2024)
EM, MILSTEIN, SIEA = pb.EulerMaruyama(), pb.Milstein(), pb.SIEA()
SRA1, SRIW1, HEUN = pb.SRA1(), pb.SRIW1(), pb.StratonovichHeun()
ALL = [EM, MILSTEIN, SIEA, SRA1, SRIW1, HEUN]
each_method = pytest.mark.parametrize("method", ALL, ids=lambda m: m.name)


def named(values):
    return pytest.mark.parametrize(("method", "order"), values, ids=lambda v: getattr(v, "name", v))


def keep(problem, ctx):
    return problem


def ensemble(problem, n, method, dt, executor=ANY, **options):
    return pb.solve(
        pb.EnsembleProblem(problem, keep), method, executor, trajectories=n, dt=dt, **options
    )


# ------------------------------------------------------------------- problems with known law


def with_path(drift, diffusion, x0, t_span=(0.0, 1.0), params=None):
    """The scalar problem with its Wiener process beside it: state (x, w)."""
    return pb.SDEProblem(
        lambda t, y, p: jnp.stack([drift(t, y[0], p), jnp.zeros_like(y[0])]),
        lambda t, y, p: jnp.stack([diffusion(t, y[0], p), jnp.ones_like(y[0])]),
        jnp.asarray([x0, 0.0]),
        t_span,
        params,
        noise="scalar",
    )


def growth(a, b, x0=1.0):
    problem = with_path(lambda t, x, p: a * x, lambda t, x, p: b * x, x0)
    return problem, lambda w: x0 * np.exp(a - 0.5 * b * b + b * w)


def growth_stratonovich(a, b):
    problem = with_path(lambda t, x, p: a * x, lambda t, x, p: b * x, 1.0)
    return problem, lambda w: np.exp(a + b * w)


def hyperbolic(is_ito):
    """dX = X/2 dt + (1 + X^2)^(1/2) dW, in the sense of Ito; X = sinh(W + asinh X0)."""
    problem = with_path(
        (lambda t, x, p: 0.5 * x) if is_ito else (lambda t, x, p: 0.0 * x),
        lambda t, x, p: jnp.sqrt(1.0 + x * x),
        0.5,
    )
    return problem, lambda w: np.sinh(w + np.arcsinh(0.5))


def differences(problem, exact, method, n_paths, exponents):
    """Errors of paths at the end, `(step size, path)`, each step size with paths of its own."""
    rows = []
    for k in exponents:
        key = jax.random.fold_in(KEY, k)
        y = np.asarray(ensemble(problem, n_paths, method, 2.0**-k, key=key).y_end)
        rows.append(y[:, 0] - exact(y[:, 1]))
    return np.asarray(rows)


def slope_with_bound(exponents, means, errors):
    """Slope of log2(mean) against log2(step size), and its standard error from those of means."""
    x = -np.asarray(exponents, float)
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    relative = errors / np.abs(means) / math.log(2.0)
    return np.sum(weights * np.log2(np.abs(means))), np.sqrt(np.sum((weights * relative) ** 2))


def check_slope(exponents, means, errors, order):
    # 4 standard errors of the sampling, and 0.15 for terms of higher order at these step sizes.
    slope, bound = slope_with_bound(exponents, means, errors)
    assert bound < 0.15, "too few paths to tell"
    assert abs(slope - order) < 0.15 + 4 * bound, (slope, bound)


def check_strong(problem, exact, method, order, n_paths, exponents):
    error = np.abs(differences(problem, exact, method, n_paths, exponents))
    means, errors = error.mean(axis=1), error.std(axis=1) / np.sqrt(n_paths)
    check_slope(exponents, means, errors, order)


STRONG = [(EM, 0.5), (MILSTEIN, 1.0), (SIEA, 1.0), (SRIW1, 1.5)]


@named(STRONG)
def test_strong_order(method, order):
    check_strong(*growth(0.5, 1.0), method, order, 2000, range(5, 10))


@pytest.mark.slow
@named(STRONG)
def test_strong_order_of_another_equation(method, order):
    check_strong(*hyperbolic(is_ito=True), method, order, 20_000, range(6, 11))


def test_strong_order_stratonovich():
    check_strong(*growth_stratonovich(0.5, 1.0), HEUN, 1.0, 2000, range(5, 10))


@pytest.mark.slow
def test_strong_order_stratonovich_of_another_equation():
    check_strong(*hyperbolic(is_ito=False), HEUN, 1.0, 20_000, range(6, 11))


@pytest.mark.parametrize("method", [EM, MILSTEIN, SIEA, SRIW1], ids=lambda m: m.name)
def test_ito_is_not_stratonovich(method):
    problem, exact = growth(0.5, 1.0)
    means = [np.mean(differences(problem, exact, m, 4000, [7])) for m in (method, HEUN)]
    # Stratonovich's solution is larger by exp(b^2 t / 2): its mean is e instead of e^(1/2).
    assert abs(means[0]) < 0.1
    assert means[1] == pytest.approx(np.e - np.exp(0.5), abs=0.3)


def test_weak_order_case():
    """Geometric Brownian motion with a = 1.5, b = 0.01, X0 = 0.1."""
    for method, order in ((EM, 1.0), (SIEA, 2.0), (SRIW1, 2.0), (MILSTEIN, 1.0)):
        problem, exact = growth(1.5, 0.01, 0.1)
        error = differences(problem, exact, method, 1000, range(5, 9))
        check_slope(range(5, 9), error.mean(axis=1), error.std(axis=1) / np.sqrt(1000), order)
    y = np.asarray(ensemble(problem, 4000, SIEA, 2.0**-8, key=KEY).y_end)[:, 0]
    bias = 3e-6  # of SIEA at this step size, 1.5^3 h^2 X / 6
    assert abs(y.mean() - 0.448168907) < 4 * y.std() / np.sqrt(4000) + bias


@pytest.mark.slow
@named([(EM, 1.0), (MILSTEIN, 1.0), (SIEA, 2.0), (SRIW1, 2.0)])
def test_weak_order_with_much_noise(method, order):
    # Large steps: the error of the mean must stand out of the paths' own errors.
    exponents, n = range(1, 5), 1_000_000 if order == 2.0 else 200_000
    error = differences(*growth(1.5, 0.4), method, n, exponents)
    slope, bound = slope_with_bound(exponents, error.mean(axis=1), error.std(axis=1) / n**0.5)
    assert abs(slope - order) < 0.35 + 4 * bound, (slope, bound)  # large steps: higher orders


class Scripted:
    """An equation seen by a method with increments that a test chose."""

    def __init__(self, drift, diffusion, size, dw, dz):
        self.drift, self.diffusion = drift, diffusion
        self.drawn = Increments(size, dw, dz)

    def __call__(self, t, y):
        return self.drift(t, y)

    def increments(self, h, *, with_dz=False):
        return self.drawn

    def spread(self, diffusion, dw):
        return diffusion * dw


def coarser(h, dw, i10):
    """Return step size and integrals `(step, path)` of steps that are two of the given ones."""
    first, second = dw[::2], dw[1::2]
    return 2 * h, first + second, i10[::2] + i10[1::2] + h * first


def paths_on(method, drift, diffusion, h, dw, i10):
    """Return the ends of all paths, given the integrals of every step."""

    @jax.jit
    def run():
        def step(y, x):
            i, dw, i10 = x
            dz = math.sqrt(3.0) * (2.0 * i10 / h - dw)
            system = Scripted(drift, diffusion, jnp.asarray(h), dw, dz)
            return y + method.increment(system, i * h, y, jnp.asarray(h)), None

        return jax.lax.scan(step, jnp.ones(dw.shape[1]), (jnp.arange(len(dw)), dw, i10))[0]

    return np.asarray(run())


@named([(MILSTEIN, 1.0), (SIEA, 1.0), (SRIW1, 1.5), (SRA1, 1.5)])
def test_strong_order_on_the_same_path(method, order, rng):
    """The path of a fine mesh is known on coarser ones, with its integral of W by time."""
    n_paths, h = 2000, 2.0**-10

    def drift(t, y):
        return jnp.sin(2.0 * t) - y**3

    def diffusion(t, y):
        level = 0.7 + 0.5 * jnp.cos(3.0 * t)
        return level + 0.0 * y if method == SRA1 else level * jnp.sqrt(0.3 + y * y)

    dw, dz = math.sqrt(h) * rng.normal(size=(2, 1024, n_paths))
    mesh = (h, jnp.asarray(dw), jnp.asarray(0.5 * h * (dw + dz / math.sqrt(3.0))))
    reference = paths_on(SRA1 if method == SRA1 else SRIW1, drift, diffusion, *mesh)
    exponents, error = range(7, 3, -1), []
    mesh = coarser(*coarser(*mesh))
    for _ in exponents:
        mesh = coarser(*mesh)
        error.append(np.abs(paths_on(method, drift, diffusion, *mesh) - reference))
    means = np.mean(error, axis=1)
    check_slope(exponents, means, np.std(error, axis=1) / math.sqrt(n_paths), order)


@named([(EM, 1.0), (SRA1, 2.0), (SRIW1, 2.0)])
def test_local_error_with_additive_noise(method, order):
    """With additive noise the mean square error of one step is a polynomial, known exactly."""
    errors = []
    sizes = 2.0 ** -np.arange(3.0, 9.0)
    for h in sizes:
        step = jnp.asarray(h)

        def noise_of(dw, dz, step=step):
            drawn = (step, jnp.asarray([dw]), jnp.asarray([dz]))
            system = Scripted(lambda t, y: -y, lambda t, y: jnp.ones_like(y), *drawn)
            return float(method.increment(system, jnp.asarray(0.0), jnp.zeros(1), step)[0])

        # What is added is c dW + d dZ, and dZ = 3^(1/2) (2 I10 / h - dW).
        c, d = noise_of(1.0, 0.0), noise_of(0.0, 1.0)
        c, d = c - math.sqrt(3.0) * d, 2.0 * math.sqrt(3.0) * d / h
        variance = -0.5 * math.expm1(-2 * h)  # of the exact step
        with_dw, with_i10 = -math.expm1(-h), 1.0 - (1.0 + h) * math.exp(-h)
        own = c * c * h + c * d * h * h + d * d * h**3 / 3.0
        errors.append(math.sqrt(variance - 2.0 * (c * with_dw + d * with_i10) + own))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    # A step of strong order p has a local error of order p + 1/2. In a linear equation those of
    # order 1.5 are of order 2.
    assert slope == pytest.approx(order + 0.5, abs=0.1)


@pytest.mark.parametrize("method", [EM, SRA1, SRIW1, SIEA, HEUN], ids=lambda m: m.name)
def test_variance_of_ornstein_uhlenbeck(method):
    n = 20_000
    problem = pb.SDEProblem(
        lambda t, y, p: -2.0 * y, lambda t, y, p: 0.5 * jnp.ones_like(y), 1.0, (0.0, 1.0)
    )
    y = np.asarray(ensemble(problem, n, method, 1 / 64, key=KEY).y_end)
    variance = 0.25 / 4.0 * -math.expm1(-4.0)
    bias = 0.05 if method == EM else 0.003  # order 1 and 2, relative
    spread = math.sqrt(variance / n)
    assert abs(y.mean() - math.exp(-2.0)) < 4.5 * spread + bias * math.exp(-2.0)
    assert abs(y.var() / variance - 1.0) < 4.5 * math.sqrt(2.0 / n) + bias


def test_mean_of_cox_ingersoll_ross():
    n, k, level, sigma = 5_000, 2.0, 0.5, 0.3
    problem = pb.SDEProblem(
        lambda t, x, p: k * (level - x), lambda t, x, p: sigma * jnp.sqrt(x), 1.0, (0.0, 1.0)
    )
    x = np.asarray(ensemble(problem, n, MILSTEIN, 1 / 128, key=KEY).y_end)
    expected = level + 0.5 * math.exp(-k)
    assert abs(x.mean() - expected) < 4.5 * x.std() / math.sqrt(n) + 2e-3  # bias of order h


# ------------------------------------------------------------------------------- gradients


def drift(t, y, p):
    return jnp.stack([p[0] * y[0] - 0.2 * y[0] ** 3, jnp.sin(t) - p[1] * y[1]])


def diffusion(t, y, p):
    return jnp.stack([p[2] * jnp.sqrt(1.0 + y[0] ** 2), p[3] * jnp.cos(y[1]) + 0.1 * t])


def additive(t, y, p):
    return jnp.stack([p[2] * jnp.cos(t), p[3] + 0.1 * t])


Y0, P = jnp.asarray([1.0, 0.5]), jnp.asarray([0.4, 1.2, 0.3, 0.25])
N_STEPS, DT = 20, 0.05


def plain_increment(method, g, t, y, p, h, z):
    """The same formulas, written once more in plain JAX."""
    dw, dz = jnp.sqrt(h) * z[:2], jnp.sqrt(h) * z[2:]
    f0, g0, root = drift(t, y, p), g(t, y, p), jnp.sqrt(h)
    if method in (EM, MILSTEIN):
        total = f0 * h + g0 * dw
        if method == MILSTEIN:
            slopes = jnp.diagonal(jax.jacfwd(lambda x: g(t, x, p))(y))
            total = total + 0.5 * slopes * g0 * (dw**2 - h)
        return total
    if method == HEUN:
        y1 = y + f0 * h + g0 * dw
        return 0.5 * h * (f0 + drift(t + h, y1, p)) + 0.5 * (g0 + g(t + h, y1, p)) * dw
    if method == SIEA:
        f1 = drift(t + h, y + f0 * h + g0 * dw, p)
        up, down = (g(t + h, y + f0 * h + s * g0 * root, p) for s in (1, -1))
        area = (up - down) * (dw**2 - h) / (4 * root)
        return 0.5 * h * (f0 + f1) + 0.25 * (up + down + 2 * g0) * dw + area
    i10 = 0.5 * h * (dw + dz / math.sqrt(3.0))
    if method == SRA1:
        g1, g0 = g0, g(t + h, y, p)
        f1 = drift(t + 0.75 * h, y + 0.75 * f0 * h + 1.5 * g0 * i10 / h, p)
        return (f0 + 2 * f1) / 3 * h + g0 * dw + (g1 - g0) * i10 / h
    f1 = drift(t + 0.75 * h, y + 0.75 * f0 * h + 1.5 * g0 * i10 / h, p)
    g1 = g(t + h / 4, y + f0 * h / 4 + g0 * root / 2, p)
    g2 = g(t + h, y + f0 * h - g0 * root, p)
    g3 = g(t + h / 4, y + f0 * h / 4 + (-5 * g0 + 3 * g1 + g2 / 2) * root, p)
    i11, i111 = 0.5 * (dw**2 - h), (dw**3 - 3 * h * dw) / 6
    total = (f0 + 2 * f1) / 3 * h + (-g0 + 4 / 3 * g1 + 2 / 3 * g2) * dw
    total = total + (-g0 + 4 / 3 * g1 - 1 / 3 * g2) * i11 / root
    total = total + (2 * g0 - 4 / 3 * g1 - 2 / 3 * g2) * i10 / h
    return total + (-2 * g0 + 5 / 3 * g1 - 2 / 3 * g2 + g3) * i111 / h


def plain_path(method, y0, p, key, g):
    """All states of a path `(step, 2)`, by a scan that JAX differentiates itself."""
    words = jax.random.key_data(key)

    def step(y, i):
        z = normals(words, i, jnp.ones(()), 4)
        y = y + plain_increment(method, g, DT * i, y, p, DT, z)
        return y, y

    return jax.lax.scan(step, y0, jnp.arange(N_STEPS, dtype=jnp.int32))[1]


def path(method, y0, p, executor, g, **options):
    problem = pb.SDEProblem(drift, g, y0, (0.0, 1.0), p)
    return pb.solve(problem, method, executor, key=KEY, dt=DT, **options)


@each_executor_slow_on_array
@each_method
def test_values_and_gradients_are_those_of_a_plain_scan(executor, method):
    g = additive if method == SRA1 else diffusion
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(N_STEPS + 1, 2)))

    def solved(y0, p):
        y = path(method, y0, p, executor, g, saveat=np.linspace(0.0, 1.0, N_STEPS + 1)).y
        return jnp.sum(weights * y), y

    def plain(y0, p):
        y = jnp.concatenate([y0[None], plain_path(method, y0, p, KEY, g)])
        return jnp.sum(weights * y), y

    # 20 steps of some hundred operations, the state of size one.
    close = {"rtol": tol(np.float64, n_ops=2000), "atol": tol(np.float64, n_ops=2000)}
    both = [jax.jit(jax.value_and_grad(f, argnums=(0, 1), has_aux=True)) for f in (solved, plain)]
    ((_, y), grads), ((_, expected), expected_grads) = (f(Y0, P) for f in both)
    np.testing.assert_allclose(y, expected, **close)
    for found, wanted in zip(grads, expected_grads, strict=True):
        np.testing.assert_allclose(found, wanted, **close)
    directions = (jnp.asarray([0.3, -1.0]), jnp.asarray([1.0, 0.5, -2.0, 0.25]))
    dots = [jax.jvp(lambda *x, f=f: f(*x)[0], (Y0, P), directions)[1] for f in (solved, plain)]
    np.testing.assert_allclose(*dots, **close)


@pytest.mark.parametrize("method", [MILSTEIN, SIEA], ids=lambda m: m.name)
def test_dot_product(method, rng):
    def end(x):
        return path(method, x[0], x[1], ANY, diffusion).y_end

    dot_test(end, (Y0, P))


@pytest.mark.slow
def test_second_derivatives():
    def end(p):
        return jnp.sum(path(SIEA, Y0, p, ANY, diffusion).y_end ** 2)

    def plain(p):
        return jnp.sum(plain_path(SIEA, Y0, p, KEY, diffusion)[-1] ** 2)

    found = jax.jacfwd(jax.grad(end))(P)
    expected = jax.hessian(plain)(P)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)  # sums of 20 steps
    np.testing.assert_allclose(found, found.T, rtol=1e-10, atol=1e-12)


def test_pathwise_derivatives_of_geometric_brownian_motion():
    """dX/da = T X, dX/db = (W - b T) X, dX/dX0 = X / X0, up to the method's own error."""
    n = 500
    theta = {"a": 0.5, "b": 0.4}
    x0 = 1.3

    def errors(k):
        def ends(x0, theta):
            problem = pb.SDEProblem(
                lambda t, y, p: jnp.stack([p["a"] * y[0], 0.0 * y[1]]),
                lambda t, y, p: jnp.stack([p["b"] * y[0], jnp.ones_like(y[1])]),
                jnp.stack([x0, 0.0]),
                (0.0, 1.0),
                theta,
                noise="scalar",
            )
            return ensemble(problem, n, MILSTEIN, 2.0**-k, key=KEY).y_end

        y = ends(x0, theta)
        w = np.asarray(y[:, 1])
        exact = x0 * np.exp(0.5 - 0.08 + 0.4 * w)
        by_x0, by_theta = jax.jacfwd(lambda *v: ends(*v)[:, 0], argnums=(0, 1))(x0, theta)
        total = jax.grad(lambda p: ends(x0, p)[:, 0].sum())(theta)
        for name in theta:  # forward and reverse mode
            np.testing.assert_allclose(total[name], by_theta[name].sum(), rtol=1e-10)
        pairs = [(by_x0, exact / x0), (by_theta["a"], exact)]
        pairs.append((by_theta["b"], (w - 0.4) * exact))
        return [np.sqrt(np.mean((np.asarray(f) - e) ** 2)) for f, e in pairs]

    coarse, fine = np.asarray(errors(4)), np.asarray(errors(8))
    # Order 1: sixteen times smaller, which samples of 500 paths tell to some ten per cent.
    assert (fine < 0.01).all()
    np.testing.assert_allclose(np.log2(coarse / fine) / 4.0, 1.0, atol=0.15)


def test_gradients_of_an_ensemble_share_parameters():
    n = 40

    def mean(p):
        problem = pb.SDEProblem(drift, diffusion, Y0, (0.0, 1.0), p)
        return jnp.mean(ensemble(problem, n, EM, DT, key=KEY).y_end[:, 0])

    def plain(p):
        keys = jax.vmap(lambda i: jax.random.fold_in(KEY, i))(jnp.arange(n))
        ends = jax.vmap(lambda k: plain_path(EM, Y0, p, k, diffusion)[-1, 0])(keys)
        return jnp.mean(ends)

    np.testing.assert_allclose(jax.grad(mean)(P), jax.grad(plain)(P), rtol=1e-11)  # 800 steps


@pytest.mark.parametrize("n_rows", [3, None])
def test_tape_in_segments_replays_the_noise(n_rows):
    adjoint = pb.DiscreteAdjoint(tape=n_rows)

    def end(p, **options):
        return jnp.sum(path(MILSTEIN, Y0, p, ANY, diffusion, **options).y_end)

    found = jax.grad(lambda p: end(p, adjoint=adjoint))(P)
    np.testing.assert_allclose(found, jax.grad(end)(P), rtol=1e-13)


def test_derivative_by_times_is_that_of_the_last_step():
    """The normal numbers are held fixed, so a shorter last step has a smaller increment."""

    def end(t1):
        problem = pb.SDEProblem(drift, diffusion, Y0, (0.0, t1), P)
        return pb.solve(problem, EM, ANY, key=KEY, dt=0.3).y_end

    t1, h = 1.0, 1e-5
    difference = (end(t1 + h) - end(t1 - h)) / (2 * h)
    for found in (jax.jacfwd(end)(t1), jax.jacrev(end)(t1)):
        np.testing.assert_allclose(found, difference, rtol=1e-7)  # of a central difference


# ------------------------------------------------------------------------- rows and edges


def test_rows_are_exact_at_steps_and_on_the_line_between():
    every = path(EM, Y0, P, ANY, diffusion, saveat="steps")
    t = np.concatenate([[0.0], every.t[:N_STEPS]])
    y = np.concatenate([Y0[None], every.y[:N_STEPS]])
    times = np.sort(np.concatenate([t, [0.013, 0.5 * DT, 0.77]]))
    rows = path(EM, Y0, P, ANY, diffusion, saveat=times).y
    expected = np.stack([np.interp(times, t, y[:, i]) for i in range(2)], axis=1)
    np.testing.assert_allclose(rows, expected, rtol=1e-13)


def test_rows_do_not_change_the_path():
    ends = [
        path(SRIW1, Y0, P, ANY, diffusion, saveat=saveat).y_end for saveat in (None, 0.07, "steps")
    ]
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_array_equal(ends[0], ends[2])


def test_a_last_step_that_is_shorter_has_less_noise():
    n = 4000
    problem = pb.SDEProblem(lambda t, y, p: 0.0 * y, lambda t, y, p: 1.0, 0.0, (0.0, 0.7))
    w = np.asarray(ensemble(problem, n, EM, 0.5, key=KEY).y_end)
    assert abs(w.var() / 0.7 - 1.0) < 4.5 * math.sqrt(2.0 / n)


@each_method
def test_an_empty_span_is_left_alone(method):
    g = additive if method == SRA1 else diffusion
    problem = pb.SDEProblem(drift, g, Y0, (0.5, 0.5), P)
    solution = pb.solve(problem, method, ANY, key=KEY, dt=DT)
    np.testing.assert_array_equal(solution.y_end, Y0)
    assert solution.ok

    def end(p):
        return jnp.sum(pb.solve(problem.replace(params=p), method, ANY, key=KEY, dt=DT).y_end)

    np.testing.assert_array_equal(jax.grad(end)(P), 0.0)


def test_backward_in_time():
    problem = pb.SDEProblem(lambda t, y, p: 1.0, lambda t, y, p: 1.0, 0.0, (1.0, 0.0))
    y = np.asarray(ensemble(problem, 4000, EM, 0.125, key=KEY).y_end)
    assert abs(y.mean() + 1.0) < 4.5 / math.sqrt(4000)
    assert abs(y.var() - 1.0) < 4.5 * math.sqrt(2.0 / 4000)


def test_a_path_that_breaks_disturbs_no_other():
    def explode(t, y, p):
        return p * y**3

    problem = pb.SDEProblem(explode, lambda t, y, p: 0.1 * y, 2.0, (0.0, 1.0), 0.0)
    rates = jnp.asarray([0.0, 50.0, 0.0])
    ends = [
        pb.solve(pb.EnsembleProblem(problem, params=r), EM, ANY, key=KEY, dt=0.05)
        for r in (rates, 0.0 * rates)
    ]
    assert [pb.Status(int(s)).name for s in ends[0].status] == ["success", "non_finite", "success"]
    np.testing.assert_array_equal(ends[0].y_end[::2], ends[1].y_end[::2])


def test_statistics_count_drifts():
    for method, n in ((EM, 1), (SIEA, 2), (SRIW1, 2), (HEUN, 2)):
        stats = path(method, Y0, P, ANY, diffusion).stats
        assert (int(stats["n_accepted"]), int(stats["n_rhs"])) == (N_STEPS, n * N_STEPS)
