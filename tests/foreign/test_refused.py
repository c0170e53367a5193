"""What cannot be compiled, differentiated or called is told in a sentence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from foreign import programs
from foreign.programs import VECTOR, needs_enzyme
from pullback import foreign
from pullback.foreign import Arg
from pullback.foreign.code import LANGUAGES


def body(expression):
    return (
        f'extern "C" double significand(double);\n#include <cmath>\n'
        f'extern "C" void f(const double* x, double* y, int n) {{\n'
        f"  for (int i = 0; i < n; i++) y[i] = {expression};\n}}\n"
    )


@needs_enzyme
def test_an_error_of_the_compiler_names_file_and_line():
    with pytest.raises(foreign.ForeignError, match=r"source\.cpp:4:\d+: error: no member .*sinn"):
        foreign.function(body("std::sinn(x[i])"), "f", VECTOR)


@needs_enzyme
def test_a_library_without_source_is_told_when_a_derivative_is_asked_for():
    f = foreign.function(body("significand(x[i])"), "f", VECTOR)
    x = jnp.array([3.0, 5.0])
    np.testing.assert_array_equal(f(x), [1.5, 1.25])
    for derivative, mode in ((jax.jacfwd, "forward"), (jax.jacrev, "reverse")):
        for run in (derivative(f), jax.jit(derivative(f))):
            with pytest.raises(
                foreign.ForeignError, match=f"{mode} mode of the foreign function `f`.*significand"
            ):
                run(x)


@needs_enzyme
def test_a_function_that_there_is_not():
    code = 'extern "C" double nowhere(double);\n' + body("nowhere(x[i])")
    with pytest.raises(foreign.ForeignError, match="it calls nowhere, which this process"):
        foreign.function(code, "f", VECTOR)


@pytest.mark.slow
@needs_enzyme
def test_a_compiler_that_does_not_end():
    endless = """
    constexpr long g(long a) { for (long i = 0; i < (1L << 60); i++) a ^= i; return a; }
    constexpr long q = g(3);
    extern "C" void f(const double* x, double* y, int n) { y[0] = q; }
    """
    with pytest.raises(foreign.ForeignError, match="not compiled within 8 s; pass a larger `time"):
        foreign.function(endless, "f", VECTOR, flags=["-fconstexpr-steps=2147483647"], timeout=8.0)


@pytest.mark.parametrize("language", sorted(LANGUAGES.keys() - {"c", "c++", "llvm"}))
def test_a_compiler_that_is_not_there(language, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(foreign.ForeignMissing, match=f"the language {language} needs .* install"):
        foreign.function("", "f", VECTOR, language)


def test_text_that_is_no_ir():
    with pytest.raises(foreign.ForeignError, match="`source` is not LLVM IR"):
        foreign.function("hello", "f", VECTOR, "llvm")


@needs_enzyme
@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda f: f(np.ones(3)), TypeError, r"`model` takes 2 arguments \(x, p\), but 1 arrived"),
        (lambda f: f(np.ones(3), np.ones(2)), ValueError, r"argument p must have shape \(3,\)"),
        (lambda f: f(np.ones((3, 1)), np.ones(3)), ValueError, "argument x must have 1 axes"),
        (lambda f: f(1j * np.ones(3), np.ones(3)), TypeError, "x must be float64, but complex128"),
        (lambda f: f(np.ones(3), np.ones(3), n=4), ValueError, "axis length n = 4"),
        (lambda f: f(np.ones(3), np.ones(3), m=4), TypeError, "no axis length 'm'; there are: n"),
    ],
)  # fmt: skip
def test_a_wrong_call(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call(programs.model())


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: Arg("1x"), ValueError, "`name` must be a C identifier"),
        (lambda: Arg("x", "complex64"), TypeError, "`dtype` of argument x must be one of float64"),
        (lambda: Arg("x", shape=-1), ValueError, "`shape` of argument x must hold sizes"),
        (lambda: Arg("x", shape="n**2"), ValueError, "formulas have names, numbers"),
        (lambda: Arg("x", shape="f(n)"), ValueError, "formulas have names, numbers"),
        (lambda: Arg("x", shape=1.5), TypeError, "`shape` of argument x must hold sizes"),
        (lambda: Arg("x", intent="both"), ValueError, "`intent` of argument x must be"),
        (lambda: Arg("x", shape=3, intent="return"), ValueError, "return single values"),
        (lambda: foreign.function("", "f", [1]), TypeError, "`signature` must hold foreign.Arg"),
        (lambda: foreign.function("", "f", VECTOR, "basic"), ValueError, "`language` must be one"),
        (
            lambda: foreign.function("", "f", VECTOR, derivatives={"hvp": "g"}),
            ValueError,
            "`derivatives` must give names of functions",
        ),
        (
            lambda: foreign.function("", "f", VECTOR, "rust", derivatives={"vjp": "g"}),
            ValueError,
            "`derivatives` are for C and C\\+\\+ .* another language",
        ),
        (lambda: foreign.function("", None, VECTOR), TypeError, "`symbol` must be the name"),
        (lambda: foreign.function("", "f", [Arg("x")]), ValueError, "`signature` has no result"),
        (lambda: foreign.function("", "f", [*VECTOR, Arg("x")]), ValueError, "two arguments named"),
        (
            lambda: foreign.function("", "f", [Arg("x", shape="x", intent="out")]),
            ValueError,
            "uses x as an axis length",
        ),
    ],
)  # fmt: skip
def test_a_wrong_signature(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()
