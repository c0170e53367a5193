"""The C++ text around a foreign function, a unit for each mode, so that one may fail alone.

A unit has the user's code; a function of pointers that calls it (`pb_f`); the derivatives of that
which Enzyme makes (`pb_jvp`, ...); and the loop over a batch that XLA's buffers are handed to. All
lengths are read at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.foreign.arg import Arg
from pullback.foreign.modes import TABLE, Mode
from pullback.foreign.signature import Signature
from pullback.foreign.slots import Slots, in_name, out_name, shadow, shadows

__all__ = ["ENTRY", "unit"]

ENTRY = "pullback_batch"
_RESTRICT = "__restrict"


def unit(
    signature: Signature, symbol: str, mode: Mode, code: str, given: Mapping[Mode, str]
) -> str:
    """Return the text of a unit.

    Args:
        signature: The arguments.
        symbol: Name of the function.
        mode: What is to be made of it.
        code: Text that declares or defines it.
        given: Functions of the user's for derivatives that Enzyme is not to make.
    """
    chain: list[Mode] = [mode]
    while (base := TABLE[chain[0]].base) is not None:
        chain.insert(0, base)
    parts = [code, _primal(signature, symbol)]
    for step in chain[1:]:
        by_hand = step in given
        parts.append(
            _by_hand(signature, step, given[step]) if by_hand else _derivative(signature, step)
        )
    return "\n".join([*parts, _batch(signature, mode)])


def _pointers(signature: Signature) -> list[tuple[str, Arg]]:
    """Return what `pb_f` takes before its integers: each operand, each result."""
    xs = [(in_name(arg), arg) for arg in signature.operands]
    return [*xs, *((out_name(arg), arg) for arg in signature.results)]


def _integers(signature: Signature) -> list[str]:
    copied = [f"size_{arg.name}" for arg in signature.args if arg.intent == "inout"]
    return [*copied, *(f"length_{name}" for name in signature.lengths)]


def _parameters(signature: Signature, mode: Mode) -> str:
    typed = [
        f"{arg.c_type}* {_RESTRICT} {shadow(name, suffix)}"
        for name, arg in _pointers(signature)
        for suffix in (shadows(mode) if arg.active else [""])
    ]
    return ", ".join([*typed, *(f"long {name}" for name in _integers(signature))])


def _primal(signature: Signature, symbol: str) -> str:
    def passed(arg: Arg) -> str:
        if signature.is_length(arg):
            return f"({arg.c_type})length_{arg.name}"
        return f"*{out_name(arg)}" if arg.is_value else out_name(arg)

    call = ", ".join(passed(arg) for arg in signature.args if arg.intent != "return")
    returned = [f"*{out_name(arg)} = " for arg in signature.args if arg.intent == "return"]
    copies = [
        f"  for (long i = 0; i < size_{a.name}; i++) {out_name(a)}[i] = {in_name(a)}[i];"
        for a in signature.args
        if a.intent == "inout"
    ]
    return "\n".join(
        [
            f"static void pb_f({_parameters(signature, 'f')}) {{",
            *copies,
            f"  {''.join(returned)}{symbol}({call});",
            "}",
        ]
    )


def _derivative(signature: Signature, mode: Mode) -> str:
    recipe = TABLE[mode]
    assert recipe.base is not None
    passed = []
    for name, arg in _pointers(signature):
        if not arg.active:
            passed.append(f"enzyme_const, {name}")
            continue
        names = [shadow(name, suffix) for suffix in shadows(mode)]
        for first, second in zip(names[::2], names[1::2], strict=True):
            passed.append(f"enzyme_dup, {first}, {second}")
    passed += [f"enzyme_const, {name}" for name in _integers(signature)]
    call = f"enzyme::{recipe.call}<void>((void*)pb_{recipe.base}, {', '.join(passed)})"
    return f"static void pb_{mode}({_parameters(signature, mode)}) {{\n  {call};\n}}"


def _by_hand(signature: Signature, mode: Mode, symbol: str) -> str:
    """Return a derivative that calls a function of the user's: each argument, then its shadow."""
    (suffix,) = (s for s in shadows(mode) if s)
    passed = []
    for arg in signature.args:
        if signature.is_length(arg):
            passed.append(f"({arg.c_type})length_{arg.name}")
            continue
        passed.append(f"*{out_name(arg)}" if arg.is_value else out_name(arg))
        if arg.active:
            passed.append(shadow(out_name(arg), suffix))
    head = f"static void pb_{mode}({_parameters(signature, mode)})"
    return f"{head} {{\n  {symbol}({', '.join(passed)});\n}}"


def _batch(signature: Signature, mode: Mode) -> str:
    slots, recipe = Slots(signature, mode), TABLE[mode]
    words = {name: f"control[{i}]" for i, name in enumerate(slots.control)}
    n_operands = len(slots.operands)
    lines = [
        f"void {ENTRY}(enzyme::tensor<double, 1>& out, const enzyme::tensor<int64_t, 1>& in) {{",
        "  char** buffers = (char**)&out;",
        "  const long* range = (const long*)&in;  // from, to, scratch memory",
        f"  const long* control = (const long*)buffers[{n_operands}];",
        "  for (long l = range[0]; l < range[1]; l++) {",
    ]
    for i, slot in enumerate(slots.operands):
        lines.append(
            _located(slot.arg, slot.name, f"buffers[{i}] + l * {words[f'stride_{slot.name}']}")
        )
    for i, slot in enumerate(slots.results):
        place = f"buffers[{n_operands + 1 + i}] + l * {words[f'stride_{slot.name}']}"
        lines.append(_located(slot.arg, slot.name, place))
    for slot in slots.scratch:
        lines.append(
            _located(slot.arg, slot.name, f"(char*)range[2] + {words[f'offset_{slot.name}']}")
        )
    copies = {
        shadow(out_name(arg), suffix): shadow(out_name(arg), source)
        for suffix, source in recipe.copies.items()
        for arg in signature.results
    }
    for slot in (*slots.results, *slots.scratch):
        start = f"{copies[slot.name]}[i]" if slot.name in copies else "0"
        size = words[f"size_{slot.arg.name}"]
        lines.append(f"    for (long i = 0; i < {size}; i++) {slot.name}[i] = {start};")
    lines += [f"    pb_{mode}({', '.join(_passed(signature, mode, words))});", "  }", "}"]
    return "\n".join(lines)


def _located(arg: Arg, name: str, place: str) -> str:
    return f"    {arg.c_type}* {name} = ({arg.c_type}*)({place});"


def _passed(signature: Signature, mode: Mode, words: dict[str, str]) -> Sequence[str]:
    pointers = [
        shadow(name, suffix)
        for name, arg in _pointers(signature)
        for suffix in (shadows(mode) if arg.active else [""])
    ]
    return [*pointers, *(words[name] for name in _integers(signature))]
