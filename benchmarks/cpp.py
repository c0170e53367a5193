"""A plain C++ loop of the same method, compiled where a compiler is there."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import pullback as pb
from benchmarks.cases import Case, Inputs

FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC")
_SOURCE = Path(__file__).with_name("tsit5.cpp")
_COMPILERS = ("g++", "clang++")


class NoCompilerError(Exception):
    """Why there is no compiled loop on this machine."""


def tableau_text() -> str:
    """Return Tsit5's sums as C++ macros, from the tableau that `pullback` uses."""
    tableau = pb.Tsit5().tableau
    sums = []
    for stage, (row, node) in enumerate(zip(tableau.a, tableau.c, strict=True)):
        if stage:
            sums.append(
                f"for (int i = 0; i < n; ++i) z[i] = y[i] + h * ({_weighted(row)}); "
                f"F::eval(t + T({node!r}) * h, z, p, k[{stage}]);"
            )
    dense = " + ".join(
        f"({_polynomial(c)}) * k[{j}][i]" for j, c in enumerate(tableau.dense) if any(c)
    )
    return "\n".join(
        [
            "#include <algorithm>",
            "#include <cmath>",
            f"#define STAGES {tableau.n_stages}",
            f"#define STAGE_SUMS {' '.join(sums)}",
            f"#define ERROR_SUM {_weighted(tableau.b_err)}",
            f"#define DENSE_SUM {dense}",
        ]
    )


def _weighted(weights) -> str:
    return " + ".join(f"T({w!r}) * k[{j}][i]" for j, w in enumerate(weights) if w)


def _polynomial(coefficients) -> str:
    text = "T(0)"
    for c in reversed(coefficients):
        text = f"({text} + T({c!r})) * x"
    return text


@functools.cache
def _library() -> ctypes.CDLL:
    compiler = next((c for c in _COMPILERS if shutil.which(c)), None)
    if compiler is None:
        raise NoCompilerError("no C++ compiler (on Debian and Ubuntu: apt-get install g++)")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "tsit5.cpp"), Path(folder, "tsit5.so")
        source.write_text(f"{tableau_text()}\n{_SOURCE.read_text()}")
        done = subprocess.run(
            [compiler, *FLAGS, "-o", library, source], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NoCompilerError(f"{compiler} failed: {done.stderr.strip().splitlines()[0]}")
        return ctypes.CDLL(str(library))


class CppLoop:
    """The compiled loop for one ensemble.

    Raises:
        NoCompilerError: there is no compiler here, or it failed.
    """

    def __init__(self, case: Case, inputs: Inputs) -> None:
        """Compile, and lay the arrays out for C."""
        dtype = inputs.y0.dtype
        self._function = getattr(_library(), f"{case.name}_{dtype.name}")
        self._function.restype = ctypes.c_long
        params = inputs.params
        if case.shared_params:
            params = np.concatenate([np.ravel(p) for p in params])
        self._params = np.ascontiguousarray(params)
        self._y0 = np.ascontiguousarray(inputs.y0)
        self._n = len(inputs.y0 if case.shared_params else params)
        self._strides = (
            self._y0.shape[-1] if case.shared_params else 0,
            0 if case.shared_params else self._params[0].size,
        )
        self._t1 = case.t1
        times = case.save_times
        self._times = np.zeros(0, dtype) if times is None else times.astype(dtype)
        rows = max(len(self._times), 1)
        self._out = np.empty((self._n, rows, self._y0.shape[-1]), dtype)

    def __call__(self, tol: float) -> tuple[np.ndarray, int]:
        """Return the saved states, and the tried steps of all trajectories (negative: failures)."""
        steps = self._function(
            ctypes.c_long(self._n),
            _pointer(self._y0),
            ctypes.c_long(self._strides[0]),
            _pointer(self._params),
            ctypes.c_long(self._strides[1]),
            ctypes.c_double(self._t1),
            ctypes.c_long(len(self._times)),
            _pointer(self._times),
            ctypes.c_double(tol),
            _pointer(self._out),
        )
        return self._out, steps


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
