"""Code of a kernel does not grow with the arrays: what is long becomes a loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pullback.lanes.cpu.shell import build
from pullback.lanes.program_ir import from_jaxpr

RNG = np.random.default_rng(3)
ORDER = RNG.permutation(100)


def n_lines(function, *shapes, shared=0):
    arguments = [jax.ShapeDtypeStruct(s, np.float64) for s in shapes]
    closed = jax.make_jaxpr(function)(*arguments)
    batched = [i >= shared for i in range(len(shapes))]
    return build(from_jaxpr(closed), batched, (), 8).ir.count("\n")


def here(v):
    return (jnp.abs(v) * v.size).astype(int) % v.size


# The shell around a program takes about 250 lines.
PROGRAMS = {
    "sort": (jnp.sort, 64, 400),
    "argsort": (jnp.argsort, 64, 500),
    "gradient_of_sort": (jax.grad(lambda v: (jnp.sort(v) ** 2).sum()), 64, 800),
    "top_k": (lambda v: lax.top_k(v, 9), 200, 600),
    "gather": (lambda v: v[ORDER] * 2, 100, 400),
    "gradient_of_gather": (jax.grad(lambda v: (v[ORDER] ** 2).sum()), 100, 500),
    "segments": (lambda v: jax.ops.segment_sum(v, ORDER // 2, num_segments=50), 100, 400),
    "gather_of_lanes": (lambda v: v[here(v)], 100, 500),
    "scatter_of_lanes": (lambda v: v.at[here(v)].add(v), 100, 600),
    "cumsum": (jnp.cumsum, 200, 400),
    "cumprod": (jnp.cumprod, 200, 400),
    "cumlogsumexp": (lax.cumlogsumexp, 200, 600),
    "argmax": (jnp.argmax, 200, 400),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_lines(name):
    function, n, most = PROGRAMS[name]
    assert n_lines(function, (n,)) <= most


@pytest.mark.parametrize("name", [k for k, (_, n, _) in PROGRAMS.items() if n != len(ORDER)])
def test_lines_do_not_grow(name):
    function, n, _ = PROGRAMS[name]
    # One round more of a network of exchanges may be one table more.
    assert n_lines(function, (2 * n,)) <= n_lines(function, (n,)) + 4


def test_matrix_products_of_one_form_share_their_code():
    def network(w, v):
        for _ in range(20):
            v = jnp.tanh(w @ v)
        return v

    once = n_lines(lambda w, v: w @ v, (64, 64), (64,), shared=1)
    loops = n_lines(lambda w, v: jnp.tanh(jnp.tanh(w @ v)), (64, 64), (64,), shared=1) - once
    assert n_lines(network, (64, 64), (64,), shared=1) <= once + 20 * loops


def test_known_positions_in_registers_take_no_code():
    plain = n_lines(lambda v: v * 2, (20,))
    assert n_lines(lambda v: v[ORDER[ORDER < 20]] * 2, (20,)) == plain


def test_known_positions_stay_known_inside_loops():
    at = np.array([3, 0, 2, 1])

    def program(v, i):
        return lax.while_loop(lambda s: s[0] < 9.0, lambda s: (s[0] + 1, s[1][i]), (v[0], v))[1]

    closed = jax.make_jaxpr(lambda v: program(v, jnp.asarray(at) - 4))(np.ones(4))
    text = build(from_jaxpr(closed), [True], (), 8).ir
    assert "@table" not in text
    assert "smax" not in text  # positions are not clamped
