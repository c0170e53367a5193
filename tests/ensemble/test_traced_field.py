"""A vector field is traced again when, and only when, something may have changed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback.ensemble.traced_field as module
from executors import ANY

SCALE = 1.0


def end(field, y0=1.0, params=None):
    problem = pb.ODEProblem(field, y0, (0.0, 1.0), params)
    return pb.solve(problem, pb.RK4(), ANY, dt=0.1).y_end


class Counter:
    """Counts the traces of a function without being visible to it."""

    def __init__(self):
        self.n = 0

    def __enter__(self):
        self._trace = module._trace
        module._trace = self._counted
        return self

    def _counted(self, members):
        self.n += 1
        return self._trace(members)

    def __exit__(self, *_):
        module._trace = self._trace


def test_a_trace_made_inside_jit_is_not_used_outside_of_it():
    scale = np.array([1.0, 2.0])

    def field(t, y, p):
        return -jnp.asarray(scale) * y

    ensemble = pb.EnsembleProblem(
        pb.ODEProblem(field, np.ones(2), (0.0, 1.0)),
        lambda q, c: q.replace(y0=q.y0 * jnp.asarray(scale)[c.sim_id]),
    )

    def ends():
        return pb.solve(ensemble, pb.RK4(), ANY, dt=0.1, trajectories=2).y_end

    np.testing.assert_array_equal(jax.jit(ends)(), ends())


def test_the_same_function_is_traced_once():
    def field(t, y, p):
        return -p * y

    with Counter() as traces:
        for rate in (1.0, 2.0, 3.0):
            np.testing.assert_allclose(end(field, params=rate), np.exp(-rate), rtol=1e-3)
        assert traces.n == 1
        end(field, y0=np.float32(1.0), params=np.float32(1.0))
        end(field, params=(1.0,)[0])
        assert traces.n == 2


def test_a_closure_made_anew_with_the_same_value_is_traced_once():
    def make(rate):
        return lambda t, y, p: -rate * y

    with Counter() as traces:
        first, again, other = end(make(1.0)), end(make(1.0)), end(make(2.0))
    assert traces.n == 2
    assert first == again
    np.testing.assert_allclose(other, np.exp(-2.0), rtol=1e-3)


@pytest.mark.parametrize("kind", ["list", "dict", "object", "numpy", "global"])
def test_a_second_value_is_seen(kind, monkeypatch):
    holder = {
        "list": lambda: [1.0],
        "dict": lambda: {"rate": 1.0},
        "object": lambda: type("Model", (), {"rate": 1.0})(),
        "numpy": lambda: np.ones(1),
        "global": lambda: None,
    }[kind]()

    def field(t, y, p):
        rate = {
            "list": lambda: holder[0],
            "dict": lambda: holder["rate"],
            "object": lambda: holder.rate,
            "numpy": lambda: holder[0],
            "global": lambda: SCALE,
        }[kind]()
        return -rate * y

    def change():
        if kind in ("list", "numpy"):
            holder[0] = 2.0
        elif kind == "dict":
            holder["rate"] = 2.0
        elif kind == "object":
            holder.rate = 2.0
        else:
            monkeypatch.setitem(globals(), "SCALE", 2.0)

    np.testing.assert_allclose(end(field), np.exp(-1.0), rtol=1e-3)
    change()
    np.testing.assert_allclose(end(field), np.exp(-2.0), rtol=1e-3)


def test_what_is_kept_does_not_follow_a_numpy_array():
    rate = np.full(8, 0.125)  # large enough to be aliased

    def field(t, y, p):
        return -jnp.sum(jnp.asarray(rate) * y)

    def decay(expected):
        np.testing.assert_allclose(end(field), np.exp(-expected), rtol=1e-3)

    decay(1.0)
    rate[:] = 0.0625
    decay(0.5)
    rate = np.full(8, 0.125)
    decay(1.0)


def test_traced_closures_of_two_calls_are_two_values():
    def total(rate):
        return end(lambda t, y, p: -rate * y)

    jitted = jax.jit(total)
    np.testing.assert_allclose(jitted(1.0), np.exp(-1.0), rtol=1e-3)
    np.testing.assert_allclose(jitted(2.0), np.exp(-2.0), rtol=1e-3)
    both = jax.vmap(total)(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(both, np.exp([-1.0, -2.0]), rtol=1e-3)


def test_settings_of_jax_are_part_of_the_key():
    def field(t, y, p):
        return -y * jnp.asarray(1.0)

    with Counter() as traces:
        end(field)
        with jax.numpy_dtype_promotion("strict"):
            end(field)
    assert traces.n == 2
