"""A foreign function of NumPy arrays, called without JAX."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pullback.foreign.program import Program
from pullback.native import KernelTarget
from pullback.native.abi import WORK

__all__ = ["call_numpy"]


def call_numpy(
    program: Program, lengths: Mapping[str, int], operands: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Call a foreign function; other Python threads run meanwhile.

    Args:
        program: The function.
        lengths: Its axis lengths.
        operands: What the caller passes, with the right shapes and dtypes; they may be read-only.
    """
    plan = _plan(program, tuple(lengths.items()))
    results = [np.zeros(shape, dtype) for shape, dtype in plan.results]
    if plan.target is None:
        return results
    arrays = [*(np.ascontiguousarray(x) for x in operands), plan.words, *results]
    buffers = (ctypes.c_void_p * len(arrays))(*(x.ctypes.data for x in arrays))
    scratch = np.zeros(plan.n_bytes, np.uint8)
    never = ctypes.c_int64(0)
    work = (ctypes.c_int64 * (WORK.size // 8))()
    given = {"n": 1, "chunk": 1, "interrupt": ctypes.addressof(never)}
    for name, value in given.items():
        work[WORK[name].offset // 8] = value
    kernel = ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_void_p,) * 3)(plan.target.kernel)
    kernel(ctypes.addressof(work), ctypes.addressof(buffers), scratch.ctypes.data)
    return results


class _Plan(NamedTuple):
    """What calls with the same axis lengths share.

    Attributes:
        results: Shapes and dtypes.
        target: The kernel; None if all results are empty.
        words: Words of control.
        n_bytes: Scratch memory.
    """

    results: list[tuple[tuple[int, ...], np.dtype]]
    target: KernelTarget | None
    words: np.ndarray
    n_bytes: int


@functools.lru_cache(maxsize=256)
def _plan(program: Program, items: tuple[tuple[str, int], ...]) -> _Plan:
    lengths, signature = dict(items), program.signature
    results = [(signature.shape(arg, lengths), arg.dtype) for arg in signature.results]
    slots = program.slots("f")
    n_bytes = max(slots.scratch_bytes(lengths), 8)
    words = slots.control_words(lengths, (False,) * len(slots.operands), False)
    sizes = [math.prod(shape) for shape, _ in results]
    counted = next((i for i, size in enumerate(sizes) if size), None)
    if counted is None:
        return _Plan(results, None, words, n_bytes)
    return _Plan(results, program.target("f", counted, sizes[counted], n_bytes), words, n_bytes)
