"""What a foreign function takes and returns: its C pointers and scalars, in order."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from pullback.foreign.sizes import Size, check_size

__all__ = ["Arg", "Intent"]

Intent: TypeAlias = Literal["in", "out", "inout", "return"]

_C_TYPES = {
    "float64": "double",
    "float32": "float",
    "int32": "int",
    "int64": "long",
    "uint8": "unsigned char",
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


@dataclasses.dataclass(frozen=True)
class Arg:
    """One argument of a foreign function.

    Attributes:
        name: Its name, for messages and for the shapes of others.
        dtype: float64, float32, int32, int64 or uint8.
        shape: Its shape; a single size stands for one axis. A size is a number, the name of an
            axis length, or a formula of them such as `"3 * n"`. An integer argument `n` without
            axes whose name is an axis length is not passed by the caller: it is that length. Arrays
            are passed as pointers to contiguous rows (C order), `()` as a value.
        intent: `"in"` is read only; `"out"` is written and returned; `"inout"` is read and
            written, and the new value returned; `"return"` is what the function returns.
        active: Whether derivatives with respect to it, or of it, are wanted. Integers have none.
    """

    name: str
    dtype: Any = "float64"
    shape: tuple[Size, ...] | Size = ()
    intent: Intent = "in"
    active: bool = True

    def __post_init__(self) -> None:
        """Check everything, and give dtype and shape one form."""
        if not isinstance(self.name, str) or not _NAME.match(self.name):
            raise ValueError(f"`name` must be a C identifier, but {self.name!r} arrived.")
        try:
            dtype = np.dtype(self.dtype)
        except TypeError:
            dtype = None
        if dtype is None or dtype.name not in _C_TYPES:
            known = ", ".join(_C_TYPES)
            raise TypeError(
                f"`dtype` of argument {self.name} must be one of {known}, but {self.dtype!r} "
                "arrived; convert the values before the call."
            )
        if self.intent not in get_args(Intent):
            raise ValueError(
                f'`intent` of argument {self.name} must be "in", "out", "inout" or "return", but '
                f"{self.intent!r} arrived."
            )
        shape = self.axes
        for size in shape:
            check_size(self.name, size)
        if self.intent == "return" and shape:
            raise ValueError(
                f"`shape` of argument {self.name} must be (), because C functions return single "
                f"values, but {self.shape!r} arrived."
            )
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "active", bool(self.active) and dtype.kind == "f")

    @property
    def axes(self) -> tuple[Size, ...]:
        """The shape, as a tuple."""
        return self.shape if isinstance(self.shape, tuple) else (self.shape,)

    @property
    def c_type(self) -> str:
        """Name of its dtype in C."""
        return _C_TYPES[self.dtype.name]

    @property
    def is_read(self) -> bool:
        """Whether its value matters before the call."""
        return self.intent in ("in", "inout")

    @property
    def is_written(self) -> bool:
        """Whether it is a result."""
        return self.intent != "in"

    @property
    def is_value(self) -> bool:
        """Whether it is passed by value."""
        return self.shape == () and self.intent == "in"
