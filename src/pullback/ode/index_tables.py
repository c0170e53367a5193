"""Integer arrays that say where a vector field reads or adds: they stay part of its trace.

Whatever else a vector field closes over becomes an operand. But a table of positions (neighbours,
a permutation, segments) that is known while the kernel is built lets it read at fixed places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax.core
import numpy as np
from jax.extend import core as jex

__all__ = ["index_tables"]

# A larger table is an operand: the trace is hashed, and the kernel holds what is in it.
_MOST_ELEMENTS = 1 << 14


def index_tables(closed: jex.ClosedJaxpr) -> dict[int, np.ndarray]:
    """Return copies of the constants that positions depend on, by their number."""
    wanted = _index_sources(closed.jaxpr)
    found: dict[int, np.ndarray] = {}
    for i, (var, value) in enumerate(zip(closed.jaxpr.constvars, closed.consts, strict=True)):
        if var in wanted and _is_table(value):
            found[i] = np.array(value)
    return found


def _is_table(value: Any) -> bool:
    if isinstance(value, jax.core.Tracer) or np.ndim(value) == 0:
        return False
    dtype = value.dtype
    is_integer = isinstance(dtype, np.dtype) and dtype.kind in "iub"
    return is_integer and 0 < np.size(value) <= _MOST_ELEMENTS


def _index_sources(jaxpr: jex.Jaxpr, results: Sequence[bool] = ()) -> set[Any]:
    """Return the variables that positions, and the flagged results, depend on."""
    wanted = {v for v, flag in zip(jaxpr.outvars, results, strict=False) if flag}
    wanted = {v for v in wanted if not isinstance(v, jex.Literal)}
    for eqn in reversed(jaxpr.eqns):
        is_wanted = [v in wanted for v in eqn.outvars]
        sources: list[Any] = []
        if eqn.primitive.name == "gather" or eqn.primitive.name.startswith("scatter"):
            sources.append(eqn.invars[1])
        bodies = list(_bodies(eqn))
        for inner, outer in bodies:
            flags = is_wanted if len(inner.outvars) == len(is_wanted) else ()
            inside = _index_sources(inner, flags)
            sources += [a for v, a in zip(inner.invars, outer, strict=True) if v in inside]
        if any(is_wanted) and not bodies:
            sources += eqn.invars
        wanted.update(a for a in sources if not isinstance(a, jex.Literal))
    return wanted


def _bodies(eqn: Any) -> Iterator[tuple[jex.Jaxpr, Sequence[Any]]]:
    """Yield the jaxprs that an equation calls, each with the atoms its arguments stand for."""
    skipped = {"while": eqn.params.get("cond_nconsts", 0), "cond": 1}.get(eqn.primitive.name, 0)
    for inner in jex.jaxprs_in_params(eqn.params):
        outer = eqn.invars[skipped:]
        if len(inner.invars) == len(outer):
            yield inner, outer
