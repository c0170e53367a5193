"""LLVM IR as a newer LLVM writes it, for the LLVM of llvmlite.

Known differences are rewritten first. The parser then says where it stumbles, and what it stumbles
upon is removed there, but only an attribute or an annotation, without which code means the same:
nothing is ever removed from an instruction's operands.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import llvmlite.binding as llvm

from pullback.foreign.errors import ForeignError
from pullback.native.host import initialize_llvm

__all__ = ["parsed"]

_MOST_ROUNDS = 300
_INFINITE = {"+inf": "0x7FF0000000000000", "-inf": "0xFFF0000000000000",
             "+nan": "0x7FF8000000000000", "-nan": "0xFFF8000000000000",
             "+qnan": "0x7FF8000000000000", "-qnan": "0xFFF8000000000000"}  # fmt: skip


def _double(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _float_bits(digits: str) -> str:
    return _double(struct.unpack("<f", struct.pack("<I", int(digits, 16)))[0])


_KNOWN: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"(?m)^(!\d+ = distinct !\{!\d+), i1 \w+", r"\1"),
    # Code is made for this processor, with all that it has.
    (r' "(?:target-features|target-cpu|tune-cpu|min-legal-vector-width)"="[^"]*"', ""),
    (r"(?<=[ (])[+-](?:inf|q?nan)\b(?:\(0x[0-9A-Fa-f]+\))?(?=[,)\s>\]])",
     lambda m: _INFINITE[m[0].split("(")[0]]),
    (r"\bf0x([0-9A-Fa-f]{16})\b", r"0x\1"),
    (r"\bf0x([0-9A-Fa-f]{8})\b", lambda m: _float_bits(m[1])),
    # Enzyme marks its own instructions as inexact, which would lose infinities and NaN.
    (r"\b(f(?:add|sub|mul|div|neg|rem|cmp)|call|select|phi) (?:(?:fast|nnan|ninf|nsz|arcp|contract"
     r"|afn|reassoc) )+", r"\1 "),
    (r'!"llvm\.loop\.unroll\.disable"', '!"llvm.loop.mustprogress"'),
)  # fmt: skip
_REMOVABLE = re.compile(r"attributes #|define |declare |!|.*\b(?:call|invoke) ")
_PLACE = re.compile(r"<string>:(\d+):(\d+): error: (.*)")
_DECIMAL = re.compile(r"[-+]?\d+\.\d+(?:e[-+]?\d+)?")
_ATTRIBUTE = re.compile(
    r'[a-z][\w.]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|=(?:"[^"]*"|\d+)|: \w+)?\s*'
)


def parsed(text: str) -> llvm.ModuleRef:
    """Return the module of a text.

    Raises:
        ForeignError: It holds something that llvmlite's LLVM does not know.
    """
    initialize_llvm()
    for pattern, new in _KNOWN:
        text = re.sub(pattern, new, text)
    for _ in range(_MOST_ROUNDS):
        try:
            module = llvm.parse_assembly(text)
        except RuntimeError as error:
            text = _without(text, str(error))
            continue
        try:
            module.verify()
            return module
        except RuntimeError as error:
            fewer = re.sub(r", !(?!dbg)[a-zA-Z.]+ !\d+", "", text)
            if fewer == text:
                raise _unknown(str(error)) from error
            text = fewer
    raise _unknown("too many differences")


def _without(text: str, message: str) -> str:
    """Return the text without what the parser stumbled upon."""
    place = _PLACE.search(message)
    if place is None:
        raise _unknown(message)
    number, column, what = int(place[1]) - 1, int(place[2]) - 1, place[3]
    lines = text.split("\n")
    line = lines[number]
    before, rest = line[:column], line[column:]
    number_text = _DECIMAL.match(rest)
    if "floating point constant invalid" in what and number_text:
        (rounded,) = struct.unpack("<f", struct.pack("<f", float(number_text[0])))
        lines[number] = before + _double(rounded) + rest[number_text.end() :]
        return "\n".join(lines)
    if not _REMOVABLE.match(line):
        raise _unknown(message)
    lines[number] = _removed(before, rest, message)
    return "\n".join(lines)


def _removed(before: str, rest: str, message: str) -> str:
    attribute = _ATTRIBUTE.match(rest)
    if attribute:
        rest = rest[attribute.end() :]
        if rest.startswith((",", ")")) and before.endswith(", "):
            before = before[:-2]
        return before + rest.removeprefix(", ") if before.endswith("(") else before + rest
    emptied = re.search(r"\s*[a-z][\w.]*\($", before)
    if emptied and rest.startswith(")"):
        return before[: emptied.start()] + rest[1:]
    arguments = re.match(r"\([^()]*\)", rest)
    word = re.search(r"\s*[a-z][\w.]*$", before)
    if arguments and word:
        return before[: word.start()] + rest[arguments.end() :]
    raise _unknown(message)


def _unknown(message: str) -> ForeignError:
    return ForeignError(
        "Enzyme wrote LLVM IR that llvmlite does not read, which is a fault of pullback for these "
        f"versions of both: {message.strip()[:600]}"
    )
