"""Lanes are independent and stay busy: order, split, width and threads change no bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.lanes.lane_check import run_kernel

from pullback import native
from pullback.lanes import kernel


def relax(y, p, n):
    """A loop whose length differs from lane to lane."""

    def body(s):
        i, y = s
        return i + 1, y + 0.01 * (jnp.sin(y) * p - y**3)

    return lax.while_loop(lambda s: s[0] < n, body, (jnp.int32(0), y))[1]


def there_and_back(y, p, n):
    """Two loops with a tape between them."""
    tape = jax.new_ref(lax.empty((400, 3), y.dtype))

    def forward(s):
        i, y = s
        tape[i, :] = y
        return i + 1, y + 0.01 * (jnp.sin(y) * p - y**3)

    n, y = lax.while_loop(lambda s: s[0] < n, forward, (jnp.int32(0), y))

    def back(s):
        i, total = s
        return i - 1, total * 0.9 + tape[i - 1, :] * p

    return y, lax.while_loop(lambda s: s[0] > 0, back, (n, y))[1]


PROGRAMS = [relax, there_and_back]


def work(rng, n):
    return (
        rng.normal(size=(n, 3)),
        rng.uniform(0.1, 2.0, n),
        np.exp(rng.uniform(0, np.log(400), n)).astype(np.int32),
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_order_and_split_change_no_bit(program, rng):
    operands = work(rng, 500)
    whole = run_kernel(program, operands)
    order = rng.permutation(500)
    shuffled = run_kernel(program, [x[order] for x in operands])
    for a, b in zip(whole, shuffled, strict=True):
        np.testing.assert_array_equal(a[order], b)
    parts = [run_kernel(program, [x[s] for x in operands]) for s in (slice(0, 37), slice(37, 500))]
    for a, *b in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(a, np.concatenate(b))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("width", [4, 16])
def test_width_and_threads_change_no_bit(program, width, rng):
    operands = work(rng, 300)
    whole = run_kernel(program, operands, width=8)
    n_threads = native.num_threads()
    try:
        native.set_num_threads(1)
        other = run_kernel(program, operands, width=width)
    finally:
        native.set_num_threads(n_threads)
    for a, b in zip(whole, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("n", [1, 2, 7, 9, 129])
def test_few_trajectories(program, n, rng):
    operands = work(rng, 129)
    whole = run_kernel(program, operands)
    some = run_kernel(program, [x[:n] for x in operands])
    for a, b in zip(whole, some, strict=True):
        np.testing.assert_array_equal(a[:n], b)


@pytest.mark.parametrize(("program", "least"), [(relax, 0.95), (there_and_back, 0.90)])
def test_lanes_stay_busy(program, least, rng):
    operands = work(rng, 4000)
    run_kernel(lambda y, p, n: program(y, 2 * p, n), operands, label=program.__name__)
    (report,) = [r for r in kernel.kernel_reports() if r.label == program.__name__]
    assert report.busy >= least, report


def test_one_bad_lane_leaves_the_others_alone(rng):
    y, p, n = work(rng, 50)
    good = run_kernel(relax, (y, p, n))[0]
    y[13] = np.nan
    p[20] = np.inf
    bad = run_kernel(relax, (y, p, n))[0]
    others = [i for i in range(50) if i not in (13, 20)]
    np.testing.assert_array_equal(good[others], bad[others])
    assert np.isnan(bad[13]).all()


def test_an_unsupported_primitive_names_itself_and_the_line():
    closed = jax.make_jaxpr(lambda x: jnp.linalg.eigh(x)[0])(np.eye(2))
    with pytest.raises(NotImplementedError, match=r"primitive `eigh`.*test_refill\.py:\d+"):
        kernel.compile_program(closed, (True,))
    assert "EnsembleArray" in str(kernel.unsupported_reason(closed, (True,)))


@pytest.mark.parametrize("width", [4, 8, 16])
def test_reduced_results_are_sums_in_index_order(width, rng):
    def program(y, n):
        y = relax(y, 1.0, n)
        return y, jnp.outer(y, y), y[0] * 2

    y, _, n = work(rng, 100)
    closed = jax.make_jaxpr(program)(y[0], n[0])

    def call(reduced, width):
        def run(*args):
            return kernel.call(
                closed, args, batched=(True, True), n_traj=100, reduced=reduced, width=width
            )

        return [np.asarray(x) for x in jax.jit(run)(y, n)]

    plain = call((), 8)
    sums = call((False, True, True), width)
    np.testing.assert_array_equal(plain[0], sums[0])
    for each, total in zip(plain[1:], sums[1:], strict=True):
        groups = [each[i : i + 16].sum(0) for i in range(0, 100, 16)]
        np.testing.assert_allclose(total, np.sum(groups, 0), rtol=1e-14)
    for a, b in zip(sums, call((False, True, True), 8), strict=True):
        np.testing.assert_array_equal(a, b)
