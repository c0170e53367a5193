"""Where everything of a kernel lies: buffers, slots of the lanes, what phases keep, Refs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.lanes.arrays import REGISTER_LIMIT, Arrays
from pullback.lanes.carries import lane_form
from pullback.lanes.cpu.builder import SimdBuilder
from pullback.lanes.cpu.phases import Phases, split
from pullback.lanes.cpu.scratch import Region, Scratch
from pullback.lanes.cpu.storage import Interleaved, RowMajor
from pullback.lanes.cpu.target import register_bytes
from pullback.lanes.cpu.text import FunctionText
from pullback.lanes.memory import Strided
from pullback.lanes.program_ir import Atom, Block, Constant, Equation, Var
from pullback.lanes.values import INT64, object_array
from pullback.lanes.walk import Walk

ENTRY = "lane_kernel"
# Trajectories whose reduced results are added up by the kernel, in index order.
GROUP = 16
# Trajectories per block and lane: enough that the lanes of each phase stay busy, unless their tapes
# would take more than the budget.
_BLOCK_FACTOR = 32
_LEAST_BLOCK_FACTOR = 2
_TAPE_BUDGET = 64 << 20
# Columns of a matrix stay in registers up to this size, where zeros are known: sparse elimination
# unrolled is several times faster than dense loops.
_LARGEST_UNROLLED_MATRIX = 64
_WORK = {"next": 0, "n": 8, "chunk": 16, "interrupt": 24, "seen": 32, "lane": 40, "vector": 48}


class Layout:
    """The static part of a kernel under construction.

    Attributes:
        inputs: Values of operands that all trajectories share.
        slots: Where the lanes' operands lie, interleaved.
        saved: Where values kept between phases lie: of the lanes, and of the block.
        refs: Top-level Refs; `ref_home` gives a trajectory's address, `ref_fill` what it begins
            with.
        direct: Results that are Refs and need no copy.
    """

    def __init__(
        self,
        block: Block,
        batched: Sequence[bool],
        reduced: Sequence[bool],
        width: int,
        *,
        register_limit: int | None = None,
    ) -> None:
        self.width = width
        self.builder = SimdBuilder(width, register_bytes())
        self.f = self.builder.function = FunctionText(
            f"define i64 @{ENTRY}(ptr noalias %work, ptr noalias %buffers, ptr noalias %scratch) "
            "alignstack(64)"
        )
        self.program: Phases = split(block)
        self.batched = dict(zip(block.inputs, batched, strict=True))
        self.scratch = Scratch()
        self.addresses: dict[int, str] = {}
        if register_limit is None:
            register_limit = max(REGISTER_LIMIT, _largest_matrix(block))
        arrays = Arrays(self.builder, self._local_storage, self._region, register_limit)
        self.walk = Walk(self.builder, arrays)
        self.reduced = [i for i, is_reduced in enumerate(reduced) if is_reduced]
        self.blocks = len(self.program.phases) > 1 or bool(self.reduced)
        self.capacity = self._block_size() if self.blocks else width
        self.inputs: dict[Var, Any] = {}
        self.slots: dict[Var, Interleaved] = {}
        self.saved: dict[Var, tuple[Interleaved, int]] = {}
        self.refs: dict[Var, RowMajor] = {}
        self.ref_home: dict[Var, Callable[[str, str], str]] = {}
        self.ref_fill: dict[Var, Constant | None] = {}
        self.direct: set[int] = set()
        self.summed: dict[int, tuple[Interleaved, int]] = {}

    def _block_size(self) -> int:
        """Return how many trajectories the phases run over at a time."""
        outputs = self.program.block.outputs
        kept = [e.outputs[0] for e in self.program.refs] + [outputs[i] for i in self.reduced]
        per_trajectory = sum(count(v) * lane_form(v)[1].itemsize for v in kept)
        most = _BLOCK_FACTOR * self.width
        if per_trajectory * most > _TAPE_BUDGET:
            most = _TAPE_BUDGET // per_trajectory
        most = max(most, _LEAST_BLOCK_FACTOR * self.width)
        return -(-most // GROUP) * GROUP

    def _at(self, offset: int) -> str:
        return self.f.define(f"getelementptr i8, ptr %scratch, i64 {offset}")

    def _local_storage(self, shape: tuple[int, ...], dtype: np.dtype) -> Interleaved:
        n_items = int(np.prod(shape, dtype=np.int64)) * self.width
        return Interleaved(
            self.builder, shape, dtype, self._entry_at(self.scratch.array(n_items, dtype))
        )

    def _entry_at(self, offset: int) -> str:
        """Address of a scratch offset, computed in the entry block."""
        if offset not in self.addresses:
            name = self.f.name()
            self.f.entry.append(f"{name} = getelementptr i8, ptr %scratch, i64 {offset}")
            self.addresses[offset] = name
        return self.addresses[offset]

    def _region(self, n_bytes: int) -> tuple[str, Region]:
        """Return memory for an array of the walk, free again when nobody refers to it."""
        region = self.scratch.region(n_bytes)
        return self._entry_at(region.offset), region

    def _work(self, field: str) -> str:
        return self.f.define(f"getelementptr i8, ptr %work, i64 {_WORK[field]}")

    def _buffers(self) -> None:
        f = self.f
        n = len(self.program.block.inputs) + len(self.program.block.outputs)
        self.buffers = []
        for i in range(n):
            at = f.define(f"getelementptr ptr, ptr %buffers, i64 {i}")
            self.buffers.append(f.define(f"load ptr, ptr {at}"))
        self.n = f.define(f"load i64, ptr {self._work('n')}")
        self.chunk = f.define(f"load i64, ptr {self._work('chunk')}")
        self.interrupt = f.define(f"load ptr, ptr {self._work('interrupt')}")
        self.seen = f.define(f"load i64, ptr {self._work('seen')}")

    def _uniform_inputs(self) -> None:
        """Arguments that all trajectories share: scalars loaded once, or read where they lie."""
        f = self.f
        for var, pointer in zip(self.program.block.inputs, self.buffers, strict=False):
            if self.batched[var]:
                continue
            shape, dtype = lane_form(var)
            if not self.walk.arrays.fits(shape):
                self.inputs[var] = Strided(self.builder, pointer, shape, dtype, shared=True)
                continue
            items = []
            for k in range(count(var)):
                at = f.define(f"getelementptr i8, ptr {pointer}, i64 {k * dtype.itemsize}")
                items.append(self.builder.load(at, dtype, shared=True))
            self.inputs[var] = object_array(shape, items)

    def _layout(self) -> None:
        for var in self.program.block.inputs:
            if self.batched[var]:
                self.slots[var] = self._local_storage(*lane_form(var))
        for phase in self.program.phases:
            for var in phase.saved:
                if var not in self.saved and var not in self.slots:
                    storage = self._local_storage(*lane_form(var))
                    size = count(var) * self.capacity
                    self.saved[var] = (storage, self.scratch.array(size, lane_form(var)[1]))
        for i in self.reduced:
            form = lane_form(self.program.block.outputs[i])
            storage = self._local_storage(*form)
            self.summed[i] = (storage, self.scratch.array(storage.size * self.capacity, form[1]))
        self._refs()

    def _contents(self, storage: Interleaved) -> Any:
        """Return an interleaved array as the walk reads it."""
        if self.walk.arrays.fits(storage.shape):
            return storage.load(self.walk)
        return Strided(self.builder, storage.pointer, storage.shape, storage.dtype, keep=storage)

    def _stage(self, x: Any, storage: Interleaved) -> None:
        """Evaluate an array into an interleaved one."""
        if self.walk.arrays.fits(storage.shape):
            values = self.walk.arrays.registers(self.walk, x)
            storage.write(None, list(range(storage.size)), list(values.ravel()), None)
            return
        target = Strided(self.builder, storage.pointer, storage.shape, storage.dtype, keep=storage)
        self.walk.arrays.in_memory(x, target)

    def _environment(self, phase: int) -> dict[Var, Any]:
        """Return the lane values of the operands and of what earlier phases kept."""
        env: dict[Var, Any] = dict(self.inputs)
        for var, storage in self.slots.items():
            env[var] = self._contents(storage)
        for earlier in self.program.phases[:phase]:
            for var in earlier.saved:
                if var in self.saved:
                    env[var] = self._contents(self.saved[var][0])
        env.update(self.refs)
        return env

    def _refs(self) -> None:
        """Place every top-level Ref: in the result it becomes, or in the tape of the thread."""
        outputs = self._ref_results()
        for equation in self.program.refs:
            var = equation.outputs[0]
            dtype = np.dtype(var.dtype)
            bases = self._entry_at(self.scratch.array(self.width, INT64))
            storage = RowMajor(
                self.builder, var.shape, dtype, bases, "", pad_rows=var not in outputs
            )
            n_bytes = max(storage.extent, 1) * dtype.itemsize
            storage.spare_pointer = self._entry_at(self.scratch.take(n_bytes))
            self.refs[var] = storage
            self.ref_fill[var] = self._initial(equation)
            if var in outputs:
                position = outputs[var]
                self.direct.add(position)
                pointer = self.buffers[len(self.program.block.inputs) + position]
                self.ref_home[var] = self._home(pointer, n_bytes, by_slot=False)
            else:
                tape = self._entry_at(self.scratch.take(n_bytes * self.capacity))
                self.ref_home[var] = self._home(tape, n_bytes, by_slot=True)

    def _home(self, pointer: str, n_bytes: int, *, by_slot: bool) -> Callable[[str, str], str]:
        def address(trajectory: str, slot: str) -> str:
            place = slot if by_slot else trajectory
            moved = self.f.define(f"mul i64 {place}, {n_bytes}")
            at = self.f.define(f"getelementptr i8, ptr {pointer}, i64 {moved}")
            return self.f.define(f"ptrtoint ptr {at} to i64")

        return address

    def _ref_results(self) -> dict[Var, int]:
        """Find Refs that are read as a whole once, as a result: they live in the result."""
        found: dict[Var, int] = {}
        refs = {e.outputs[0] for e in self.program.refs}
        outputs = self.program.block.outputs
        for equation in self.program.after:
            whole = equation.primitive == "freeze" or (
                equation.primitive == "get" and len(equation.inputs) == 1
            )
            if not whole or equation.inputs[0] not in refs:
                continue
            places = [i for i, out in enumerate(outputs) if out is equation.outputs[0]]
            if any(i in self.reduced for i in places):
                continue
            readers = [e for e in self.program.after if equation.outputs[0] in e.inputs]
            if len(places) == 1 and not readers:
                found[equation.inputs[0]] = places[0]
        return found

    def _initial(self, equation: Equation) -> Constant | None:
        """Return the constant a Ref starts with, None if its contents are undefined."""
        if equation.primitive == "empty_ref":
            return None
        atom: Atom = equation.inputs[0]
        for earlier in self.program.block.equations:
            if atom in earlier.outputs:
                if earlier.primitive == "empty":
                    return None
                if earlier.primitive == "broadcast_in_dim":
                    atom = earlier.inputs[0]
                break
        if isinstance(atom, Constant) and np.asarray(atom.value).size == 1:
            return atom
        raise NotImplementedError(
            "a Ref of a lane program must start empty or filled with one constant"
        )


def count(atom: Any) -> int:
    """Return the number of lane values of an atom."""
    return int(np.prod(lane_form(atom)[0], dtype=np.int64))


def _largest_matrix(block: Block) -> int:
    """Return the size of the largest matrix that is factorised unrolled, 0 if there is none."""
    inner = [_largest_matrix(b) for e in block.equations for b in e.blocks]
    sizes = [len(e.inputs) for e in block.equations if e.primitive == "lane_lu"]
    return max([n for n in sizes if n <= _LARGEST_UNROLLED_MATRIX] + inner, default=0)
