"""The walk over one step: the lanes' rules for what fits into registers, and nothing else.

What is not in the table is an `UnsupportedStep` that names the primitive and the user's line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.core.compat import scan_counts
from pullback.core.errors import UnsupportedPrimitive
from pullback.lanes import rules
from pullback.lanes.program_ir import Atom, Equation, Var
from pullback.lanes.rules.elementwise import ELEMENTWISE
from pullback.lanes.values import Value, is_lane_dtype, object_array
from pullback.lanes.walk import RULES, Walk, source_line
from pullback.lanes.wide.arrays import WideArrays
from pullback.lanes.wide.builder import WideBuilder

__all__ = ["MOST_ELEMENTS", "UnsupportedStep", "WideWalk", "check_aval"]

# Larger arrays are better off in loops over memory, at which XLA is good.
MOST_ELEMENTS = 256
# LLVM takes more than proportionally longer for longer code: so many machine instructions take
# seconds.
_MOST_COST = 30_000
_LONGEST_INNER_LOOP = 32

# Importing the rules fills the table that the walk reads.
assert rules.control


class UnsupportedStep(UnsupportedPrimitive):
    """A step cannot become a native kernel; the message is the reason."""


_FROM_LANES = frozenset(ELEMENTWISE) | {
    *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "rev"),
    *("concatenate", "stack", "unstack", "split", "pad", "iota", "empty", "empty2", "tile"),
    *("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or"),
    *("reduce_xor", "dot_general", "argmax", "argmin", "cumsum", "cumprod", "cummax", "cummin"),
    *("dynamic_slice", "dynamic_update_slice", "gather", "scatter", "scatter-add", "scatter_add"),
    *("copy", "copy_p", "optimization_barrier", "stop_gradient", "platform_index"),
}  # fmt: skip


class WideWalk(Walk):
    """Evaluates the equations of a step with arrays that are vectors."""

    builder: WideBuilder
    arrays: WideArrays

    def __init__(self) -> None:
        builder = WideBuilder()
        super().__init__(builder, WideArrays(builder))

    def equations(
        self,
        equations: Sequence[Equation],
        env: dict[Var, Any],
        results: Sequence[Atom] = (),
        *,
        forget: bool = False,
    ) -> None:
        """Evaluate equations in order, adding their results to `env`."""
        del results, forget
        for equation in equations:
            inputs = [self.read(env, atom) for atom in equation.inputs]
            for atom in (*equation.inputs, *equation.outputs):
                check_aval(atom.aval, source_line(equation))
            try:
                produced = self._rule(equation)(self, equation, inputs)
            except UnsupportedStep:
                raise
            except NotImplementedError as error:
                raise UnsupportedStep(
                    f"the step uses {error}{source_line(equation)}, in `{equation.primitive}`"
                ) from error
            if self.builder.cost > _MOST_COST:
                raise UnsupportedStep(
                    f"the step has more than {_MOST_COST} machine instructions, which would take"
                    " long to compile"
                )
            if not isinstance(produced, list):
                produced = [produced]
            env.update(zip(equation.outputs, produced, strict=True))

    def _rule(self, equation: Equation) -> Callable[..., Any]:
        own = _OWN.get(equation.primitive)
        if own is not None:
            return own
        if equation.primitive not in _FROM_LANES or equation.primitive not in RULES:
            raise UnsupportedStep(
                f"the step uses `{equation.primitive}`{source_line(equation)}, for which there is"
                " no rule"
            )
        return RULES[equation.primitive]

    def map(self, function: Callable[..., Value], *arrays: np.ndarray) -> np.ndarray:
        """Apply a function of scalars elementwise, broadcasting scalars."""
        shape = np.broadcast_shapes(*[a.shape for a in arrays])
        return self.arrays.apply(function, *[np.broadcast_to(a, shape) for a in arrays])


def check_aval(aval: Any, where: str) -> None:
    """Refuse numbers and sizes that are not held in registers."""
    if not is_lane_dtype(aval.dtype) or not isinstance(aval.dtype, np.dtype):
        raise UnsupportedStep(f"the step has values of type {aval.dtype}{where}")
    size = int(np.prod(aval.shape, dtype=np.int64))
    if not 0 < size <= MOST_ELEMENTS:
        raise UnsupportedStep(
            f"the step has an array of {size} numbers{where}; native ones have 1 to {MOST_ELEMENTS}"
        )


def _cond(walk: WideWalk, equation: Equation, inputs: list[Any]) -> list[Any]:
    """Evaluate all branches and choose: a step has no side effects."""
    which, operands = inputs[0], inputs[1:]
    results = [walk.block(block, operands) for block in equation.blocks]
    index = which[()]
    if index.is_constant:
        return results[int(np.clip(index.constant, 0, len(results) - 1))]
    b = walk.builder
    out = []
    for cases in zip(*results, strict=True):
        chosen = cases[-1]
        for i in range(len(cases) - 2, -1, -1):
            # Below the first is the first, beyond the last the last.
            here = b.compare("le", index, b.constant(i, index.dtype))
            mask = walk.arrays.filled(here, chosen.shape)
            chosen = walk.arrays.apply(b.select, mask, cases[i], chosen)
        out.append(chosen)
    return out


def _scan(walk: WideWalk, equation: Equation, inputs: list[Any]) -> list[Any]:
    """Write a short loop out."""
    p, body = equation.params, equation.blocks[0]
    length = int(p["length"])
    if not 0 < length <= _LONGEST_INNER_LOOP:
        raise NotImplementedError(f"a loop of {length} turns")
    n_consts, n_carry = scan_counts(p)
    consts, xs = inputs[:n_consts], inputs[n_consts + n_carry :]
    carry = inputs[n_consts : n_consts + n_carry]
    rows: list[list[Any]] = [[] for _ in equation.outputs[n_carry:]]
    for i in range(length):
        at = length - 1 - i if p["reverse"] else i
        out = walk.block(body, [*consts, *carry, *[_row(x, at) for x in xs]])
        carry = out[:n_carry]
        for kept, y in zip(rows, out[n_carry:], strict=True):
            kept.append(y)
    ordered = [kept[::-1] if p["reverse"] else kept for kept in rows]
    return [*carry, *[np.stack(kept) for kept in ordered]]


def _row(x: np.ndarray, i: int) -> np.ndarray:
    return x[i] if x.ndim > 1 else object_array((), [x[i]])


_OWN: dict[str, Callable[[WideWalk, Equation, list[Any]], list[Any]]] = {
    "cond": _cond,
    "scan": _scan,
}
