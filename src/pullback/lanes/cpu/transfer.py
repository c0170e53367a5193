"""Copies between one trajectory's arrays and a lane of interleaved ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from pullback.lanes.cpu.layout import Layout
from pullback.lanes.cpu.storage import Interleaved, RowMajor
from pullback.lanes.cpu.text import memory_type
from pullback.lanes.program_ir import Constant
from pullback.lanes.values import BOOL

# So few items are copied by straight code.
_UNROLLED_COPY = 8


class Transfer(Layout):
    """Moves data lane by lane; the lane number is known only at run time."""

    @contextmanager
    def _lanes(self, bits: str, hint: str) -> Iterator[str]:
        """Emit a loop over the lanes whose bit is set; yields the lane number (i64 text)."""
        f = self.f
        head, inside, following, leave = (f.label(hint + s) for s in ("", "do", "next", "end"))
        wide = f.define(f"zext i{self.width} {bits} to i64") if self.width < 64 else bits
        source = f.block
        f.emit(f"br label %{head}")
        f.open(head)
        phi = f.phi("i64")
        phi.add("0", source)
        shifted = f.define(f"lshr i64 {wide}, {phi.name}")
        bit = f.define(f"trunc i64 {shifted} to i1")
        f.emit(f"br i1 {bit}, label %{inside}, label %{following}")
        f.open(inside)
        with self.builder.scope():
            yield phi.name
        f.emit(f"br label %{following}")
        f.open(following)
        more = f.define(f"add i64 {phi.name}, 1")
        phi.add(more, following)
        go = f.define(f"icmp ult i64 {more}, {self.width}")
        f.emit(f"br i1 {go}, label %{head}, label %{leave}")
        f.open(leave)

    @contextmanager
    def _run_of(self, start: str, end: str, step: int) -> Iterator[str]:
        """Emit a loop over ``start, start + step, ... < end``, known at run time; maybe none."""
        f = self.f
        head, inside, leave, before = f.label("run"), f.label("each"), f.label("ran"), f.block
        f.emit(f"br label %{head}")
        f.open(head)
        phi = f.phi("i64")
        phi.add(start, before)
        go = f.define(f"icmp slt i64 {phi.name}, {end}")
        f.emit(f"br i1 {go}, label %{inside}, label %{leave}")
        f.open(inside)
        with self.builder.scope():
            yield phi.name
        more = f.define(f"add i64 {phi.name}, {step}")
        phi.add(more, f.block)
        f.emit(f"br label %{head}")
        f.open(leave)

    def _copy(
        self, source: str, target: str, count: int, steps: tuple[int, int], kind: str
    ) -> None:
        """Copy `count` items whose places advance by `steps` bytes."""
        f = self.f
        if count <= _UNROLLED_COPY:
            for k in range(count):
                a = f.define(f"getelementptr i8, ptr {source}, i64 {k * steps[0]}")
                b = f.define(f"getelementptr i8, ptr {target}, i64 {k * steps[1]}")
                item = f.define(f"load {kind}, ptr {a}")
                f.emit(f"store {kind} {item}, ptr {b}")
            return
        head, leave, before = f.label("copy"), f.label("copied"), f.block
        f.emit(f"br label %{head}")
        f.open(head)
        phi = f.phi("i64")
        phi.add("0", before)
        for_source = f.define(f"mul i64 {phi.name}, {steps[0]}")
        for_target = f.define(f"mul i64 {phi.name}, {steps[1]}")
        a = f.define(f"getelementptr i8, ptr {source}, i64 {for_source}")
        b = f.define(f"getelementptr i8, ptr {target}, i64 {for_target}")
        item = f.define(f"load {kind}, ptr {a}")
        f.emit(f"store {kind} {item}, ptr {b}")
        more = f.define(f"add i64 {phi.name}, 1")
        phi.add(more, head)
        go = f.define(f"icmp ult i64 {more}, {count}")
        f.emit(f"br i1 {go}, label %{head}, label %{leave}")
        f.open(leave)

    def _fetch(self, pointer: str, row: str, storage: Interleaved, lane: str) -> None:
        """Copy one trajectory's array into a lane of an interleaved one."""
        f, item = self.f, storage.item
        moved = f.define(f"mul i64 {row}, {storage.size * item}")
        source = f.define(f"getelementptr i8, ptr {pointer}, i64 {moved}")
        shift = f.define(f"mul i64 {lane}, {item}")
        target = f.define(f"getelementptr i8, ptr {storage.pointer}, i64 {shift}")
        self._copy(source, target, storage.size, (item, storage.step), memory_type(storage.dtype))

    def _store_back(self, storage: Interleaved, pointer: str, row: str, lane: str) -> None:
        """Copy a lane of an interleaved array to one trajectory's place."""
        f, item = self.f, storage.item
        moved = f.define(f"mul i64 {row}, {storage.size * item}")
        target = f.define(f"getelementptr i8, ptr {pointer}, i64 {moved}")
        shift = f.define(f"mul i64 {lane}, {item}")
        source = f.define(f"getelementptr i8, ptr {storage.pointer}, i64 {shift}")
        self._copy(source, target, storage.size, (storage.step, item), memory_type(storage.dtype))

    def _fill_ref(self, storage: RowMajor, address: str, fill: Constant | None) -> None:
        """Set all elements of a lane's Ref to one constant."""
        f = self.f
        assert fill is not None
        value = self.builder.constant(np.asarray(fill.value).reshape(()), storage.dtype)
        stored = memory_type(storage.dtype)
        text = value.text if storage.dtype != BOOL else str(int(bool(value.constant)))
        head, leave, before = f.label("fill"), f.label("filledref"), f.block
        start = f.define(f"inttoptr i64 {address} to ptr")
        f.emit(f"br label %{head}")
        f.open(head)
        phi = f.phi("i64")
        phi.add("0", before)
        at = f.define(f"getelementptr {stored}, ptr {start}, i64 {phi.name}")
        f.emit(f"store {stored} {text}, ptr {at}")
        more = f.define(f"add i64 {phi.name}, 1")
        phi.add(more, head)
        go = f.define(f"icmp ult i64 {more}, {max(storage.extent, 1)}")
        f.emit(f"br i1 {go}, label %{head}, label %{leave}")
        f.open(leave)
