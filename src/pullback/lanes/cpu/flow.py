"""Control flow of the SIMD builder: masks, branches that any lane may need, counted loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from pullback.lanes.cpu.arithmetic import Arithmetic
from pullback.lanes.cpu.text import Phi, element_type
from pullback.lanes.values import INT64, Value


class Flow(Arithmetic):
    """Blocks, loops and what lanes have in common."""

    # -- masks and lanes -------------------------------------------------------------------------
    def mask_bits(self, mask: Value) -> str:
        """Return the mask of all lanes as one integer of `width` bits."""
        w = self.width
        return self.function.define(f"bitcast <{w} x i1> {self.operand(mask)} to i{w}")

    def any_lane(self, mask: Value) -> str:
        """Return an `i1`: some lane has the mask."""
        if mask.uniform:
            return mask.text
        bits = self.mask_bits(mask)
        return self.function.define(f"icmp ne i{self.width} {bits}, 0")

    def lane_ids(self) -> Value:
        """Return the lane numbers 0 .. W-1 as int64."""
        items = ", ".join(f"i64 {w}" for w in range(self.width))
        return Value(f"<{items}>", INT64)

    def extract(self, value: Value, lane: int) -> str:
        """Return the scalar that `lane` holds."""
        if value.uniform:
            return value.text
        kind = self.type_of(value.dtype)
        return self.function.define(f"extractelement {kind} {value.text}, i32 {lane}")

    def gather_lanes(self, scalars: Sequence[str], dtype: np.dtype) -> Value:
        """Assemble one value from a scalar of each lane."""
        kind, element = self.type_of(dtype), element_type(dtype)
        text = "poison"
        for lane, item in enumerate(scalars):
            text = self.function.define(
                f"insertelement {kind} {text}, {element} {item}, i32 {lane}"
            )
        return Value(text, dtype)

    # -- control flow ----------------------------------------------------------------------------
    def branch(self, label: str) -> None:
        """Go to `label`."""
        self.function.emit(f"br label %{label}")

    def branch_if(self, condition: str, yes: str, no: str) -> None:
        """Go to `yes` if the `i1` holds, else to `no`."""
        self.function.emit(f"br i1 {condition}, label %{yes}, label %{no}")

    def phi(self, dtype: np.dtype, *, uniform: bool = False) -> tuple[Value, Phi]:
        """Place a phi and return it as a value, with the handle that takes its sources."""
        phi = self.function.phi(self.type_of(dtype, uniform=uniform))
        return Value(phi.name, np.dtype(dtype), uniform=uniform), phi

    def when_any(
        self, mask: Value, slow: Callable[[], Sequence[Value]], fast: Sequence[Value]
    ) -> list[Value]:
        """Return `slow()` in lanes of `mask`, `fast` elsewhere; skip `slow` if no lane needs it."""
        if mask.is_constant:
            return list(slow()) if mask.constant else list(fast)
        f = self.function
        run, join = f.label("some"), f.label("join")
        spread = [self.operand(v) for v in fast]
        self.branch_if(self.any_lane(mask), run, join)
        before = f.block
        f.open(run)
        with self.scope():
            taken = [self.select(mask, s, q) for s, q in zip(slow(), fast, strict=True)]
            spread_taken = [self.operand(v) for v in taken]
        after = f.block
        self.branch(join)
        f.open(join)
        merged = []
        for value, old, new in zip(fast, spread, spread_taken, strict=True):
            result, phi = self.phi(value.dtype)
            phi.add(old, before)
            phi.add(new, after)
            merged.append(result)
        return merged

    @contextmanager
    def counted(self, low: int, high: int, step: int = 1) -> Iterator[Value]:
        """Emit a loop over ``low, low + step, ... < high``, one trip at least; yield it."""
        f = self.function
        head, leave, before = f.label("loop"), f.label("done"), f.block
        self.branch(head)
        f.open(head)
        counter, phi = self.phi(INT64, uniform=True)
        phi.add(str(low), before)
        with self.scope():
            yield counter
        following = f.define(f"add nuw nsw i64 {counter.text}, {step}")
        phi.add(following, f.block)
        go = f.define(f"icmp slt i64 {following}, {high}")
        self.branch_if(go, head, leave)
        f.open(leave)

    @contextmanager
    def accumulating(
        self, n: int, begin: Sequence[Value]
    ) -> Iterator[tuple[Value, list[Value], list[Value]]]:
        """Emit a loop of `n` trips with running values.

        Yields the counter, the running values, and a list to put their successors into; after the
        loop that list holds the final values.
        """
        f = self.function
        head, leave, before = f.label("sum"), f.label("summed"), f.block
        texts = [self.operand(v) for v in begin]
        self.branch(head)
        f.open(head)
        counter, phi = self.phi(INT64, uniform=True)
        phi.add("0", before)
        running = [self.phi(v.dtype) for v in begin]
        for (_, p), text in zip(running, texts, strict=True):
            p.add(text, before)
        results: list[Value] = []
        with self.scope():
            yield counter, [v for v, _ in running], results
            following = f.define(f"add nuw nsw i64 {counter.text}, 1")
            texts = [self.operand(v) for v in results]
            phi.add(following, f.block)
            for (_, p), text in zip(running, texts, strict=True):
                p.add(text, f.block)
            go = f.define(f"icmp slt i64 {following}, {n}")
            self.branch_if(go, head, leave)
        f.open(leave)
        results[:] = [Value(t, v.dtype) for t, v in zip(texts, results, strict=True)]

    @contextmanager
    def between(
        self, low: Value, high: Value, begin: Sequence[Value] = (), step: int = 1
    ) -> Iterator[tuple[Value, list[Value], list[Value]]]:
        """Emit a loop over ``low, low + step, ... < high``, which may be empty.

        Yields the counter, running values that begin as `begin`, and a list to put their successors
        into; after the loop that list holds the final values.
        """
        f = self.function
        head, inside, leave, before = f.label("from"), f.label("inside"), f.label("upto"), f.block
        texts = [self.operand(v) for v in begin]
        self.branch(head)
        f.open(head)
        counter, phi = self.phi(INT64, uniform=True)
        running = [self.phi(v.dtype) for v in begin]
        phis = [phi, *[p for _, p in running]]
        for p, text in zip(phis, [low.text, *texts], strict=True):
            p.add(text, before)
        go = f.define(f"icmp slt i64 {counter.text}, {high.text}")
        self.branch_if(go, inside, leave)
        f.open(inside)
        results: list[Value] = []
        with self.scope():
            yield counter, [v for v, _ in running], results
            texts = [self.operand(v) for v in results]
            following = f.define(f"add nuw nsw i64 {counter.text}, {step}")
            for p, text in zip(phis, [following, *texts], strict=True):
                p.add(text, f.block)
            self.branch(head)
        f.open(leave)
        results[:] = [v for v, _ in running]

    @contextmanager
    def if_any(self, mask: Value) -> Iterator[None]:
        """Emit code that is skipped unless some lane has the mask; it must only store."""
        f = self.function
        run, join = f.label("some"), f.label("join")
        self.branch_if(self.any_lane(mask), run, join)
        f.open(run)
        with self.scope():
            yield
        self.branch(join)
        f.open(join)
