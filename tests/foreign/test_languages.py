"""The same function in every language whose compiler is there."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from foreign.programs import VECTOR, needs_enzyme
from pullback import foreign
from pullback.foreign.code import LANGUAGES

IR = """
declare double @llvm.sin.f64(double)
define void @f(ptr %x, ptr %y, i32 %n) {
start:
  %some = icmp sgt i32 %n, 0
  br i1 %some, label %next, label %done
next:
  %i = phi i32 [0, %start], [%j, %next]
  %from = getelementptr double, ptr %x, i32 %i
  %to = getelementptr double, ptr %y, i32 %i
  %v = load double, ptr %from
  %s = call double @llvm.sin.f64(double %v)
  %r = fmul double %s, %v
  store double %r, ptr %to
  %j = add i32 %i, 1
  %more = icmp slt i32 %j, %n
  br i1 %more, label %next, label %done
done:
  ret void
}
"""
SOURCES = {
    "llvm": IR,
    "c": """
        #include <math.h>
        void f(const double *x, double *y, int n) {
          for (int i = 0; i < n; i++) y[i] = sin(x[i]) * x[i];
        }""",
    "rust": """
        #[no_mangle]
        pub extern "C" fn f(x: *const f64, y: *mut f64, n: i32) {
            let x = unsafe { std::slice::from_raw_parts(x, n as usize) };
            let y = unsafe { std::slice::from_raw_parts_mut(y, n as usize) };
            for i in 0..n as usize { y[i] = x[i].sin() * x[i]; }
        }""",
    "fortran": """
        subroutine f(x, y, n) bind(c)
          use iso_c_binding
          integer(c_int), value :: n
          real(c_double), intent(in) :: x(n)
          real(c_double), intent(out) :: y(n)
          y = sin(x) * x
        end subroutine""",
    "c++": """
        #include <cmath>
        extern "C" void f(const double* x, double* y, int n) {
          for (int i = 0; i < n; i++) y[i] = std::sin(x[i]) * x[i];
        }""",
}
COMPILERS = {"rust": ["rustc"], "fortran": ["flang-new-19", "flang-new", "flang"]}


def cases():
    for language in LANGUAGES:
        names = COMPILERS.get(language, [])
        missing = bool(names) and not any(map(shutil.which, names))
        marks = [pytest.mark.skipif(missing, reason=f"needs {' or '.join(names)}")]
        marks += [] if language == "llvm" else [pytest.mark.slow]
        yield pytest.param(language, marks=marks)


@needs_enzyme
@pytest.mark.parametrize("language", list(cases()))
def test_value_and_derivatives(language):
    f = foreign.function(SOURCES[language], "f", VECTOR, language)
    x = jnp.linspace(-2.0, 2.0, 9)
    np.testing.assert_allclose(f(x), jnp.sin(x) * x, rtol=1e-14)
    slope = jnp.cos(x) * x + jnp.sin(x)
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(derivative(f)(x), jnp.diag(slope), rtol=1e-13, atol=1e-15)
    curvature = jax.hessian(lambda x: jnp.sum(f(x)))(x)
    want = jnp.diag(2.0 * jnp.cos(x) - jnp.sin(x) * x)
    np.testing.assert_allclose(curvature, want, rtol=1e-13, atol=1e-14)


@pytest.mark.skipif(shutil.which("rustc") is None, reason="needs rustc")
def test_an_error_of_another_compiler_is_told():
    with pytest.raises(
        foreign.ForeignError, match=r"(?s)rustc refused the code of `f`: error.*source\.rs"
    ):
        foreign.function("pub fn f( {", "f", VECTOR, "rust")
