"""Memory of the SIMD builder: elements interleaved over the lanes, or shared by all of them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from pullback.lanes.cpu.flow import Flow
from pullback.lanes.cpu.text import element_type, memory_type
from pullback.lanes.values import INT64, Value


class Access(Flow):
    """Addresses, loads and stores."""

    # -- memory ----------------------------------------------------------------------------------
    def element_pointer(
        self, pointer: str, dtype: np.dtype, moving: Value, fixed: int, *, shared: bool
    ) -> str:
        """Return the place of element ``moving + fixed`` of an interleaved or shared array."""
        step = dtype.itemsize * (1 if shared else self.width)
        if moving.is_constant:
            total = (int(moving.constant) + fixed) * step
            if total == 0:
                return pointer
            return self._pointer(f"getelementptr i8, ptr {pointer}, i64 {total}")
        scaled = self.integer("mul", moving, self.constant(step, INT64))
        base = self._pointer(f"getelementptr i8, ptr {pointer}, i64 {scaled.text}")
        if fixed == 0:
            return base
        return self._pointer(f"getelementptr i8, ptr {base}, i64 {fixed * step}")

    def _pointer(self, right_side: str) -> str:
        known = self._recall((right_side,))
        if known is None:
            known = self._remember((right_side,), Value(self.function.define(right_side), INT64))
        return known.text

    def load(self, pointer: str, dtype: np.dtype, *, shared: bool = False) -> Value:
        """Load one element: of all lanes, or the one that they share."""
        stored, element = memory_type(dtype), element_type(dtype)
        align = dtype.itemsize if shared else min(64, dtype.itemsize * self.width)
        kind = stored if shared else f"<{self.width} x {stored}>"
        text = self.function.define(f"load {kind}, ptr {pointer}, align {align}")
        if stored != element:
            narrow = element if shared else f"<{self.width} x {element}>"
            text = self.function.define(f"trunc {kind} {text} to {narrow}")
        return Value(text, dtype, uniform=shared)

    def store(self, pointer: str, value: Value) -> None:
        """Store one element of all lanes."""
        stored, element = memory_type(value.dtype), element_type(value.dtype)
        text, w = self.operand(value), self.width
        if stored != element:
            text = self.function.define(f"zext <{w} x {element}> {text} to <{w} x {stored}>")
        align = min(64, value.dtype.itemsize * w)
        self.function.emit(f"store <{w} x {stored}> {text}, ptr {pointer}, align {align}")

    def gather_elements(self, array: Any, offset: Value, places: Sequence[int]) -> list[Value]:
        """Load elements ``offset + place`` of a memory array, a position per lane."""
        out = []
        for place in places:
            moved = self.integer("add", offset, self.constant(place, INT64))
            out.append(self._gather(array, moved))
        return out

    def _gather(self, array: Any, position: Value) -> Value:
        f, dtype = self.function, array.dtype
        step = dtype.itemsize * (1 if array.shared else self.width)
        if position.uniform:
            pointer = self.element_pointer(array.pointer, dtype, position, 0, shared=array.shared)
            return self.load(pointer, dtype, shared=array.shared)
        bytes_in = self.integer("mul", position, self.constant(step, INT64))
        if not array.shared:
            lanes = self.integer("mul", self.lane_ids(), self.constant(dtype.itemsize, INT64))
            bytes_in = self.integer("add", bytes_in, lanes)
        stored, element = memory_type(dtype), element_type(dtype)
        scalars = []
        for lane in range(self.width):
            at = f.define(
                f"getelementptr i8, ptr {array.pointer}, i64 {self.extract(bytes_in, lane)}"
            )
            item = f.define(f"load {stored}, ptr {at}")
            scalars.append(
                item if stored == element else f.define(f"trunc {stored} {item} to {element}")
            )
        return self.gather_lanes(scalars, dtype)

    def scatter_element(self, array: Any, position: Value, value: Value) -> None:
        """Store one element of an interleaved array, at a position per lane."""
        f, dtype = self.function, array.dtype
        bytes_in = self.integer("mul", position, self.constant(dtype.itemsize * self.width, INT64))
        lanes = self.integer("mul", self.lane_ids(), self.constant(dtype.itemsize, INT64))
        bytes_in = self.integer("add", bytes_in, lanes)
        spread = Value(self.operand(value), dtype)
        for lane in range(self.width):
            moved = self.extract(bytes_in, lane)
            at = f.define(f"getelementptr i8, ptr {array.pointer}, i64 {moved}")
            f.emit(f"store {element_type(dtype)} {self.extract(spread, lane)}, ptr {at}")

    def gather_row(self, name: str, table: np.ndarray, index: Value) -> list[Value]:
        """Load row `index` of a constant table, placed in the module once under `name`."""
        if name not in self.tables:
            self.tables[name] = self.table(table)
        array = SimpleNamespace(pointer=self.tables[name], dtype=table.dtype, shared=True)
        columns = table.shape[1]
        start = self.integer("mul", self.convert(index, INT64), self.constant(columns, INT64))
        return self.gather_elements(array, start, range(columns))
