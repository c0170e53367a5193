"""LLVM IR as text: types, constants, functions with deferred phis.

Text is several times cheaper to make than a tree of IR objects, and LLVM parses it anyway.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from pullback.core.errors import UnsupportedPrimitive

_ELEMENT = {
    "f8": "double",
    "f4": "float",
    "b1": "i1",
    "i1": "i8",
    "u1": "i8",
    "i2": "i16",
    "u2": "i16",
    "i4": "i32",
    "u4": "i32",
    "i8": "i64",
    "u8": "i64",
}


def element_type(dtype: np.dtype) -> str:
    """Return the LLVM type of one element of `dtype`."""
    try:
        return _ELEMENT[dtype.kind + str(dtype.itemsize)]
    except KeyError:
        raise UnsupportedPrimitive(
            f"lane kernels hold float32, float64, bool and integers; found {dtype.name}: "
            "use `EnsembleArray()` for it"
        ) from None


def memory_type(dtype: np.dtype) -> str:
    """Return the LLVM type of one stored element (XLA keeps a bool in a byte)."""
    return "i8" if dtype.kind == "b" else element_type(dtype)


def literal(constant: Any, dtype: np.dtype) -> str:
    """Return the LLVM spelling of a number of `dtype`, exact to the bit."""
    if dtype.kind == "f":
        wide = float(np.asarray(constant).astype(dtype))
        return "0x" + struct.pack(">d", wide).hex().upper()
    if dtype.kind == "b":
        return "true" if constant else "false"
    return str(int(np.asarray(constant).astype(dtype)))


class Phi:
    """A phi whose incoming values become known after it is placed."""

    __slots__ = ("incoming", "name", "type")

    def __init__(self, name: str, type_text: str) -> None:
        self.name = name
        self.type = type_text
        self.incoming: list[tuple[str, str]] = []

    def add(self, text: str, block: str) -> None:
        """Let the phi take `text` when control comes from `block`."""
        self.incoming.append((text, block))

    def __str__(self) -> str:
        pairs = ", ".join(f"[{text}, %{block}]" for text, block in self.incoming)
        return f"{self.name} = phi {self.type} {pairs}"


class FunctionText:
    """One function under construction: numbered names, a current block, deferred phis."""

    def __init__(self, header: str) -> None:
        self.header = header
        self.entry: list[str] = []
        self.lines: list[Any] = []
        self.block = "entry"
        self._names = 0
        self._labels = 0

    @property
    def n_lines(self) -> int:
        """Number of instructions and labels so far."""
        return len(self.lines)

    def name(self) -> str:
        """Return a fresh SSA name."""
        self._names += 1
        return f"%v{self._names}"

    def label(self, hint: str) -> str:
        """Return a fresh block label."""
        self._labels += 1
        return f"{hint}{self._labels}"

    def emit(self, text: str) -> None:
        """Append an instruction that has no result."""
        self.lines.append(text)

    def define(self, right_side: str) -> str:
        """Append an instruction and return its fresh name."""
        self._names += 1
        name = f"%v{self._names}"
        self.lines.append(f"{name} = {right_side}")
        return name

    def phi(self, type_text: str) -> Phi:
        """Place a phi in the current block; its incoming values follow."""
        phi = Phi(self.name(), type_text)
        self.lines.append(phi)
        return phi

    def open(self, label: str) -> None:
        """Begin the block `label`."""
        self.lines.append(f"{label}:")
        self.block = label

    def alloca(self, type_text: str, align: int = 64) -> str:
        """Reserve stack memory in the entry block."""
        self._names += 1
        name = f"%v{self._names}"
        self.entry.append(f"{name} = alloca {type_text}, align {align}")
        return name

    def __str__(self) -> str:
        body = "\n".join(map(str, self.entry + self.lines))
        return f"{self.header} {{\nentry:\n{body}\n}}"
