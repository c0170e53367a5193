"""Each mistake leads to one sentence: which argument, what was expected, what arrived."""

import functools

import jax
import jax.numpy as jnp
import pytest

from pullback.checkpoint import (
    AbstractStorage,
    CheckpointModeError,
    Online,
    Revolve,
    StorageError,
    checkpointed_scan,
    checkpointed_while,
)

ONE = jnp.ones(3)


def scan(step=lambda c, x: (c, x), init=ONE, xs=None, length=4, **options):
    return checkpointed_scan(step, init, xs, length, **options)


def loop(cond=lambda c: c < 3.0, step=lambda c: c + 1.0, init=0.0, **options):
    return checkpointed_while(cond, step, init, **options)


SCAN_MISTAKES = {
    "no pair": ({"step": lambda c, x: c}, r"`step`: expected a pair \(carry, y\), got \w*Tracer"),
    "shape": (
        {"step": lambda c, x: (c[:2], None)},
        r"`step`: expected carry to stay float64\[3\], got float64\[2\]",
    ),
    "dtype": (
        {"step": lambda c, x: ({"a": c["a"] + 0.5}, None), "init": {"a": jnp.arange(2)}},
        r"expected carry\['a'\] to stay int64\[2\], got float64\[2\]",
    ),
    "structure": (
        {"step": lambda c, x: ((c, c), None)},
        r"`step`: expected a new carry of the structure of `init`, PyTreeDef\(\*\), got",
    ),
    "leaf": ({"init": {"a": "text"}}, r"`init`: expected arrays .* got 'text' of type str at"),
    "not callable": ({"step": 3}, "`step`: expected a function, got 3"),
    "no length": ({"length": None}, "`length`: expected an integer because `xs` has no arrays"),
    "negative length": ({"length": -1}, "`length`: expected at least 0, got -1"),
    "length that is no integer": ({"length": 4.0}, r"`length`: expected an integer, got 4\.0"),
    "rows": ({"xs": {"a": ONE}}, r"`xs\['a'\]`: expected 4 rows, one per step, got shape \(3,\)"),
    "two lengths": (
        {"xs": (ONE, ONE[:2]), "length": None},
        r"`xs\[1\]`: expected 3 rows, one per step, got shape \(2,\)",
    ),
    "scalar": ({"xs": 1.0}, "`xs`: expected an array with one row per step, got a scalar"),
    "block": ({"block": 0}, "`block`: expected at least 1, got 0"),
    "scheme": ({"scheme": 64}, r"`scheme`: expected a scheme, got 64. Pass .* Revolve\(64\)"),
    "storage": ({"storage": "disk"}, "`storage`: expected a storage, got 'disk'"),
    "mode": ({"mode": "fast"}, '`mode`: expected "auto", "jit" or "host", got \'fast\''),
}
WHILE_MISTAKES = {
    "shape": ({"step": lambda c: c[None]}, r"expected carry to stay float64\[\], got float64\[1\]"),
    "condition": ({"cond": lambda c: c}, "`cond`: expected a function that returns one boolean"),
    "conditions": ({"cond": lambda c: (c < 1, c < 2)}, "`cond`: expected a function that returns"),
    "negative": ({"max_steps": -1}, "`max_steps`: expected at least 0, got -1"),
    "block": ({"block": -3}, "`block`: expected at least 1, got -3"),
    "scheme": ({"scheme": Revolve(3)}, r"`max_steps`: .* scheme=Online\(n_snapshots\)"),
}


@pytest.mark.parametrize("mistake", SCAN_MISTAKES)
def test_scan(mistake):
    options, message = SCAN_MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError), match=message):
        scan(**options)


@pytest.mark.parametrize("mistake", WHILE_MISTAKES)
def test_while(mistake):
    options, message = WHILE_MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError), match=message):
        loop(**options)


def test_side_effects_are_refused_but_printing_is_not(capfd):
    ref = jax.new_ref(jnp.zeros(()))

    def counts(c, _):
        ref[...] += 1.0
        return c, None

    with pytest.raises(ValueError, match="`step`: expected a function without side effects"):
        scan(counts)

    def prints(c, _):
        jax.debug.print("step")
        return c, None

    scan(prints, length=2, block=1)
    jax.effects_barrier()
    assert capfd.readouterr().out == "step\n" * 2


class Elsewhere(AbstractStorage):
    """A storage that compiled code has to call."""

    def __init__(self):
        self.kept = {}

    def __repr__(self):
        return "Elsewhere()"

    def put(self, slot, tree):
        self.kept[slot] = jax.device_get(tree)

    def get(self, slot):
        return self.kept[slot]

    def discard(self, slot):
        self.kept.pop(slot, None)

    def close(self):
        self.kept.clear()


def through_scan(storage, x):
    return scan(lambda c, _: (jnp.sin(c), None), x, storage=storage, block=1)[0]


def through_while(storage, x):
    return loop(init=x, storage=storage, block=1, scheme=Online(2))


@pytest.mark.parametrize("f", [through_scan, through_while])
def test_storage_elsewhere_refuses_forward_over_reverse(f):
    storage = Elsewhere()
    with pytest.raises(CheckpointModeError, match=r"`storage`: forward mode over .* Elsewhere\(\)"):
        jax.jacfwd(jax.grad(functools.partial(f, storage)))(1.5)
    assert storage.kept == {}


def test_storage_elsewhere_refuses_loops_of_unknown_length_under_vmap():
    with pytest.raises(CheckpointModeError, match=r"`storage`: `jax.vmap` .* storage=RAM\(\)"):
        jax.vmap(jax.grad(functools.partial(through_while, Elsewhere())))(ONE)


def test_errors_of_a_storage_reach_the_caller_of_compiled_code():
    class Full(Elsewhere):
        def put(self, slot, tree):
            raise StorageError("`path`: no room")

    gradient = jax.jit(jax.grad(functools.partial(through_scan, Full())))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"StorageError: `path`: no room"):
        gradient(1.5).block_until_ready()
