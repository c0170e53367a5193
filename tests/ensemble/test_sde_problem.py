"""Stochastic problems: their parts, what they refuse, and whose noise a trajectory has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor
from pullback import native
from pullback.ode import NOISE_KINDS, StochasticMethod

KEY = jax.random.key(7)
METHODS = [pb.EulerMaruyama(), pb.Milstein(), pb.SIEA(), pb.SRA1(), pb.SRIW1()]
METHODS += [pb.StratonovichHeun()]
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)


def drift(t, y, params):
    return params["a"] * y


def diffusion(t, y, params):
    return params["b"] * y


GBM = pb.SDEProblem(drift, diffusion, 1.0, (0.0, 1.0), {"a": 0.3, "b": 0.4})


def constant(t, y, params):
    return jax.tree.map(jnp.ones_like, y)


def still(t, y, params):
    return jax.tree.map(jnp.zeros_like, y)


def wiener(y0=0.0, t_span=(0.0, 1.0)):
    """A Wiener process: its path is the sum of the increments, exactly."""
    return pb.SDEProblem(still, constant, y0, t_span)


def keep(problem, ctx):
    return problem


@pytest.fixture
def optimized():
    """XLA as users have it: without its optimizations it does not fuse products and sums."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def run(problem, n=None, method=METHODS[0], executor=ANY, **options):
    options = {"key": KEY, "dt": 0.125} | options
    if n is not None:
        problem = pb.EnsembleProblem(problem, keep)
    return pb.solve(problem, method, executor, trajectories=n, **options)


class SecondOnly(StochasticMethod):
    """Adds up the second set of increments, which methods of higher order use."""

    strong_order, weak_order, n_drifts, reference = 0.0, 0.0, 0, "none"

    def increment(self, system, t, y, h):
        return system.increments(h, with_dz=True).dz


# --------------------------------------------------------------------------------- parts


def test_parts_and_replace():
    assert (GBM.noise, GBM.n_noise, GBM.t_span) == ("diagonal", None, (0.0, 1.0))
    assert GBM.replace(params=2.0).params == 2.0
    assert GBM.replace(noise="general", n_noise=3).n_noise == 3
    assert repr(GBM).startswith("SDEProblem(drift, diffusion, y0=1.0")


def test_is_a_pytree_of_its_numbers():
    leaves, tree = jax.tree.flatten(GBM)
    assert leaves == [1.0, 0.0, 1.0, 0.3, 0.4]
    back = jax.tree.unflatten(tree, leaves)
    assert (back.drift, back.diffusion, back.noise) == (drift, diffusion, "diagonal")
    assert tree == jax.tree.structure(back)


def test_functions_that_are_pytrees_move():
    partial = jax.tree_util.Partial(lambda b, t, y, p: b * y, 0.4)
    problem = GBM.replace(diffusion=partial, params={"a": 0.3})
    assert jax.tree.leaves(problem) == [0.4, 1.0, 0.0, 1.0, 0.3]
    value = run(problem).y_end
    np.testing.assert_array_equal(value, run(GBM).y_end)
    slope = jax.grad(lambda p: run(p).y_end)(problem).diffusion.args[0]
    by_params = jax.grad(lambda p: run(p).y_end)(GBM).params["b"]
    np.testing.assert_allclose(slope, by_params, rtol=1e-14)  # the same arithmetic


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"drift": 1.0}, TypeError, "`drift` must be a function .* but a float arrived"),
        ({"diffusion": 1.0}, TypeError, "`diffusion` must be a function"),
        ({"noise": "white"}, ValueError, "`noise` must be one of 'diagonal', 'scalar', 'general'"),
        ({"noise": "general"}, ValueError, "`n_noise` must be the number of Wiener processes"),
        ({"noise": "general", "n_noise": 0}, ValueError, "at least 1, but 0 arrived"),
        ({"noise": "general", "n_noise": True}, ValueError, "but True arrived"),
        ({"n_noise": 2}, ValueError, "`n_noise`=2 arrived with `noise`='diagonal'"),
        ({"t_span": 1.0}, ValueError, "`t_span` must be the pair"),
        ({"rate": 1.0}, TypeError, "`replace` got `rate`, which is no part of an SDEProblem"),
    ],
)
def test_wrong_parts(change, error, text):
    with pytest.raises(error, match=text):
        GBM.replace(**change)


def test_events_are_not_available():
    with pytest.raises(NotImplementedError, match="`events` of SDEProblem"):
        pb.SDEProblem(drift, diffusion, 1.0, (0.0, 1.0), events=(1,))


# ----------------------------------------------------------------------- what is refused


@each_method
def test_an_ordinary_problem_refuses(method):
    ode = pb.ODEProblem(lambda t, y, p: -y, 1.0, (0.0, 1.0))
    for problem in (ode, pb.EnsembleProblem(ode, keep)):
        with pytest.raises(TypeError, match=f"{method.name} is for stochastic .* ODEProblem"):
            pb.solve(problem, method, dt=0.1, key=KEY, trajectories=None)


def test_an_ordinary_method_refuses():
    for method in (pb.Tsit5(), pb.RK4(), pb.Rodas5P()):
        with pytest.raises(TypeError, match="ordinary differential equations, but an SDEProblem"):
            run(GBM, method=method)


@each_method
@pytest.mark.parametrize("kind", NOISE_KINDS)
def test_which_noise_a_method_takes(method, kind):
    def matrix(t, y, p):
        return jnp.ones((2, 3)) if kind == "general" else jnp.ones(2)

    n_noise = 3 if kind == "general" else None
    problem = pb.SDEProblem(
        lambda t, y, p: -y, matrix, jnp.ones(2), (0.0, 1.0), noise=kind, n_noise=n_noise
    )
    if kind in method.noise_kinds:
        assert run(problem, method=method).ok
        return
    with pytest.raises(ValueError, match=f"{method.name} takes 'diagonal' or 'scalar' noise, but"):
        run(problem, method=method)


def test_additive_noise_only():
    with pytest.raises(ValueError, match=r"SRA1 is for additive noise, but `diffusion` diffusion"):
        run(GBM, method=pb.SRA1())
    in_time = GBM.replace(diffusion=lambda t, y, p: p["b"] * jnp.cos(t))
    assert run(in_time, method=pb.SRA1()).ok
    in_shape = in_time.replace(y0=jnp.ones(3), diffusion=lambda t, y, p: p["b"] * jnp.ones_like(y))
    assert run(in_shape, method=pb.SRA1()).ok


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"key": None}, ValueError, "`key` is missing: the noise of an SDEProblem"),
        ({"key": 3}, TypeError, "`key` must be one JAX random key, but 3 arrived"),
        ({"dt": None}, ValueError, "`dt` is missing: EulerMaruyama has no error estimate"),
        ({"adaptive": True}, ValueError, "needs an error estimate, which EulerMaruyama"),
        ({"trajectories": 3}, ValueError, "`trajectories`=3 arrived with a single SDEProblem"),
    ],
)
def test_wrong_options(options, error, text):
    with pytest.raises(error, match=text):
        pb.solve(GBM, pb.EulerMaruyama(), **({"key": KEY, "dt": 0.1} | options))


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"drift": lambda t, y, p: (y, y)}, TypeError, "`drift` <lambda> must return the struct"),
        ({"drift": lambda t, y, p: jnp.ones(2)}, ValueError, r"`drift`.*expected shape \(\), got"),
        ({"diffusion": lambda t, y, p: [y]}, TypeError, "`diffusion` <lambda> must return the str"),
        ({"diffusion": lambda t, y, p: jnp.int32(1)}, TypeError, "`diffusion`.*dtype int32"),
        (
            {"noise": "general", "n_noise": 2},
            ValueError,
            r"`diffusion`.*one more axis.*expected shape \(2,\), got \(\)",
        ),
    ],
)
def test_wrong_results(change, error, text):
    with pytest.raises(error, match=text):
        run(GBM.replace(**change))


@pytest.mark.parametrize(
    ("prob_func", "error", "text"),
    [
        (lambda p, c: None, TypeError, "must return an SDEProblem, but it returned a NoneType"),
        (lambda p, c: p.replace(drift=diffusion), ValueError, "another `drift` or `diffusion`"),
        (lambda p, c: p.replace(noise="scalar"), ValueError, "must keep `noise` and `n_noise`"),
    ],
)
def test_what_prob_func_may_change(prob_func, error, text):
    with pytest.raises(error, match=text):
        ensemble = pb.EnsembleProblem(GBM, prob_func)
        pb.solve(ensemble, pb.EulerMaruyama(), trajectories=2, key=KEY, dt=0.1)


# -------------------------------------------------------------------------- whose noise


def test_the_same_call_has_the_same_answer():
    first, again = run(GBM, 5).y_end, run(GBM, 5).y_end
    np.testing.assert_array_equal(first, again)
    other = run(GBM, 5, key=jax.random.key(8)).y_end
    assert not np.any(first == other)
    assert len(np.unique(first)) == 5


@each_executor
def test_split_in_any_way(executor):
    problem, dt = wiener(jnp.zeros(3)), 0.125
    whole = np.asarray(run(problem, 37, executor=executor).y_end)
    some = np.asarray(run(problem, 11, executor=executor).y_end)
    np.testing.assert_array_equal(some, whole[:11])

    def one(i):
        key = jax.random.fold_in(KEY, i)
        return pb.solve(problem, pb.EulerMaruyama(), executor, key=key, dt=dt).y_end

    np.testing.assert_array_equal(one(23), whole[23])
    picked = jnp.asarray([36, 5, 5, 0])
    np.testing.assert_array_equal(jax.vmap(one)(picked), whole[picked])
    np.testing.assert_array_equal(jax.jit(jax.vmap(one))(picked), whole[picked])
    np.testing.assert_array_equal(jax.lax.map(one, picked), whole[picked])


@pytest.mark.skipif(not native.is_supported(), reason="no kernels on this machine")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("method", [pb.EulerMaruyama(), SecondOnly()], ids=lambda m: m.name)
def test_executors_have_the_same_noise(dtype, method, optimized):
    y = [
        run(wiener(np.zeros(3, dtype)), 500, method, executor, saveat="steps", max_saves=8).y
        for executor in (pb.EnsembleKernel(), pb.EnsembleArray())
    ]
    np.testing.assert_array_equal(*y)
    assert y[0].dtype == dtype


@pytest.mark.skipif(not native.is_supported(), reason="no kernels on this machine")
def test_any_width_has_the_same_paths(monkeypatch):
    expected = run(GBM, 37, pb.SRIW1(), pb.EnsembleKernel()).y_end
    for width in (4, 8, 16, 32):
        monkeypatch.setenv("PULLBACK_LANE_WIDTH", str(width))
        # Another bound on the steps is another program, so it is compiled anew.
        found = run(GBM, 37, pb.SRIW1(), pb.EnsembleKernel(), max_steps=100 + width).y_end
        np.testing.assert_array_equal(found, expected)


def test_two_trajectories_are_uncorrelated():
    n = 2000
    rows = run(wiener(jnp.zeros(4)), n, dt=1 / 16, saveat="steps", max_saves=16).y
    steps = np.diff(np.asarray(rows), axis=1, prepend=0.0).reshape(n, -1) * 4.0
    products = steps[1:] * steps[:-1]
    assert abs(products.sum()) < 4.5 * np.sqrt(products.size)
    assert steps.mean() * np.sqrt(steps.size) == pytest.approx(0.0, abs=4.5)
    assert np.mean(steps**2 - 1) * np.sqrt(steps.size / 2) == pytest.approx(0.0, abs=4.5)


def test_scalar_noise_is_shared_and_diagonal_is_not():
    shared = run(wiener(jnp.zeros(3)).replace(noise="scalar")).y_end
    own = run(wiener(jnp.zeros(3))).y_end
    assert len(np.unique(shared)) == 1
    assert len(np.unique(own)) == 3
    assert shared[0] == own[0]  # channel 0 in either case


def test_general_noise_with_a_diagonal_matrix_is_diagonal_noise():
    def matrix(t, y, p):
        return jnp.diag(p["b"] * y)

    y0 = jnp.asarray([1.0, 2.0, 0.5])
    general = GBM.replace(y0=y0, diffusion=matrix, noise="general", n_noise=3)
    for method in (pb.EulerMaruyama(), pb.StratonovichHeun()):
        expected = run(GBM.replace(y0=y0), method=method).y_end
        np.testing.assert_allclose(run(general, method=method).y_end, expected, rtol=1e-14)


def test_general_noise_of_a_pytree():
    def matrix(t, y, p):
        return {"x": jnp.asarray([[1.0, 0.0], [0.0, 2.0]]), "v": jnp.asarray([3.0, 0.0])}

    problem = pb.SDEProblem(
        still, matrix, {"x": jnp.zeros(2), "v": 0.0}, (0.0, 1.0), noise="general", n_noise=2
    )
    y = run(problem).y_end
    w = run(wiener(jnp.zeros(2))).y_end
    np.testing.assert_allclose(y["x"], [w[0], 2.0 * w[1]], rtol=1e-14)
    np.testing.assert_allclose(y["v"], 3.0 * w[0], rtol=1e-14)


def test_many_channels():
    n = 70  # more than are added up one by one
    g = np.random.default_rng(0).normal(size=(3, n))
    problem = wiener(jnp.zeros(3)).replace(
        diffusion=lambda t, y, p: jnp.asarray(g), noise="general", n_noise=n
    )
    w = run(wiener(jnp.zeros(n))).y_end
    np.testing.assert_allclose(run(problem).y_end, g @ w, rtol=0, atol=1e-12)  # sums of 70


def test_leaves_that_differ_and_prob_func():
    a = jnp.asarray([0.1, 0.2, 0.3])
    by_leaves = pb.EnsembleProblem(GBM, params={"a": a, "b": 0.4})
    first = pb.solve(by_leaves, pb.Milstein(), ANY, key=KEY, dt=0.125).y_end

    def prob_func(problem, ctx):
        return problem.replace(params={"a": 0.1 * (ctx.sim_id + 1), "b": 0.4})

    by_function = pb.EnsembleProblem(GBM, prob_func)
    second = pb.solve(by_function, pb.Milstein(), ANY, trajectories=3, key=KEY, dt=0.125).y_end
    np.testing.assert_allclose(first, second, rtol=1e-14)  # 0.1 * 3 is not 0.3

    def random_start(problem, ctx):
        return problem.replace(y0=jax.random.uniform(ctx.key, minval=1.0, maxval=2.0))

    third = pb.solve(
        pb.EnsembleProblem(GBM, random_start), pb.Milstein(), ANY, trajectories=3, key=KEY, dt=0.125
    )
    assert third.ok.all()


def test_other_kinds_of_key():
    by_words = run(GBM, 3, key=jax.random.key_data(KEY)).y_end
    np.testing.assert_array_equal(by_words, run(GBM, 3).y_end)
    other = run(GBM, 3, key=jax.random.key(7, impl="rbg"))
    assert other.ok.all()
    assert len(np.unique(other.y_end)) == 3


def test_methods_say_what_they_are():
    for method in METHODS:
        assert isinstance(method, StochasticMethod)
        assert method.calculus in ("Ito", "Stratonovich")
        assert method == type(method)()
        assert hash(method) == hash(type(method)())
        assert method.strong_order <= method.weak_order
        assert method.reference


def test_a_method_of_ones_own():
    class Backwards(StochasticMethod):
        strong_order, weak_order, n_drifts, reference = 0.5, 1.0, 1, "none"

        def increment(self, system, t, y, h):
            return h * system(t, y) - system.spread(system.diffusion(t, y), system.increments(h).dw)

    there, back = (run(wiener(), method=m).y_end for m in (pb.EulerMaruyama(), Backwards()))
    assert there == -back


def test_float32_without_wide_types():
    expected = run(GBM.replace(y0=np.float32(1.0)), 4).y_end
    with jax.enable_x64(False):
        found = run(GBM, 4).y_end
    assert found.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
