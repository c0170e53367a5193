"""Linear systems inside a lane: every body against NumPy, derivatives against jnp.linalg.solve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.lanes.lane_check import run_kernel, run_vmap

from pullback.core.errors import UnsupportedPrimitive
from pullback.lanes.cpu.shell import build
from pullback.lanes.elimination import plan_elimination, transversal
from pullback.lanes.linalg import factorise, solve, unit_vector
from pullback.lanes.program_ir import from_jaxpr

N = 13  # neither a multiple of any width nor a power of two


def columns_of(matrix):
    return [matrix[:, j] for j in range(matrix.shape[0])]


def solution(matrix, b, *, pivot="auto", trans=False):
    factors = factorise(columns_of(matrix), pivot)
    return solve(factors, b, trans=trans), factors.growth


def backward_error(matrix, x, b):
    """Largest residual over the trajectories, in roundings of the matrix times the solution."""
    residual = np.linalg.norm(np.einsum("bij,bj->bi", matrix, x) - b, axis=1)
    size = np.linalg.norm(matrix, axis=(1, 2)) * np.linalg.norm(x, axis=1)
    return np.max(residual / size) / np.finfo(x.dtype).eps


# (n, pivot): exchanges by selects, static order, loops in memory, columns in memory
BODIES = [
    (1, "auto"),
    (2, "auto"),
    (3, "auto"),
    (3, "static"),
    (6, "static"),
    (6, "pivoted"),
    (17, "pivoted"),
    (24, "auto"),
    (67, "auto"),
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize(("n", "pivot"), BODIES)
def test_bodies_solve(n, pivot, trans, dtype, rng):
    matrix = rng.normal(size=(N, n, n)).astype(dtype)  # pivots differ from lane to lane
    b = rng.normal(size=(N, n)).astype(dtype)
    x, growth = run_kernel(
        lambda w, b: solution(w, b, pivot=pivot, trans=trans), [matrix, b], width=8
    )
    assert x.dtype == dtype and x.shape == (N, n)
    acted = np.swapaxes(matrix, 1, 2) if trans else matrix
    assert np.all(growth == 1) == (pivot != "static")
    # Without exchanges every rounding may be multiplied by the growth.
    assert backward_error(acted, x, b) < (n + 2) * growth.max()


@pytest.mark.parametrize(("n", "pivot"), [(3, "auto"), (6, "static"), (9, "pivoted")])
def test_every_width_and_order_gives_the_same_bits(n, pivot, rng):
    matrix, b = rng.normal(size=(N, n, n)), rng.normal(size=(N, n))
    order = rng.permutation(N)

    def run(width, rows, trans):
        program = lambda w, b: solution(w, b, pivot=pivot, trans=trans)  # noqa: E731
        return run_kernel(program, [matrix[rows], b[rows]], width=width)[0]

    for trans in (False, True):
        want = run(8, np.arange(N), trans)
        for width in (4, 16):
            np.testing.assert_array_equal(run(width, np.arange(N), trans), want)
        np.testing.assert_array_equal(run(8, order, trans), want[order])


@pytest.mark.parametrize(("n", "pivot"), [(3, "auto"), (6, "static"), (9, "pivoted"), (67, "auto")])
def test_a_matrix_that_all_lanes_share(n, pivot, rng):
    matrix, b = rng.normal(size=(n, n)), rng.normal(size=(N, n))
    program = lambda w, b: solution(w, b, pivot=pivot)  # noqa: E731
    x, growth = run_kernel(program, [matrix, b], shared=(0,))
    repeated = np.tile(matrix, (N, 1, 1))
    assert backward_error(repeated, x, b) < (n + 2) * growth.max()
    np.testing.assert_array_equal(x, run_kernel(program, [repeated, b])[0])


# -- patterns ------------------------------------------------------------------------------------
def tridiagonal(n):
    return np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 1


def arrow(n):
    pattern = np.eye(n, dtype=bool)
    pattern[0, :] = pattern[:, 0] = True  # eliminated first, it would fill everything
    return pattern


def scattered(n):
    pattern = np.random.default_rng(7).random((n, n)) < 3 / n
    return pattern | np.eye(n, dtype=bool)


def cyclic(n):
    """No element on the diagonal: rows must be matched with columns first."""
    return np.roll(np.eye(n, dtype=bool), 1, axis=1) | np.roll(np.eye(n, dtype=bool), 3, axis=1)


PATTERNS = {
    "tridiagonal": tridiagonal(14),
    "arrow": arrow(14),
    "scattered": scattered(20),
    "cyclic": cyclic(9),
}


def sparse_columns(pattern, values):
    """Columns whose zeros are structural."""
    n = len(pattern)
    place = np.cumsum(pattern.T.ravel()).reshape(n, n).T - 1
    return [
        sum(values[place[i, j]] * unit_vector(n, i, values.dtype) for i in np.flatnonzero(column))
        for j, column in enumerate(pattern.T)
    ]


def sparse_solution(pattern, trans=False, pivot="auto"):
    def program(values, b):
        factors = factorise(sparse_columns(pattern, values), pivot)
        return solve(factors, b, trans=trans), factors.growth

    return program


def dense_matrices(pattern, values):
    matrix = np.zeros((len(values), *pattern.shape), values.dtype)
    for k, (j, i) in enumerate(zip(*np.nonzero(pattern.T), strict=True)):
        matrix[:, i, j] = values[:, k]
    return matrix


def n_fused(program, *operands):
    closed = jax.make_jaxpr(program)(*operands)
    return build(from_jaxpr(closed), [True] * len(operands), (), 8).ir.count(
        "= call <8 x double> @llvm.fma"
    )


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("name", PATTERNS)
def test_sparse_patterns(name, trans, rng):
    pattern = PATTERNS[name]
    n = len(pattern)
    values = rng.normal(size=(N, pattern.sum())) + 1.0
    b = rng.normal(size=(N, n))
    x, growth = run_kernel(sparse_solution(pattern, trans), [values, b])
    matrix = dense_matrices(pattern, values)
    acted = np.swapaxes(matrix, 1, 2) if trans else matrix
    assert backward_error(acted, x, b) < (n + 2) * growth.max()


@pytest.mark.parametrize("pattern", [tridiagonal(14), arrow(14), tridiagonal(40)])
def test_only_the_pattern_is_eliminated(pattern):
    n = len(pattern)
    # One product for each pivot but the last, and one for each of the 2(n-1) elements off the
    # diagonal in the solve: there is no fill.
    count = n_fused(sparse_solution(pattern), np.ones(pattern.sum()), np.ones(n))
    assert count == 3 * (n - 1)


def test_fill_is_what_the_plan_says():
    pattern = PATTERNS["scattered"]
    plan = plan_elimination(pattern)
    assert plan is not None and plan.filled.sum() > pattern.sum()
    natural = pattern.copy()
    for k in range(len(natural)):
        below, right = natural[k + 1 :, k], natural[k, k + 1 :]
        natural[k + 1 :, k + 1 :] |= below[:, None] & right[None, :]
    assert plan.filled.sum() < natural.sum()  # the order saves fill
    factorised = n_fused(
        lambda v, b: factorise(sparse_columns(pattern, v)).growth + b[0],
        np.ones(pattern.sum()),
        np.ones(len(pattern)),
    )
    assert factorised <= plan.n_products  # an element that fills in begins with a plain product


def test_structural_zeros_of_the_right_hand_side_cost_nothing():
    pattern = PATTERNS["tridiagonal"]
    n = len(pattern)
    program = lambda v: solve(factorise(sparse_columns(pattern, v)), unit_vector(n, n - 1, v.dtype))  # noqa: E731
    # The factorisation, and backward substitution; the forward one meets only zeros.
    assert n_fused(program, np.ones(pattern.sum())) <= 2 * (n - 1)


def test_transversal_keeps_the_diagonal_where_it_can():
    pattern = tridiagonal(6)
    pattern[2, 2] = False
    matched = transversal(pattern)
    assert matched is not None and pattern[matched, np.arange(6)].all()
    assert sorted(matched) == list(range(6)) and matched[4] == 4
    pattern[2] = False
    assert transversal(pattern) is None and plan_elimination(pattern) is None


# -- bad numbers ---------------------------------------------------------------------------------
@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
@pytest.mark.parametrize(("n", "pivot"), [(3, "auto"), (6, "static"), (9, "pivoted")])
def test_a_bad_lane_stays_alone(n, pivot, bad, rng):
    matrix, b = rng.normal(size=(N, n, n)), rng.normal(size=(N, n))
    program = lambda w, b: solution(w, b, pivot=pivot)  # noqa: E731
    want = run_kernel(program, [matrix, b], width=8)[0]
    matrix[5, :, 1] = bad  # zero: a singular matrix
    x = run_kernel(program, [matrix, b], width=8)[0]
    others = np.arange(N) != 5
    np.testing.assert_array_equal(x[others], want[others])
    assert not np.isfinite(x[5]).all()


def test_structurally_singular_matrix_is_not_finite(rng):
    pattern = tridiagonal(6)
    pattern[2] = False
    values, b = rng.normal(size=(N, pattern.sum())), rng.normal(size=(N, 6))
    x, _ = run_kernel(sparse_solution(pattern), [values, b])
    assert not np.isfinite(x).all(axis=1).any()


def test_growth_of_an_oscillator():
    ratio = 1e12
    matrix = np.tile(np.array([[1.0, -ratio], [ratio, 1.0]]), (N, 1, 1))
    b = np.tile(np.array([1.0, 1.0]), (N, 1))
    x, growth = run_kernel(lambda w, b: solution(w, b, pivot="static"), [matrix, b])
    np.testing.assert_allclose(growth, ratio, rtol=1e-15)  # one division
    for wide in (2, 8):  # by selects; by loops, in the corner of a larger matrix
        larger = np.tile(np.eye(wide), (N, 1, 1))
        larger[:, :2, :2] = matrix
        padded = np.pad(b, ((0, 0), (0, wide - 2)))
        program = lambda w, b: solution(w, b, pivot="pivoted")  # noqa: E731
        x, growth = run_kernel(program, [larger, padded])
        assert np.all(growth == 1)
        assert backward_error(larger, x, padded) < 4


# -- derivatives ---------------------------------------------------------------------------------
def parts(p, n):
    """A matrix and a right-hand side that depend on two parameters, with zeros known."""
    matrix = [
        unit_vector(n, j, p.dtype) * (3.0 + p[0])
        + unit_vector(n, (j + 1) % n, p.dtype) * jnp.sin(p[1] + j)
        + unit_vector(n, (j + 2) % n, p.dtype) * p[0] * p[1]
        for j in range(n)
    ]
    return matrix, jnp.cos(p[0] * jnp.arange(1.0, n + 1))


def objective(p, n, trans, pivot):
    columns, b = parts(p, n)
    if pivot is None:
        positions = jnp.arange(float(n))
        matrix = jnp.eye(n) * (3.0 + p[0])
        matrix += jnp.roll(jnp.eye(n), 1, axis=0) * jnp.sin(p[1] + positions)[None, :]
        matrix += jnp.roll(jnp.eye(n), 2, axis=0) * p[0] * p[1]
        x = jnp.linalg.solve(matrix.T if trans else matrix, b)
    else:
        x = solve(factorise(columns, pivot), b, trans=trans)
    return (x * x).sum() + x[0]


def second(p, v, n, trans, pivot):
    """Value, gradient, and a product with the Hessian: forward over reverse."""
    value_and_grad = jax.value_and_grad(lambda p: objective(p, n, trans, pivot))
    (value, gradient), (tangent, product) = jax.jvp(value_and_grad, (p,), (v,))
    return value, gradient, tangent, product


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize(("n", "pivot"), [(3, "auto"), (6, "static"), (7, "pivoted")])
def test_derivatives(n, pivot, trans, rng):
    p, v = rng.uniform(0.2, 0.9, (N, 2)), rng.normal(size=(N, 2))
    want = run_vmap(lambda p, v: second(p, v, n, trans, None), [p, v])
    ours = lambda p, v: second(p, v, n, trans, pivot)  # noqa: E731
    for run in (run_kernel, run_vmap) if n == 3 else (run_kernel,):
        for a, b in zip(run(ours, [p, v]), want, strict=True):
            # four solves of condition below 10, n terms each
            np.testing.assert_allclose(a, b, rtol=1e-13 * n, atol=1e-13 * n)


def test_the_transposed_solve_is_the_transpose(rng):
    matrix, b, c = rng.normal(size=(N, 5, 5)), rng.normal(size=(N, 5)), rng.normal(size=(N, 5))

    def program(w, b, c):
        factors = factorise(columns_of(w))
        forwards = solve(factors, b)
        backwards = jax.vjp(lambda b: solve(factors, b), b)[1](c)[0]
        return (
            (forwards * c).sum(),
            (b * backwards).sum(),
            backwards - solve(factors, c, trans=True),
        )

    one, other, difference = run_kernel(program, [matrix, b, c])
    np.testing.assert_allclose(one, other, rtol=1e-11)  # condition below 1e3, 10 terms
    assert not difference.any()


@pytest.mark.parametrize("axes", [(0, 0), (None, 0), (0, None)])
def test_derivatives_of_vmap(axes, rng):
    """Any of the operands may have the new axis; derivatives are taken outside of `vmap`."""
    matrix, b = rng.normal(size=(N, 4, 4)) + 4 * np.eye(4), rng.normal(size=(N, 4))
    operands = [x[0] if a is None else x for x, a in zip((matrix, b), axes, strict=True)]

    def reference(w, b):
        return jnp.linalg.solve(w, b), jnp.linalg.solve(w.T, b)

    def ours(w, b):
        factors = factorise(columns_of(w))
        return solve(factors, b), solve(factors, b, trans=True)

    def derivatives(f):
        def total(w, b):
            x, y = jax.vmap(f, axes)(w, b)
            return jnp.sin(x).sum() + jnp.cos(y).sum()

        gradient = jax.grad(total, argnums=(0, 1))
        return jax.jit(lambda *z: (gradient(*z), jax.jvp(gradient, z, z)[1]))(*operands)

    for a, c in zip(*map(jax.tree.leaves, map(derivatives, (ours, reference))), strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-11, atol=1e-12)  # condition below 1e2


def test_vmap_twice_and_without_jit(rng):
    matrix, b = rng.normal(size=(2, 3, 4, 4)) + 4 * np.eye(4), rng.normal(size=(3, 2, 4))
    f = lambda w, b: solution(w, b)[0]  # noqa: E731
    got = jax.vmap(jax.vmap(f), in_axes=(0, 1))(matrix, b)
    want = np.linalg.solve(matrix, np.swapaxes(b, 0, 1)[..., None])[..., 0]
    np.testing.assert_allclose(got, want, rtol=1e-12)  # condition below 1e2
    np.testing.assert_allclose(f(matrix[0, 0], b[0, 0]), want[0, 0], rtol=1e-12)


# -- control flow --------------------------------------------------------------------------------
@pytest.mark.parametrize(("n", "pivot"), [(3, "auto"), (6, "static"), (9, "pivoted")])
def test_inside_loops_and_branches(n, pivot, rng):
    """Factors of the outer loop read in an inner one; lanes end at different times."""
    matrix = rng.normal(size=(N, n, n)) + 4 * np.eye(n)
    b, counts = rng.normal(size=(N, n)), rng.integers(0, 5, N).astype(np.int32)

    def program(w, b, count):
        def outer(state):
            i, x = state
            factors = factorise(columns_of(w + 0.1 * i), pivot)

            def inner(state):
                k, x = state
                return k + 1, x + 0.5 * solve(factors, b - x)

            _, x = lax.while_loop(lambda s: s[0] < count + i, inner, (jnp.int32(0), x))
            x = lax.cond(count > 2, lambda x: solve(factors, x, trans=True), lambda x: -x, x)
            return i + 1, x

        return lax.while_loop(lambda s: s[0] < count, outer, (jnp.int32(0), b))[1]

    got = run_kernel(program, [matrix, b, counts], width=4)[0]
    want = run_vmap(program, [matrix, b, counts])[0]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)  # 20 solves of condition 10
    again = run_kernel(program, [matrix, b, counts], width=16)[0]
    np.testing.assert_array_equal(got, again)


@pytest.mark.parametrize(("n", "pivot"), [(3, "auto"), (6, "static"), (9, "pivoted")])
def test_factors_from_before_the_main_loop(n, pivot, rng):
    """Read inside it and after it, while lanes take new trajectories at different times."""
    matrix = rng.normal(size=(3 * N, n, n)) + 4 * np.eye(n)
    b, counts = rng.normal(size=(3 * N, n)), rng.integers(1, 9, 3 * N).astype(np.int32)

    def program(w, b, count):
        factors = factorise(columns_of(w), pivot)
        body = lambda s: (s[0] + 1, s[1] + 0.5 * solve(factors, b - s[1]))  # noqa: E731
        x = lax.while_loop(lambda s: s[0] < count, body, (jnp.int32(0), b))[1]
        return solve(factors, x, trans=True)

    got = run_kernel(program, [matrix, b, counts], width=4)[0]
    want = run_vmap(program, [matrix, b, counts])[0]
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)  # 9 solves of condition 10


# -- errors --------------------------------------------------------------------------------------
def test_wrong_columns():
    with pytest.raises(ValueError, match=r"`columns` must be n arrays of shape \(n,\), got 3 of"):
        factorise([jnp.ones(2)] * 3)
    with pytest.raises(ValueError, match="got none"):
        factorise([])
    with pytest.raises(TypeError, match="one floating dtype, got float32, float64: convert"):
        factorise([jnp.ones(2, jnp.float32), jnp.ones(2, jnp.float64)])
    with pytest.raises(TypeError, match="one floating dtype, got int32"):
        factorise([jnp.ones(1, jnp.int32)])
    with pytest.raises(ValueError, match="`pivot` must be one of 'auto', 'static', 'pivoted'"):
        factorise([jnp.ones(1)], "full")
    with pytest.raises(ValueError, match=r"`b` must have shape \(1,\) and dtype float64"):
        solve(factorise([jnp.ones(1)]), jnp.ones(2))


def test_factors_cannot_be_carried():
    def program(w):
        factors = factorise(columns_of(w))
        body = lambda s: (s[0] + 1, factorise(s[1].columns))  # noqa: E731
        return lax.while_loop(lambda s: s[0] < 3, body, (jnp.int32(0), factors))[1].growth

    with pytest.raises(UnsupportedPrimitive, match="carry the factors of a matrix through a loop"):
        run_kernel(program, [np.tile(np.eye(4), (N, 1, 1))])


def test_no_vmap_inside_a_lane(rng):
    matrix, b = np.tile(np.eye(4), (N, 1, 1)), rng.normal(size=(N, 2, 4))

    def many_sides(w, b):
        factors = factorise(columns_of(w))
        return jax.vmap(lambda b: solve(factors, b))(b)

    with pytest.raises(UnsupportedPrimitive, match="solve under `vmap` with them"):
        run_kernel(many_sides, [matrix, b])
    many_matrices = lambda w, b: jax.vmap(lambda b: solution(w + jnp.diag(b), b))(b)  # noqa: E731
    with pytest.raises(UnsupportedPrimitive, match="`vmap` over matrices inside a lane"):
        run_kernel(many_matrices, [matrix, b])
