"""How many lanes the host's vector registers make worthwhile."""

from __future__ import annotations

import functools
import os

import llvmlite.binding as llvm
import numpy as np
from jax.extend.core import ClosedJaxpr


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
    """Return the number of lanes for a program: two registers hide the latency of one."""
    override = os.environ.get("PULLBACK_LANE_WIDTH")
    if override:
        return int(override)
    dtypes = [
        np.dtype(a.dtype)
        for a in (*closed.in_avals, *closed.out_avals)
        if str(a.dtype).startswith("float")
    ]
    item = max((d.itemsize for d in dtypes), default=8)
    return max(2 * min(vector_bytes(), 32) // item, 4)
