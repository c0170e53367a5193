import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pullback.core import TransposeUnsupported, UnsupportedBackend
from pullback.core.compat import Zero
from pullback.lanes import JvpProgram, LaneProgram, lane_call, lane_while, store_row
from pullback.testing import assert_close, tol


@dataclasses.dataclass(frozen=True)
class Powers(LaneProgram):
    """Multiply y by p until it is large, and keep the way: of unequal length."""

    n_rows: int = 6

    def __call__(self, y, p):
        ref = jax.new_ref(jnp.zeros((self.n_rows, *y.shape), y.dtype))

        def is_pending(state):
            i, y = state
            return (i < self.n_rows) & (jnp.max(jnp.abs(y)) < 10.0)

        def body(state):
            i, y = state
            store_row(ref, i, y)
            return i + 1, y * p

        i, y = lane_while(is_pending, body, (jnp.zeros((), jnp.int32), y))
        return jax.freeze(ref), y, i


def by_hand(y, p, n_rows=6):
    rows, i = np.zeros((n_rows, *np.shape(y))), 0
    y = np.asarray(y)
    while i < n_rows and np.abs(y).max() < 10.0:
        rows[i] = y
        y, i = y * float(p), i + 1
    return rows, y, np.int32(i)


STARTS = np.array([[0.3, 1.0], [5.0, 2.0], [20.0, 1.0], [0.0, 0.0]])
BOUND = tol("float64", n_ops=20)


def call(y, p):
    return lane_call(Powers(), y, p)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_one_trajectory_is_the_program(wrap):
    found = wrap(call)(jnp.asarray(STARTS[0]), 1.5)
    assert_close(found, by_hand(STARTS[0], 1.5), rtol=BOUND, atol=0.0)
    assert found[2].dtype == np.int32


def test_trajectories_of_unequal_length_do_not_disturb_each_other():
    found = jax.jit(jax.vmap(call, (0, None)))(jnp.asarray(STARTS), 1.5)
    for i, y in enumerate(STARTS):
        assert_close(tuple(out[i] for out in found), by_hand(y, 1.5), rtol=BOUND, atol=0.0)


@pytest.mark.parametrize("axes", [(1, None), (None, 0), (1, 0)])
@pytest.mark.parametrize("outer", [(0, None), (None, 0), (0, 0)])
def test_nested_vmaps_fold_into_one_axis(outer, axes):
    # The trajectory axis of y, once both vmaps have taken theirs, is the last or the middle one.
    rng = np.random.default_rng(3)
    ys = rng.uniform(0.1, 8.0, (4,) * (outer[0] is not None) + (2,) + (3,) * (axes[0] is not None))
    ps = rng.uniform(0.5, 3.0, (4,) * (outer[1] is not None) + (3,) * (axes[1] is not None))
    run = jax.jit(jax.vmap(jax.vmap(call, axes), outer))
    found = run(jnp.asarray(ys), jnp.asarray(ps))
    for i in range(4):
        for j in range(3):
            y = ys[i] if outer[0] is not None else ys
            y = y[:, j] if axes[0] is not None else y
            p = ps[i] if outer[1] is not None else ps
            p = p[j] if axes[1] is not None else p
            here = tuple(out[i, j] for out in found)
            assert_close(here, by_hand(y, p), rtol=BOUND, atol=0.0)
    jaxpr = jax.make_jaxpr(run)(ys, ps).jaxpr.eqns[0].params["jaxpr"].jaxpr
    sizes = [e.params["n_traj"] for e in jaxpr.eqns if e.primitive.name == "lane_call"]
    assert sizes == [12]


def test_reduced_results_are_sums_over_trajectories():
    ys = jnp.asarray(STARTS)
    flags = {"batched": (True, False), "n_traj": 4, "reduced": (False, True, False)}

    def total(ys, p):
        return lane_call(Powers(), ys, p, **flags)

    rows, summed, count = total(ys, 1.5)
    assert rows.shape == (4, 6, 2)
    assert count.shape == (4,)
    singles = np.stack([by_hand(y, 1.5)[1] for y in STARTS])
    assert_close(summed, singles.sum(0), rtol=BOUND, atol=0.0)
    ps = jnp.array([1.5, 2.0])
    batched = jax.jit(jax.vmap(total, (None, 0)))(ys, ps)
    assert batched[0].shape == (2, 4, 6, 2)
    for k, p in enumerate(ps):
        alone = total(ys, p)
        assert_close(tuple(out[k] for out in batched), alone, rtol=BOUND, atol=0.0)


def test_default_derivative_is_that_of_the_whole_program():
    def last(y, p):
        return call(y, p)[1]

    y, p = jnp.array([0.3, 1.0]), 1.5
    n = int(by_hand(y, p)[2])
    found = jax.jacfwd(last, argnums=(0, 1))(y, p)
    wanted = (p**n * jnp.eye(2), n * p ** (n - 1) * y)
    assert_close(found, wanted, rtol=BOUND, atol=0.0)
    second = jax.jacfwd(jax.jacfwd(last, argnums=1), argnums=1)(y, p)
    assert_close(second, n * (n - 1) * p ** (n - 2) * y, rtol=BOUND, atol=0.0)


def test_inactive_operands_are_not_differentiated():
    seen = []

    @dataclasses.dataclass(frozen=True)
    class Recording(Powers):
        def jvp(self, call, primals, tangents):
            seen.append([type(t) is Zero for t in tangents])
            return super().jvp(call, primals, tangents)

    jax.jvp(lambda y: lane_call(Recording(), y, 1.5)[1], (jnp.ones(2),), (jnp.ones(2),))
    assert seen == [[False, True]]


def test_transpose_without_a_rule_names_the_way_out():
    with pytest.raises(TransposeUnsupported, match=r"derivative of a solve.*jacfwd\(grad\(f\)\)"):
        jax.grad(lambda p: call(jnp.ones(2), p)[1].sum())(1.5)


def test_unknown_backend_lists_those_there_are():
    with pytest.raises(UnsupportedBackend, match=r"`backend` must be one of 'array', 'cpu'.*'abc'"):
        lane_call(Powers(), jnp.ones(2), 1.5, backend="abc")


def test_programs_compare_by_content():
    assert Powers(6) == Powers(6)
    assert hash(JvpProgram(Powers(6), (True, False))) == hash(JvpProgram(Powers(6), (True, False)))
    assert Powers(6) != Powers(7)


def test_equal_programs_are_traced_once():
    calls = []

    @dataclasses.dataclass(frozen=True)
    class Counting(LaneProgram):
        def __call__(self, y):
            calls.append(1)
            return (y + 1.0,)

    for _ in range(3):
        lane_call(Counting(), jnp.ones(2))
        jax.jit(lambda y: lane_call(Counting(), y))(jnp.ones(2))
    assert len(calls) == 1


def test_inner_loops_of_finished_trajectories_store_nothing():
    @dataclasses.dataclass(frozen=True)
    class Nested(LaneProgram):
        def __call__(self, n):
            ref = jax.new_ref(jnp.zeros(5, jnp.int32))

            def outer(i):
                def inner(j):
                    store_row(ref, j, 10 * i + j)
                    return j + 1

                # Clamped on purpose: a store that is not masked would hit the last element.
                lane_while(lambda j: j <= jnp.minimum(i, 4), inner, i)
                return i + 1

            lane_while(lambda i: i < n, outer, jnp.zeros((), jnp.int32))
            return (jax.freeze(ref),)

    counts = jnp.array([0, 5, 2, 3], jnp.int32)
    found = jax.jit(jax.vmap(lambda n: lane_call(Nested(), n)[0]))(counts)
    wanted = np.array([[11 * i if i < n else 0 for i in range(5)] for n in counts])
    assert_close(found, wanted, rtol=0.0, atol=0.0)
