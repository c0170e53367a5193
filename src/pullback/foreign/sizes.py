"""Sizes of axes: numbers, names, and formulas of names."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

__all__ = ["Size", "check_size", "names_in", "size_of"]

Size: TypeAlias = int | str

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def check_size(argument: str, size: Any) -> None:
    """Raise unless `size` is a size.

    Raises:
        TypeError: It is neither a number nor a text.
        ValueError: It is negative, or no formula.
    """
    wanted = (
        f"`shape` of argument {argument} must hold sizes, such as 3, 'n' or '3 * n', but {size!r} "
        "is none"
    )
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise TypeError(f"{wanted}.")
    if isinstance(size, int):
        if size < 0:
            raise ValueError(f"{wanted}.")
        return
    try:
        _value(_parsed(size), dict.fromkeys(names_in(size), 1))
    except (SyntaxError, ValueError, ZeroDivisionError):
        raise ValueError(f"{wanted}; formulas have names, numbers, +, -, * and //.") from None


def names_in(size: Size) -> list[str]:
    """Return the names in a size."""
    if isinstance(size, int):
        return []
    return [node.id for node in ast.walk(_parsed(size)) if isinstance(node, ast.Name)]


def size_of(size: Size, lengths: Mapping[str, int]) -> int:
    """Return the number that a size is, for given axis lengths."""
    return size if isinstance(size, int) else _value(_parsed(size), lengths)


@functools.lru_cache(maxsize=1024)
def _parsed(size: str) -> ast.expr:
    return ast.parse(size, mode="eval").body


def _value(node: ast.expr, lengths: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return lengths[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, lengths), _value(right, lengths))
    raise ValueError(ast.dump(node))
