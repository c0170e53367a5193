"""Events that are looked at behind each step, steady states, and grazing crossings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from event_reference import run
from executors import ANY, each_executor

KERNEL = ANY
X = jnp.array([1.0, 0.3, 0.7])


def spiral(t, y, p):
    return jnp.stack([p[1] * y[1] - 0.1 * y[0], -p[1] * y[0] + p[2] * t])


def is_high(t, y, p):
    return y[0] > 1.05


def lower(t, y, p):
    return y + jnp.stack([-0.1 * p[0] * y[0] ** 2, 0.0 * t])


def solve(x, events, executor=KERNEL, t1=2.0, method=None, **options):
    problem = pb.ODEProblem(spiral, jnp.stack([x[0], 0.5]), (0.0, t1), x, events=events)
    return pb.solve(problem, method or pb.RK4(), executor, **({"dt": 0.1} | options))


def reference(x, t1=2.0, dt=0.1):
    """Return the end of the same steps in plain JAX."""
    n = round(t1 / dt)
    stops = [(dt * (i + 1), "free") for i in range(n - 1)] + [(t1, "end")]

    def at_step(t, y):
        return jnp.where(is_high(t, y, x), lower(t, y, x), y)

    def field(t, y):
        return spiral(t, y, x)

    rows = run(field, jnp.stack([x[0], 0.5]), stops, at_stop=None, at_step=at_step)
    return rows[-1][1]


def end(x, executor=KERNEL):
    return solve(x, [pb.StepEvent(is_high, lower)], executor).y_end


@each_executor
def test_affects_happen_behind_steps_and_are_differentiated(executor):
    np.testing.assert_allclose(end(X, executor), reference(X), rtol=1e-13)
    expected = jax.jacfwd(reference)(X)
    assert np.abs(expected).min() > 1e-3  # every parameter matters
    np.testing.assert_allclose(jax.jacrev(lambda x: end(x, executor))(X), expected, rtol=1e-11)
    np.testing.assert_allclose(jax.jacfwd(lambda x: end(x, executor))(X), expected, rtol=1e-11)


def test_second_derivatives():
    def total(function):
        return lambda x: jnp.sum(function(x) ** 2)

    found = jax.jacfwd(jax.grad(total(end)))(X)
    np.testing.assert_allclose(found, jax.hessian(total(reference))(X), rtol=1e-9)


def test_adaptive_steps_and_a_short_tape():
    def f(x, tape):
        adjoint = pb.DiscreteAdjoint(tape=tape, resolve=False)
        events = [pb.StepEvent(is_high, lower)]
        options = {"dt": None, "rtol": 1e-6, "adjoint": adjoint}
        return jnp.sum(solve(x, events, method=pb.Tsit5(), **options).y_end)

    np.testing.assert_allclose(jax.grad(f)(X, 4), jax.grad(f)(X, None), rtol=1e-13)
    forward = jax.jacfwd(lambda x: f(x, None))(X)
    # Forward mode chooses a mesh of its own, on which the jumps lie elsewhere.
    assert np.sign(forward).tolist() == np.sign(jax.grad(f)(X, None)).tolist()


@pytest.mark.parametrize("tol", [1e-2, 1e-3])
def test_derivatives_have_the_steps_of_the_value_for_an_affect_that_adds_up(tol):
    # Of a mesh of its own a derivative would be that of another number of additions.
    def end(rate):
        grow = pb.StepEvent(lambda t, y, p: True, lambda t, y, p: y + 0.1 * p)
        problem = pb.ODEProblem(
            lambda t, y, p: -p * y + jnp.sin(9.0 * t), 1.0, (0.0, 5.0), rate, events=[grow]
        )
        return pb.solve(problem, pb.Tsit5(), KERNEL, rtol=tol, atol=tol)

    def last(rate):
        return end(rate).y_end

    def replayed(rate):
        """The same steps, by hand."""
        state, t = 1.0, 0.0
        for after in np.asarray(end(2.0).events.t[: int(end(2.0).events.count)]):
            step = pb.ODEProblem(
                lambda t, y, p: -p * y + jnp.sin(9.0 * t), state, (t, float(after)), rate
            )
            state = pb.solve(step, pb.Tsit5(), KERNEL, dt=float(after) - t).y_end + 0.1 * rate
            t = float(after)
        return state

    assert 3 < int(end(2.0).events.count) <= 16
    want = (replayed(2.0 + 1e-5) - replayed(2.0 - 1e-5)) / 2e-5
    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(derivative(last)(2.0), want, rtol=1e-8)


@each_executor
def test_they_are_recorded_and_counted(executor):
    sol = solve(X, [pb.StepEvent(is_high, lower)], executor, saveat="steps", max_saves=20)
    plain = solve(X, [], executor, saveat="steps", max_saves=20)
    first = int(np.argmax(np.asarray(plain.y)[:, 0] > 1.05))
    np.testing.assert_allclose(sol.events.t[0], plain.t[first], rtol=1e-13)
    np.testing.assert_allclose(sol.y[:first], plain.y[:first], rtol=1e-14)
    moved = lower(plain.t[first], plain.y[first], X)
    np.testing.assert_allclose(sol.y[first], moved, rtol=1e-13)
    count = int(sol.events.count)
    assert count > 1
    assert sol.events.index[:count].tolist() == [0] * count


def test_several_happen_in_the_order_of_the_list():
    def always(t, y, p):
        return True

    events = [
        pb.StepEvent(always, lambda t, y, p: 2.0 * y),
        pb.StepEvent(always, lambda t, y, p: y + 1.0),
    ]
    one = solve(X, events, t1=0.1).y_end
    np.testing.assert_allclose(one, 2.0 * solve(X, [], t1=0.1).y_end + 1.0, rtol=1e-13)


@each_executor
def test_a_terminal_one_ends_the_trajectory_there(executor):
    sol = solve(X, [pb.StepEvent(is_high, terminate=True)], executor)
    assert int(sol.status) == pb.Status.terminated
    plain = solve(X, [], executor, saveat="steps", max_saves=20)
    first = int(np.argmax(np.asarray(plain.y)[:, 0] > 1.05))
    np.testing.assert_allclose(sol.t_end, plain.t[first], rtol=1e-13)
    np.testing.assert_allclose(sol.y_end, plain.y[first], rtol=1e-13)


def test_ensembles_have_their_own():
    starts = jnp.stack([X, X.at[0].set(2.0), X.at[1].set(0.9)])
    together = jax.vmap(end)(starts)
    np.testing.assert_array_equal(together, jnp.stack([end(x) for x in starts]))


# ------------------------------------------------------------------------ steady states


def relax(t, y, p):
    return p - 2.0 * y


@each_executor
def test_a_steady_state_ends_the_trajectory(executor):
    def run(p, tolerance):
        event = pb.SteadyState(rtol=tolerance, atol=tolerance)
        problem = pb.ODEProblem(relax, jnp.zeros(2), (0.0, 1e6), p, events=[event])
        return pb.solve(problem, pb.Tsit5(), executor, rtol=1e-8, atol=1e-10)

    p = jnp.array([1.0, 3.0])
    sol = run(p, 1e-6)
    assert int(sol.status) == pb.Status.terminated
    assert float(sol.t_end) < 20.0
    # |y'| = 2 |y - p / 2| <= 1e-6 (1 + |y|), on average
    np.testing.assert_allclose(sol.y_end, p / 2, atol=2e-6)
    gradient = jax.grad(lambda p: jnp.sum(run(p, 1e-6).y_end))(p)
    np.testing.assert_allclose(gradient, [0.5, 0.5], atol=1e-5)
    assert float(run(p, 1e-3).t_end) < float(sol.t_end)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: pb.StepEvent(3), TypeError, "`condition` must be a function"),
        (lambda: pb.SteadyState(rtol=-1.0), ValueError, "`rtol` of SteadyState must be a number"),
        (lambda: pb.SteadyState(0.0, 0.0), ValueError, "one of `rtol` and `atol`"),
        (
            lambda: solve(X, [pb.StepEvent(lambda t, y, p: y[0], lower)]),
            TypeError,
            "boolean",
        ),
    ],
)
def test_mistakes(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_a_boolean_condition_of_a_root_event_is_refused():
    with pytest.raises(TypeError, match="must return one real number whose zero is the event"):
        solve(X, [pb.Event(is_high, lower)])


# ----------------------------------------------------------------------------- grazing


@each_executor
def test_grazing_is_told(executor):
    """A parabola whose top is just above the surface crosses it nearly tangentially."""

    def rise(t, y, p):
        return jnp.stack([1.0 - t])

    def told(level):
        event = pb.Event(lambda t, y, p: y[0] - p)
        problem = pb.ODEProblem(rise, jnp.zeros(1), (0.0, 1.8), level, events=[event])
        return pb.solve(problem, pb.Tsit5(), executor, rtol=1e-6, atol=1e-6).events

    clear, near = told(0.3), told(0.5 - 1e-9)
    assert int(clear.count) > 0
    assert not bool(clear.grazing)
    assert int(near.count) > 0
    assert bool(near.grazing)
