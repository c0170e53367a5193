"""Equality of traced functions by content.

Tracing the same Python function twice gives two jaxprs that are different objects. `jaxpr_key`
gives them equal keys, so that programs built from them hash alike and caches of compiled code
hit, while functions that differ in any equation, shape, literal or rule give different keys.
Functions inside a jaxpr (custom differentiation rules) count as equal when they are the same
object; a name proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from pullback.core.compat import rule_parts

__all__ = ["ContentKey", "jaxpr_key", "open_jaxpr_key"]

# Derived from other parameters, or made anew in each trace, and without influence on the values.
_IGNORED_PARAMS = frozenset({"debug_info", "name", "out_trees", "ctx_mesh"})


class ContentKey:
    """A nested tuple with its hash computed once."""

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ContentKey) or self._hash != other._hash:
            return False
        return self.parts == other.parts

    def __repr__(self) -> str:
        return f"ContentKey({self._hash & 0xFFFFFFFF:08x})"


class _Identity:
    """Compares an object by identity and keeps it alive, so that its id is not used again."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value


def jaxpr_key(closed: jex.ClosedJaxpr) -> ContentKey:
    """Return a key that is equal for jaxprs which compute the same thing the same way.

    Constants count by value where they are concrete and by identity where they are traced.
    """
    return ContentKey(_closed(closed))


def open_jaxpr_key(jaxpr: jex.Jaxpr) -> ContentKey:
    """Return the key of a jaxpr whose constants are left open, as further inputs."""
    return ContentKey(_jaxpr(jaxpr))


def _closed(closed: jex.ClosedJaxpr) -> tuple[Any, ...]:
    return (_jaxpr(closed.jaxpr), tuple(_value(c) for c in closed.consts))


def _jaxpr(jaxpr: jex.Jaxpr) -> tuple[Any, ...]:
    numbers: dict[Any, int] = {}

    def define(variables: Iterable[Any]) -> tuple[Any, ...]:
        for v in variables:
            numbers[v] = len(numbers)
        return tuple(_aval(v.aval) for v in variables)

    def use(atom: Any) -> Any:
        if isinstance(atom, jex.Literal):
            return ("literal", _value(atom.val), _aval(atom.aval))
        return numbers[atom]

    inputs = define([*jaxpr.constvars, *jaxpr.invars])
    eqns = []
    for eqn in jaxpr.eqns:
        operands = tuple(use(atom) for atom in eqn.invars)
        params = tuple(
            (k, _value(eqn.params[k])) for k in sorted(eqn.params) if k not in _IGNORED_PARAMS
        )
        eqns.append((eqn.primitive.name, operands, params, define(eqn.outvars)))
    return (inputs, tuple(eqns), tuple(use(atom) for atom in jaxpr.outvars))


def _aval(aval: Any) -> Any:
    shape = getattr(aval, "shape", None)
    if shape is None:
        return str(aval)
    dtype = aval.dtype if isinstance(aval.dtype, np.dtype) else str(aval.dtype)
    # Under `shard_map` a value varies over some axes of the mesh.
    varies = tuple(sorted(map(str, getattr(aval, "vma", ()))))
    return (shape, dtype, bool(getattr(aval, "weak_type", False)), type(aval).__name__, varies)


def _value(value: Any) -> Any:
    """Return something hashable that stands for a parameter, literal or constant."""
    if isinstance(value, jex.ClosedJaxpr):
        return _closed(value)
    if isinstance(value, jex.Jaxpr):
        return _jaxpr(value)
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, tuple(_value(v) for v in value))
    if isinstance(value, dict):
        return ("dict", tuple((k, _value(value[k])) for k in sorted(value, key=str)))
    if isinstance(value, (bool, int, str, bytes, type(None), np.dtype, type)):
        return (type(value).__name__, value)
    if isinstance(value, jax.core.Tracer):
        return _Identity(value)
    if isinstance(value, (float, complex, np.generic, np.ndarray, jax.Array)):
        return _array(value)
    rule = rule_parts(value)
    if rule is not None:
        return ("rule", tuple(map(_value, rule)) if rule[0] is not value else _Identity(value))
    return _Identity(value) if callable(value) else _hashable(value)


def _array(value: Any) -> Any:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return _Identity(value)
    array = np.asarray(value)
    return ("array", type(value).__name__, array.shape, array.dtype.str, array.tobytes())


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return _Identity(value)
    return (type(value).__name__, value)
