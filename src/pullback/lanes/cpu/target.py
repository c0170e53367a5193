"""How many lanes the host's vector registers make worthwhile."""

from __future__ import annotations

import functools
import os
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxprs_in_params


@functools.cache
def vector_bytes() -> int:
    """Return the bytes of the host's widest vector register."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64
    if features.get("avx2"):
        return 32
    return 16


def register_bytes() -> int:
    """Return the bytes of a vector register that arithmetic runs on at full speed."""
    return vector_bytes()


def lane_width(closed: ClosedJaxpr) -> int:
    """Return the number of lanes for a program: two registers hide the latency of one.

    A counter-based generator is one long chain of operations on 32-bit words, so a program with
    one takes two registers of those.
    """
    override = os.environ.get("PULLBACK_LANE_WIDTH")
    if override:
        return int(override)
    if _multiplies_words(closed.jaxpr):
        return max(2 * vector_bytes() // 4, 4)
    dtypes = [
        np.dtype(a.dtype)
        for a in (*closed.in_avals, *closed.out_avals)
        if str(a.dtype).startswith("float")
    ]
    item = max((d.itemsize for d in dtypes), default=8)
    return max(2 * min(vector_bytes(), 32) // item, 4)


def _multiplies_words(jaxpr: Jaxpr) -> bool:
    """Whether 32-bit words are multiplied to 64 bits, as Philox does."""
    return any(
        (eqn.primitive.name == "mul" and _is_wide(eqn.outvars[0].aval))
        or any(map(_multiplies_words, jaxprs_in_params(eqn.params)))
        for eqn in jaxpr.eqns
    )


def _is_wide(aval: Any) -> bool:
    return aval.dtype == np.uint64
