"""Where a mode finds its arrays: operands and results are buffers, the rest is scratch memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from pullback.foreign.arg import Arg
from pullback.foreign.modes import TABLE, Mode
from pullback.foreign.signature import Signature

__all__ = ["Slot", "Slots", "shadows"]

_ALIGNMENT = 64


def shadows(mode: Mode) -> list[str]:
    """Return the suffixes of the pointers that stand for one argument, in the order of a call."""
    recipe = TABLE[mode]
    if recipe.base is None:
        return [""]
    return [suffix for base in shadows(recipe.base) for suffix in (base, base + recipe.new)]


class Slot(NamedTuple):
    """One array of a mode.

    Attributes:
        name: Its name in the shim.
        arg: The argument that it belongs to.
        kind: Where it is.
    """

    name: str
    arg: Arg
    kind: Literal["operand", "result", "scratch"]


class Slots:
    """The arrays of a mode of a function.

    Attributes:
        operands: In the order of the buffers.
        results: Likewise.
        scratch: The others.
    """

    def __init__(self, signature: Signature, mode: Mode) -> None:
        recipe = TABLE[mode]
        xs, ys = signature.operands, signature.results
        self.signature = signature
        self.operands = [Slot(in_name(arg), arg, "operand") for arg in xs]
        self.results = []
        for suffix, of in recipe.operands:
            self.operands += self._group(suffix, of, "operand")
        for suffix, of in recipe.results:
            if suffix:
                self.results += self._group(suffix, of, "result")
            else:
                self.results += [Slot(out_name(arg), arg, "result") for arg in ys]
        placed = {slot.name for slot in (*self.operands, *self.results)}
        self.scratch = []
        for suffix in shadows(mode):
            for name, arg in self._named(suffix):
                if name not in placed:
                    self.scratch.append(Slot(name, arg, "scratch"))

    def _named(self, suffix: str) -> list[tuple[str, Arg]]:
        xs = [(in_name(a), a) for a in self.signature.operands if a.active or not suffix]
        ys = [(out_name(a), a) for a in self.signature.results if a.active or not suffix]
        return [(shadow(name, suffix), arg) for name, arg in (*xs, *ys)]

    def _group(self, suffix: str, of: str, kind: Literal["operand", "result"]) -> list[Slot]:
        args = self.signature.operands if of == "x" else self.signature.results
        name = in_name if of == "x" else out_name
        return [Slot(shadow(name(a), suffix), a, kind) for a in args if a.active]

    @functools.cached_property
    def control(self) -> list[str]:
        """Names of the words of control: what a call is told beside its arrays."""
        strides = [f"stride_{slot.name}" for slot in (*self.operands, *self.results)]
        offsets = [f"offset_{slot.name}" for slot in self.scratch]
        sizes = [f"size_{arg.name}" for arg in self.signature.args]
        return [*strides, *offsets, *sizes, *(f"length_{n}" for n in self.signature.lengths)]

    def control_words(
        self, lengths: Mapping[str, int], batched: Sequence[bool], is_batch: bool
    ) -> np.ndarray:
        """Return the words of control for axis lengths, and for operands that have a batch axis."""
        strides = [
            self._bytes(slot, lengths) * is_it
            for slot, is_it in zip(self.operands, batched, strict=True)
        ]
        strides += [self._bytes(slot, lengths) * is_batch for slot in self.results]
        offsets = np.cumsum([0, *(self._room(slot, lengths) for slot in self.scratch)])[:-1]
        signature = self.signature
        sizes = [math.prod(signature.shape(arg, lengths)) for arg in signature.args]
        return np.array([*strides, *offsets, *sizes, *lengths.values()], np.int64)

    def scratch_bytes(self, lengths: Mapping[str, int]) -> int:
        """Return how much scratch memory a call takes."""
        return sum(self._room(slot, lengths) for slot in self.scratch)

    def _bytes(self, slot: Slot, lengths: Mapping[str, int]) -> int:
        return math.prod(self.signature.shape(slot.arg, lengths)) * slot.arg.dtype.itemsize

    def _room(self, slot: Slot, lengths: Mapping[str, int]) -> int:
        return -(-self._bytes(slot, lengths) // _ALIGNMENT) * _ALIGNMENT


def out_name(arg: Arg) -> str:
    """Return the name of an argument's pointer: none that the user's code may have."""
    return f"arg_{arg.name}"


def in_name(arg: Arg) -> str:
    """Return the name of the pointer to an argument as it is before the call."""
    return f"{out_name(arg)}__in" if arg.intent == "inout" else out_name(arg)


def shadow(name: str, suffix: str) -> str:
    """Return the name of a derivative."""
    return f"{name}__{suffix}" if suffix else name
