"""Which results of a traced function depend on which of its arguments.

A small forward analysis over a jaxpr. It is exact for straight-line code and nested calls, and
conservative for everything else: what it calls independent is independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core as jex

# The parameter that holds the called jaxpr, whose arguments and results are those of the equation.
_CALLS = {"jit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}
_CALLS |= {"remat2": "jaxpr", "checkpoint": "jaxpr", "custom_vjp_call": "call_jaxpr"}


def dependent_outputs(jaxpr: jex.Jaxpr, dependent: Sequence[bool]) -> list[bool]:
    """Return for every result of `jaxpr` whether it depends on an argument marked in `dependent`.

    An equation with side effects counts as dependent: it may return something new each time.
    """
    moving = {v for v, flag in zip(jaxpr.invars, dependent, strict=True) if flag}

    def is_moving(atom: Any) -> bool:
        return not isinstance(atom, jex.Literal) and atom in moving

    for eqn in jaxpr.eqns:
        flags = [is_moving(atom) for atom in eqn.invars]
        moving |= {v for v, flag in zip(eqn.outvars, _through(eqn, flags), strict=True) if flag}
    return [is_moving(atom) for atom in jaxpr.outvars]


def _through(eqn: jex.JaxprEqn, flags: list[bool]) -> list[bool]:
    inner = eqn.params.get(_CALLS.get(eqn.primitive.name, ""))
    inner = getattr(inner, "jaxpr", inner)
    if inner is not None and len(inner.invars) == len(flags):
        return dependent_outputs(inner, flags)
    return [any(flags) or bool(eqn.effects)] * len(eqn.outvars)
