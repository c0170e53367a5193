"""Calls of the modes of a foreign function: their operands in groups.

Operands come in groups: "x", what the caller passes, and then the groups of the mode's recipe.
With a batch, each operand has a leading axis or is shared by all of it (`batched`); results always
have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
from jax.extend import core as jex

from pullback.core.typing import Array
from pullback.foreign.arg import Arg
from pullback.foreign.modes import TABLE, Mode
from pullback.foreign.program import Program

__all__ = [
    "PRIMITIVES",
    "Call",
    "Group",
    "Groups",
    "args_of",
    "avals_of",
    "bind",
    "grouped",
    "results_of",
    "shape_of",
]


class Call(NamedTuple):
    """What is fixed of a call."""

    program: Program
    lengths: tuple[tuple[str, int], ...]
    n_batch: int | None


class Group(NamedTuple):
    """Operands, and which of them have a batch axis."""

    values: tuple[Any, ...]
    batched: tuple[bool, ...]


Groups: TypeAlias = dict[str, Group]

PRIMITIVES: dict[Mode, jex.Primitive] = {}


def args_of(program: Program, of: str, letter: str) -> list[Arg]:
    """Return what a group belongs to: operands or results, with a letter active ones."""
    args = program.signature.operands if of == "x" else program.signature.results
    return [arg for arg in args if arg.active or not letter]


def _operand_groups(mode: Mode) -> list[tuple[str, str, str]]:
    """Return key, letter and kind of each group of operands."""
    return [("x", "", "x"), *((letter, letter, of) for letter, of in TABLE[mode].operands)]


def results_of(mode: Mode, program: Program) -> list[Arg]:
    """Return the arguments that the results of a mode belong to."""
    return [arg for letter, of in TABLE[mode].results for arg in args_of(program, of, letter)]


def bind(mode: Mode, fixed: Call, groups: Groups) -> list[Array]:
    """Evaluate a mode."""
    ordered = [groups[key] for key, _, _ in _operand_groups(mode)]
    values = [value for group in ordered for value in group.values]
    batched = tuple(flag for group in ordered for flag in group.batched)
    return PRIMITIVES[mode].bind(*values, fixed=fixed, batched=batched)


def grouped(mode: Mode, fixed: Call, values: Sequence[Any], batched: Sequence[bool]) -> Groups:
    """Return the operands of a mode in groups."""
    groups, first = {}, 0
    for key, letter, of in _operand_groups(mode):
        last = first + len(args_of(fixed.program, of, letter))
        groups[key] = Group(tuple(values[first:last]), tuple(batched[first:last]))
        first = last
    return groups


def shape_of(fixed: Call, arg: Arg) -> tuple[int, ...]:
    """Return the shape of an argument, without a batch."""
    return fixed.program.signature.shape(arg, dict(fixed.lengths))


def avals_of(mode: Mode, fixed: Call) -> list[jax.ShapeDtypeStruct]:
    """Return shapes and dtypes of the results of a mode."""
    batch = () if fixed.n_batch is None else (fixed.n_batch,)
    return [
        jax.ShapeDtypeStruct((*batch, *shape_of(fixed, arg)), arg.dtype)
        for arg in results_of(mode, fixed.program)
    ]
