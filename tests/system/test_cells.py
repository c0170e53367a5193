"""Every cell of the table of methods: what a method can do works, what it cannot is an error."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback.ode import Method
from pullback.ode.capabilities import capabilities

METHODS = {
    name: getattr(pb, name)()
    for name in pb.__all__
    if inspect.isclass(getattr(pb, name)) and issubclass(getattr(pb, name), Method)
}
# One of each family is in the quick run, on the kernel in float64.
REPRESENTATIVES = {"Tsit5", "Rodas5P", "Kvaerno3", "VelocityVerlet", "EulerMaruyama"}
ARRAY, KERNEL = pb.EnsembleArray(), pb.EnsembleKernel()
RATE, T1 = 0.7, 1.0
STEPS = 64


def of_methods(*further):
    """Parametrise over all methods, and what else there is; all but a few cells are slow."""
    cells = []
    for name in METHODS:
        for executor, dtype in further or [(KERNEL, np.float64)]:
            is_quick = name in REPRESENTATIVES and executor is KERNEL and dtype == np.float64
            marks = () if is_quick else pytest.mark.slow
            label = f"{name}-{type(executor).__name__}-{np.dtype(dtype).name}"
            cells.append(pytest.param(METHODS[name], executor, dtype, id=label, marks=marks))
    return pytest.mark.parametrize(("method", "executor", "dtype"), cells)


EVERYWHERE = [(e, d) for e in (KERNEL, ARRAY) for d in (np.float64, np.float32)]


def problem_of(method, rate, dtype=np.float64, **parts):
    """Return a problem that the method solves, and its solution where it has a closed form."""
    kind = capabilities(method).problems
    one = jnp.ones(2, dtype)
    if kind == "second order":
        problem = pb.SecondOrderODEProblem(
            lambda t, x, v, p: -p * x, (one, 0.0 * one), (0.0, T1), rate, **parts
        )
        return problem, lambda p, t: (
            jnp.cos(jnp.sqrt(p) * t),
            -jnp.sqrt(p) * jnp.sin(jnp.sqrt(p) * t),
        )
    if kind == "stochastic":
        additive = method.is_additive_only

        def diffusion(t, y, p):
            return 0.1 * jnp.ones_like(y) if additive else 0.1 * y

        return pb.SDEProblem(lambda t, y, p: -p * y, diffusion, one, (0.0, T1), rate), None
    problem = pb.ODEProblem(lambda t, y, p: -p * y, one, (0.0, T1), rate, **parts)
    return problem, lambda p, t: jnp.exp(-p * t) * jnp.ones(2)


def solve(method, rate, executor=KERNEL, dtype=np.float64, parts=None, **options):
    options = {"dt": T1 / STEPS} | options
    problem, exact = problem_of(method, jnp.asarray(rate, dtype), dtype, **(parts or {}))
    key = jax.random.key(0) if capabilities(method).problems == "stochastic" else None
    return pb.solve(problem, method, executor, key=key, **options), exact


def first(sol):
    """Return the first component of all rows; positions of a second-order problem."""
    return jax.tree.leaves(sol.y)[0][..., 0]


@of_methods(*EVERYWHERE)
def test_values_and_derivatives(method, executor, dtype):
    times = np.array([0.3, T1], dtype)

    def rows(rate):
        return first(solve(method, rate, executor, dtype, saveat=times)[0])

    rate = jnp.asarray(RATE, dtype)
    value, forward = jax.jvp(rows, (rate,), (jnp.ones_like(rate),))
    reverse = jax.jacrev(rows)(rate)
    assert value.dtype == dtype
    rounding = 300 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(reverse, forward, rtol=rounding, atol=rounding)
    exact = problem_of(method, rate)[1]
    if exact is None:  # a path: its law is tested elsewhere
        assert np.isfinite(value).all()
        assert np.abs(reverse).min() > 0.05
        return

    def of_rate(p):
        return jnp.stack(
            [jnp.ravel(jnp.asarray(jax.tree.leaves(exact(p, t))[0]))[0] for t in times]
        )

    # Errors of a method of low order, with 64 steps; rows inside a step may be of third order.
    bound = max(2.0 * (T1 / STEPS) ** min(method.order, 2), rounding)
    slope = jax.jacfwd(of_rate)(rate.astype(np.float64))
    np.testing.assert_allclose(value, of_rate(RATE), atol=bound)
    np.testing.assert_allclose(forward, slope, atol=2 * bound)


@of_methods()
def test_adaptive_steps(method, executor, dtype):
    del dtype
    if not capabilities(method).adaptive:
        with pytest.raises(ValueError, match=r"`adaptive`=True needs an error estimate"):
            solve(method, RATE, executor, adaptive=True)
        with pytest.raises(ValueError, match="`dt` is missing"):
            solve(method, RATE, executor, dt=None)
        return
    sol, exact = solve(method, RATE, executor, dt=None, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(first(sol)[-1], exact(RATE, T1)[0], rtol=2e-3)


@of_methods()
def test_dense_output(method, executor, dtype):
    del dtype
    sol, exact = solve(method, RATE, executor, saveat="steps")
    found = jax.tree.leaves(sol(0.505))[0][0]
    if exact is None:  # on the line between two steps
        t, y = np.asarray(sol.t)[:STEPS], np.asarray(first(sol))[:STEPS]
        assert float(found) == pytest.approx(np.interp(0.505, t, y), rel=1e-12)
        return
    expected = jnp.ravel(jax.tree.leaves(exact(RATE, 0.505))[0])[0]
    assert abs(float(found - expected)) < 2.0 * (T1 / STEPS) ** min(method.order, 2)


@of_methods()
def test_events(method, executor, dtype):
    del dtype
    event = pb.Event(lambda t, y, p: jax.tree.leaves(y)[0][0] - 0.9, terminate=True)
    if not capabilities(method).events:
        with pytest.raises(NotImplementedError, match="`events` and `tstops` of a stochastic"):
            solve(method, RATE, executor, events=[event])
        with pytest.raises(NotImplementedError, match="`events` and `tstops` of a stochastic"):
            solve(method, RATE, executor, tstops=[0.5])
        return

    def t_end(rate):
        return solve(method, rate, executor, events=[event])[0].t_end

    time, slope = jax.value_and_grad(t_end)(RATE)
    if capabilities(method).problems == "second order":
        expected = np.arccos(0.9) / np.sqrt(RATE)
        by_rate = -0.5 * expected / RATE
    else:
        expected = -np.log(0.9) / RATE
        by_rate = -expected / RATE
    bound = 2.0 * (T1 / STEPS) ** min(method.order, 2)
    assert abs(float(time) - expected) < 2 * bound
    assert abs(float(slope) - by_rate) < 10 * bound


@of_methods()
def test_mass_matrices(method, executor, dtype):
    del dtype
    kind = capabilities(method).problems
    if kind != "ordinary":
        # Problems of other kinds have no such argument.
        with pytest.raises(TypeError, match="mass_matrix"):
            solve(method, RATE, executor, parts={"mass_matrix": (2.0, 2.0)}) if (
                kind == "second order"
            ) else pb.SDEProblem(abs, abs, 1.0, (0, 1), mass_matrix=(2.0,))
        return
    if not capabilities(method).mass_matrix:
        with pytest.raises(ValueError, match="cannot take a `mass_matrix`"):
            solve(method, RATE, executor, parts={"mass_matrix": (2.0, 2.0)})
        return

    def end(rate):
        return first(solve(method, rate, executor, parts={"mass_matrix": (2.0, 2.0)})[0])[-1]

    value, slope = jax.value_and_grad(end)(RATE)
    bound = 2.0 * (T1 / STEPS) ** min(method.order, 2)
    assert abs(float(value) - np.exp(-RATE / 2)) < bound
    assert abs(float(slope) + 0.5 * np.exp(-RATE / 2)) < 2 * bound


@of_methods()
def test_domains(method, executor, dtype):
    del dtype
    sol = solve(method, RATE, executor, is_valid=lambda t, y, p: t < 0.5)[0]
    assert int(sol.status) == pb.Status.left_domain
    assert 0.4 < float(sol.t_end) < 0.5


@of_methods()
def test_parts(method, executor, dtype):
    del dtype
    adjoint = pb.DiscreteAdjoint(resolve=False, tape=16, scheme=pb.Online(2))
    if not capabilities(method).parts:
        with pytest.raises(
            NotImplementedError, match="are not available with a stochastic problem"
        ):
            solve(method, RATE, executor, adjoint=adjoint)
        return

    def end(rate, adjoint):
        return first(solve(method, rate, executor, adjoint=adjoint, max_steps=200)[0])[-1]

    plain = pb.DiscreteAdjoint(resolve=False)
    found, expected = (jax.grad(end)(RATE, a) for a in (adjoint, plain))
    # A part counts its fixed steps from where it begins; a first stage is evaluated anew there.
    np.testing.assert_allclose(found, expected, rtol=1e-6)
