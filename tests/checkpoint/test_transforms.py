"""Every transformation of JAX around a checkpointed loop, against the plain scan."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from checkpoint.loops import (
    EXACT,
    N_STEPS,
    RATE,
    STATE,
    plain_while,
    scan_loss,
    scan_with,
    while_loss,
    while_with,
)
from pullback.checkpoint import Nested, Online, Periodic, Revolve, StoreAll, checkpointed_scan
from pullback.testing import assert_close

STATES = jnp.stack([STATE, 2 * STATE, STATE - 1.0])


def in_scan(f):
    def descend(v, _):
        return v - 0.01 * jax.grad(f, 1)(RATE, v), None

    return jax.lax.scan(descend, STATE, None, length=3)[0]


def of_scan(f):
    def loss(v):
        return jax.lax.scan(lambda c, _: (jnp.tanh(c + f(RATE, c)), None), v, None, length=3)[0]

    return jax.grad(lambda v: jnp.sum(loss(v)))(STATE)


def nested(f):
    # The inner loop closes over the outer loop's index: an integer that is traced.
    def loss(v):
        run = scan_with(scheme=Revolve(2), block=2)
        return jnp.sum(run(lambda c, i: (jnp.tanh(c + i * f(RATE, c)), None), v, jnp.arange(5))[0])

    return jax.grad(loss)(STATE)


def remat_in_cond(f):
    def loss(rate, v):
        return jax.lax.cond(rate > 0, jax.checkpoint(f), lambda rate, _: 0.0 * rate, rate, v)

    return jax.grad(loss, (0, 1))(RATE, STATE)


def of_vmap(f):
    def loss(rate, states):
        return jnp.sum(jax.vmap(f, (None, 0))(rate, states) * jnp.arange(3.0))

    return jax.grad(loss, (0, 1))(RATE, STATES)


REVERSE = {
    "eager": lambda f: jax.value_and_grad(f, (0, 1))(RATE, STATE),
    "jit": lambda f: jax.jit(jax.value_and_grad(f, (0, 1)))(RATE, STATE),
    "vmap of grad": lambda f: jax.vmap(jax.grad(f, (0, 1)), (None, 0))(RATE, STATES),
    "grad of vmap": of_vmap,
    "jit of grad of vmap": of_vmap,
    "jacrev": lambda f: jax.jacrev(lambda v: f(RATE, v) * v)(STATE),
    "Hessian-vector": lambda f: jax.jvp(jax.grad(f, (0, 1)), (RATE, STATE), (RATE, STATE)),
    "jacfwd of grad": lambda f: jax.jacfwd(jax.grad(f, 1), 1)(RATE, STATE),
    "grad in scan": in_scan,
    "grad of scan": of_scan,
    "nested": nested,
    "remat in cond": remat_in_cond,
}
FORWARD = {
    "jvp": lambda f: jax.jvp(f, (RATE, STATE), (RATE, STATE)),
    "linearize": lambda f: jax.linearize(f, RATE, STATE)[1](RATE, STATE),
    "jacfwd": lambda f: jax.jacfwd(f, 1)(RATE, STATE),
    "reverse over reverse": lambda f: jax.jacrev(jax.grad(f, 1), 1)(RATE, STATE),
    "vmap of Hessian": lambda f: jax.vmap(jax.hessian(lambda v: f(RATE, v)))(STATES[:2]),
}
# Two derivatives: as many operations again on the way, and larger numbers.
TWICE = 100 * EXACT


EAGER = {"eager", "grad of vmap", "jvp"}


def result(name, loss):
    """Evaluate as one program, except where the point is that there is none."""
    f = (REVERSE | FORWARD)[name]
    return f(loss) if name in EAGER else jax.jit(lambda: f(loss))()


@functools.cache
def scan_truth(name):
    return result(name, scan_loss(jax.lax.scan))


@functools.cache
def while_truth(name):
    return result(name, while_loss(plain_while()))


# The others take the same paths through JAX as in `test_scan`.
OF_WHILE = {"jit", "jit of grad of vmap", "Hessian-vector"}


@pytest.mark.parametrize("name", REVERSE)
def test_scan(name):
    got = result(name, scan_loss(scan_with(scheme=Revolve(3), block=2)))
    assert_close(got, scan_truth(name), rtol=TWICE, atol=TWICE)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in OF_WHILE else pytest.mark.slow) for n in REVERSE]
)
def test_while(name):
    got = result(name, while_loss(while_with(scheme=Online(3), block=2)))
    assert_close(got, while_truth(name), rtol=TWICE, atol=TWICE)


@pytest.mark.parametrize("name", ["jit", "jacrev", "Hessian-vector"])
def test_host_mode_meets_traced_values(name):
    got = REVERSE[name](scan_loss(scan_with(scheme=Revolve(3), block=2, mode="host")))
    assert_close(got, scan_truth(name), rtol=TWICE, atol=TWICE)


@pytest.mark.parametrize("name", ["jit", pytest.param("jacrev", marks=pytest.mark.slow)])
def test_host_while_meets_traced_values(name):
    got = REVERSE[name](while_loss(while_with(scheme=Online(3), block=2, mode="host")))
    assert_close(got, while_truth(name), rtol=TWICE, atol=TWICE)


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize(
    "scheme",
    [
        Nested(2),
        pytest.param(Periodic(5), marks=pytest.mark.slow),
        pytest.param(StoreAll(), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_forward_mode_and_any_order(scheme, name):
    got = result(name, scan_loss(scan_with(scheme=scheme)))
    assert_close(got, scan_truth(name), rtol=TWICE, atol=TWICE)


@pytest.mark.parametrize(
    "name", ["jvp", pytest.param("reverse over reverse", marks=pytest.mark.slow)]
)
def test_bounded_while_has_forward_mode_and_any_order(name):
    run = while_with(scheme=Nested(3), max_steps=N_STEPS + 4)
    got = result(name, while_loss(run))
    assert_close(got, while_truth(name), rtol=TWICE, atol=TWICE)


@pytest.mark.parametrize(
    "loss",
    [scan_loss(scan_with(scheme=Revolve(3), block=2)), while_loss(while_with(block=2))],
    ids=["scan", "while"],
)
@pytest.mark.parametrize("derivative", ["jvp", "jacfwd"])
def test_forward_mode_names_the_scheme_that_has_it(loss, derivative):
    with pytest.raises(TypeError, match=r"no forward mode .* Pass scheme=Nested\(levels\)"):
        FORWARD[derivative](loss)


def test_vmap_over_loops_of_different_lengths():
    lengths = jnp.array([0, 1, 7])
    loss = while_loss(while_with(scheme=Online(3), block=2))
    got = jax.vmap(jax.grad(loss, (0, 1)), (None, None, 0))(RATE, STATE, lengths)
    for i, n in enumerate(lengths):
        want = jax.grad(while_loss(plain_while(int(n))), (0, 1))(RATE, STATE, n)
        assert_close(jax.tree.map(lambda x, i=i: x[i], got), want, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("check_vma", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "run",
    [
        lambda cond, step, init: checkpointed_scan(
            lambda c, _: (step(c), None), init, None, N_STEPS, scheme=Revolve(3), block=2
        )[0],
        while_with(scheme=Online(3), block=2),
    ],
    ids=["scan", "while"],
)
def test_shard_map(run, check_vma):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))

    def sharded(rate, v, run):
        def step(carry):
            i, v = carry
            return i + 1, v + 0.1 * jnp.sin(rate * jax.lax.ppermute(v, "i", [(0, 0)]))

        return run(lambda carry: carry[0] < N_STEPS, step, (0, v))[1]

    def loss(rate, v, run):
        f = jax.shard_map(
            functools.partial(sharded, run=run), mesh=mesh, in_specs=(P(), P("i")),
            out_specs=P("i"), check_vma=check_vma,
        )  # fmt: skip
        return jnp.sum(f(rate, v) ** 2)

    grads = jax.jit(jax.grad(loss, (0, 1)), static_argnums=2)
    assert_close(grads(RATE, STATE, run), grads(RATE, STATE, plain_while()), rtol=EXACT, atol=EXACT)
