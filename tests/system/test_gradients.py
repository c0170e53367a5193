"""Derivatives through the public interface, with respect to everything that has one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor, each_executor_slow_on_array
from pullback.testing import tol

PLAIN = pb.DiscreteAdjoint(resolve=False)
DT = 0.05


def growth(t, y, rate):
    return rate * y


GROWTH = pb.ODEProblem(growth, 1.0, (0.0, 1.0), 0.5)


def tight(problem, executor, **options):
    """Solve well beyond the tolerance of the tests below: adaptively where that compiles fast."""
    if isinstance(executor, pb.EnsembleArray):
        return pb.solve(problem, pb.RK4(), executor, dt=0.02, **options)
    options |= {"rtol": 1e-9, "atol": 1e-12, "adjoint": PLAIN}
    return pb.solve(problem, pb.Tsit5(), executor, **options)


# ------------------------------------------------------------------------------- networks


def network(weights, y):
    (w1, b1), (w2, b2) = weights
    return w2 @ jnp.tanh(w1 @ y + b1) + b2


def make_weights(rng, n=2, width=4):
    layers = [(width, n), (n, width)]
    return [(0.5 * rng.normal(size=s), 0.1 * rng.normal(size=s[0])) for s in layers]


def plain_rk4(field, y, n_steps, dt):
    """The same steps in plain JAX, differentiated by JAX itself."""

    def step(y, t):
        k1 = field(t, y)
        k2 = field(t + dt / 2, y + dt / 2 * k1)
        k3 = field(t + dt / 2, y + dt / 2 * k2)
        k4 = field(t + dt, y + dt * k3)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return jax.lax.scan(step, y, dt * jnp.arange(n_steps))[0]


@each_executor_slow_on_array
@pytest.mark.parametrize("where", ["closed over", "params", "partial"])
def test_weights_of_a_network(executor, where, rng):
    weights, y0 = make_weights(rng), rng.normal(size=(3, 2))

    def ends(weights):
        if where == "params":
            problem = pb.ODEProblem(lambda t, y, w: network(w, y), y0[0], (0.0, 1.0), weights)
        elif where == "partial":
            field = jax.tree_util.Partial(lambda w, t, y, p: network(w, y), weights)
            problem = pb.ODEProblem(field, y0[0], (0.0, 1.0))
        else:
            problem = pb.ODEProblem(lambda t, y, p: network(weights, y), y0[0], (0.0, 1.0))
        ensemble = pb.EnsembleProblem(problem, y0=y0)
        return pb.solve(ensemble, pb.RK4(), executor, dt=DT).y_end

    def by_jax(weights):
        def one(y):
            return plain_rk4(lambda t, y: network(weights, y), y, 20, DT)

        return jax.vmap(one)(y0)

    bound = tol(np.float64, n_ops=20 * 4 * 40)  # steps, stages, operations of a stage
    np.testing.assert_allclose(ends(weights), by_jax(weights), rtol=bound)
    got = jax.grad(lambda w: (ends(w) ** 2).sum())(weights)
    expected = jax.grad(lambda w: (by_jax(w) ** 2).sum())(weights)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound)


# ------------------------------------------------------------------------------- times


@each_executor
def test_saved_times_of_each_trajectory(executor):
    times = np.array([[0.1, 0.35, 0.8], [0.2, 0.5, 1.0]])
    rates = np.array([0.5, -1.0])
    weights = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]])

    def loss(times, rates):
        ensemble = pb.EnsembleProblem(GROWTH, params=rates)
        return (weights * tight(ensemble, executor, saveat=times).y).sum()

    by_times, by_rates = jax.jit(jax.grad(loss, (0, 1)))(times, rates)
    exact = np.exp(rates[:, None] * times)
    np.testing.assert_allclose(by_times, weights * rates[:, None] * exact, rtol=1e-6)
    np.testing.assert_allclose(by_rates, (weights * times * exact).sum(axis=1), rtol=1e-6)


@each_executor_slow_on_array
def test_both_ends_of_the_span(executor):
    problem = pb.ODEProblem(lambda t, y, k: k * y + jnp.cos(t), 1.0, (0.0, 1.0), 0.5)

    def end(t0, t1):
        return tight(problem.replace(t_span=(t0, t1)), executor).y_end

    t0, t1, k = 0.2, 1.3, 0.5
    y1 = end(t0, t1)
    by_t0, by_t1 = jax.grad(end, (0, 1))(t0, t1)
    np.testing.assert_allclose(by_t1, k * y1 + np.cos(t1), rtol=1e-6)
    np.testing.assert_allclose(by_t0, -np.exp(k * (t1 - t0)) * (k + np.cos(t0)), rtol=1e-6)


@each_executor_slow_on_array
def test_spans_of_each_trajectory(executor):
    ends = np.array([0.5, 1.0, 1.5])

    def loss(ends):
        return tight(pb.EnsembleProblem(GROWTH, t_span=(0.0, ends)), executor).y_end.sum()

    np.testing.assert_allclose(jax.grad(loss)(ends), 0.5 * np.exp(0.5 * ends), rtol=1e-6)


def test_rows_that_only_pad_have_no_gradient():
    spans = np.array([[0.0, 1.0], [0.0, 2.0]])

    def rows(rate):
        ensemble = pb.EnsembleProblem(GROWTH.replace(params=rate), t_span=spans)
        return pb.solve(ensemble, pb.Tsit5(), ANY, saveat=0.5, dt=0.05).y

    assert rows(0.5).shape == (2, 5)
    by_row = jax.jacrev(rows)(0.5)
    times = np.array([[0.0, 0.5, 1.0, 1.0, 1.0], [0.0, 0.5, 1.0, 1.5, 2.0]])
    expected = times * np.exp(0.5 * times)
    expected[0, 3:] = 0.0
    np.testing.assert_allclose(by_row, expected, rtol=1e-6, atol=1e-12)


def test_rows_after_a_failure_have_no_gradient():
    def rows(y0):
        problem = pb.ODEProblem(lambda t, y, p: y**2, y0, (0.0, 1.0))
        return pb.solve(problem, pb.Tsit5(), ANY, saveat=0.25, rtol=1e-6, adjoint=PLAIN).y

    by_row = jax.jacrev(rows)(2.0)  # blows up at 0.5
    times = np.array([0.0, 0.25])
    np.testing.assert_allclose(by_row[:2], 1 / (1 - 2 * times) ** 2, rtol=1e-4)
    np.testing.assert_array_equal(by_row[3:], 0.0)


# ------------------------------------------------------------------------------- prob_func


@each_executor_slow_on_array
def test_through_prob_func(executor):
    def loss(params):
        def prob_func(problem, ctx):
            return problem.replace(
                y0=params["y0"] * (1.0 + ctx.sim_id),
                params=params["rate"][ctx.sim_id],
                t_span=(0.0, params["t1"]),
            )

        ensemble = pb.EnsembleProblem(GROWTH, prob_func)
        return pb.solve(ensemble, pb.RK4(), executor, trajectories=3, dt=DT / 2).y_end.sum()

    params = {"y0": 0.5, "rate": np.array([0.5, -0.5, 1.0]), "t1": 1.5}
    grads = jax.grad(loss)(params)
    ends = 0.5 * np.array([1.0, 2.0, 3.0]) * np.exp(params["rate"] * 1.5)
    np.testing.assert_allclose(grads["y0"], ends.sum() / 0.5, rtol=1e-7)
    np.testing.assert_allclose(grads["rate"], 1.5 * ends, rtol=1e-7)
    np.testing.assert_allclose(grads["t1"], (params["rate"] * ends).sum(), rtol=1e-6)


# ------------------------------------------------------------------------------- transformations


def saved(y0, rate, executor=ANY):
    """Three saved states of a rotation with growth."""
    problem = pb.ODEProblem(
        lambda t, y, k: jnp.stack([k * y[0] - y[1], y[0] + k * y[1]]), y0, (0.0, 1.0), rate
    )
    return pb.solve(problem, pb.RK4(), executor, dt=DT / 2, saveat=jnp.array([0.3, 0.7, 1.0])).y


Y0 = np.array([1.0, 0.5])


@each_executor_slow_on_array
def test_forward_and_reverse_agree(executor):
    def f(y0, rate):
        return saved(y0, rate, executor)

    forward, reverse = jax.jacfwd(f, (0, 1))(Y0, 0.3), jax.jacrev(f, (0, 1))(Y0, 0.3)
    for a, b in zip(forward, reverse, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    times = np.array([0.3, 0.7, 1.0])
    np.testing.assert_allclose(forward[1], times[:, None] * f(Y0, 0.3), rtol=1e-6)


def test_forward_over_reverse_is_symmetric_and_exact():
    def loss(rate):
        return (saved(Y0, rate[0] + rate[1] ** 2) ** 2).sum()

    rate = np.array([0.3, 0.4])
    hessian = jax.hessian(loss)(rate)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-10)
    times = np.array([0.3, 0.7, 1.0])
    size = np.exp(2 * (rate[0] + rate[1] ** 2) * times) * (Y0**2).sum()
    first, second = (2 * times * size).sum(), (4 * times**2 * size).sum()
    inner = np.array([1.0, 2 * rate[1]])
    expected = second * np.outer(inner, inner) + first * np.diag([0.0, 2.0])
    np.testing.assert_allclose(hessian, expected, rtol=1e-6)


def test_grad_of_grad_is_right_or_says_what_to_do():
    def loss(rate):
        return saved(Y0, rate).sum()

    try:
        twice = jax.grad(jax.grad(loss))(0.3)
    except NotImplementedError as error:
        assert "jacfwd(grad(f))" in str(error)
    else:
        np.testing.assert_allclose(twice, jax.jacfwd(jax.grad(loss))(0.3), rtol=1e-8)


def test_under_vmap_scan_map_and_checkpoint():
    rates = jnp.array([0.3, -0.2])
    expected = np.array([jax.grad(lambda r: saved(Y0, r).sum())(r) for r in rates])

    def grad(rate):
        return jax.grad(lambda r: saved(Y0, r).sum())(rate)

    np.testing.assert_allclose(jax.vmap(grad)(rates), expected, rtol=1e-12)
    np.testing.assert_allclose(jax.lax.map(grad, rates), expected, rtol=1e-12)
    _, by_scan = jax.lax.scan(lambda c, r: (c, grad(r)), 0.0, rates)
    np.testing.assert_allclose(by_scan, expected, rtol=1e-12)
    rematerialised = jax.grad(jax.checkpoint(lambda r: saved(Y0, r).sum()))(0.3)
    np.testing.assert_allclose(rematerialised, expected[0], rtol=1e-12)


def test_vmap_of_an_ensemble_and_ensembles_in_a_scan():
    def total(rates):
        ensemble = pb.EnsembleProblem(GROWTH, params=rates)
        return pb.solve(ensemble, pb.RK4(), ANY, dt=DT).y_end.sum()

    rates = np.array([[0.5, -0.5, 0.1], [1.0, 0.0, 0.2]])
    expected = np.exp(rates)
    np.testing.assert_allclose(jax.vmap(jax.grad(total))(rates), expected, rtol=1e-5)
    summed = jax.grad(lambda r: jax.vmap(total)(r).sum())(rates)
    np.testing.assert_allclose(summed, expected, rtol=1e-5)

    def scanned(rates):
        return jax.lax.scan(lambda c, r: (c + total(r), None), 0.0, rates)[0]

    np.testing.assert_allclose(jax.grad(scanned)(rates), expected, rtol=1e-5)


def test_jvp_of_shared_and_batched_parameters_together():
    problem = pb.ODEProblem(lambda t, y, p: p["own"] * p["all"] * y, 1.0, (0.0, 1.0),
                            {"own": 0.5, "all": 1.0})  # fmt: skip

    def ends(own, shared):
        ensemble = pb.EnsembleProblem(problem.replace(params={"own": 0.5, "all": shared}),
                                      params={"own": own, "all": None})  # fmt: skip
        return pb.solve(ensemble, pb.Tsit5(), ANY, dt=DT).y_end

    own = np.array([0.5, 1.0])
    _, dot = jax.jvp(ends, (own, 2.0), (np.array([1.0, 0.0]), 1.0))
    exact = np.exp(2 * own)
    np.testing.assert_allclose(dot, exact * (2.0 * np.array([1.0, 0.0]) + own), rtol=1e-6)
    by_shared = jax.grad(lambda s: ends(own, s).sum())(2.0)
    np.testing.assert_allclose(by_shared, (own * exact).sum(), rtol=1e-6)
