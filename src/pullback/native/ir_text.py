"""LLVM IR text with named structure fields: a one-pass macro expansion.

Four extra statements, each alone on its line, stand beside plain LLVM IR:

* `%x = get Struct.field %base`       load the field
* `put Struct.field %base, VALUE`     store the field
* `%x = at Struct.field %base`        address of the field
* `%x = new Struct`                   stack room for one of XLA's argument structures, with its
  `struct_size` and `extension` members set (write it in a function's entry block only)

and `@text.NAME` refers to a C string of the table given to `expand`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pullback.native.abi import STRUCTS

_GET = re.compile(r"\s*(%[\w.]+) = get (\w+)\.(\w+) ([%@][\w.]+)$")
_PUT = re.compile(r"\s*put (\w+)\.(\w+) ([%@][\w.]+), (\S+)$")
_AT = re.compile(r"\s*(%[\w.]+) = at (\w+)\.(\w+) ([%@][\w.]+)$")
_NEW = re.compile(r"\s*(%[\w.]+) = new (\w+)$")


def expand(source: str, texts: Mapping[str, str] | None = None) -> str:
    """Return plain LLVM IR for `source`, followed by the string constants of `texts`.

    Raises:
        KeyError: A structure or a field is not in the tables of `abi`.
    """
    lines: list[str] = []
    for number, line in enumerate(source.splitlines()):
        lines += _expand_line(line, f"%m{number}")
    lines += [_string_constant(name, text) for name, text in (texts or {}).items()]
    return "\n".join(lines) + "\n"


def _expand_line(line: str, temporary: str) -> list[str]:
    if match := _GET.match(line):
        result, struct, field, base = match.groups()
        llvm_type = STRUCTS[struct][field].llvm_type
        return [
            _address(temporary, struct, field, base),
            f"  {result} = load {llvm_type}, ptr {temporary}",
        ]
    if match := _PUT.match(line):
        struct, field, base, value = match.groups()
        llvm_type = STRUCTS[struct][field].llvm_type
        return [
            _address(temporary, struct, field, base),
            f"  store {llvm_type} {value}, ptr {temporary}",
        ]
    if match := _AT.match(line):
        result, struct, field, base = match.groups()
        return [_address(result, struct, field, base)]
    if match := _NEW.match(line):
        result, struct = match.groups()
        # Room for the last member too, which XLA does not always count in the size.
        room = STRUCTS[struct].size + 16
        return [
            f"  {result} = alloca [{room} x i8], align 8",
            f"  store i64 {STRUCTS[struct].size}, ptr {result}",
            _address(temporary, struct, "extension", result),
            f"  store ptr null, ptr {temporary}",
        ]
    return [line]


def _address(result: str, struct: str, field: str, base: str) -> str:
    return f"  {result} = getelementptr i8, ptr {base}, i64 {STRUCTS[struct][field].offset}"


def _string_constant(name: str, text: str) -> str:
    data = text.encode("ascii")
    escaped = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)
    return f'@text.{name} = private constant [{len(data) + 1} x i8] c"{escaped}\\00"'
