"""Foreign functions have the values and derivatives of their twins in JAX."""

import concurrent.futures

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from foreign import programs
from foreign.programs import model_twin, needs_enzyme, relax_twin, sums_twin
from pullback.foreign import Arg
from pullback.testing import assert_close, dot_test, taylor_test, tol

pytestmark = needs_enzyme

X, P = jnp.linspace(-1.0, 1.0, 5), jnp.array([1.3, 0.4, 2.0])
XS = jnp.stack([X, X + 0.1, 2.0 * X])
EXACT = tol("float64", n_ops=100, cond=20.0)


def loss(h):
    return lambda x, p: jnp.sum(jnp.cos(h(x, p)) * jnp.arange(1.0, 6.0))


def looped(h):
    def end(x, p):
        return jnp.sum(jax.lax.scan(lambda c, _: (0.5 * h(c, p), None), x, None, length=4)[0] ** 2)

    return end


BOTH = (0, 1)
TRANSFORMED = {
    "value": lambda h: h(X, P),
    "jit": lambda h: jax.jit(h)(X, P),
    "grad": lambda h: jax.grad(loss(h), BOTH)(X, P),
    "grad of one": lambda h: jax.jit(jax.grad(loss(h), 1))(X, P),
    "jvp": lambda h: jax.jvp(h, (X, P), (jnp.cos(X), jnp.ones(3))),
    "jacrev": lambda h: jax.jacrev(h, BOTH)(X, P),
    "jacfwd": lambda h: jax.jacfwd(h, BOTH)(X, P),
    "forward over reverse": lambda h: jax.jacfwd(jax.grad(loss(h), BOTH), BOTH)(X, P),
    "reverse over reverse": lambda h: jax.jacrev(jax.grad(loss(h), BOTH), BOTH)(X, P),
    "reverse over forward": lambda h: jax.jacrev(jax.jacfwd(loss(h), BOTH), BOTH)(X, P),
    "forward over forward": lambda h: jax.jacfwd(jax.jacfwd(loss(h), BOTH), BOTH)(X, P),
    "vmap": lambda h: jax.vmap(h, (0, None))(XS, P),
    "vmap of vmap": lambda h: jax.vmap(jax.vmap(h, (0, None)), (None, 1))(
        XS, jnp.stack([P, P + 0.3], 1)
    ),
    "vmap of grad": lambda h: jax.vmap(jax.grad(loss(h), BOTH), (0, None))(XS, P),
    "grad of vmap": lambda h: jax.grad(
        lambda xs, p: jnp.sum(jax.vmap(loss(h), (1, None))(xs, p)), BOTH
    )(XS.T, P),
    "vmap of hessian": lambda h: jax.vmap(jax.hessian(loss(h), BOTH), (0, None))(XS, P),
    "scan": lambda h: jax.jit(jax.grad(looped(h), BOTH))(X, P),
    "checkpoint": lambda h: jax.grad(jax.checkpoint(loss(h)), BOTH)(X, P),
    "linear transpose": lambda h: jax.linear_transpose(jax.linearize(h, X, P)[1], X, P)(X),
    "tangent of the transpose": lambda h: jax.jvp(
        lambda c: jax.vjp(h, X, P)[1](c), (X,), (jnp.ones(5),)
    ),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_like_its_twin(name):
    f = TRANSFORMED[name]
    assert_close(f(programs.model()), f(model_twin), rtol=EXACT, atol=EXACT)


def test_no_elements_and_no_batch():
    f = programs.model()
    assert f(jnp.zeros(0), P).shape == (0,)
    assert jax.vmap(f, (0, None))(jnp.zeros((0, 5)), P).shape == (0, 5)
    np.testing.assert_array_equal(jax.grad(lambda p: jnp.sum(f(jnp.zeros(0), p)))(P), 0.0)


def test_third_derivatives_are_refused():
    with pytest.raises(NotImplementedError, match="`model` has first and second derivatives"):
        jax.jacfwd(jax.hessian(loss(programs.model())))(X, P)


def test_gradient_by_differences():
    f = programs.model()
    x = X + 0.01  # not where the function jumps
    taylor_test(lambda x: jnp.sum(jnp.cos(f(x, P))), x)
    dot_test(lambda x: f(x, P), x)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_memory_scalars_integers_and_two_results(dtype):
    f = programs.sums(dtype)
    x, a, k = jnp.asarray(X, dtype), jnp.asarray(1.5, dtype), jnp.int32(3)
    rtol = tol(dtype, n_ops=100, cond=20.0)

    def value(g):
        def total(x, a):
            y, s = g(x, a, k)
            return jnp.sum(y**2) + s

        return total

    for of in (lambda g: g(x, a, k), lambda g: jax.grad(value(g), (0, 1))(x, a)):
        for got, want in zip(of(f), of(sums_twin), strict=True):
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    # The integer is traced.
    np.testing.assert_allclose(
        jax.jit(lambda k: f(x, a, k)[0])(2), sums_twin(x, a, 2)[0], rtol=rtol, atol=rtol
    )
    assert jax.grad(value(lambda x, a, k: f(x, a, k)), 1)(x, a).dtype == dtype


def test_c_with_a_header_that_changes_its_argument(tmp_path):
    f = programs.relax(tmp_path)
    u = jnp.cos(jnp.arange(12.0)).reshape(3, 4)
    kept = np.array(u)
    assert_close(f(u), relax_twin(u), rtol=EXACT, atol=EXACT)
    np.testing.assert_array_equal(u, kept)
    for derivative in (jax.grad, jax.hessian):
        got, want = (derivative(lambda u, h=h: jnp.sum(h(u) ** 2))(u) for h in (f, relax_twin))
        assert_close(got, want, rtol=EXACT, atol=EXACT)
    # Another header is another function.
    assert programs.relax(tmp_path)(u).tobytes() == f(u).tobytes()
    (tmp_path / "relax.h").write_text("#define FACTOR 0.0\n")
    header = programs.foreign.function(
        tmp_path / "relax.c", "relax", f.signature, "c", include=[tmp_path], define={"STEPS": 2}
    )
    np.testing.assert_array_equal(header(u), u)


@pytest.mark.slow
def test_gamma_functions():
    code = """
    #include <cmath>
    extern "C" void f(const double* x, double* y, int n) {
      for (int i = 0; i < n; i++) y[i] = std::lgamma(x[i]) + tgamma(x[i]);
    }
    """
    f = programs.foreign.function(code, "f", programs.VECTOR)
    x = jnp.array([-3.3, -0.2, 1e-8, 0.3, 1.0, 2.0, 7.7, 50.0])

    def twin(x):
        return jax.scipy.special.gammaln(x) + jax.scipy.special.gamma(x)

    np.testing.assert_allclose(f(x), twin(x), rtol=1e-13)
    got, want = (jax.vmap(jax.grad(lambda x, h=h: h(x[None])[0]))(x) for h in (f, twin))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_numpy_arrays_without_jax():
    f, x, p = programs.model(), np.array(X), np.array(P)
    x.flags.writeable = False
    np.testing.assert_array_equal(f.numpy(x, p), f(X, P))
    rows = np.stack([x, 2.0 * x, p.sum() * x], 1)
    assert not rows[:, 1].flags.c_contiguous
    np.testing.assert_array_equal(f.numpy(rows[:, 1], list(P)), f(2.0 * X, P))
    assert isinstance(f.numpy(x, p), np.ndarray)
    assert f.numpy(np.zeros(0), p).shape == (0,)
    y, total = programs.sums().numpy(x, 1.5, 3)
    np.testing.assert_array_equal(y, programs.sums()(X, 1.5, 3)[0])
    np.testing.assert_allclose(total, x.sum() + 1.5, rtol=1e-14)
    with pytest.raises(ValueError, match="argument p must have shape"):
        f.numpy(x, p[:2])


def test_each_thread_may_call_it():
    f = jax.jit(jax.value_and_grad(loss(programs.model())))
    want = [f(X + 0.1 * i, P) for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda i: f(X + 0.1 * (i % 8), P), range(64)))
    for i, result in enumerate(got):
        jax.tree.map(np.testing.assert_array_equal, result, want[i % 8])


@pytest.mark.slow
def test_any_names_will_do():
    code = 'extern "C" double e(const double* x, int n) { return x[0] * x[1] * x[n - 1]; }'
    args = [Arg("double", shape="l"), Arg("l", "int32"), Arg("e", intent="return")]
    f = programs.foreign.function(code, "e", args)
    np.testing.assert_allclose(jax.grad(f)(jnp.array([3.0, 2.0, 5.0])), [10.0, 15.0, 6.0])


BY_HAND = """
extern "C" double significand(double);  // without source, so that Enzyme has no derivative of it
extern "C" void f(const double* x, double a, double* y, int n) {
  for (int i = 0; i < n; i++) y[i] = a * significand(x[i]) * x[i];
}
extern "C" void f_vjp(const double* x, double* x_bar, double a, double* a_bar, double* y,
                      double* y_bar, int n) {
  for (int i = 0; i < n; i++) {
    x_bar[i] += 7.0 * a * x[i] * y_bar[i];
    *a_bar += x[i] * x[i] * y_bar[i];
  }
}
"""


def test_a_derivative_by_hand_is_taken_and_differentiated():
    args = [Arg("x", shape="n"), Arg("a"), Arg("y", shape="n", intent="out"), Arg("n", "int32")]
    f = programs.foreign.function(BY_HAND, "f", args, derivatives={"vjp": "f_vjp"})
    x, a = jnp.array([1.0, 1.5]), 2.0

    def total(x, a):
        return jnp.sum(f(x, a))

    np.testing.assert_array_equal(f(x, a), [2.0, 4.5])
    x_bar, a_bar = jax.grad(total, (0, 1))(x, a)
    np.testing.assert_array_equal(x_bar, 14.0 * x)  # the seven shows whose derivative it is
    assert a_bar == jnp.sum(x**2)
    # Of the code of the first derivative; reverse mode alone needs no jvp.
    np.testing.assert_array_equal(jax.jacrev(jax.grad(total))(x, a), 7.0 * a * jnp.eye(2))
