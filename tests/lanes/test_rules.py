"""Every primitive with a rule: the kernel gives what `jax.vmap` gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.lanes.lane_check import assert_same

N = 13  # neither a multiple of any width nor a power of two


def floats(rng, *shape, low=-3.0, high=3.0, dtype=np.float64):
    return rng.uniform(low, high, (N, *shape)).astype(dtype)


UNARY = {
    "neg": (lambda x: -x, 0),
    "abs": (jnp.abs, 0),
    "sign": (jnp.sign, 0),
    "floor": (jnp.floor, 0),
    "ceil": (jnp.ceil, 0),
    "round": (jnp.round, 0),
    "square": (jnp.square, 0),
    "sqrt": (lambda x: jnp.sqrt(jnp.abs(x)), 0),
    "rsqrt": (lambda x: lax.rsqrt(jnp.abs(x)), 4),
    "integer_pow_3": (lambda x: x**3, 1),
    "integer_pow_-2": (lambda x: x**-2, 2),
    "is_finite": (lambda x: jnp.isfinite(x / jnp.floor(x)), 0),
    "clip": (lambda x: jnp.clip(x, -1.0, 0.5), 0),
    "exp": (jnp.exp, 4),
    "exp2": (jnp.exp2, 4),
    "expm1": (jnp.expm1, 4),
    "log": (lambda x: jnp.log(jnp.abs(x)), 4),
    "log1p": (lambda x: jnp.log1p(jnp.abs(x)), 4),
    "sin": (jnp.sin, 4),
    "cos": (jnp.cos, 4),
    "tan": (jnp.tan, 6),
    "sinh": (jnp.sinh, 6),
    "cosh": (jnp.cosh, 6),
    "tanh": (jnp.tanh, 6),
    "asin": (lambda x: jnp.arcsin(x / 3), 6),
    "acos": (lambda x: jnp.arccos(x / 3), 6),
    "atan": (jnp.arctan, 6),
    "cbrt": (jnp.cbrt, 4),
    "erf": (jax.scipy.special.erf, 6),
    "erfc": (jax.scipy.special.erfc, 8),
    "logistic": (jax.nn.sigmoid, 6),
    "softplus": (jax.nn.softplus, 8),
    "where": (lambda x: jnp.where(x > 0, x, 2 * x), 0),
    "mod": (lambda x: jnp.mod(x, 0.7), 4),
    "rem": (lambda x: lax.rem(x, jnp.asarray(0.7, x.dtype)), 0),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype, rng):
    function, ulps = UNARY[name]
    assert_same(function, floats(rng, 3, dtype=dtype), ulps=ulps)


BINARY = {
    "add": (lambda x, y: x + y, 0),
    "sub": (lambda x, y: x - y, 0),
    "mul": (lambda x, y: x * y, 0),
    "div": (lambda x, y: x / y, 0),
    "max": (jnp.maximum, 0),
    "min": (jnp.minimum, 0),
    "pow": (lambda x, y: jnp.abs(x) ** y, 4),
    "atan2": (jnp.arctan2, 4),
    "lt": (lambda x, y: x < y, 0),
    "ge": (lambda x, y: x >= y, 0),
    "ne": (lambda x, y: x != y, 0),
    "select": (lambda x, y: jnp.where(x < y, x, y), 0),
    "hypot": (jnp.hypot, 6),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype, rng):
    function, ulps = BINARY[name]
    assert_same(function, floats(rng, 2, dtype=dtype), floats(rng, 2, dtype=dtype), ulps=ulps)


def test_extremum_hands_nan_on():
    x = np.array([np.nan, 1.0, np.nan, 2.0] * 4)
    y = np.array([1.0, np.nan, np.nan, 3.0] * 4)
    assert_same(lambda a, b: (jnp.maximum(a, b), jnp.minimum(a, b), jnp.maximum(a, 1.5)), x, y)


def test_nextafter(rng):
    x = np.array([0.0, -0.0, 1.0, -1.0, 1e-300, np.inf, np.nan, 2.0, -2.0, 1.0, 3.0])
    y = np.array([1.0, -1.0, 2.0, 0.0, -1.0, 0.0, 1.0, np.nan, -3.0, 1.0, -np.inf])
    assert_same(jnp.nextafter, x, y)
    assert_same(jnp.nextafter, x.astype(np.float32), y.astype(np.float32))


INTEGER = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: lax.div(x, y),
    "rem": lambda x, y: lax.rem(x, y),
    "floordiv": lambda x, y: x // y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x, y: ~x + y,
    "shift_left": lambda x, y: lax.shift_left(x, y % 40),
    "shift_right": lambda x, y: lax.shift_right_logical(x, y % 40),
    "shift_arith": lambda x, y: lax.shift_right_arithmetic(x, y % 40),
    "max": jnp.maximum,
    "popcount": lambda x, y: lax.population_count(x) + y,
    "lt": lambda x, y: x < y,
    "abs": lambda x, y: jnp.abs(x) + y,
    "clz": lambda x, y: lax.clz(x) + lax.clz(y),
    "where": lambda x, y: jnp.where(x > y, x, y),
}


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
@pytest.mark.parametrize("name", INTEGER)
def test_integer(name, dtype, rng):
    low = 0 if dtype is np.uint32 else -50
    x = rng.integers(low, 50, (N, 3)).astype(dtype)
    y = rng.integers(low, 9, (N, 3)).astype(dtype)
    assert_same(INTEGER[name], x, y)


def test_integer_division_by_zero_and_overflow_do_not_trap():
    x = np.array([7, -7, 0, np.iinfo(np.int32).min] * 3, np.int32)
    y = np.array([0, 0, 0, -1] * 3, np.int32)
    assert_same(lambda a, b: (lax.div(a, b), lax.rem(a, b)), x, y)


CONVERSIONS = [
    (np.float64, np.int32),
    (np.float64, np.float32),
    (np.int32, np.float64),
    (np.float32, np.int32),
    (np.int64, np.int32),
    (np.int32, np.int64),
    (np.uint32, np.float64),
    (np.float64, np.bool_),
    (np.bool_, np.float32),
    (np.int32, np.bool_),
    (np.int32, np.uint32),
    (np.float32, np.uint32),
]


@pytest.mark.parametrize(("source", "target"), CONVERSIONS)
def test_convert(source, target, rng):
    x = (rng.uniform(0, 100, N)).astype(source)
    assert_same(lambda a: a.astype(target), x)


def test_float_to_integer_saturates():
    edge = 2.0**31
    x = [1e300, -1e300, np.nan, np.inf, -np.inf, 3.7, -3.7, edge, -edge, edge - 1, -edge - 1]
    x = np.array([*x, edge - 0.5, edge - 129, np.nextafter(edge, 0), -edge - 0.5, 0.0])
    assert_same(lambda a: (a.astype(np.int32), a.astype(np.int64)), x)
    with np.errstate(over="ignore"):
        narrow = x.astype(np.float32)
    assert_same(lambda a: (a.astype(np.int32), a.astype(np.uint32)), narrow)


SHAPES = {
    "reshape": lambda x: x.reshape(3, 2),
    "transpose": lambda x: x.T,
    "slice": lambda x: x[::-1, 1:],
    "strided": lambda x: x[:, ::2],
    "concat": lambda x: jnp.concatenate([x, 2 * x], axis=1),
    "stack": lambda x: jnp.stack([x[0], x[1], x[0] + 1]),
    "roll": lambda x: jnp.roll(x, 1, axis=1),
    "pad": lambda x: jnp.pad(x, ((1, 0), (0, 2)), constant_values=5.0),
    "neg_pad": lambda x: lax.pad(x, jnp.zeros((), x.dtype), ((-1, 1, 0), (0, 1, 1))),
    "broadcast": lambda x: x[0][None, :] + x[:, :1],
    "tile": lambda x: jnp.tile(x, (2, 1)),
    "iota": lambda x: x + jnp.arange(3.0, dtype=x.dtype)[None, :],
    "split": lambda x: jnp.split(x, [1], axis=1)[1],
    "flip": lambda x: jnp.flip(x),
    "squeeze": lambda x: jnp.squeeze(x[:, :1], 1),
    "diag": lambda x: jnp.diag(x[0]),
    "outer": lambda x: jnp.outer(x[0], x[1]),
    "tril": lambda x: jnp.tril(jnp.outer(x[0], x[1])),
    "meshgrid": lambda x: jnp.stack(jnp.meshgrid(x[0], x[1])),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shape(name, rng):
    assert_same(SHAPES[name], floats(rng, 2, 3))


REDUCTIONS = {
    "sum": (lambda x: x.sum(), 4),
    "sum0": (lambda x: x.sum(0), 2),
    "prod": (lambda x: x.prod(1), 4),
    "max": (lambda x: x.max(), 0),
    "min1": (lambda x: x.min(1), 0),
    "mean": (lambda x: x.mean(), 8),
    "any": (lambda x: (x > 2).any(1), 0),
    "all": (lambda x: (x > -2).all(0), 0),
    "argmax": (lambda x: x.argmax(1), 0),
    "argmin": (lambda x: x.argmin(), 0),
    "cumsum": (lambda x: jnp.cumsum(x, 1), 4),
    "cumprod": (lambda x: jnp.cumprod(x, 0), 4),
    "cummax": (lambda x: lax.cummax(x, 1, reverse=True), 0),
    "cumsum_1d": (lambda x: jnp.cumsum(x[0]), 4),
    "cummin_1d": (lambda x: lax.cummin(x[1], 0, reverse=True), 0),
    "sort": (lambda x: jnp.sort(x, axis=1), 0),
    "argsort": (lambda x: jnp.argsort(x, axis=1), 0),
    "norm": (lambda x: jnp.linalg.norm(x), 4),
    "var": (lambda x: x.var(), 64),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name, dtype, rng):
    function, ulps = REDUCTIONS[name]
    assert_same(function, floats(rng, 3, 4, dtype=dtype, low=0.5), ulps=ulps)


def test_argmax_takes_the_first_nan():
    x = np.array([[1.0, np.nan, 3.0, np.nan], [2.0, 1.0, 2.0, 0.0]] * 3)
    assert_same(lambda a: (jnp.argmax(a), jnp.argmin(a), jnp.sort(a)), x)


def test_dot_general(rng):
    a, v = floats(rng, 3, 4), floats(rng, 4)
    assert_same(lambda a, v: a @ v, a, v, ulps=4, of_largest=True)
    assert_same(lambda a: a @ a.T, a, ulps=4, of_largest=True)
    assert_same(lambda a, v: jnp.einsum("ij,j->ij", a, v), a, v)
    assert_same(lambda a: jnp.einsum("bi,bj->bij", a, a), a)


INDEXING = {
    "dynamic": lambda x, i: x[i],
    "dynamic_slice": lambda x, i: lax.dynamic_slice(x, (i,), (3,)),
    "update": lambda x, i: x.at[i].set(7.0),
    "add_at": lambda x, i: x.at[i].add(2.5),
    "update_slice": lambda x, i: lax.dynamic_update_slice(x, 2 * x[:2], (i,)),
    "gather": lambda x, i: x[jnp.stack([i, (i + 1) % 5, i * 0])],
    "gather_fill": lambda x, i: x.at[i + 3].get(mode="fill", fill_value=9.0),
    "scatter_drop": lambda x, i: x.at[i + 3].set(1.0, mode="drop"),
    "scatter_max": lambda x, i: x.at[i].max(0.1),
    "take": lambda x, i: jnp.take(x, i),
    "interp": lambda x, i: jnp.interp(x[0] + i, jnp.arange(5.0), x),
    "searchsorted": lambda x, i: jnp.searchsorted(jnp.arange(5.0), x[i]),
}


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name, rng):
    x, i = floats(rng, 5), rng.integers(0, 5, N).astype(np.int32)
    assert_same(INDEXING[name], x, i, ulps=4, of_largest=True)


def test_indexing_a_shared_table(rng):
    table = rng.normal(size=(100, 2))
    assert_same(lambda i: jnp.asarray(table)[i], rng.integers(0, 100, N))
    assert_same(lambda t, i: t[i].sum(), table, rng.integers(0, 100, N), shared=(0,), ulps=1)


def collatz(n):
    def body(s):
        n, count = s
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return lax.while_loop(lambda s: s[0] != 1, body, (n, 0))[1]


def test_while_of_unequal_length(rng):
    assert_same(collatz, rng.integers(1, 200, 37))


def test_nested_while_and_cond(rng):
    def outer(x):
        def body(s):
            i, x = s
            x = lax.cond(x > 1.0, lambda v: v / 2, lambda v: v + 0.3, x)
            inner = lax.while_loop(lambda v: v < 0.5, lambda v: v * 1.5 + 0.01, jnp.abs(x) * 0.2)
            return i + 1, x + inner

        return lax.while_loop(lambda s: s[0] < 5 + jnp.int32(s[1]), body, (jnp.int32(0), x))[1]

    assert_same(outer, floats(rng, low=0.0), ulps=16, of_largest=True)


def test_switch(rng):
    branches = [lambda x: x, lambda x: 2 * x, lambda x: jnp.cos(x), lambda x: x**2]
    assert_same(
        lambda i, x: lax.switch(i, branches, x), rng.integers(-1, 6, N), floats(rng), ulps=4
    )


def test_gradient_of_branches_with_different_operands(rng):
    def program(x, p):
        return lax.cond(x < 0.2, lambda x: -x * p, lambda x: jnp.sin(x), x)

    # the branch that does not read p gives its cotangent as an array without contents
    assert_same(jax.grad(program, (0, 1)), floats(rng), floats(rng), ulps=4)


@pytest.mark.parametrize("length", [3, 300])
def test_scan(length, rng):
    xs = rng.normal(size=length)

    def program(x):
        def step(carry, item):
            carry = 0.9 * carry + item
            return carry, carry * 2

        return lax.scan(step, x, jnp.asarray(xs), reverse=True)

    assert_same(program, floats(rng), ulps=16, of_largest=True)


def test_fori_loop_and_custom_rules(rng):
    @jax.custom_jvp
    def cube(x):
        return x**3

    cube.defjvp(lambda p, t: (p[0] ** 3, 3 * p[0] ** 2 * t[0]))
    program = lambda x: lax.fori_loop(0, 4, lambda i, v: cube(v) * 0.1 + i, x)  # noqa: E731
    assert_same(program, floats(rng), ulps=16, of_largest=True)
    assert_same(jax.grad(program), floats(rng), ulps=16, of_largest=True)


def test_code_for_several_platforms(rng):
    def program(x):
        x = lax.platform_dependent(x, cpu=lambda v: v + 1, default=lambda v: v + 2)
        return lax.optimization_barrier(x) * 2

    assert_same(program, floats(rng))


def test_refs(rng):
    def program(x):
        ref = jax.new_ref(jnp.zeros((6, 2)))

        def body(i):
            ref[i, :] = jnp.stack([x * i, x + i])
            ref[i, :] += jnp.stack([x, x * 0 + 1])
            return i + 1

        n = lax.while_loop(lambda i: i < 2 + jnp.int32(jnp.abs(x)), body, jnp.int32(0))
        return n, jax.freeze(ref)

    assert_same(program, floats(rng), ulps=2)


def test_ref_inside_a_loop_body(rng):
    def program(x):
        def body(s):
            i, total = s
            scratch = jax.new_ref(jnp.zeros(4))
            scratch[i % 4] = x
            scratch[0] += total
            return i + 1, scratch[0] + scratch[i % 4]

        return lax.while_loop(lambda s: s[0] < 7, body, (jnp.int32(1), x))[1]

    assert_same(program, floats(rng), ulps=8)


@pytest.mark.parametrize("width", [4, 8, 16])
def test_every_width_gives_the_same_bits(width, rng):
    from tests.lanes.lane_check import run_kernel  # noqa: PLC0415

    def program(x, p):
        def body(s):
            i, y = s
            return i + 1, y + 0.01 * (jnp.sin(y) * p - y**2)

        return lax.while_loop(lambda s: s[0] < 20 + jnp.int32(p), body, (0, x))[1]

    x, p = floats(rng, 3), floats(rng, low=0.0, high=30.0)
    (one,) = run_kernel(program, (x, p), width=4)
    (two,) = run_kernel(program, (x, p), width=width)
    np.testing.assert_array_equal(one, two)


def test_two_main_loops_keep_what_lies_between(rng):
    def program(x, p):
        tape = jax.new_ref(lax.empty((50, 2), x.dtype))

        def forward(s):
            i, y = s
            tape[i, :] = y
            return i + 1, y * (1 - 0.1 * p)

        n, y = lax.while_loop(lambda s: s[0] < 10 + jnp.int32(p), forward, (jnp.int32(0), x))
        scale = jnp.sum(y) + p

        def back(s):
            i, total = s
            return i - 1, total * 0.5 + tape[i - 1, :] * scale

        return n, lax.while_loop(lambda s: s[0] > 0, back, (n, y))[1]

    x, p = rng.normal(size=(300, 2)), rng.uniform(0, 30, 300)
    assert_same(program, x, p, ulps=64, of_largest=True)


def test_equal_texts_of_other_types_are_other_values():
    """What has been computed before is found by its text, which does not tell the type."""

    def selects(p, n, m):
        c = p < 0.5
        single = jnp.where(c, np.float32(-1), np.float32(1))
        double = jnp.where(c, -1.0, 1.0)
        signed = jnp.where(c, n, m)
        unsigned = jnp.where(c, n.astype(jnp.uint32), m.astype(jnp.uint32))
        return single + single, double + double, signed // 2, unsigned // np.uint32(2)

    def extremes(n, m):
        unsigned = jnp.maximum(n.astype(jnp.uint32), m.astype(jnp.uint32))
        return jnp.maximum(n, m) // 2, unsigned // np.uint32(2)

    def shifts(n, m):
        signed, unsigned = n + m, n.astype(jnp.uint32) + m.astype(jnp.uint32)
        return signed // 2, unsigned // np.uint32(2), signed < 0, unsigned < np.uint32(9)

    p = np.linspace(0.0, 1.0, 37)
    n, m = (np.arange(37, dtype=np.int32) * k - 50 for k in (3, -2))
    assert_same(selects, p, n, m)
    assert_same(extremes, n, m)
    assert_same(shifts, n, m)
