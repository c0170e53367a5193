"""One step and the reverse of one step, as blocks of equations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from pullback.lanes import elementary
from pullback.lanes.folding import fold_integers
from pullback.lanes.program_ir import Block, Equation, Var, from_jaxpr, needed, prune
from pullback.lanes.wide.leaves import Leaf
from pullback.lanes.wide.walk import UnsupportedStep, check_aval

__all__ = ["StepProgram", "TapedStep", "forward_block", "real", "step_program", "taped_step"]


_COSTLY = frozenset(elementary.FUNCTIONS) | {
    *("div", "rem", "sqrt", "dot_general", "reduce_sum", "reduce_prod", "reduce_max", "reduce_min"),
    *("cumsum", "cumprod", "cummax", "cummin", "argmax", "argmin", "gather", "scan", "cond"),
}


@dataclass(frozen=True)
class StepProgram:
    """What a step takes and gives; `jaxpr` has them in this order.

    Attributes:
        jaxpr: The step: `(*carry, *x) -> (*carry, *y)`, what it closes over as its constants.
        consts: What the step closes over.
        carry: The state.
        x: A row of the inputs.
        y: A row of the outputs.
        fixed: Values of some of `consts`, which are built in.
    """

    jaxpr: jex.Jaxpr
    consts: tuple[Leaf, ...]
    carry: tuple[Leaf, ...]
    x: tuple[Leaf, ...]
    y: tuple[Leaf, ...]
    fixed: tuple[tuple[int, np.ndarray], ...] = ()


def step_program(
    jaxpr: jex.Jaxpr, n_carry: int, fixed: Sequence[tuple[int, np.ndarray]] = ()
) -> StepProgram:
    """Describe a step.

    Raises:
        UnsupportedStep: An array is too large, empty, or of a type that is not supported, or the
            step has side effects.
    """

    def leaves(variables: Sequence[Any], what: str) -> tuple[Leaf, ...]:
        for v in variables:
            check_aval(v.aval, f", among {what}")
        return tuple(Leaf(tuple(v.aval.shape), np.dtype(v.aval.dtype)) for v in variables)

    if jaxpr.effects:
        raise UnsupportedStep("the step does more than compute, such as print")
    return StepProgram(
        jaxpr,
        leaves(jaxpr.constvars, "what it closes over"),
        leaves(jaxpr.invars[:n_carry], "its carry"),
        leaves(jaxpr.invars[n_carry:], "its inputs"),
        leaves(jaxpr.outvars[n_carry:], "its outputs"),
        tuple(fixed),
    )


def is_real(leaf: Leaf) -> bool:
    """Whether an array has a cotangent."""
    return leaf.dtype.kind == "f"


def real(leaves: Sequence[Leaf]) -> list[Leaf]:
    """Return the arrays that have a cotangent."""
    return [leaf for leaf in leaves if is_real(leaf)]


def forward_block(step: StepProgram) -> Block:
    """Return the step as a block: `(*consts, *carry, *x) -> (*carry, *y)`."""
    inputs = (*step.consts, *step.carry, *step.x)
    return _tidied(from_jaxpr(jax.make_jaxpr(_forward(step))(*_avals(inputs))))


@dataclass(frozen=True)
class TapedStep:
    """A step in two parts: what it leaves on a tape, and its reverse, which reads that.

    Attributes:
        record: `(*consts, *carry, *x) -> kept`.
        reverse: `(*consts, *carry, *x, *kept, *carry_bar, *y_bar) -> (*consts_bar, *carry_bar,
            *x_bar)`, with cotangents of real arrays only.
        reads_carry: Which arrays of the carry the reverse reads.
    """

    record: Block
    reverse: Block
    reads_carry: tuple[bool, ...]


def taped_step(step: StepProgram) -> TapedStep:
    """Divide the reverse of a step: what is cheap is computed again, what is not is kept.

    A sum or product costs less than to store and load its result, and rows stay small.
    """
    inputs = (*step.consts, *step.carry, *step.x)
    block = _reverse_block(step)
    values, bars = block.inputs[: len(inputs)], block.inputs[len(inputs) :]
    primal = _depends_only_on(block, values)
    costly = {v for e in block.equations if e.primitive in _COSTLY for v in e.outputs} & primal
    wanted = {a for a in block.outputs if isinstance(a, Var)}
    kept: list[Var] = []
    equations: list[Equation] = []
    for equation in reversed(block.equations):
        found = [v for v in equation.outputs if v in wanted]
        if found and all(v in costly for v in found):
            kept += found
        elif found:
            equations.append(equation)
            wanted.update(a for a in equation.inputs if isinstance(a, Var))
    carry = block.inputs[len(step.consts) : len(step.consts) + len(step.carry)]
    return TapedStep(
        Block(values, needed(block.equations, kept), list(kept)),
        Block([*values, *kept, *bars], equations[::-1], block.outputs),
        tuple(v in wanted for v in carry),
    )


def _depends_only_on(block: Block, inputs: Sequence[Var]) -> set[Var]:
    known = set(inputs)
    for equation in block.equations:
        if all(a in known for a in equation.inputs if isinstance(a, Var)):
            known.update(equation.outputs)
    return known


def _reverse_block(step: StepProgram) -> Block:
    """Return `(*consts, *carry, *x, *carry_bar, *y_bar) -> (*consts_bar, *carry_bar, *x_bar)`."""
    inputs, outputs = (*step.consts, *step.carry, *step.x), (*step.carry, *step.y)
    forward, n = _forward(step), len(inputs)

    def reverse(*operands: Any) -> Any:
        values, bars = operands[:n], operands[n:]

        def run(*reals: Any) -> list[Any]:
            given = iter(reals)
            pairs = zip(values, inputs, strict=True)
            out = forward(*[next(given) if is_real(leaf) else v for v, leaf in pairs])
            return [v for v, leaf in zip(out, outputs, strict=True) if is_real(leaf)]

        kept = [v for v, leaf in zip(values, inputs, strict=True) if is_real(leaf)]
        return jax.vjp(run, *kept)[1](list(bars))

    return _tidied(from_jaxpr(jax.make_jaxpr(reverse)(*_avals([*inputs, *real(outputs)]))))


def _forward(step: StepProgram) -> Any:
    n_consts = len(step.consts)

    def forward(*operands: Any) -> list[Any]:
        consts = list(operands[:n_consts])
        for i, value in step.fixed:
            consts[i] = value
        return jax.core.eval_jaxpr(step.jaxpr, consts, *operands[n_consts:])

    return forward


def _avals(leaves: Sequence[Leaf]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(leaf.shape, jnp.dtype(leaf.dtype)) for leaf in leaves]


def _tidied(block: Block) -> Block:
    fold_integers(block)
    prune(block)
    return block
