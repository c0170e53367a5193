"""Native steps are the steps: values, gradients, transformations, and what they decline."""

import concurrent.futures
import functools

import hypothesis
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import pullback as pb
from interop.native_loops import STEPS, lorenz_96, places
from pullback import native
from pullback.testing import assert_close, taylor_test, tol

N = 9
# About 20 operations a step, elementary functions within 4 ulp of XLA's, amplified up to tenfold.
EXACT = tol("float64", n_ops=20 * N, cond=40.0)


def stepped(name, p):
    step, *_ = STEPS[name]
    return lambda carry, x: step(p, carry, x)


def scan(step, init, xs, **_):
    return jax.lax.scan(step, init, xs, length=N)


def ours(step, init, xs, **options):
    return pb.checkpointed_scan(step, init, xs, N, **options)


BLOCKS = functools.partial(ours, block=2, scheme=pb.Revolve(2))
RUNS = {"recorded": ours, "in blocks": BLOCKS}


def real_leaves(tree):
    return [a for a in jax.tree.leaves(tree) if a.dtype != jax.dtypes.float0]


def value_and_grads(name, run):
    """Everything a loop returns, and the gradient of a sum of waves of it by all operands."""
    _, init, xs, p = STEPS[name]

    def loss(p, init, xs):
        out = run(stepped(name, p), init, xs)
        waves = [jnp.sum(jnp.sin(jnp.asarray(a, float))) for a in jax.tree.leaves(out)]
        return sum(waves), out

    f = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True, allow_int=True))
    return real_leaves(f(jnp.float64(p), init, xs))


@functools.cache
def truth(name):
    return value_and_grads(name, scan)


@pytest.mark.parametrize("name", STEPS)
def test_every_step_here_is_compiled(name):
    _, init, xs, p = STEPS[name]
    assert pb.native_steps_reason(stepped(name, jnp.float64(p)), init, xs) is None


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", STEPS)
def test_value_and_gradient_are_those_of_the_scan(name, run):
    assert_close(value_and_grads(name, RUNS[run]), truth(name), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("name", ["lorenz_96", "tree", "functions", "layers"])
def test_value_has_the_same_bits_whatever_the_blocks_and_with_or_without_gradient(name):
    _, init, xs, p = STEPS[name]
    p = jnp.float64(p)

    def loss(p, init, options):
        out = ours(stepped(name, p), init, xs, **dict(options))
        return jnp.sum(jnp.asarray(jax.tree.leaves(out)[-1], float)), out

    results = [jax.jit(loss, static_argnums=2)(p, init, ())[1]]
    for options in ((), (("block", 1),), (("block", 4), ("scheme", pb.Revolve(1)))):
        f = jax.jit(jax.value_and_grad(loss, 0, has_aux=True), static_argnums=2)
        results.append(f(p, init, options)[0][1])
    for result in results[1:]:
        jax.tree.map(np.testing.assert_array_equal, result, results[0])


def test_single_precision():
    def loss(run, p, y):
        y, ys = run(lambda y, x: STEPS["functions"][0](p, y, x), y, None)
        return jnp.sum(y) + jnp.sum(ys)

    y = jnp.sin(jnp.arange(6, dtype=jnp.float32))
    p = jnp.float32(1.3)
    assert pb.native_steps_reason(lambda y, x: STEPS["functions"][0](p, y, x), y) is None
    got, want = (jax.jit(jax.value_and_grad(functools.partial(loss, run), (0, 1)))(p, y)
                 for run in (ours, scan))  # fmt: skip
    rtol = tol("float32", n_ops=20 * N, cond=40.0)
    assert_close(got, want, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", ["layers", "matrix"])
def test_gradient_matches_the_function(name):
    _, init, xs, p = STEPS[name]

    def loss(operands):
        p, init = operands
        return jnp.sum(ours(stepped(name, p), init, xs, block=2)[0] ** 2)

    taylor_test(loss, (jnp.float64(p), init))


def test_denormals_are_flushed_where_xla_flushes_them():
    def step(y, _):
        return 0.5 * y, None

    y = jnp.array([1e-306, 3e-307, -2e-307, 5e-308, 1.0])
    n = 40
    want = jax.jit(lambda y: jax.lax.scan(step, y, length=n)[0])(y)
    got = jax.jit(lambda y: pb.checkpointed_scan(step, y, length=n)[0])(y)
    assert pb.native_steps_reason(step, y) is None
    np.testing.assert_array_equal(got, want)

    def tiny(run, y):  # a cotangent that becomes denormal on its way
        return 1e-300 * jnp.sum(run(step, y, None, length=n)[0])

    for_scan = jax.jit(jax.grad(functools.partial(tiny, jax.lax.scan)))(y)
    for_us = jax.jit(jax.grad(functools.partial(tiny, pb.checkpointed_scan)))(y)
    np.testing.assert_array_equal(for_us, for_scan)


Y = STEPS["lorenz_96"][1]
LOOP = functools.partial(lorenz_96, jnp.float64(2.0))
DECLINED = {
    "sort": (lambda y, _: (jnp.sort(y), None), jnp.ones(3), "`sort` used at"),
    "while": (
        lambda y, _: (jax.lax.while_loop(lambda v: v < 1, lambda v: v + 1, y), None),
        0.5, "`while`",
    ),
    "large": (lambda y, _: (y, None), jnp.ones(1000), "an array of 1000 numbers, among its carry"),
    "empty": (lambda y, _: (y, None), jnp.ones(0), "an array of 0 numbers"),
    "complex": (lambda y, _: (y, None), jnp.ones(3, complex), "values of type complex128"),
    "key": (lambda y, _: (y, None), jax.random.key(0), "values of type key<fry>"),
    "print": (lambda y, _: (jax.debug.print("x") or y, None), 1.0, "more than compute"),
    "integers": (lambda i, _: (i + 1, None), jnp.int32(0), "no real results"),
    "long loop": (
        lambda y, _: (jax.lax.fori_loop(0, 100, lambda _, v: 0.9 * v, y), None), 1.0, "100 turns",
    ),
    "long code": (
        lambda y, _: (functools.reduce(lambda v, _: jnp.sin(v), range(200), y), None),
        jnp.ones(64), "machine instructions",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECLINED)
def test_reason_says_what_is_missing_and_the_loop_runs_all_the_same(name):
    step, init, text = DECLINED[name]
    reason = pb.native_steps_reason(step, init)
    assert reason is not None
    assert text in reason
    with pytest.warns(pb.KernelFallbackWarning, match="`compile_step`: the loop runs through XLA"):
        got = pb.checkpointed_scan(step, init, length=3, compile_step=pb.native_steps)
    want = jax.lax.scan(step, init, length=3)
    jax.tree.map(lambda a, b: jax.numpy.array_equal(a, b) or pytest.fail(name), got, want)


def test_compile_step_is_checked():
    with pytest.raises(
        TypeError, match=r"`compile_step`: expected .auto., None or a step compiler"
    ):
        pb.checkpointed_scan(lambda y, _: (y, None), 1.0, length=3, compile_step="native")


def text_of(**options):
    def loss(y):
        return jnp.sum(pb.checkpointed_scan(LOOP, y, length=100, **options)[0])

    return jax.jit(jax.grad(loss)).lower(STEPS["lorenz_96"][1]).as_text()


def test_what_runs_natively():
    assert "pullback_" in text_of()
    assert "pullback_" in text_of(compile_step=pb.native_steps, block=10)
    assert "pullback_" not in text_of(compile_step=None)
    assert "pullback_" not in text_of(scheme=pb.Nested(2))  # it has forward mode


def test_exported_programs_do_without_kernels():
    def loss(y):
        return jnp.sum(pb.checkpointed_scan(LOOP, y, length=N, block=4)[0])

    exported = jax.export.export(jax.jit(jax.grad(loss)))(Y)
    assert_close(exported.call(Y), jax.jit(jax.grad(loss))(Y), rtol=EXACT, atol=EXACT)


def test_repeated_calls_compile_nothing_and_see_new_values():
    def slope(p, y):
        def loss(p):
            step = functools.partial(lorenz_96, p)
            return jnp.sum(pb.checkpointed_scan(step, y, length=50, block=7)[0])

        return jax.grad(loss)(p)

    y = STEPS["lorenz_96"][1]
    first = slope(jnp.float64(2.0), y)
    n_kernels = len(native.registered_kernels())
    second = slope(jnp.float64(2.5), y)
    assert len(native.registered_kernels()) == n_kernels
    assert first != second

    def scan_slope(p):
        return jnp.sum(jax.lax.scan(functools.partial(lorenz_96, p), y, length=50)[0])

    assert_close(second, jax.grad(scan_slope)(jnp.float64(2.5)), rtol=5 * EXACT, atol=EXACT)


def test_another_table_of_integers_is_another_kernel():
    for table in ([2, 0, 1, 3], [3, 1, 0, 2]):
        table = np.array(table)

        def step(y, _, table=table):
            return 0.5 * y + 0.25 * y[table], None

        y = jnp.array([0.1, 0.7, -0.4, 2.0])
        got = pb.checkpointed_scan(step, y, length=N)[0]
        assert_close(got, jax.lax.scan(step, y, length=N)[0], rtol=EXACT, atol=EXACT)


def loss_with(run):
    def loss(p, y):
        def step(y, x):
            return lorenz_96(p, y, None)[0] + 0.01 * x, y[0]

        y, ys = run(step, y, jnp.arange(float(N)))
        return jnp.sum(y**2) + jnp.sum(ys)

    return loss


RATES = jnp.array([1.0, 2.0, 3.0])
TRANSFORMED = {
    "vmap grad": (lambda f: jax.vmap(jax.grad(f, (0, 1)), (0, None)), RATES, Y),
    "grad vmap": (
        lambda f: jax.grad(lambda p, y: jnp.sum(jax.vmap(f, (0, None))(p, y)), (0, 1)), RATES, Y,
    ),
    "vmap both": (lambda f: jax.vmap(jax.grad(f, (0, 1))), RATES, jnp.stack([Y, 0.5 * Y, -Y])),
    "hvp": (
        lambda f: lambda p, y: jax.jvp(jax.grad(f, (0, 1)), (p, y), (p, y)), jnp.float64(1.0), Y,
    ),
    "hessian": (lambda f: jax.jacfwd(jax.grad(f, 1), 1), jnp.float64(1.0), Y),
    "jacrev": (lambda f: jax.jacrev(lambda p, y: f(p, y) * y), jnp.float64(1.0), Y),
    "in a loop": (
        lambda f: lambda p, y: jax.lax.map(lambda q: jax.grad(f, (0, 1))(q, y), p), RATES, Y,
    ),
}  # fmt: skip


@pytest.mark.parametrize("run", [ours, BLOCKS], ids=["recorded", "blocks"])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformations(run, name):
    transform, *operands = TRANSFORMED[name]
    got, want = (jax.jit(transform(loss_with(r)))(*operands) for r in (run, scan))
    # A second derivative doubles the operations.
    assert_close(got, want, rtol=4 * EXACT, atol=4 * EXACT)


def test_long_blocks_are_short_where_xla_takes_over():
    n = 20_000

    def loss(p):
        step = functools.partial(lorenz_96, p)
        return jnp.sum(pb.checkpointed_scan(step, Y, length=n)[0])

    lanes = jnp.linspace(0.1, 0.5, 10)
    compiled = jax.jit(jax.vmap(jax.grad(loss))).lower(lanes).compile()
    used = compiled.memory_analysis().temp_size_in_bytes
    assert used < lanes.size * n * Y.nbytes / 4  # a tape of all states would take more than all
    exact = tol("float64", n_ops=20 * n, cond=10.0)
    assert_close(compiled(lanes)[3], jax.jit(jax.grad(loss))(lanes[3]), rtol=exact, atol=exact)
    eager = jax.vmap(jax.grad(loss))(lanes)
    assert_close(eager, compiled(lanes), rtol=exact, atol=exact)


@pytest.mark.slow
@pytest.mark.parametrize("run", [ours, BLOCKS], ids=["recorded", "blocks"])
def test_without_jit(run):
    want = jax.jit(jax.grad(loss_with(run), (0, 1)))(jnp.float64(1.0), Y)
    with jax.disable_jit():
        got = jax.grad(loss_with(run), (0, 1))(jnp.float64(1.0), Y)
    jax.tree.map(np.testing.assert_array_equal, got, want)


@pytest.mark.parametrize("mode", ["jit", "host"])
def test_while_loop_and_modes(mode):
    def loss(run, p, y):
        out = run(lambda c: c[0] < N, lambda c: (c[0] + 1, lorenz_96(p, c[1], None)[0]), (0, y))
        return jnp.sum(out[1] ** 2)

    def plain(cond, step, init):
        return jax.lax.scan(lambda c, _: (step(c), None), init, length=N)[0]

    ours = functools.partial(pb.checkpointed_while, block=2, mode=mode, scheme=pb.Online(2))
    y = STEPS["lorenz_96"][1]
    got, want = (
        jax.value_and_grad(functools.partial(loss, run), (0, 1))(jnp.float64(2.0), y)
        for run in (ours, plain)
    )
    assert_close(got, want, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("max_steps", [None, 0, 5, 100])
def test_while_loop_is_native_and_ends_where_it_should(max_steps):
    def run(y, most, compile_step):
        def step(c):
            return c[0] + 1, lorenz_96(1.0, c[1], None)[0]

        def goes_on(c):
            return (jnp.sum(c[1] ** 2) > most) & (c[0] < 50)

        return pb.checkpointed_while(
            goes_on, step, (0, y), max_steps=max_steps, block=4, compile_step=compile_step
        )

    f = jax.jit(run, static_argnums=2)
    for most in (-1.0, 3.0, 100.0):
        got, want = (f(Y, most, how) for how in ("auto", None))
        assert got[0] == want[0]
        assert_close(got[1], want[1], rtol=10 * EXACT, atol=EXACT)
    assert "pullback_" in f.lower(Y, 3.0, "auto").as_text()
    assert "pullback_" not in f.lower(Y, 3.0, None).as_text()


def test_while_loop_whose_condition_has_no_kernel():
    def loss(y, compile_step):
        run = functools.partial(pb.checkpointed_while, block=4, compile_step=compile_step)
        out = run(lambda v: jnp.sort(v)[0] < 2.0, lambda v: 1.1 * v + 0.01, y)
        return jnp.sum(out**2)

    got, want = (jax.jit(jax.value_and_grad(functools.partial(loss, compile_step=how)))(jnp.abs(Y))
                 for how in (pb.native_steps, None))  # fmt: skip
    assert_close(got, want, rtol=10 * EXACT, atol=EXACT)


def test_host_mode():
    y, p = STEPS["lorenz_96"][1], jnp.float64(2.0)
    f = loss_with(functools.partial(ours, block=2, scheme=pb.Revolve(2), mode="host"))
    want = jax.value_and_grad(loss_with(scan), (0, 1))(p, y)
    assert_close(jax.value_and_grad(f, (0, 1))(p, y), want, rtol=EXACT, atol=EXACT)


def test_threads_do_not_share_tapes():
    f = jax.jit(jax.grad(loss_with(BLOCKS), (0, 1)))
    y = STEPS["lorenz_96"][1]
    inputs = [jnp.float64(1 + 0.1 * i) for i in range(16)]
    want = [f(p, y) for p in inputs]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda p: jax.block_until_ready(f(p, y)), inputs * 4))
    for result, expected in zip(got, want * 4, strict=True):
        jax.tree.map(np.testing.assert_array_equal, result, expected)


def test_loop_of_no_steps():
    got = pb.checkpointed_scan(functools.partial(places, 0.4), STEPS["places"][1], length=0)
    assert got[1].shape == (0,)
    np.testing.assert_array_equal(got[0], STEPS["places"][1])


@st.composite
def random_steps(draw):
    """Shapes of a few arrays, and how each is made from its neighbours."""
    shape = st.sampled_from([(), (1,), (3,), (4,), (7,), (2, 3)])
    shapes = draw(st.lists(shape, min_size=1, max_size=4))
    ops = draw(st.lists(st.integers(0, 5), min_size=len(shapes), max_size=len(shapes)))
    return shapes, ops


@hypothesis.settings(max_examples=6, deadline=None, derandomize=True)
@hypothesis.given(random_steps(), st.integers(1, 5))
def test_random_trees(form, block):
    shapes, ops = form
    unary = [jnp.sin, jnp.tanh, lambda v: v * v, lambda v: jnp.maximum(v, 0.1),
             lambda v: jnp.flip(v) if v.ndim else -v, lambda v: v - jnp.mean(v)]  # fmt: skip

    def loss(run, p, state):
        def step(state, x):
            new = []
            for i, (v, op) in enumerate(zip(state, ops, strict=True)):
                other = jnp.sum(state[i - 1])
                new.append(0.6 * v + 0.1 * unary[op](v) * p + 0.05 * jnp.cos(other) + 0.01 * x)
            return new, new[-1]

        out, ys = run(step, state, jnp.arange(float(N)))
        return sum(jnp.sum(a**2) for a in out) + jnp.sum(jnp.sin(ys))

    state = [jnp.cos(jnp.arange(float(np.prod(s)))).reshape(s) for s in shapes]
    run = functools.partial(ours, block=block, scheme=pb.Revolve(2), compile_step=pb.native_steps)
    got, want = (jax.jit(jax.value_and_grad(functools.partial(loss, r), (0, 1)))(0.7, state)
                 for r in (run, scan))  # fmt: skip
    assert_close(got, want, rtol=EXACT, atol=EXACT)
