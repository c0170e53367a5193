"""Results that are summed over trajectories: per group of neighbours, in index order.

A group is a fixed run of trajectories, so the sums do not depend on width, blocks or threads. The
caller adds the groups up.
"""

from __future__ import annotations

from pullback.lanes.cpu.layout import GROUP
from pullback.lanes.cpu.storage import Interleaved
from pullback.lanes.cpu.text import element_type
from pullback.lanes.cpu.transfer import Transfer


class Sums(Transfer):
    """Adds up the kept results of a block."""

    def _sum_block(self, low: str, end: str, cell: str) -> None:
        """Sum every group of the block ``low .. end - 1``; `cell` is a place for a running sum."""
        f = self.f
        for i, (storage, offset) in self.summed.items():
            target = self.buffers[len(self.program.block.inputs) + i]
            kept = self._at(offset)
            with self._run_of(low, end, GROUP) as first:
                beyond = f.define(f"add i64 {first}, {GROUP}")
                fits = f.define(f"icmp slt i64 {beyond}, {end}")
                last = f.define(f"select i1 {fits}, i64 {beyond}, i64 {end}")
                rows = [f.define(f"sub i64 {x}, {low}") for x in (first, last)]
                group = f.define(f"udiv i64 {first}, {GROUP}")
                with self._run_of("0", str(storage.size), 1) as k:
                    total = self._sum_element(storage, kept, (rows[0], rows[1]), k, cell)
                    f.emit(f"store {total}, ptr {self._element(storage, target, group, k)}")

    def _sum_element(
        self, storage: Interleaved, kept: str, rows: tuple[str, str], k: str, cell: str
    ) -> str:
        """Return the sum of element `k` over kept rows, with its type."""
        f, kind = self.f, element_type(storage.dtype)
        zero, add = ("0.0", "fadd") if storage.dtype.kind == "f" else ("0", "add")
        f.emit(f"store {kind} {zero}, ptr {cell}")
        with self._run_of(*rows, 1) as row:
            value = f.define(f"load {kind}, ptr {self._element(storage, kept, row, k)}")
            total = f.define(f"load {kind}, ptr {cell}")
            added = f.define(f"{add} {kind} {total}, {value}")
            f.emit(f"store {kind} {added}, ptr {cell}")
        return f"{kind} {f.define(f'load {kind}, ptr {cell}')}"

    def _element(self, storage: Interleaved, pointer: str, row: str, k: str) -> str:
        """Return the place of element `k` of a row."""
        f = self.f
        start = f.define(f"mul i64 {row}, {storage.size}")
        place = f.define(f"add i64 {start}, {k}")
        moved = f.define(f"mul i64 {place}, {storage.item}")
        return f.define(f"getelementptr i8, ptr {pointer}, i64 {moved}")
