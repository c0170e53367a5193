"""What a newer LLVM writes is read, and nothing else is lost."""

import pytest

from pullback.foreign import ForeignError
from pullback.foreign.ir_fixes import parsed


def module(body, arguments="double %x", tail=""):
    return f"define double @f({arguments}) {{\n{body}\n}}\n{tail}\n"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("%y = fadd double %x, f0x400921FB54442D18", "0x400921FB54442D18"),
        ("%y = fadd double %x, +inf", "0x7FF0000000000000"),
        ("%y = fadd fast double %x, 2.0", "fadd double %x, 2.0"),
        ("%y = fadd nnan ninf contract double %x, 2.0", "fadd double %x, 2.0"),
    ],
)
def test_constants_and_flags(line, kept):
    assert kept in str(parsed(module(f"{line}\nret double %y")))


def test_a_float_in_its_shortest_form():
    text = "define float @f(float %x) {\n%y = fadd float %x, 1.000000e-01\nret float %y\n}\n"
    assert "0x3FB99999A0000000" in str(parsed(text))


@pytest.mark.parametrize(
    "attribute",
    ["memory(read, target_mem: none)", "memory(target_mem: none)", "no_such_thing", "no_such(16)"],
)
def test_unknown_attributes_are_dropped(attribute):
    text = (
        module("ret double %x").replace("{\n", "#0 {\n")
        + f"attributes #0 = {{ nounwind {attribute} }}\n"
    )
    assert "nounwind" in str(parsed(text))


def test_nothing_is_dropped_from_an_instruction():
    with pytest.raises(ForeignError, match="does not read"):
        parsed(module("%y = fadd double %x, strange\nret double %y"))
