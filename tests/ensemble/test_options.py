"""Numbers and choices given to `solve`, and what is refused."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import ANY, each_executor

PROBLEM = pb.ODEProblem(lambda t, y, p: -y, 1.0, (0.0, 1.0))
TREE = pb.ODEProblem(
    lambda t, y, p: jax.tree.map(jnp.negative, y), {"a": 1.0, "b": np.ones(2)}, (0.0, 1.0)
)


def solve(problem=PROBLEM, method=None, executor=ANY, **options):
    return pb.solve(problem, pb.Tsit5() if method is None else method, executor, **options)


# ------------------------------------------------------------------------------- step size


def test_adaptive_by_default_where_there_is_an_estimate():
    assert int(solve(rtol=1e-3).stats["n_attempts"]) < int(solve(rtol=1e-9).stats["n_attempts"])


def test_dt_alone_means_a_fixed_step():
    assert int(solve(dt=0.125).stats["n_attempts"]) == 8
    assert int(solve(dt=0.3).stats["n_attempts"]) == 4
    assert int(solve(method=pb.RK4(), dt=0.125).stats["n_attempts"]) == 8


def test_dt_with_adaptive_is_the_first_step():
    sol = solve(dt=0.125, adaptive=True, saveat="steps", rtol=1e-3)
    assert float(sol.t[0]) == 0.125
    assert int(sol.stats["n_attempts"]) < 8


def test_dt_max_limits_every_step():
    sol = solve(dt_max=0.125, saveat="steps", max_saves=50)
    n = int(sol.n_saved)
    steps = np.diff(np.concatenate([[0.0], np.asarray(sol.t[:n])]))
    assert steps.max() <= 0.125 * (1 + 1e-15)
    assert n >= 8


def test_controller_is_used():
    careful = pb.PIController(safety=0.3)
    plain = int(solve(rtol=1e-8).stats["n_attempts"])
    assert int(solve(rtol=1e-8, controller=careful).stats["n_attempts"]) > plain


def test_max_steps_bounds_attempts():
    sol = solve(dt=0.125, max_steps=4)
    assert pb.Status(int(sol.status)) is pb.Status.max_steps_reached
    assert (float(sol.t_end), int(sol.stats["n_attempts"])) == (0.5, 4)


def test_missing_dt():
    with pytest.raises(ValueError, match=r"`dt` is missing: RK4 has no error estimate.*pass dt="):
        solve(method=pb.RK4())
    with pytest.raises(ValueError, match="`dt` is missing: `adaptive`=False, so the step size"):
        solve(adaptive=False)


def test_adaptive_without_an_estimate():
    with pytest.raises(ValueError, match="`adaptive`=True needs an error estimate, which Euler"):
        solve(method=pb.Euler(), adaptive=True, dt=0.1)
    with pytest.raises(TypeError, match="`adaptive` must be True, False or None, but 'yes'"):
        solve(adaptive="yes")


@pytest.mark.parametrize("name", ["dt", "dt_max"])
@pytest.mark.parametrize("value", [0.0, -0.1, np.nan, np.inf])
def test_steps_must_be_positive(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be positive and finite, but {value}"):
        solve(**{name: value})


@pytest.mark.parametrize("name", ["dt", "dt_max"])
def test_steps_must_be_one_number(name):
    with pytest.raises(TypeError, match=f"`{name}` must be one positive number"):
        solve(**{name: np.ones(3)})


@pytest.mark.parametrize("value", [0, -1, 2.5, True, 2**40])
def test_max_steps_must_be_a_count(value):
    with pytest.raises(ValueError, match=r"`max_steps` must be an integer from 1 to 2\*\*31 - 1"):
        solve(max_steps=value)


def test_traced_step_size():
    attempts = jax.jit(lambda dt: solve(dt=dt).stats["n_attempts"])(0.25)
    assert int(attempts) == 4
    for dt in (np.nan, -0.25, 0.0, np.inf):
        bad = jax.jit(lambda dt: solve(dt=dt).status)(dt)
        assert int(bad) == int(pb.Status.invalid_input)
    bad = jax.jit(lambda dt: solve(dt_max=dt).status)(-0.25)
    assert int(bad) == int(pb.Status.invalid_input)


def test_span_that_overflows_is_invalid():
    sol = solve(PROBLEM.replace(t_span=(-1e308, 1e308)))
    assert int(sol.status) == int(pb.Status.invalid_input)


# ------------------------------------------------------------------------------- tolerances


@pytest.mark.parametrize("name", ["rtol", "atol"])
@pytest.mark.parametrize("value", [-1e-3, np.nan])
def test_tolerances_must_not_be_negative(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must not be negative or NaN, but {value}"):
        solve(**{name: value})


@pytest.mark.parametrize(("dtype", "least"), [(np.float32, "4.8e-07"), (np.float64, "8.9e-16")])
def test_rtol_below_the_precision(dtype, least):
    problem = PROBLEM.replace(y0=dtype(1.0))
    name = np.dtype(dtype).name
    with pytest.raises(ValueError, match=f"`rtol` must be at least {least}.*{name}.*1e-17 arrived"):
        solve(problem, rtol=1e-17)
    assert int(solve(problem, rtol=0.0, dt=0.5).status) == 0  # a fixed step does not use it


def test_tolerances_for_each_component():
    loose = solve(TREE, rtol=1e-3, atol=1e-3)
    tight = solve(TREE, rtol=1e-3, atol={"a": 1e-3, "b": np.array([1e-3, 1e-9])})
    same = solve(TREE, rtol={"a": 1e-3, "b": 1e-3}, atol=jax.tree.map(lambda y: 1e-3, TREE.y0))
    assert int(same.stats["n_attempts"]) == int(loose.stats["n_attempts"])
    assert int(tight.stats["n_accepted"]) >= int(loose.stats["n_accepted"])
    np.testing.assert_array_equal(same.y_end["b"], loose.y_end["b"])


def test_tolerances_of_wrong_structure_or_shape():
    with pytest.raises(ValueError, match="`atol` must be a number or have the structure of `y0`"):
        solve(TREE, atol={"a": 1e-3})
    with pytest.raises(
        ValueError, match=r"`atol\['b'\]` must .* shape of `y0\['b'\]`, \(2,\), but"
    ):
        solve(TREE, atol={"a": 1e-3, "b": np.ones(3)})
    with pytest.raises(ValueError, match=r"`rtol\['b'\]` must not be negative or NaN, but -1.0"):
        solve(TREE, rtol={"a": 1e-3, "b": -1.0})
    with pytest.raises(TypeError, match=r"`rtol` must be a real number, but \(?1e-03|1j"):
        solve(rtol=1j)


def test_traced_tolerances():
    run = jax.jit(lambda rtol: solve(rtol=rtol))
    assert int(run(1e-6).stats["n_attempts"]) == int(solve(rtol=1e-6).stats["n_attempts"])
    assert int(run(-1e-6).status) == int(pb.Status.invalid_input)


# ------------------------------------------------------------------------------- choices


@pytest.mark.parametrize(
    ("method", "hint"),
    [(pb.Tsit5, r"write pb.Tsit5\(\)"), ("Tsit5", "'Tsit5' arrived"), (None.__class__, "write")],
)
def test_not_a_method(method, hint):
    with pytest.raises(TypeError, match=f"`method` must be an instance of .*{hint}"):
        solve(method=method)


def test_not_a_controller_or_an_adjoint():
    with pytest.raises(TypeError, match=r"`controller` must be .* write pb.PIController\(\)"):
        solve(controller=pb.PIController)
    with pytest.raises(TypeError, match=r"`adjoint` must be .* write pb.DiscreteAdjoint\(\)"):
        solve(adjoint="discrete")
    with pytest.raises(TypeError, match=r"`scheme` of DiscreteAdjoint must be one such as pb\.On"):
        solve(adjoint=pb.DiscreteAdjoint(scheme="revolve"))


def test_defaults_are_accepted():
    sol = solve(
        save_fn=None, events=[], dt_min=None, reduce=None, batch_size=None, initialization="brown",
        progress=False,
    )  # fmt: skip
    assert bool(sol.ok)


def test_initialization_is_one_of_two():
    with pytest.raises(ValueError, match=r"`initialization` must be .brown.*'none' arrived"):
        solve(initialization="none")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("reltol", "`rtol`"), ("save_everystep", 'saveat="steps"'), ("maxsteps", "`max_steps`")],
)
def test_unknown_keyword(name, meant):
    with pytest.raises(TypeError, match=f"`solve` has no keyword `{name}`; did you mean .*{meant}"):
        solve(**{name: 1})


def test_unknown_keyword_without_a_guess():
    with pytest.raises(TypeError, match="no keyword `zzz`; the keywords are problem, method"):
        solve(zzz=1)


def test_signature_is_the_documented_one():
    names = list(inspect.signature(pb.solve).parameters)
    assert names == [
        "problem", "method", "executor", "trajectories", "key", "saveat", "save_fn", "events",
        "tstops", "is_valid", "dt", "dt_min", "dt_max", "adaptive", "rtol", "atol", "controller",
        "max_steps", "max_saves", "adjoint", "reduce", "batch_size", "initialization", "progress",
        "throw",
    ]  # fmt: skip


@each_executor
def test_throw(executor):
    problem = PROBLEM.replace(vector_field=lambda t, y, p: y**2, y0=2.0)
    assert bool(solve(executor=executor, throw=True).ok)
    with pytest.raises(pb.SolveFailedError, match=r"the solve failed at t = 0."):
        solve(problem, executor=executor, throw=True, rtol=1e-6)
    with pytest.raises(ValueError, match="throw=True need to see the status, but it is traced"):
        jax.jit(lambda y0: solve(PROBLEM.replace(y0=y0), executor=executor, throw=True).y)(1.0)
