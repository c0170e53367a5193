"""Foreign functions that tests compile, each with its twin in JAX."""

import functools
import importlib.util

import jax.numpy as jnp
import pytest

from pullback import foreign
from pullback.foreign import Arg

needs_enzyme = pytest.mark.skipif(
    importlib.util.find_spec("enzyme_ad") is None, reason="needs enzyme-ad: pullback[foreign]"
)

VECTOR = (Arg("x", shape="n"), Arg("y", shape="n", intent="out"), Arg("n", "int32"))


def model_twin(x, p):
    y = jnp.sin(p[0] * x) + p[1] * jnp.roll(x, -1) * x
    return jnp.where(x > 0.5, y * p[2], y)


def sums_twin(x, a, k):
    return jnp.cumsum(a * x**2, dtype=x.dtype) * k, jnp.sum(x) + a


MODEL = """
#include <cmath>
extern "C" void model(const double* x, const double* p, double* y, int n) {
  for (int i = 0; i < n; i++) {
    y[i] = std::sin(p[0] * x[i]) + p[1] * x[(i + 1) % n] * x[i];
    if (x[i] > 0.5) y[i] *= p[2];
  }
}
"""

# Memory, recursion, a static table, a value that is returned, an integer of every call.
SUMS = """
#include <vector>
static const double ones[2] = {1.0, 1.0};
template <class T> static T power(T x, int n) { return n == 0 ? T(ones[0]) : x * power(x, n - 1); }
namespace sums {
  double run(REAL* x, REAL a, REAL* y, long n, int k) {
    std::vector<REAL> squares;
    REAL sum = 0;
    for (long i = 0; i < n; i++) squares.push_back(a * power(x[i], 2));
    for (long i = 0; i < n; i++) { sum += squares[i]; y[i] = sum * k; }
    REAL total = a;
    for (long i = 0; i < n; i++) total += x[i];
    return total;
  }
}
"""

# A C program that changes its argument.
RELAX = """
#include <stdlib.h>
#include <string.h>
#include "relax.h"
void relax(double *restrict u, int n, int m) {
  double *old = malloc(n * m * sizeof(double));
  for (int step = 0; step < STEPS; step++) {
    memcpy(old, u, n * m * sizeof(double));
    for (int i = 0; i < n; i++)
      for (int j = 0; j < m; j++) {
        double left = old[i * m + (j + m - 1) % m], right = old[i * m + (j + 1) % m];
        u[i * m + j] = old[i * m + j] + FACTOR * (left * right - old[i * m + j]);
      }
  }
  free(old);
}
"""


def relax_twin(u):
    for _ in range(2):
        u = u + 0.1 * (jnp.roll(u, 1, 1) * jnp.roll(u, -1, 1) - u)
    return u


@functools.cache
def model():
    args = (Arg("x", shape="n"), Arg("p", shape=3), Arg("y", shape="n", intent="out"),
            Arg("n", "int32"))  # fmt: skip
    return foreign.function(MODEL, "model", args)


@functools.cache
def sums(dtype="float64"):
    args = (
        Arg("x", dtype, "n"), Arg("a", dtype), Arg("y", dtype, "n", "out"), Arg("n", "int64"),
        Arg("k", "int32"), Arg("total", "float64", intent="return"),
    )  # fmt: skip
    c_type = {"float64": "double", "float32": "float"}[dtype]
    return foreign.function(SUMS, "sums::run", args, define={"REAL": c_type})


def relax(folder):
    (folder / "relax.h").write_text("#define FACTOR 0.1\n")
    (folder / "relax.c").write_text(RELAX)
    args = (Arg("u", shape=("n", "m"), intent="inout"), Arg("n", "int32"), Arg("m", "int32"))
    return foreign.function(
        folder / "relax.c", "relax", args, "c", include=[folder], define={"STEPS": 2}
    )
