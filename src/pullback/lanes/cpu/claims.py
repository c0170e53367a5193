"""Who works on what: claiming trajectories and handing them to lanes."""

from __future__ import annotations

from pullback.lanes.cpu.layout import GROUP
from pullback.lanes.cpu.sums import Sums
from pullback.lanes.values import INT64, Value

# A block is at most 1/16 of all trajectories, so that every thread gets several.
_SHARE_BITS = 4


class Claims(Sums):
    """The counters of one thread and the trajectory of each lane."""

    def _variables(self) -> None:
        f = self.f
        self.ids = f.alloca(f"<{self.width} x i64>")
        self.places = f.alloca(f"<{self.width} x i64>")
        self.next, self.end, self.low = (f.alloca("i64", 8) for _ in range(3))
        self.cell = f.alloca("i64", 8)
        self.busy, self.steps = (f.alloca("i64", 8) for _ in range(2))
        for variable in (self.next, self.end, self.low, self.busy, self.steps):
            f.emit(f"store i64 0, ptr {variable}")

    def _statistics(self) -> None:
        f = self.f
        for variable, field in ((self.busy, "lane"), (self.steps, "vector")):
            value = f.define(f"load i64, ptr {variable}")
            f.define(f"atomicrmw add ptr {self._work(field)}, i64 {value} monotonic")

    def _claim_block(self, finish: str) -> None:
        """Claim the trajectories that all phases will run over."""
        f = self.f
        f.emit("br label %claim_block")
        f.open("claim_block")
        share = f.define(f"lshr i64 {self.n}, {_SHARE_BITS}")
        small = f.define(f"icmp ult i64 {share}, {self.width}")
        least = f.define(f"select i1 {small}, i64 {self.width}, i64 {share}")
        limit = f.define(f"icmp ult i64 {least}, {self.capacity}")
        want = f.define(f"select i1 {limit}, i64 {least}, i64 {self.capacity}")
        if self.summed:
            # Whole groups, so that each is summed by one thread.
            raised = f.define(f"add i64 {want}, {GROUP - 1}")
            want = f.define(f"and i64 {raised}, {-GROUP}")
        low = f.define(f"atomicrmw add ptr {self._work('next')}, i64 {want} monotonic")
        f.emit(f"store i64 {low}, ptr {self.low}")
        some = f.define(f"icmp slt i64 {low}, {self.n}")
        f.emit(f"br i1 {some}, label %claimed_block, label %{finish}")
        f.open("claimed_block")
        last = f.define(f"add i64 {low}, {want}")
        fits = f.define(f"icmp slt i64 {last}, {self.n}")
        end = f.define(f"select i1 {fits}, i64 {last}, i64 {self.n}")
        f.emit(f"store i64 {end}, ptr {self.end}")

    def _claim(self) -> tuple[str, str]:
        """Take one trajectory; return its number and whether there was one."""
        f = self.f
        if not self.blocks:
            have = f.define(f"load i64, ptr {self.next}")
            end = f.define(f"load i64, ptr {self.end}")
            more, go = f.label("claim"), f.label("claimed")
            empty = f.define(f"icmp sge i64 {have}, {end}")
            f.emit(f"br i1 {empty}, label %{more}, label %{go}")
            f.open(more)
            start = f.define(f"atomicrmw add ptr {self._work('next')}, i64 {self.chunk} monotonic")
            f.emit(f"store i64 {start}, ptr {self.next}")
            last = f.define(f"add i64 {start}, {self.chunk}")
            f.emit(f"store i64 {last}, ptr {self.end}")
            f.emit(f"br label %{go}")
            f.open(go)
        current = f.define(f"load i64, ptr {self.next}")
        following = f.define(f"add i64 {current}, 1")
        f.emit(f"store i64 {following}, ptr {self.next}")
        limit = f.define(f"load i64, ptr {self.end}") if self.blocks else self.n
        exists = f.define(f"icmp slt i64 {current}, {limit}")
        return current, exists

    def _fill_lane(self, phase: int, lane: str) -> None:
        """Give a lane its next trajectory, or none."""
        f = self.f
        current, exists = self._claim()
        id_at = f.define(f"getelementptr i64, ptr {self.ids}, i64 {lane}")
        place_at = f.define(f"getelementptr i64, ptr {self.places}, i64 {lane}")
        some, none, done = f.label("some"), f.label("none"), f.label("filled")
        f.emit(f"br i1 {exists}, label %{some}, label %{none}")
        f.open(some)
        f.emit(f"store i64 {current}, ptr {id_at}")
        low = f.define(f"load i64, ptr {self.low}")
        slot = f.define(f"sub i64 {current}, {low}") if self.blocks else lane
        f.emit(f"store i64 {slot}, ptr {place_at}")
        self._load_lane(phase, lane, current, slot)
        f.emit(f"br label %{done}")
        f.open(none)
        f.emit(f"store i64 -1, ptr {id_at}")
        for storage in self.refs.values():
            at = f.define(f"getelementptr i64, ptr {storage.bases}, i64 {lane}")
            spare = f.define(f"ptrtoint ptr {storage.spare_pointer} to i64")
            f.emit(f"store i64 {spare}, ptr {at}")
        f.emit(f"br label %{done}")
        f.open(done)

    def _load_lane(self, phase: int, lane: str, trajectory: str, slot: str) -> None:
        f = self.f
        for var, pointer in zip(self.program.block.inputs, self.buffers, strict=False):
            if self.batched[var]:
                self._fetch(pointer, trajectory, self.slots[var], lane)
        if phase > 0:
            for var in self.program.phases[phase - 1].saved:
                if var in self.saved:
                    storage, offset = self.saved[var]
                    self._fetch(self._at(offset), slot, storage, lane)
        for var, storage in self.refs.items():
            at = f.define(f"getelementptr i64, ptr {storage.bases}, i64 {lane}")
            address = self.ref_home[var](trajectory, slot)
            f.emit(f"store i64 {address}, ptr {at}")
            if phase == 0 and self.ref_fill[var] is not None:
                self._fill_ref(storage, address, self.ref_fill[var])

    def _live(self) -> tuple[Value, str]:
        f, b, w = self.f, self.builder, self.width
        ids = Value(f.define(f"load <{w} x i64>, ptr {self.ids}, align 64"), INT64)
        live = b.compare("ge", ids, b.constant(0, INT64))
        return live, b.mask_bits(live)
