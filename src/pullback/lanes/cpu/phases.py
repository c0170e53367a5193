"""Split a lane program into phases: one top-level loop each, with what lies between them.

prologue | while | middle | while | epilogue. Each phase runs with lane refill: a lane whose loop
has ended takes the next trajectory while the others go on. Values that a later phase reads are
kept per trajectory; the code between loops is cheap and is recomputed where it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pullback.lanes.program_ir import Atom, Block, Equation, Var, needed

# A top-level loop of much fewer equations than the largest is part of the straight code around it,
# unless it writes a Ref.
_MAIN_LOOP_SHARE = 8


@dataclass(eq=False)
class Phase:
    """Equations before a loop, the loop (None for straight code), what later phases read."""

    before: list[Equation]
    loop: Equation | None
    saved: list[Var] = field(default_factory=list)


@dataclass(eq=False)
class Phases:
    """A lane program cut at its main loops."""

    block: Block
    phases: list[Phase]
    after: list[Equation]
    refs: list[Equation]

    def upto(self, index: int) -> list[Equation]:
        """Return the straight code before loop `index` of its own phase."""
        return self.phases[index].before


def split(block: Block) -> Phases:
    """Cut the program at its main top-level loops and find what must be kept between them."""
    mains = _main_loops(block.equations)
    refs = [e for e in block.equations if e.primitive in ("new_ref", "empty_ref")]
    phases: list[Phase] = []
    pending: list[Equation] = []
    for equation in block.equations:
        if equation in refs:
            continue
        if equation in mains:
            phases.append(Phase(pending, equation))
            pending = []
        else:
            pending.append(equation)
    if not phases:
        phases, pending = [Phase([], None)], pending
    result = Phases(block, phases, pending, refs)
    _carry_reads(result)
    _find_saved(result)
    return result


def _main_loops(equations: list[Equation]) -> list[Equation]:
    loops = [e for e in equations if e.primitive == "while" and not _has_many_ends(e)]
    loops = [e for e in loops if not _is_crossed(e, equations)]
    counts = [_count_equations(e.blocks[1]) for e in loops]
    largest = max(counts, default=0)
    return [
        e for e, n in zip(loops, counts, strict=True) if n * _MAIN_LOOP_SHARE >= largest or e.writes
    ]


def _is_crossed(loop: Equation, equations: list[Equation]) -> bool:
    """Whether factors of a matrix made before the loop are used in or behind it.

    They cannot be kept between phases, so the loop is part of the straight code.
    """
    here = equations.index(loop)
    factors = {v for e in equations[:here] if e.primitive == "lane_lu" for v in e.outputs}
    return any(a in factors for e in equations[here:] for a in e.inputs)


def _carry_reads(program: Phases) -> None:
    """Let a loop carry, unchanged, what was read from a Ref before it and is used behind it.

    Other code before a loop is computed again behind it; a Ref may have been written meanwhile.
    """
    for i, phase in enumerate(program.phases):
        if phase.loop is None:
            continue
        reads = _reads_of_refs(phase.before)
        carried = [v for v in _used_behind(program, i) if v in reads]
        phase.loop = _with_carries(phase.loop, _carriable(carried, phase.before, reads))


def _reads_of_refs(equations: list[Equation]) -> set[Var]:
    """Return the variables that depend on the contents of a Ref."""
    found: set[Atom] = set()
    for equation in equations:
        if any(a.is_ref or a in found for a in equation.inputs):
            found.update(v for v in equation.outputs if not v.is_ref)
    return {v for v in found if isinstance(v, Var)}


def _used_behind(program: Phases, index: int) -> list[Var]:
    """Return what is used behind the loop of a phase."""
    equations = [*program.after]
    for phase in program.phases[index + 1 :]:
        equations += [*phase.before, *([phase.loop] if phase.loop else [])]
    used = [a for e in equations for a in e.inputs] + list(program.block.outputs)
    return list(dict.fromkeys(a for a in used if isinstance(a, Var)))


def _carriable(wanted: list[Var], before: list[Equation], reads: set[Var]) -> list[Var]:
    """Return what is carried: for the factors of a matrix, what they are computed from."""
    makers = {v: e for e in before if e.primitive == "lane_lu" for v in e.outputs}
    found: list[Var] = []
    for v in wanted:
        if v not in makers:
            found.append(v)
            continue
        inputs = [a for a in makers[v].inputs if isinstance(a, Var) and a in reads]
        found += inputs
    return list(dict.fromkeys(found))


def _with_carries(loop: Equation, carried: list[Var]) -> Equation:
    """Return the loop with further carries that no trip changes; their results keep their names."""
    carried = [v for v in carried if v not in loop.outputs]
    if not carried:
        return loop
    condition, body = loop.blocks
    into_condition, through = ([Var(v.aval) for v in carried] for _ in range(2))
    blocks = [
        Block([*condition.inputs, *into_condition], condition.equations, condition.outputs),
        Block([*body.inputs, *through], body.equations, [*body.outputs, *through]),
    ]
    inputs, outputs = [*loop.inputs, *carried], [*loop.outputs, *carried]
    return replace(loop, inputs=inputs, outputs=outputs, blocks=blocks)


def _has_many_ends(loop: Equation) -> bool:
    """Whether the loop, made by `vmap` inside a lane, ends for each element on its own."""
    (go,) = loop.blocks[0].outputs
    return go.aval.shape != ()


def _count_equations(block: Block) -> int:
    return sum(1 + sum(map(_count_equations, e.blocks)) for e in block.equations)


def _reads(equation: Equation) -> list[Atom]:
    return list(equation.inputs)


def _find_saved(program: Phases) -> None:
    """Let every phase keep what it, or an earlier one, defines and a later one reads."""
    available: set[Var] = set()
    for i, phase in enumerate(program.phases[:-1]):
        available.update(v for e in phase.before for v in e.outputs if not v.is_ref)
        if phase.loop is not None:
            available.update(v for v in phase.loop.outputs if not v.is_ref)
        later: dict[Var, None] = {}
        for following in program.phases[i + 1 :]:
            equations = [*following.before, *([following.loop] if following.loop else [])]
            for equation in equations:
                later.update((a, None) for a in _reads(equation) if isinstance(a, Var))
        for equation in program.after:
            later.update((a, None) for a in _reads(equation) if isinstance(a, Var))
        later.update((a, None) for a in program.block.outputs if isinstance(a, Var))
        phase.saved = [v for v in later if v in available]


def slice_for(equations: list[Equation], wanted: list[Var]) -> list[Equation]:
    """Return the equations that `wanted` depend on."""
    return needed(equations, wanted)
