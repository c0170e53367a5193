"""The lane program as the walk sees it: blocks of equations without calls, dead code or aliases.

`jax.make_jaxpr` gives nested jaxprs; :func:`from_jaxpr` inlines every call (`jit`, `custom_jvp`,
`remat` ...), renames variables so that a jaxpr called twice cannot clash, and drops equations whose
results nobody reads. Loops and branches keep their bodies as nested blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

_REF_WRITES = {"swap", "addupdate"}
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
}
_BODIES: dict[str, Callable[[dict[str, Any]], list[Any]]] = {
    "while": lambda p: [p["cond_jaxpr"], p["body_jaxpr"]],
    "scan": lambda p: [p["jaxpr"]],
    "cond": lambda p: list(p["branches"]),
}


class Var:
    """A variable of the lane program; equal only to itself."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    @property
    def is_ref(self) -> bool:
        """Whether this names a mutable array."""
        return type(self.aval).__name__ == "AbstractRef"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array (of the contents, for a Ref)."""
        return tuple(self.aval.shape)

    @property
    def dtype(self) -> Any:
        """Dtype of the array."""
        return self.aval.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Constant:
    """A literal or closed-over constant array."""

    value: Any
    aval: Any

    @property
    def is_ref(self) -> bool:
        """A constant is never a Ref."""
        return False


Atom = Var | Constant


@dataclass(eq=False)
class Equation:
    """One primitive application.

    `blocks` are the bodies of a loop or the branches of a cond, `sources` where it stands in the
    user's code and where the calls around it do, innermost first.
    """

    primitive: str
    inputs: list[Atom]
    outputs: list[Var]
    params: dict[str, Any]
    blocks: list[Block] = field(default_factory=list)
    sources: tuple[Any, ...] = ()

    @property
    def writes(self) -> bool:
        """Whether it changes a Ref, and so must stay even if nobody reads its results."""
        return self.primitive in _REF_WRITES or any(b.writes for b in self.blocks)


@dataclass(eq=False)
class Block:
    """Straight-line equations with arguments and results."""

    inputs: list[Var]
    equations: list[Equation]
    outputs: list[Atom]

    @property
    def writes(self) -> bool:
        """Whether any equation inside changes a Ref."""
        return any(e.writes for e in self.equations)


def from_jaxpr(closed: ClosedJaxpr) -> Block:
    """Convert a closed jaxpr into a block without calls or dead equations."""
    block = _convert(closed.jaxpr, closed.consts)
    prune(block)
    mark_unused_swaps(block)
    return block


def _convert(jaxpr: Jaxpr, consts: Sequence[Any]) -> Block:
    env: dict[Any, Atom] = {}
    for var, value in zip(jaxpr.constvars, consts, strict=True):
        env[var] = Constant(value, var.aval)
    inputs = [Var(v.aval) for v in jaxpr.invars]
    env.update(zip(jaxpr.invars, inputs, strict=True))
    equations: list[Equation] = []
    outputs = _inline(jaxpr, env, equations, ())
    return Block(inputs, equations, outputs)


def _inline(
    jaxpr: Jaxpr, env: dict[Any, Atom], equations: list[Equation], callers: tuple[Any, ...]
) -> list[Atom]:
    def read(atom: Any) -> Atom:
        return Constant(atom.val, atom.aval) if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        name, inputs = eqn.primitive.name, [read(v) for v in eqn.invars]
        if name in _CALLS:
            called = eqn.params[_CALLS[name]]
            inner, consts = _open(called)
            scope: dict[Any, Atom] = {
                v: Constant(c, v.aval) for v, c in zip(inner.constvars, consts, strict=True)
            }
            scope.update(zip(inner.invars, inputs, strict=True))
            results = _inline(inner, scope, equations, (eqn.source_info, *callers))
            env.update(zip(eqn.outvars, results, strict=True))
            continue
        outputs = [Var(v.aval) for v in eqn.outvars]
        env.update(zip(eqn.outvars, outputs, strict=True))
        blocks = [_convert(*_open(b)) for b in _BODIES.get(name, lambda _: [])(eqn.params)]
        equations.append(
            Equation(name, inputs, outputs, dict(eqn.params), blocks, (eqn.source_info, *callers))
        )
    return [read(v) for v in jaxpr.outvars]


def _open(jaxpr: Any) -> tuple[Jaxpr, Sequence[Any]]:
    return (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, ClosedJaxpr) else (jaxpr, ())


def prune(block: Block) -> None:
    """Drop, in place and in nested blocks, what neither a result nor a Ref depends on."""
    block.equations = needed(block.equations, block.outputs)
    for equation in block.equations:
        for inner in equation.blocks:
            prune(inner)


def mark_unused_swaps(block: Block) -> None:
    """Tell every swap whether its old contents are read: a plain store reads nothing."""
    read = {a for e in block.equations for a in e.inputs} | set(block.outputs)
    for equation in block.equations:
        if equation.primitive == "swap":
            equation.params["result_used"] = equation.outputs[0] in read
        for inner in equation.blocks:
            mark_unused_swaps(inner)


def needed(equations: Sequence[Equation], results: Iterable[Atom]) -> list[Equation]:
    """Return the equations that `results` (or a Ref write) depend on, in order."""
    wanted = {atom for atom in results if isinstance(atom, Var)}
    kept = []
    for equation in reversed(equations):
        if equation.writes or any(v in wanted for v in equation.outputs):
            kept.append(equation)
            wanted.update(v for v in equation.inputs if isinstance(v, Var))
    return kept[::-1]
