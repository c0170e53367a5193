"""The kernel around a lane program: persistent lanes that claim trajectories and refill.

A lane whose loop has ended stores its results and takes the next trajectory while the other lanes
go on, so unequal work keeps all lanes busy and no finished lane needs a select. One phase (one main
loop) claims from the counter that all threads share; several phases claim a block of trajectories
and run each phase over the block, with a tape row range per trajectory of the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback.lanes.carries import Carry, MemoryCarry, add_edge, lane_form, make_carries
from pullback.lanes.cpu.claims import Claims
from pullback.lanes.cpu.layout import ENTRY
from pullback.lanes.cpu.phases import slice_for
from pullback.lanes.folding import fold_integers
from pullback.lanes.program_ir import Atom, Block, Equation, Var, prune
from pullback.lanes.values import BOOL, INT64, Value

POLL = 1024
# LLVM takes more than proportionally longer for long straight code (34 s for 43 000 lines where
# 13 000 took 3): a program that unrolls to more is emitted again with loops over smaller arrays.
UNROLLED_LINES = 16_000
SMALL_REGISTER_LIMIT = 8


@dataclass(frozen=True)
class KernelText:
    """A finished kernel: module text and what its caller must know."""

    ir: str
    entry: str
    scratch_bytes: int
    width: int


def build(block: Block, batched: Sequence[bool], reduced: Sequence[bool], width: int) -> KernelText:
    """Emit the kernel of a lane program.

    Operand `i` has a trajectory axis iff `batched[i]`. Result `j` has one too, unless `reduced[j]`:
    then it has a row for every `GROUP` trajectories, the sum over them.
    """
    fold_integers(block)
    prune(block)
    shell = Shell(block, batched, reduced, width)
    shell.emit()
    limit = max(SMALL_REGISTER_LIMIT, shell.walk.unrolled_matrix)
    if shell.f.n_lines > UNROLLED_LINES and 2 * limit <= shell.walk.arrays.limit:
        looped = Shell(block, batched, reduced, width, register_limit=limit)
        looped.emit()
        if looped.f.n_lines < shell.f.n_lines:
            shell = looped
    return KernelText(shell.builder.module(), ENTRY, shell.scratch.size, width)


class Shell(Claims):
    """Emits one kernel; see the module's description."""

    def emit(self) -> None:
        """Emit the whole kernel."""
        f = self.f
        self._buffers()
        self._uniform_inputs()
        self._layout()
        stop, finish = "stop", "finish"
        self._variables()
        if self.blocks:
            self._claim_block(finish)
        for index in range(len(self.program.phases)):
            self._phase(index, stop)
        if self.summed:
            low, end = (f.define(f"load i64, ptr {v}") for v in (self.low, self.end))
            self._sum_block(low, end, self.cell)
        f.emit(f"br label %{'claim_block' if self.blocks else finish}")
        f.open(stop)
        self._statistics()
        f.emit("ret i64 1")
        f.open(finish)
        self._statistics()
        f.emit("ret i64 0")

    def _phase(self, index: int, stop: str) -> None:
        f, b, w = self.f, self.builder, self.width
        if self.blocks:
            low = f.define(f"load i64, ptr {self.low}")
            f.emit(f"store i64 {low}, ptr {self.next}")
        f.emit(f"store <{w} x i64> splat (i64 -1), ptr {self.ids}, align 64")
        loop = self.program.phases[index].loop
        carry = [] if loop is None else list(loop.outputs)
        refill, head, body, leave, done = (
            f.label(s) for s in ("refill", "head", "step", "ended", "phase_done")
        )
        carries = make_carries(self.walk, [lane_form(v) for v in carry])
        start = f.block
        f.emit(f"br label %{refill}")
        f.open(refill)
        need, need_phi = b.phi(BOOL)
        need_phi.add("splat (i1 true)", start)
        placed = [c.place() for c in carries]
        ended, old_phis = [x for x, _ in placed], [p for _, p in placed]
        add_edge(old_phis, [c.undefined() for c in carries], start)
        with b.scope():
            self._epilogue(index, need, ended)
            with self._lanes(b.mask_bits(need), "claimlane") as lane:
                self._fill_lane(index, lane)
            live, live_bits = self._live()
            ready = f.label("ready")
            none = f.define(f"icmp eq i{w} {live_bits}, 0")
            f.emit(f"br i1 {none}, label %{done}, label %{ready}")
            f.open(ready)
            labels = (refill, head, body, leave, stop)
            edges = (need_phi, old_phis)
            self._run(index, need, live, live_bits, (carries, ended), edges, labels)
        f.open(done)

    def _epilogue(self, index: int, need: Value, ended: list[Any]) -> None:
        """Store what lanes that finished have found."""
        f, b, w = self.f, self.builder, self.width
        ids = Value(f.define(f"load <{w} x i64>, ptr {self.ids}, align 64"), INT64)
        finished = b.integer("and", need, b.compare("ge", ids, b.constant(0, INT64)))
        bits = b.mask_bits(finished)
        some = f.define(f"icmp ne i{w} {bits}, 0")
        store, after = f.label("store"), f.label("claims")
        f.emit(f"br i1 {some}, label %{store}, label %{after}")
        f.open(store)
        with b.scope():
            phase = self.program.phases[index]
            env = self._environment(index)
            if phase.loop is not None:
                env.update(zip(phase.loop.outputs, ended, strict=True))
            self.walk.mask = finished
            last = index == len(self.program.phases) - 1
            (self._results if last else self._keep)(index, env, bits)
            self.walk.mask = None
        f.emit(f"br label %{after}")
        f.open(after)

    def _results(self, index: int, env: dict[Var, Any], bits: str) -> None:
        """Compute the results of finished lanes and copy them to the caller's arrays."""
        outputs = self.program.block.outputs
        wanted = [a for i, a in enumerate(outputs) if isinstance(a, Var) and i not in self.direct]
        self._evaluate(index, env, self.program.after, wanted)
        staged = []
        for i, atom in enumerate(outputs):
            if i in self.direct:
                continue
            if i in self.summed:
                storage, offset = self.summed[i]
                target = (self.places, self._at(offset))
            else:
                storage = self._local_storage(*lane_form(atom))
                target = (self.ids, self.buffers[len(self.program.block.inputs) + i])
            self._stage(self.walk.read(env, atom), storage)
            staged.append((storage, *target))
        with self._lanes(bits, "out") as lane:
            for storage, rows, pointer in staged:
                at = self.f.define(f"getelementptr i64, ptr {rows}, i64 {lane}")
                row = self.f.define(f"load i64, ptr {at}")
                self._store_back(storage, pointer, row, lane)

    def _keep(self, index: int, env: dict[Var, Any], bits: str) -> None:
        """Keep, per trajectory of the block, what later phases read."""
        saved = [v for v in self.program.phases[index].saved if v in self.saved]
        self._evaluate(index, env, [], saved)
        for var in saved:
            self._stage(env[var], self.saved[var][0])
        with self._lanes(bits, "keep") as lane:
            at = self.f.define(f"getelementptr i64, ptr {self.places}, i64 {lane}")
            slot = self.f.define(f"load i64, ptr {at}")
            for var in saved:
                storage, offset = self.saved[var]
                self._store_back(storage, self._at(offset), slot, lane)

    def _evaluate(
        self, index: int, env: dict[Var, Any], after: list[Equation], wanted: list[Var]
    ) -> None:
        """Evaluate what `wanted` needs of the straight code before and after the loop."""
        known = set(env)
        equations = [*self.program.phases[index].before, *after]
        missing = [v for v in wanted if v not in known]
        todo = [e for e in slice_for(equations, missing) if e in after or not e.writes]
        self.walk.equations([e for e in todo if not set(e.outputs) <= known or e.writes], env)

    def _run(
        self,
        index: int,
        need: Value,
        live: Value,
        live_bits: str,
        carried: tuple[list[Carry], list[Any]],
        edges: tuple[Any, list[Any]],
        labels: tuple[str, str, str, str, str],
    ) -> None:
        """Start the refilled lanes and step all of them until one finishes."""
        refill, head, body, leave, stop = labels
        (carries, ended), (need_phi, _) = carried, edges
        f, b, w = self.f, self.builder, self.width
        loop = self.program.phases[index].loop
        env = self._environment(index)
        lasting, rest = _lasting(self.program.phases[index].before, loop)
        with self.walk.masked(live):
            self.walk.equations(lasting, env, [a for e in rest for a in e.inputs])
        with self.walk.masked(b.integer("and", need, live)):
            self.walk.equations(rest, env)
        if loop is None:
            f.emit(f"br label %{leave}")
            f.open(leave)
            need_phi.add("splat (i1 true)", leave)
            f.emit(f"br label %{refill}")
            return
        condition, step = loop.blocks
        n_cond, n_body = loop.params["cond_nconsts"], loop.params["body_nconsts"]
        operands = [self.walk.arrays.fixed(self.walk.read(env, a)) for a in loop.inputs]
        cond_consts, body_consts = operands[:n_cond], operands[n_cond : n_cond + n_body]
        started = [
            self._start(c, was, x, need)
            for c, was, x in zip(carries, ended, operands[n_cond + n_body :], strict=True)
        ]
        source = f.block
        f.emit(f"br label %{head}")
        f.open(head)
        placed = [c.place() for c in carries]
        state, phis = [x for x, _ in placed], [p for _, p in placed]
        add_edge(phis, started, source)
        trips = f.phi("i64")
        trips.add("0", source)
        with b.scope():
            (go,) = self.walk.block(condition, [*cond_consts, *state])
            active = b.integer("and", go[()], live)
            bits = b.mask_bits(active)
            self._poll(trips.name, stop)
            same = f.define(f"icmp eq i{w} {bits}, {live_bits}")
            f.emit(f"br i1 {same}, label %{body}, label %{leave}")
            texts = [c.texts(x) for c, x in zip(carries, state, strict=True)]
            self._leave(leave, refill, active, live_bits, trips.name, texts, edges)
            f.open(body)
            with self.walk.masked(live):
                results = self.walk.block(step, [*body_consts, *state])
            following = [
                c.successor(x, r, None) for c, x, r in zip(carries, state, results, strict=True)
            ]
            add_edge(phis, following, f.block)
            more = f.define(f"add i64 {trips.name}, 1")
            trips.add(more, f.block)
            f.emit(f"br label %{head}")

    def _start(self, carry: Carry, ended: Any, begin: Any, need: Value) -> list[str]:
        """Let refilled lanes begin and the others go on."""
        if isinstance(carry, MemoryCarry):
            carry.overwrite(ended, begin, need)
            return carry.texts(ended)
        return carry.successor(ended, begin, need)

    def _poll(self, trips: str, stop: str) -> None:
        """Look at the interrupt counter now and then, so that no loop is endless."""
        f = self.f
        look, go = f.label("poll"), f.label("go")
        low = f.define(f"and i64 {trips}, {POLL - 1}")
        due = f.define(f"icmp eq i64 {low}, {POLL - 1}")
        f.emit(f"br i1 {due}, label %{look}, label %{go}")
        f.open(look)
        now = f.define(f"load atomic i64, ptr {self.interrupt} monotonic, align 8")
        hit = f.define(f"icmp ne i64 {now}, {self.seen}")
        f.emit(f"br i1 {hit}, label %{stop}, label %{go}")
        f.open(go)

    def _leave(
        self,
        leave: str,
        refill: str,
        active: Value,
        live_bits: str,
        trips: str,
        texts: list[list[str]],
        edges: tuple[Any, list[Any]],
    ) -> None:
        """Some lane has finished: count the steps and go back to refill."""
        f, b, w = self.f, self.builder, self.width
        f.open(leave)
        with b.scope():
            inactive = b.integer("xor", active, b.constant(True, BOOL))
            count = f.define(f"call i{w} @llvm.ctpop.i{w}(i{w} {live_bits})")
            b.declarations[f"llvm.ctpop.i{w}"] = f"declare i{w} @llvm.ctpop.i{w}(i{w})"
            lanes = f.define(f"zext i{w} {count} to i64")
            for variable, factor in ((self.busy, lanes), (self.steps, str(w))):
                so_far = f.define(f"load i64, ptr {variable}")
                added = f.define(f"mul i64 {trips}, {factor}")
                total = f.define(f"add i64 {so_far}, {added}")
                f.emit(f"store i64 {total}, ptr {variable}")
            now = f.define(f"load atomic i64, ptr {self.interrupt} monotonic, align 8")
            hit = f.define(f"icmp ne i64 {now}, {self.seen}")
            back = f.label("back")
            f.emit(f"br i1 {hit}, label %stop, label %{back}")
            f.open(back)
            need_phi, old_phis = edges
            need_phi.add(b.operand(inactive), back)
            add_edge(old_phis, texts, back)
            f.emit(f"br label %{refill}")


def _lasting(
    before: list[Equation], loop: Equation | None
) -> tuple[list[Equation], list[Equation]]:
    """Return the equations whose results the loop reads in every trip, and the others.

    Lanes that go on need the former again when others begin: what they read must not be left out
    by a branch or loop among them.
    """
    if loop is None:
        return [], before
    begun: set[Atom] = set()  # what depends on a Ref is not known again
    pure = []
    for equation in before:
        if equation.writes or any(a.is_ref or a in begun for a in equation.inputs):
            begun.update(equation.outputs)
        else:
            pure.append(equation)
    n_constants = loop.params["cond_nconsts"] + loop.params["body_nconsts"]
    constants = [a for a in loop.inputs[:n_constants] if isinstance(a, Var)]
    lasting = slice_for(pure, constants)
    return lasting, [e for e in before if e not in lasting]
