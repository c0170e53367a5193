"""`taylor_test(mesh="frozen")`: solves repeat their steps, whatever surrounds them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor
from pullback.ensemble.frozen_mesh import record_meshes
from pullback.testing import taylor_test

P = jnp.array([1.5, 1.0, 1.0, 3.0])
Y0 = jnp.array([1.0, 1.0])
LOOSE = {"rtol": 1e-3, "atol": 1e-3}
PLAIN = pb.DiscreteAdjoint(resolve=False)


def lotka_volterra(t, y, p):
    prey, predator = y
    return jnp.stack(
        [p[0] * prey - p[1] * prey * predator, p[2] * prey * predator - p[3] * predator]
    )


def forced(t, y, p):
    return -p * y * jnp.cos(y) + jnp.sin(3.0 * t)


def end(p, executor=ANY, t_span=(0.0, 10.0), **options):
    problem = pb.ODEProblem(lotka_volterra, Y0, t_span, p)
    return pb.solve(problem, pb.Tsit5(), executor, **(LOOSE | options)).y_end[0]


SMALL = 2.0 ** -np.arange(7, 17)


def near(slopes, expected=(1, 2)):
    # How straight the lines are at the smallest steps is a matter of the function.
    np.testing.assert_allclose(slopes, expected, rtol=0, atol=0.06)


@each_executor
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_slopes_where_plain_differences_fail(executor, mode):
    near(taylor_test(lambda p: end(p, executor), P, mesh="frozen", mode=mode).slopes)


def test_plain_differences_fail():
    with pytest.raises(AssertionError):
        taylor_test(lambda p: end(p, adjoint=PLAIN), P)


def test_gradient_is_that_of_the_plain_mesh():
    plain = jax.grad(lambda p: end(p, adjoint=PLAIN))(P)
    near(taylor_test(end, P, mesh="frozen", gradient=plain).slopes)
    on_mesh = jax.grad(record_meshes(end, P).replay(end))(P)
    # Times are rounded to 1e-15, and the gradient is about 30.
    np.testing.assert_allclose(on_mesh, plain, rtol=1e-10, atol=1e-10)


def test_gradient_of_another_mesh_or_a_wrong_one_fails():
    resolving = jax.grad(lambda p: end(p, adjoint=pb.DiscreteAdjoint(on_unresolved="ignore")))(P)
    plain = jax.grad(lambda p: end(p, adjoint=PLAIN))(P)
    for gradient in (resolving, 1.01 * plain):
        with pytest.raises(AssertionError, match="order 2"):
            taylor_test(end, P, mesh="frozen", gradient=gradient)


def test_value_is_kept():
    # Ends of steps are rounded, the sizes of steps are differences of them.
    value = record_meshes(end, P).replay(end)(P)
    np.testing.assert_allclose(value, end(P), rtol=1e-12, atol=0)


def test_second_order():
    near(taylor_test(end, P, mesh="frozen", order=3).slopes, (1, 2, 3))


@pytest.mark.parametrize("t_span", [(0.0, 10.0), (4.0, 0.0)])
def test_ends_absorb(t_span):
    def f(ends):
        problem = pb.ODEProblem(forced, 1.0, (ends[0], ends[1]), 0.5)
        return pb.solve(problem, pb.Tsit5(), ANY, **LOOSE).y_end

    steps = 2.0 ** -np.arange(8, 16)
    for direction in ([1.0, 0.0], [0.0, 1.0], [1.0, -1.0]):
        v = jnp.array(direction)
        for mode in ("reverse", "forward"):
            near(taylor_test(f, jnp.array(t_span), v, mesh="frozen", mode=mode, steps=steps).slopes)


@pytest.mark.parametrize("saveat", [[2.0, 3.3, 9.9, 10.0], "steps"])
def test_rows(saveat):
    def f(x):
        problem = pb.ODEProblem(lotka_volterra, x["y0"], (x["t0"], 10.0), x["p"])
        sol = pb.solve(problem, pb.Tsit5(), ANY, saveat=saveat, **LOOSE)
        is_real = jnp.arange(sol.t.size) < sol.n_saved  # rows that only pad do not move
        return jnp.sum(jnp.where(is_real[:, None], jnp.sin(sol.y), 0.0))

    near(
        taylor_test(
            f, {"y0": Y0, "t0": jnp.float64(0.1), "p": P}, mesh="frozen", steps=SMALL
        ).slopes
    )


@each_executor
def test_an_ensemble(executor):
    rates = jnp.array([1.0, 1.7, 0.4])
    spans = jnp.array([[0.0, 3.0], [0.5, 9.0], [0.0, 6.0]])

    def f(p):
        problem = pb.ODEProblem(lotka_volterra, Y0, (0.0, 1.0), p)
        ensemble = pb.EnsembleProblem(
            problem, params=jnp.outer(rates, p), t_span=(spans[:, 0], spans[:, 1])
        )
        return jnp.sum(pb.solve(ensemble, pb.Tsit5(), executor, **LOOSE).y_end)

    near(taylor_test(f, P, mesh="frozen", steps=SMALL).slopes)


def scanned(p):
    def step(y, rate):
        problem = pb.ODEProblem(lotka_volterra, y, (0.0, 3.0), rate * p)
        return pb.solve(problem, pb.Tsit5(), ANY, **LOOSE).y_end, None

    return jnp.sum(jax.lax.scan(step, Y0, jnp.array([1.0, 1.2, 0.8]))[0])


SURROUNDINGS = {
    "jit": jax.jit(end),
    "jit of jit": jax.jit(lambda p: jnp.sin(jax.jit(end)(p))),
    "scan": scanned,
    "jit of scan": jax.jit(scanned),
    "two": lambda p: end(p) * end(0.9 * p, t_span=(0.0, 5.0), dt=0.1),
    "vmap": lambda p: jnp.sum(jax.vmap(end)(jnp.outer(jnp.array([1.0, 0.8, 1.1]), p))),
    "vmap of vmap": lambda p: jnp.sum(
        jax.vmap(lambda a: jax.vmap(lambda b: end(a * b * p))(jnp.array([1.0, 0.9])))(
            jnp.array([0.8, 1.0, 1.2])
        )
    ),
    "gradient": lambda p: jnp.sum(jnp.sin(jax.jacfwd(end)(p))),
    "branch": lambda p: jax.lax.cond(p[0] > 0, end, lambda p: 2.0 * end(p), p),
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_surroundings(name):
    f = SURROUNDINGS[name]
    f(P)  # traces made before must not get in the way
    mode = "forward" if name == "gradient" else "reverse"
    near(taylor_test(f, P, mesh="frozen", mode=mode, steps=SMALL).slopes)


def test_a_vector_field_is_traced_as_ever():
    calls = []

    @jax.jit
    def field(t, y, p):
        calls.append(y)
        return jax.lax.fori_loop(0, 3, lambda i, s: s - p * y, jnp.zeros_like(y))

    def f(p):
        return pb.solve(pb.ODEProblem(field, 1.0, (0.0, 1.0), p), pb.Tsit5(), ANY, **LOOSE).y_end

    taylor_test(f, jnp.float64(0.7), mesh="frozen")
    assert len(calls) <= 2


def test_a_mesh_longer_than_the_first_recording(monkeypatch):
    monkeypatch.setattr("pullback.ensemble.frozen_mesh._FIRST_ROWS", 4)
    record = record_meshes(end, P)
    assert record.n_rows == record.solves[0].times.shape[0] > 4
    assert np.isnan(record.solves[0].times[-1])
    assert np.isfinite(record.solves[0].times[:-1]).all()
    near(taylor_test(end, P, mesh="frozen").slopes)


def test_an_empty_span():
    def f(y0):
        return jnp.sin(pb.solve(pb.ODEProblem(forced, y0, (1.0, 1.0), 0.5), pb.Tsit5(), ANY).y_end)

    near(taylor_test(f, jnp.float64(0.7), mesh="frozen").slopes)


def test_everything_is_as_before_afterwards():
    before = end(P)
    taylor_test(end, P, mesh="frozen")
    assert end(P) == before
    with pytest.raises(ZeroDivisionError):
        taylor_test(lambda p: end(p) / (1 // 0), P, mesh="frozen")
    assert end(P) == before


# ------------------------------------------------------------------------------- mistakes


def moving_rows(saveat_of, t1_of):
    def f(x):
        problem = pb.ODEProblem(forced, 1.0, (0.0, t1_of(x)), 0.5)
        return jnp.sum(pb.solve(problem, pb.Tsit5(), ANY, saveat=saveat_of(x)).y)

    return f


def changing_count(p):
    return end(p) if p[0] == P[0] else end(p) + end(p)


def vanishing(p):
    return end(p) if p[0] == P[0] else jnp.sum(p)


def changing_shape(p):
    saveat = [1.0, 10.0] if p[0] == P[0] else [1.0, 2.0, 10.0]
    return jnp.sum(
        pb.solve(pb.ODEProblem(lotka_volterra, Y0, (0, 10), p), pb.Tsit5(), ANY, saveat=saveat).y
    )


ERRORS = {
    "checkpoint": (jax.checkpoint(end), NotImplementedError, "solve 0 .* is inside a transf"),
    "value_and_grad": (
        lambda p: pb.value_and_grad(end)(p)[0],
        NotImplementedError,
        r"`pullback.value_and_grad`\), where its steps are not known",
    ),
    "t1": (
        moving_rows(lambda x: [0.5, 1.0], lambda x: 1.0 + x[0]),
        ValueError,
        "`t1` of solve 0 of `f` depends on `x` while rows are saved",
    ),
    "saveat": (
        moving_rows(lambda x: x[1:3] / jnp.array([2.0, 1.0]), lambda x: 2.0),
        ValueError,
        "`saveat` of solve 0 of `f` depends on `x`",
    ),
    "more": (changing_count, ValueError, r"made 1 solve\(s\) at `x` but 2 or more"),
    "fewer": (vanishing, ValueError, r"made 1 solve\(s\) at `x` but 0 next to it"),
    "shape": (changing_shape, ValueError, "must make the same solves"),
    "failure": (
        lambda p: end(p, max_steps=5),
        ValueError,
        "solve 0 .* has a trajectory with status max_steps_reached",
    ),
    "no solve": (lambda p: jnp.sum(p), ValueError, "made no `pullback.solve`"),
    "ahead of time": (jax.jit(end).lower(P).compile(), ValueError, "AOT path"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_cannot_be_frozen_says_so(name):
    f, error, text = ERRORS[name]
    if name == "checkpoint":
        f(P)  # its trace is kept by JAX, without a sign of the solve
    with pytest.raises(error, match=text):
        taylor_test(f, P, mesh="frozen", steps=[1e-2, 1e-3])
