"""Kernels for one trajectory: run steps, and reverse steps that are run or were recorded before.

All are loops over steps whose state is in registers (or wherever LLVM spills it to), with the step
written out inside; a call costs a fraction of a microsecond, a step nothing beyond its work. All
begin a step with the same code, so that states have the same bits and tapes the same layout; LLVM
drops what a kernel does not use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.lanes.wide.leaves import Leaf
from pullback.lanes.wide.program import StepProgram, TapedStep, forward_block, real, taped_step
from pullback.lanes.wide.shell import Loop, Shell, StepKernel
from pullback.lanes.wide.tape import Tape

__all__ = ["advance_kernel", "pull_kernel", "while_kernel"]

_TAPE = (Leaf((), np.dtype(np.uint8)),)
_COUNT = (Leaf((), np.dtype(np.int32)),)


def advance_kernel(
    step: StepProgram, index: np.dtype, *, with_y: bool, records: bool = False
) -> StepKernel:
    """Run steps `lower, ..., upper - 1`.

    Operands: `lower`, `upper`, consts, all rows of `xs`, carry, and with `y` all rows of `ys`;
    results: carry and all rows of `ys`, of which those of these steps are written. A kernel that
    `records` has a tape of `upper` rows as its last result.
    """
    ys, tapes = step.y if with_y else (), _TAPE if records else ()
    groups = (step.consts, step.x, step.carry, ys)
    results = (step.carry, ys, tapes)
    shell = Shell(2 + sum(map(len, groups)), sum(map(len, results)))
    lower, upper = shell.integer(0, index), shell.integer(1, index)
    consts_at, xs_at, carry_at, _ = shell.take(2, groups)
    carry_out, ys_out, tape_at = shell.take_results(results)
    consts = shell.load_lasting(step.consts, consts_at)
    tape = Tape(shell, tape_at[0] if records else "null")
    with shell.loop(lower, step.carry, shell.load(step.carry, carry_at)) as loop:
        shell.leave_unless(f"icmp slt i64 {loop.i}, {upper}", loop)
        operands = [*consts, *loop.arrays, *shell.load(step.x, shell.rows(step.x, xs_at, loop.i))]
        out = shell.walk.block(forward_block(step), operands)
        if records:
            _record(tape, taped_step(step), operands, loop)
        if ys:
            shell.store(ys, shell.rows(ys, ys_out, loop.i), out[len(step.carry) :])
        loop.following = out[: len(step.carry)]
    shell.store(step.carry, carry_out, loop.arrays)
    return shell.finished(tape.row_bytes)


def while_kernel(cond: StepProgram, step: StepProgram, index: np.dtype) -> StepKernel:
    """Run steps while a condition holds.

    Operands: the most steps, what the condition closes over, what the step does, carry; results:
    the number of steps that were run, and carry. The condition takes the carry as its `x` and
    gives one boolean as its `y`.
    """
    groups, results = (cond.consts, step.consts, step.carry), (_COUNT, step.carry)
    shell = Shell(1 + sum(map(len, groups)), sum(map(len, results)))
    most = shell.integer(0, index)
    cond_at, consts_at, carry_at = shell.take(1, groups)
    (count_out,), carry_out = shell.take_results(results)
    cond_consts = shell.load_lasting(cond.consts, cond_at)
    consts = shell.load_lasting(step.consts, consts_at)
    with shell.loop("0", step.carry, shell.load(step.carry, carry_at)) as loop:
        shell.leave_unless(f"icmp slt i64 {loop.i}, {most}", loop)
        (holds,) = shell.walk.block(forward_block(cond), [*cond_consts, *loop.arrays])
        shell.leave_unless(f"and i1 {holds[()].text}, true", loop)
        loop.following = shell.walk.block(forward_block(step), [*consts, *loop.arrays])
    count = shell.f.define(f"trunc i64 {loop.i} to i32")
    shell.f.emit(f"store i32 {count}, ptr {count_out}")
    shell.store(step.carry, carry_out, loop.arrays)
    return shell.finished()


def pull_kernel(step: StepProgram, index: np.dtype, *, recorded: bool = False) -> StepKernel:
    """Run `n` steps from step `start` on and reverse them.

    Operands: `n`, `start`, consts, all rows of `xs`, carry, and cotangents: all rows of those of
    `ys`, those of consts so far, of the last carry, and all rows of those of `xs`. Results: the
    cotangents of consts, of the first carry, and of `xs`, of which the rows of these steps are
    written. Only real arrays have cotangents. A kernel for `recorded` steps runs none: its operand
    after `start` is the tape.
    """
    y_bars, *bars = [real(leaves) for leaves in (step.y, step.consts, step.carry, step.x)]
    groups = (_TAPE if recorded else (), step.consts, step.x, step.carry, y_bars, *bars)
    shell = Shell(2 + sum(map(len, groups)), sum(map(len, bars)))
    n, start = shell.integer(0, index), shell.integer(1, index)
    tape_at, consts_at, xs_at, carry_at, y_bar_at, consts_bar_at, carry_bar_at, _ = shell.take(
        2, groups
    )
    consts_out, carry_out, xs_out = shell.take_results(bars)
    consts = shell.load_lasting(step.consts, consts_at)
    taped = taped_step(step)
    tape = Tape(shell, tape_at[0] if recorded else "%scratch")
    # The loop that records decides what a row of the tape is; with a tape it is not needed itself.
    with (
        shell.discarded(recorded),
        shell.loop("0", step.carry, shell.load(step.carry, carry_at)) as loop,
    ):
        shell.leave_unless(f"icmp slt i64 {loop.i}, {n}", loop)
        row = shell.f.define(f"add i64 {start}, {loop.i}")
        operands = [*consts, *loop.arrays, *shell.load(step.x, shell.rows(step.x, xs_at, row))]
        out = shell.walk.block(forward_block(step), operands)
        _record(tape, taped, operands, loop)
        loop.following = out[: len(step.carry)]
    n_consts, n_carry = len(bars[0]), len(bars[1])
    summed = [*shell.load(bars[0], consts_bar_at), *shell.load(bars[1], carry_bar_at)]
    with shell.loop(n, [*bars[0], *bars[1]], summed, step=-1) as loop:
        shell.leave_unless(f"icmp sgt i64 {loop.i}, 0", loop)
        step_at = shell.f.define(f"sub i64 {loop.i}, 1")
        row = shell.f.define(f"add i64 {start}, {step_at}")
        x = shell.load(step.x, shell.rows(step.x, xs_at, row))
        y_bar = shell.load(y_bars, shell.rows(y_bars, y_bar_at, row))
        state, kept = _restored(tape, taped, step_at)
        operands = [*consts, *state, *x, *kept, *loop.arrays[n_consts:], *y_bar]
        out = shell.walk.block(taped.reverse, operands)
        more = zip(loop.arrays[:n_consts], out[:n_consts], strict=True)
        sums = [shell.walk.map(shell.b.add, total, term) for total, term in more]
        shell.store(bars[2], shell.rows(bars[2], xs_out, row), out[n_consts + n_carry :])
        loop.following = [*sums, *out[n_consts : n_consts + n_carry]]
    shell.store(bars[0], consts_out, loop.arrays[:n_consts])
    shell.store(bars[1], carry_out, loop.arrays[n_consts:])
    return shell.finished(tape.row_bytes)


def _record(tape: Tape, taped: TapedStep, operands: Sequence[Any], loop: Loop) -> None:
    """Keep what the reverse of a step reads: parts of its carry, and costly results."""
    state = [a for a, reads in zip(loop.arrays, taped.reads_carry, strict=True) if reads]
    tape.record(loop.i, [*state, *tape.shell.walk.block(taped.record, operands)])


def _restored(tape: Tape, taped: TapedStep, row: str) -> tuple[list[Any], list[Any]]:
    """Return the carry, None for what is not read, and the costly results."""
    arrays = iter(tape.restore(row))
    return [next(arrays) if reads else None for reads in taped.reads_carry], list(arrays)
