"""A kernel under construction: its function, its buffers, and loops over steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.lanes.cpu.text import FunctionText
from pullback.lanes.wide.elements import Lane
from pullback.lanes.wide.leaves import Leaf, add_edges, place_phis
from pullback.lanes.wide.walk import WideWalk
from pullback.native.abi import WORK

__all__ = ["ENTRY", "Loop", "Shell", "StepKernel"]

ENTRY = "pullback_steps"


@dataclass(frozen=True)
class StepKernel:
    """A finished kernel.

    Attributes:
        ir: Module text.
        n_args: Number of operands.
        n_results: Number of results.
        row_bytes: Tape memory for each step.
    """

    ir: str
    n_args: int
    n_results: int
    row_bytes: int = 0


@dataclass
class Loop:
    """A loop under construction: its counter, its variables, and what they become."""

    i: str
    arrays: list[np.ndarray]
    leave: str
    following: list[np.ndarray]


class Shell:
    """A kernel under construction: one function of buffers.

    Attributes:
        lasting: Names that are defined before all loops.
    """

    def __init__(self, n_args: int, n_results: int) -> None:
        self.walk = WideWalk()
        self.b = self.walk.builder
        self.f = self.b.function = FunctionText(
            f"define i64 @{ENTRY}(ptr noalias %work, ptr noalias %buffers, ptr noalias %scratch)"
        )
        self.n_args, self.n_results = n_args, n_results
        self.buffers = [
            self.f.define(f"load ptr, ptr {self.offset('%buffers', 8 * i)}")
            for i in range(n_args + n_results)
        ]
        interrupt = self.offset("%work", WORK["interrupt"].offset)
        self.interrupt = self.f.define(f"load ptr, ptr {interrupt}")
        self.seen = self.f.define(f"load i64, ptr {self.offset('%work', WORK['seen'].offset)}")
        self.stop = self.f.label("stop")
        self.lasting: set[str] = set()

    def offset(self, pointer: str, offset: Any) -> str:
        """Return a place so many bytes behind another."""
        return self.f.define(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def integer(self, i: int, dtype: np.dtype) -> str:
        """Load an operand that is one integer, as an i64."""
        if dtype.itemsize == 8:
            return self.f.define(f"load i64, ptr {self.buffers[i]}")
        narrow = self.f.define(f"load i32, ptr {self.buffers[i]}")
        return self.f.define(f"sext i32 {narrow} to i64")

    def take(self, first: int, groups: Sequence[Sequence[Leaf]]) -> list[list[str]]:
        """Return the buffers of groups of arrays, which follow each other."""
        out = []
        for group in groups:
            out.append(self.buffers[first : first + len(group)])
            first += len(group)
        return out

    def take_results(self, groups: Sequence[Sequence[Leaf]]) -> list[list[str]]:
        """Return the buffers of groups of results."""
        return self.take(self.n_args, groups)

    def rows(self, leaves: Sequence[Leaf], pointers: Sequence[str], row: str) -> list[str]:
        """Return where row `row` of each array begins."""
        out = []
        for leaf, pointer in zip(leaves, pointers, strict=True):
            out.append(self.offset(pointer, self.f.define(f"mul i64 {row}, {leaf.n_bytes}")))
        return out

    def load(self, leaves: Sequence[Leaf], pointers: Sequence[str]) -> list[np.ndarray]:
        """Load arrays."""
        return [leaf.load(self.b, at) for leaf, at in zip(leaves, pointers, strict=True)]

    def load_lasting(self, leaves: Sequence[Leaf], pointers: Sequence[str]) -> list[np.ndarray]:
        """Load arrays before all loops: they need not be kept for later."""
        arrays = self.load(leaves, pointers)
        for item in (item for array in arrays for item in array.ravel().tolist()):
            self.lasting.add(item.vector.text if isinstance(item, Lane) else item.text)
        return arrays

    def store(
        self, leaves: Sequence[Leaf], pointers: Sequence[str], arrays: Sequence[np.ndarray]
    ) -> None:
        """Store arrays."""
        for leaf, at, array in zip(leaves, pointers, arrays, strict=True):
            leaf.store(self.b, at, array)

    def parts(self, leaves: Sequence[Leaf], arrays: Sequence[np.ndarray]) -> list[str]:
        """Return the parts of arrays."""
        pairs = zip(leaves, arrays, strict=True)
        return [text for leaf, array in pairs for text in leaf.parts(self.b, array)]

    @contextmanager
    def loop(
        self, first: str, leaves: Sequence[Leaf], arrays: Sequence[np.ndarray], step: int = 1
    ) -> Iterator[Loop]:
        """Emit a loop; inside, `leave_unless` ends it and `following` is set. It polls."""
        f = self.f
        head, leave = f.label("steps"), f.label("done")
        begin = self.parts(leaves, arrays)
        before = f.block
        f.emit(f"br label %{head}")
        f.open(head)
        self.b.forget()
        counter = f.phi("i64")
        counter.add(first, before)
        variables, phis = place_phis(self.b, leaves)
        add_edges(phis, begin, before)
        loop = Loop(counter.name, variables, leave, [])
        yield loop
        texts = self.parts(leaves, loop.following)
        following = f.define(f"add i64 {counter.name}, {step}")
        now = f.define(f"load atomic i64, ptr {self.interrupt} monotonic, align 8")
        hit = f.define(f"icmp ne i64 {now}, {self.seen}")
        end = f.block
        f.emit(f"br i1 {hit}, label %{self.stop}, label %{head}")
        counter.add(following, end)
        add_edges(phis, texts, end)
        f.open(leave)
        self.b.forget()

    @contextmanager
    def discarded(self, whether: bool) -> Iterator[None]:
        """Drop the code that is emitted inside, if asked to; nothing else may use its values."""
        n_lines, block = self.f.n_lines, self.f.block
        yield
        if whether:
            del self.f.lines[n_lines:]
            self.f.block = block
            self.b.forget()

    def leave_unless(self, condition: str, loop: Loop) -> None:
        """Leave the loop unless a comparison holds."""
        go, inside = self.f.define(condition), self.f.label("inside")
        self.f.emit(f"br i1 {go}, label %{inside}, label %{loop.leave}")
        self.f.open(inside)

    def finished(self, row_bytes: int = 0) -> StepKernel:
        """End the function and return the kernel."""
        self.f.emit("ret i64 0")
        self.f.open(self.stop)
        self.f.emit("ret i64 1")
        return StepKernel(self.b.module(), self.n_args, self.n_results, row_bytes)
