"""All arguments of a foreign function, and what follows from their shapes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from pullback.foreign.arg import Arg
from pullback.foreign.sizes import names_in, size_of

__all__ = ["Signature"]


@dataclasses.dataclass(frozen=True)
class Signature:
    """The arguments of a foreign function.

    Attributes:
        args: In the order of the function.
    """

    args: tuple[Arg, ...]

    def __post_init__(self) -> None:
        """Raise where the arguments do not fit together."""
        names = [arg.name for arg in self.args]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"`signature` has two arguments named {twice[0]}; rename one.")
        if sum(arg.intent == "return" for arg in self.args) > 1:
            raise ValueError("`signature` has two returned values; a C function has one.")
        if not any(arg.is_written for arg in self.args):
            raise ValueError(
                '`signature` has no result; give an argument the intent "out", "inout" or "return".'
            )
        for name in self.lengths:
            for arg in self.args:
                if arg.name == name and not self.is_length(arg):
                    raise ValueError(
                        f"`signature` uses {name} as an axis length, so argument {name} must be an "
                        f"integer without axes and with intent 'in', but it is {arg}."
                    )

    @functools.cached_property
    def lengths(self) -> tuple[str, ...]:
        """Names of axis lengths, in the order of appearance."""
        found = [name for arg in self.args for size in arg.axes for name in names_in(size)]
        return tuple(dict.fromkeys(found))

    def is_length(self, arg: Arg) -> bool:
        """Whether an argument is an axis length that the caller does not pass."""
        return arg.name in self.lengths and arg.is_value and arg.dtype.kind == "i"

    @functools.cached_property
    def operands(self) -> tuple[Arg, ...]:
        """What the caller passes."""
        return tuple(arg for arg in self.args if arg.is_read and not self.is_length(arg))

    @functools.cached_property
    def results(self) -> tuple[Arg, ...]:
        """What the caller gets."""
        return tuple(arg for arg in self.args if arg.is_written)

    def shape(self, arg: Arg, lengths: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of an argument."""
        return tuple(size_of(size, lengths) for size in arg.axes)

    def resolve(
        self, shapes: Sequence[tuple[int, ...]], given: Mapping[str, Any]
    ) -> dict[str, int]:
        """Return the axis lengths that operands of these shapes have.

        Args:
            shapes: Of the operands.
            given: Lengths that the caller has named.

        Raises:
            TypeError: A length is given that there is not, or missing.
            ValueError: A shape disagrees.
        """
        for name in given:
            if name not in self.lengths:
                known = ", ".join(self.lengths) or "none"
                raise TypeError(f"there is no axis length {name!r}; there are: {known}.")
        lengths = {name: int(value) for name, value in given.items()}
        for arg, shape in zip(self.operands, shapes, strict=True):
            self._learn(arg, shape, lengths)
        for name in self.lengths:
            if name not in lengths:
                raise TypeError(
                    f"the axis length {name!r} does not follow from the arguments; pass it as "
                    f"{name}=..., a Python integer."
                )
        for arg, shape in zip(self.operands, shapes, strict=True):
            wanted = self.shape(arg, lengths)
            if wanted != shape:
                raise ValueError(
                    f"argument {arg.name} must have shape {wanted}, but {shape} arrived."
                )
        for arg in self.results:
            if min(self.shape(arg, lengths), default=0) < 0:
                raise ValueError(
                    f"argument {arg.name} would have the shape {self.shape(arg, lengths)}; choose "
                    "other axis lengths."
                )
        return {name: lengths[name] for name in self.lengths}

    def _learn(self, arg: Arg, shape: tuple[int, ...], lengths: dict[str, int]) -> None:
        if len(shape) != len(arg.axes):
            raise ValueError(
                f"argument {arg.name} must have {len(arg.axes)} axes, {arg.shape}, but shape "
                f"{shape} arrived."
            )
        for size, length in zip(arg.axes, shape, strict=True):
            if (
                isinstance(size, str)
                and size.isidentifier()
                and lengths.setdefault(size, length) != length
            ):
                raise ValueError(
                    f"argument {arg.name} must have the axis length {size} = {lengths[size]}, but "
                    f"shape {shape} arrived."
                )
