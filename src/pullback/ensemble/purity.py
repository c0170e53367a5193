"""What a Python function depends on, so that its trace may be used again.

A vector field may close over anything, and what it closes over may change between two solves. Its
trace is kept only when everything that it can see is known to be the same: its code, its defaults,
the values in its closure and the globals that it and the functions it calls mention. A function
that sees something else (an object with attributes, a large array, a user's module) is traced again
in each solve, which is always right and costs about a millisecond.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

# Modules whose contents nobody changes while a program runs.
_FIXED_MODULES = frozenset({"jax", "jaxlib", "numpy", "math", "operator", "functools", "builtins"})
# Larger arrays would be kept alive by the cache for little: their trace is cheap beside their use.
_LARGEST_ARRAY = 4096
_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_prng_impl",
)
_SCALARS = (type(None), bool, int, float, complex, str, bytes)


class _Unknown(Exception):
    """Something that may change without a trace."""


class _Same:
    """Equal only for the same object, which it keeps alive so that its id stays its own."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


def fingerprint(function: Any) -> Hashable | None:
    """Return a key that is equal only while `function` would trace alike; None if that is unknown.

    Args:
        function: any callable.
    """
    try:
        return _key(function, ())
    except _Unknown:
        return None


def frozen_copy(arrays: Iterable[Any]) -> list[Any]:
    """Return arrays that a later change of a NumPy array, which JAX may alias, cannot reach."""
    # Also inside a trace, or what is kept would be a tracer of it.
    with jax.ensure_compile_time_eval():
        return [jnp.array(a, copy=True) for a in arrays]


def trace_settings() -> Hashable:
    """Return the settings of JAX under which one Python function gives one trace."""
    return tuple(str(getattr(jax.config, name)) for name in _SETTINGS)


def _key(value: Any, inside: tuple[Any, ...]) -> Hashable:
    kind = type(value)
    if kind in _SCALARS:
        # repr tells -0.0 from 0.0, the type tells 1 from True.
        return (kind, repr(value))
    rule = _RULES.get(kind)
    if rule is not None:
        return (kind, *rule(value, inside))
    if isinstance(value, (np.generic, np.ndarray)):
        if value.size > _LARGEST_ARRAY or value.dtype.hasobject:
            raise _Unknown
        return (kind, value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, jax.Array):
        if isinstance(value, Tracer) or value.size > _LARGEST_ARRAY:
            raise _Unknown
        return _Same(value)
    # Classes, NumPy ufuncs and JAX's own callables do not change; a user's class may.
    if callable(value) and _is_fixed(getattr(value, "__module__", None) or kind.__module__):
        return _Same(value)
    if isinstance(value, jax.stages.Wrapped):
        # A function under `jax.jit` keeps its own trace, whatever it closes over.
        return _Same(value)
    raise _Unknown


def _is_fixed(module: str) -> bool:
    return module.partition(".")[0] in _FIXED_MODULES


def _function(function: types.FunctionType, inside: tuple[Any, ...]) -> Iterator[Hashable]:
    yield _Same(function.__code__)
    if _is_fixed(function.__module__ or "") or function.__code__ in inside:
        yield _Same(function)
        return
    inside = (*inside, function.__code__)
    yield _key(function.__defaults__, inside)
    yield _key(function.__kwdefaults__, inside)
    for cell in function.__closure__ or ():
        try:
            contents = cell.cell_contents
        except ValueError as error:  # a name that is bound later
            raise _Unknown from error
        yield _key(contents, inside)
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield name
            yield _key(function.__globals__[name], inside)


def _names(code: types.CodeType) -> set[str]:
    """Return the names that `code` and the functions defined in it may look up."""
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= _names(const)
    return names


def _module(module: types.ModuleType, inside: tuple[Any, ...]) -> Iterator[Hashable]:
    if not _is_fixed(module.__name__):
        raise _Unknown
    yield module.__name__


def _sequence(values: Any, inside: tuple[Any, ...]) -> Iterator[Hashable]:
    if len(values) > _LARGEST_ARRAY:
        raise _Unknown
    yield from (_key(value, inside) for value in values)


def _mapping(values: dict[Any, Any], inside: tuple[Any, ...]) -> Iterator[Hashable]:
    for key, value in values.items():
        yield _key(key, inside)
        yield _key(value, inside)


def _partial(value: functools.partial[Any], inside: tuple[Any, ...]) -> Iterator[Hashable]:
    yield from (_key(part, inside) for part in (value.func, value.args, value.keywords))


def _builtin(value: Any, inside: tuple[Any, ...]) -> Iterator[Hashable]:
    # A method of an object, such as `list.append` of one list, sees that object.
    if not isinstance(value.__self__, (types.ModuleType, type(None))):
        raise _Unknown
    yield _Same(value)


_RULES: dict[type, Any] = {
    types.FunctionType: _function,
    types.ModuleType: _module,
    types.BuiltinFunctionType: _builtin,
    functools.partial: _partial,
    tuple: _sequence,
    list: _sequence,
    dict: _mapping,
}
