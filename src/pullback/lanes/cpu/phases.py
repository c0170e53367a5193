"""Split a lane program into phases: one top-level loop each, with what lies between them.

prologue | while | middle | while | epilogue. Each phase runs with lane refill: a lane whose loop
has ended takes the next trajectory while the others go on. Values that a later phase reads are
kept per trajectory; the code between loops is cheap and is recomputed where it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
    _find_saved(result)
    return result


def _main_loops(equations: list[Equation]) -> list[Equation]:
    loops = [e for e in equations if e.primitive == "while" and not _has_many_ends(e)]
    counts = [_count_equations(e.blocks[1]) for e in loops]
    largest = max(counts, default=0)
    return [
        e for e, n in zip(loops, counts, strict=True) if n * _MAIN_LOOP_SHARE >= largest or e.writes
    ]


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
