"""Mutable arrays of a lane (Refs): where each lane's copy lies and how elements are reached.

Every lane has a base address; element `k` of its array is `k * step` bytes further. Two layouts:
*row-major per trajectory* (results, the tape): lanes are far apart, `step` is the item size;
*interleaved* (local arrays): element `k` of all lanes is one vector, `step` is W items.
Reads are clamped, writes of lanes outside the mask go to a spare place.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from pullback.lanes.cpu.text import element_type, memory_type
from pullback.lanes.cpu.transpose import blocks, padded, transposed
from pullback.lanes.memory import Index, Node, Strided, domain, nest
from pullback.lanes.values import INT64, Value, object_array


class Storage:
    """One mutable array of every lane, with dynamic addressing along its leading axes."""

    def __init__(self, builder: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.builder = builder
        self.shape = shape
        self.dtype = dtype
        self.size = int(np.prod(shape, dtype=np.int64))
        self.strides = [int(np.prod(shape[a + 1 :], dtype=np.int64)) for a in range(len(shape))]

    def base(self) -> Value:
        """Return the byte address of each lane's first element."""
        raise NotImplementedError

    def spare(self) -> Value:
        """Return an address where as many bytes may be overwritten freely."""
        raise NotImplementedError

    @property
    def step(self) -> int:
        """Bytes from one element to the next."""
        raise NotImplementedError

    # -- whole-element access --------------------------------------------------------------------
    def read(self, offset: Value | None, places: list[int]) -> list[Value]:
        """Load the elements at `offset + place` (in elements) for each static place."""
        pointers = self._pointers(self._address(offset))
        b, f = self.builder, self.builder.function
        stored, element = memory_type(self.dtype), element_type(self.dtype)
        values = []
        for place in places:
            scalars = []
            for pointer in pointers:
                at = f.define(f"getelementptr i8, ptr {pointer}, i64 {place * self.step}")
                item = f.define(f"load {stored}, ptr {at}")
                if stored != element:
                    item = f.define(f"trunc {stored} {item} to {element}")
                scalars.append(item)
            values.append(b.gather_lanes(scalars, self.dtype))
        return values

    def write(
        self, offset: Value | None, places: list[int], values: list[Value], mask: Value | None
    ) -> None:
        """Store `values` at the static places beyond `offset` in the lanes of `mask`."""
        b, f = self.builder, self.builder.function
        address = self._address(offset)
        if mask is not None:
            address = b.select(mask, address, self.spare())
        pointers = self._pointers(address)
        stored, element = memory_type(self.dtype), element_type(self.dtype)
        for place, value in zip(places, values, strict=True):
            text = b.operand(value)
            kind = b.type_of(self.dtype)
            for lane, pointer in enumerate(pointers):
                at = f.define(f"getelementptr i8, ptr {pointer}, i64 {place * self.step}")
                item = f.define(f"extractelement {kind} {text}, i32 {lane}")
                if stored != element:
                    item = f.define(f"zext {element} {item} to {stored}")
                f.emit(f"store {stored} {item}, ptr {at}")

    def read_block(
        self, walk: Any, offset: Value | None, start: int, shape: tuple[int, ...]
    ) -> Strided:
        """Copy a run of elements into memory of the thread."""
        b, target = self.builder, walk.arrays.fresh(shape, self.dtype)
        flat = target.view((target.size,), (1,), 0)
        with b.counted(0, target.size) as k:
            place = b.add(k, b.constant(start, INT64))
            where = place if offset is None else b.add(offset, place)
            (value,) = self.read(where, [0])
            flat.store([Index(0, k, 0, 0, target.size)], value)
        return target

    def write_block(
        self, walk: Any, offset: Value | None, start: int, source: Node, mask: Value | None
    ) -> None:
        """Store a large array into a run of elements."""
        b = self.builder
        flat = walk.arrays.node(walk.arrays.reshape(walk, source, (source.size,)))
        for box in domain(flat, flat.shape):

            def store(index: list[Index]) -> None:
                (i,) = index
                place = b.constant(start + i.offset, INT64)
                if i.value is not None:
                    place = b.add(i.value, place)
                where = place if offset is None else b.add(offset, place)
                self.write(where, [0], [flat.at(index)], mask)

            nest(b, box, store)

    def _address(self, offset: Value | None) -> Value:
        b = self.builder
        base = self.base()
        if offset is None:
            return base
        scaled = b.integer("mul", b.convert(offset, INT64), b.constant(self.step, INT64))
        return b.integer("add", base, scaled)

    def _pointers(self, address: Value) -> list[str]:
        b, f = self.builder, self.builder.function
        return [
            f.define(f"inttoptr i64 {b.extract(address, lane)} to ptr") for lane in range(b.width)
        ]

    # -- rows (axis 0), for scans ----------------------------------------------------------------
    def load_row(self, walk: Any, row: Value) -> np.ndarray:
        """Load ``self[row]``."""
        inner = self.shape[1:]
        count = int(np.prod(inner, dtype=np.int64))
        offset = self.builder.integer(
            "mul", self.builder.convert(row, INT64), self.builder.constant(count, INT64)
        )
        return object_array(inner, self.read(offset, list(range(count))))

    def store_row(self, walk: Any, row: Value, values: np.ndarray) -> None:
        """Store ``self[row] = values`` (under the walk's mask)."""
        count = int(values.size)
        offset = self.builder.integer(
            "mul", self.builder.convert(row, INT64), self.builder.constant(count, INT64)
        )
        self.write(offset, list(range(count)), list(values.ravel()), walk.mask)

    @property
    def places(self) -> list[int]:
        """Positions of all elements, in row-major order."""
        return list(range(self.size))

    def load(self, walk: Any) -> np.ndarray:
        """Load all elements."""
        return object_array(self.shape, self.read(None, self.places))


class RowMajor(Storage):
    """Each lane's array lies contiguously; bases are kept in a small table of the thread."""

    def __init__(
        self,
        builder: Any,
        shape: tuple[int, ...],
        dtype: np.dtype,
        bases: str,
        spare: str,
        *,
        pad_rows: bool = False,
    ) -> None:
        super().__init__(builder, shape, dtype)
        self.bases = bases
        self.spare_pointer = spare
        self.pad_rows = pad_rows and len(shape) == 2
        if self.pad_rows:
            self.strides[0] = padded(shape[1])

    @property
    def extent(self) -> int:
        """Elements from the first to behind the last, padding included."""
        return self.shape[0] * self.strides[0] if self.shape else 1

    @property
    def places(self) -> list[int]:
        """Positions of all elements, in row-major order."""
        axes = [range(0, n * s, s) for n, s in zip(self.shape, self.strides, strict=True)]
        return [sum(p) for p in itertools.product(*axes)]

    def read(self, offset: Value | None, places: list[int]) -> list[Value]:
        """Load whole rows and transpose them."""
        if not self._is_row(places):
            return super().read(offset, places)
        b, f = self.builder, self.builder.function
        pointers, element = self._pointers(self._address(offset)), element_type(self.dtype)
        values: list[Value] = []
        for start, size in blocks(len(places), is_padded=self._may_overrun(places)):
            place = places[0] + start
            rows = [
                f.define(f"load <{size} x {element}>, ptr {at}, align {self.dtype.itemsize}")
                for at in self._shifted(pointers, place)
            ]
            texts = transposed(f, rows, size, element)
            values += [Value(text, self.dtype) for text in texts]
        return values[: len(places)] if b.width > 1 else values

    def write(
        self, offset: Value | None, places: list[int], values: list[Value], mask: Value | None
    ) -> None:
        """Transpose and store whole rows."""
        if not self._is_row(places):
            super().write(offset, places, values, mask)
            return
        b, f = self.builder, self.builder.function
        address = self._address(offset)
        if mask is not None:
            address = b.select(mask, address, self.spare())
        pointers, element = self._pointers(address), element_type(self.dtype)
        for start, size in blocks(len(places), is_padded=self._may_overrun(places)):
            texts = [b.operand(v) for v in values[start : start + size]]
            texts += ["poison"] * (size - len(texts))
            rows = transposed(f, texts, b.width, element)
            for at, row in zip(self._shifted(pointers, places[0] + start), rows, strict=True):
                f.emit(f"store <{size} x {element}> {row}, ptr {at}, align {self.dtype.itemsize}")

    def _shifted(self, pointers: list[str], place: int) -> list[str]:
        f = self.builder.function
        return [f.define(f"getelementptr i8, ptr {p}, i64 {place * self.step}") for p in pointers]

    def _is_row(self, places: list[int]) -> bool:
        """Whether the elements are neighbours, several of them, and not booleans."""
        is_run = places[-1] - places[0] == len(places) - 1 if places else False
        return is_run and len(places) > 1 and self.dtype.kind != "b"

    def _may_overrun(self, places: list[int]) -> bool:
        """Whether what follows the elements in their block is padding."""
        return self.pad_rows and len(places) == self.shape[1] and places[0] % self.strides[0] == 0

    @property
    def step(self) -> int:
        """Bytes from one element to the next."""
        return self.dtype.itemsize

    def base(self) -> Value:
        """Return the byte address of each lane's first element."""
        w = self.builder.width
        text = self.builder.function.define(f"load <{w} x i64>, ptr {self.bases}, align 64")
        return Value(text, INT64)

    def spare(self) -> Value:
        """Return the address of the spare copy."""
        text = self.builder.function.define(f"ptrtoint ptr {self.spare_pointer} to i64")
        return Value(text, INT64, uniform=True)


class Interleaved(Storage):
    """Element `k` of all lanes is one aligned vector at ``pointer + k * W`` items."""

    def __init__(self, builder: Any, shape: tuple[int, ...], dtype: np.dtype, pointer: str) -> None:
        super().__init__(builder, shape, dtype)
        self.pointer = pointer

    @property
    def item(self) -> int:
        """Bytes of one stored element (a bool takes one)."""
        return self.dtype.itemsize

    @property
    def step(self) -> int:
        """Bytes from one element to the next."""
        return self.item * self.builder.width

    def base(self) -> Value:
        """Return the byte address of each lane's first element."""
        b = self.builder
        start = Value(b.function.define(f"ptrtoint ptr {self.pointer} to i64"), INT64, uniform=True)
        lane = b.integer("mul", b.lane_ids(), b.constant(self.item, INT64))
        return b.integer("add", start, lane)

    def read(self, offset: Value | None, places: list[int]) -> list[Value]:
        """Load whole vectors where the offset is the same in all lanes."""
        if offset is not None and not offset.uniform:
            return super().read(offset, places)
        return [self._load(self._at(offset, place)) for place in places]

    def write(
        self, offset: Value | None, places: list[int], values: list[Value], mask: Value | None
    ) -> None:
        """Blend with what is there, lane by lane only where lanes differ in their place."""
        b = self.builder
        if offset is not None and not offset.uniform:
            self._scatter(offset, places, values, mask)
            return
        for place, value in zip(places, values, strict=True):
            at = self._at(offset, place)
            kept = value if mask is None else b.select(mask, value, self._load(at))
            self._store(at, kept)

    def _scatter(
        self, offset: Value, places: list[int], values: list[Value], mask: Value | None
    ) -> None:
        b = self.builder
        if mask is not None:
            old = self.read(offset, places)
            values = [b.select(mask, new, kept) for new, kept in zip(values, old, strict=True)]
        super().write(offset, places, values, None)

    def _at(self, offset: Value | None, place: int) -> str:
        f = self.builder.function
        if offset is None:
            if place == 0:
                return self.pointer
            return f.define(f"getelementptr i8, ptr {self.pointer}, i64 {place * self.step}")
        b = self.builder
        wide = b.integer("mul", b.convert(offset, INT64), b.constant(self.step, INT64))
        moved = b.integer("add", wide, b.constant(place * self.step, INT64))
        return f.define(f"getelementptr i8, ptr {self.pointer}, i64 {moved.text}")

    def _load(self, at: str) -> Value:
        f, w = self.builder.function, self.builder.width
        stored, element = memory_type(self.dtype), element_type(self.dtype)
        text = f.define(f"load <{w} x {stored}>, ptr {at}, align {self._align}")
        if stored != element:
            text = f.define(f"trunc <{w} x {stored}> {text} to <{w} x {element}>")
        return Value(text, self.dtype)

    def _store(self, at: str, value: Value) -> None:
        b, f, w = self.builder, self.builder.function, self.builder.width
        stored, element = memory_type(self.dtype), element_type(self.dtype)
        text = b.operand(value)
        if stored != element:
            text = f.define(f"zext <{w} x {element}> {text} to <{w} x {stored}>")
        f.emit(f"store <{w} x {stored}> {text}, ptr {at}, align {self._align}")

    @property
    def _align(self) -> int:
        return min(64, self.step)

    def fill(self, walk: Any, values: np.ndarray) -> None:
        """Set all elements at once."""
        self.write(None, list(range(self.size)), list(values.ravel()), walk.mask)
