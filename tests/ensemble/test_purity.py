"""A trace is kept only while nothing that the function can see has changed."""

import functools
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pullback.ensemble.purity import fingerprint

RATE = 2.0


def with_global(t, y, p):
    return RATE * y


def calls_with_global(t, y, p):
    return with_global(t, y, p) + jnp.sin(math.pi * y)


def make(value):
    return lambda t, y, p: value * y


def test_equal_closures_are_equal_and_others_differ():
    assert fingerprint(make(1.0)) == fingerprint(make(1.0))
    different = [1.0, 2.0, 1, True, -0.0, 0.0, "1.0", None, (1.0,), [1.0], {"a": 1.0}]
    keys = [fingerprint(make(value)) for value in different]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_a_global_that_changes_is_seen(monkeypatch):
    before = fingerprint(calls_with_global)
    assert before is not None
    assert before == fingerprint(calls_with_global)
    monkeypatch.setitem(with_global.__globals__, "RATE", 3.0)
    assert fingerprint(calls_with_global) != before


def test_defaults_and_partials_are_seen():
    def field(t, y, p, rate=1.0, *, power=2):
        return rate * y**power

    before = fingerprint(field)
    field.__kwdefaults__ = {"power": 3}
    assert fingerprint(field) != before
    assert fingerprint(functools.partial(field, rate=1.0)) != fingerprint(
        functools.partial(field, rate=2.0)
    )


def test_mutable_containers_count_by_contents():
    values = [1.0, 2.0]
    function = make(values)
    before = fingerprint(function)
    values[0] = 5.0
    assert fingerprint(function) != before


def test_small_jax_arrays_count_by_identity():
    a, b = jnp.ones(3), jnp.ones(3)
    assert fingerprint(make(a)) == fingerprint(make(a))
    assert fingerprint(make(a)) != fingerprint(make(b))


def test_small_numpy_arrays_count_by_contents():
    a = np.ones(3)
    before = fingerprint(make(a))
    assert before == fingerprint(make(np.ones(3)))
    assert before != fingerprint(make(np.ones(3, np.float32)))
    assert before != fingerprint(make(np.ones((3, 1))))
    a[0] = 2.0
    assert fingerprint(make(a)) != before


class Model:
    rate = 1.0

    def field(self, t, y, p):
        return self.rate * y


@pytest.mark.parametrize(
    "function",
    [
        make(np.ones(10_000)),
        make(np.array([None])),
        make(jnp.ones(10_000)),
        make(Model()),
        make(Model),
        make(types.ModuleType("mine")),
        Model().field,
        Model(),
        make([1.0].append),
    ],
    ids=[
        "large",
        "objects",
        "large jax",
        "object",
        "class",
        "module",
        "method",
        "instance",
        "bound builtin",
    ],
)
def test_what_may_change_unseen_has_no_fingerprint(function):
    assert fingerprint(function) is None


def test_tracers_have_no_fingerprint():
    seen = []
    jax.jit(lambda x: seen.append(fingerprint(make(x))) or x)(1.0)
    assert seen == [None]


def test_a_name_that_is_bound_later():
    def outer():
        def function(t, y, p):
            return later * y

        key = fingerprint(function)
        later = 1.0
        return key, fingerprint(function), later

    assert outer()[0] is None
    assert outer()[1] is not None


def test_recursive_functions_end():
    def factorial(n):
        return 1 if n == 0 else n * factorial(n - 1)

    assert fingerprint(make(factorial)) is not None


def test_jitted_and_library_functions_are_fixed():
    assert fingerprint(jax.jit(with_global)) is not None
    assert fingerprint(make(jax.nn.relu)) is not None
    assert fingerprint(make(np.float32)) is not None
    assert fingerprint(make(jnp.linalg.norm)) is not None
