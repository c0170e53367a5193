"""Fewer equations for the same function: nothing twice, and vectors taken apart at once.

`y[3]` is two equations in a trace, each time it is written, and its derivative puts a number back
among zeros and adds vectors. All entries of a vector taken apart at once are one equation, whose
derivative puts them together again. A vector field is evaluated, and differentiated, at every stage
of a method, so that what is saved here is saved many times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

__all__ = ["tidy"]

# A vector is taken apart if at least one in so many of its entries is used by itself.
_SPARSEST = 4


class _Pick(NamedTuple):
    """One entry of a vector, as a number or as a vector of one."""

    source: Any
    place: int


def tidy(closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Return a trace of the same function with as few equations as that is known to take."""
    jaxpr = closed.jaxpr
    vectors = _picked(jaxpr.eqns)
    names: dict[Any, Any] = {}
    seen: dict[Hashable, Any] = {}
    numbers: dict[Any, list[Any]] = {}
    picks: dict[Any, _Pick] = {}
    kept: list[Any] = []
    for eqn in jaxpr.eqns:
        eqn = eqn.replace(invars=[_renamed(atom, names) for atom in eqn.invars])
        pick = _pick_of(eqn, picks)
        if pick is not None and pick.source in vectors:
            (out,) = eqn.outvars
            picks[out] = pick
            if out.aval.shape == ():
                if pick.source not in numbers:
                    apart = _take_apart(pick.source, eqn)
                    numbers[pick.source] = apart.outvars
                    kept.append(apart)
                names[out] = numbers[pick.source][pick.place]
                continue
        key = _key(eqn)
        if key is not None:
            if key in seen:
                names.update(zip(eqn.outvars, seen[key], strict=True))
                continue
            seen[key] = eqn.outvars
        kept.append(eqn)
    outs = [_renamed(atom, names) for atom in jaxpr.outvars]
    return jex.ClosedJaxpr(jaxpr.replace(eqns=_used(kept, outs), outvars=outs), closed.consts)


def _renamed(atom: Any, names: dict[Any, Any]) -> Any:
    return atom if isinstance(atom, jex.Literal) else names.get(atom, atom)


def _picked(eqns: Iterable[Any]) -> set[Any]:
    """Return the vectors of which so many entries are taken that all of them may be."""
    indices: defaultdict[Any, set[int]] = defaultdict(set)
    picks: dict[Any, _Pick] = {}
    for eqn in eqns:
        pick = _pick_of(eqn, picks)
        if pick is not None:
            picks[eqn.outvars[0]] = pick
            if eqn.outvars[0].aval.shape == ():
                indices[pick.source].add(pick.place)
    return {v for v, taken in indices.items() if _SPARSEST * len(taken) >= v.aval.shape[0]}


def _pick_of(eqn: Any, picks: dict[Any, _Pick]) -> _Pick | None:
    """Return which entry of which vector an equation takes; None if it does something else."""
    source = eqn.invars[0] if len(eqn.invars) == 1 else None
    if source is None or isinstance(source, jex.Literal):
        return None
    name, params = eqn.primitive.name, eqn.params
    if name == "slice" and source.aval.ndim == 1 and eqn.outvars[0].aval.shape == (1,):
        return _Pick(source, params["start_indices"][0])
    if name in ("squeeze", "reshape") and eqn.outvars[0].aval.shape == ():
        return picks.get(source)
    return None


def _take_apart(source: Any, like: Any) -> Any:
    """Return the equation that takes a vector apart."""
    aval = jax.ShapeDtypeStruct(source.aval.shape, source.aval.dtype)
    (apart,) = jax.make_jaxpr(lambda x: tuple(jnp.unstack(x)))(aval).eqns
    return apart.replace(invars=[source], source_info=like.source_info)


def _key(eqn: Any) -> Hashable | None:
    """Return what tells an equation apart; None for one that is not to be merged with another."""
    if eqn.effects:
        return None
    atoms = tuple(_atom_key(atom) for atom in eqn.invars)
    key = (eqn.primitive, atoms, tuple(sorted(eqn.params.items())))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _atom_key(atom: Any) -> Hashable:
    if not isinstance(atom, jex.Literal):
        return atom
    value = np.asarray(atom.val)
    is_weak = bool(getattr(atom.aval, "weak_type", False))
    return (value.dtype.str, value.shape, value.tobytes(), is_weak)


def _used(eqns: list[Any], outs: list[Any]) -> list[Any]:
    """Return the equations that something depends on."""
    needed = {atom for atom in outs if not isinstance(atom, jex.Literal)}
    kept = []
    for eqn in reversed(eqns):
        if eqn.effects or any(out in needed for out in eqn.outvars):
            kept.append(eqn)
            needed.update(atom for atom in eqn.invars if not isinstance(atom, jex.Literal))
    return kept[::-1]
