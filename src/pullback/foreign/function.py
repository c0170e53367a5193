"""`foreign.function`: a compiled function as a function of arrays that JAX can differentiate."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array
from pullback.foreign.arg import Arg
from pullback.foreign.code import LANGUAGES, Code
from pullback.foreign.numpy_call import call_numpy
from pullback.foreign.primitives import call
from pullback.foreign.program import Program, compile_program
from pullback.foreign.signature import Signature

__all__ = ["ForeignFunction", "function"]


class ForeignFunction:
    """A foreign function of arrays; made by `function`.

    Call it with the operands in the order of the signature, and axis lengths that do not follow
    from their shapes as keywords.
    """

    def __init__(self, program: Program) -> None:
        """Wrap a compiled program."""
        self._program = program
        self.__name__ = program.symbol

    @property
    def signature(self) -> tuple[Arg, ...]:
        """The arguments."""
        return self._program.signature.args

    def __repr__(self) -> str:
        """Show name and arguments."""
        signature = self._program.signature
        xs, ys = (
            ", ".join(a.name for a in args) for args in (signature.operands, signature.results)
        )
        return f"<foreign function {self._program.symbol}({xs}) -> ({ys})>"

    def __call__(self, *operands: Any, **lengths: int) -> Any:
        """Call it.

        Returns:
            Its result, or a tuple of its results.

        Raises:
            TypeError: An operand is missing, or has a dtype that does not convert without loss.
            ValueError: A shape disagrees.
        """
        values = self._each(_for_jax, operands)
        out = call(self._program, self._lengths(values, lengths), values)
        return out[0] if len(out) == 1 else tuple(out)

    def numpy(self, *operands: Any, **lengths: int) -> Any:
        """Call it with NumPy arrays, without JAX; other Python threads run meanwhile.

        Returns:
            Its result as a NumPy array, or a tuple of its results.

        Raises:
            TypeError: An operand is missing, or has a dtype that does not convert without loss.
            ValueError: A shape disagrees.
        """
        values = self._each(_for_numpy, operands)
        out = call_numpy(self._program, self._lengths(values, lengths), values)
        return out[0] if len(out) == 1 else tuple(out)

    def _each(self, convert: Callable[[Arg, Any], Any], operands: Sequence[Any]) -> list[Any]:
        wanted = self._program.signature.operands
        if len(operands) != len(wanted):
            names = ", ".join(arg.name for arg in wanted)
            raise TypeError(
                f"`{self._program.symbol}` takes {len(wanted)} arguments ({names}), but "
                f"{len(operands)} arrived."
            )
        return [convert(arg, x) for arg, x in zip(wanted, operands, strict=True)]

    def _lengths(self, values: Sequence[Any], given: dict[str, int]) -> dict[str, int]:
        try:
            return self._program.signature.resolve([x.shape for x in values], given)
        except (TypeError, ValueError) as error:
            raise type(error)(f"`{self._program.symbol}`: {error}") from None


def _checked_derivatives(
    derivatives: Mapping[Any, Any] | None, args: Sequence[Arg], is_c: bool
) -> dict[Any, str]:
    given = dict(derivatives or {})
    for mode, name in given.items():
        if mode not in ("jvp", "vjp") or not isinstance(name, str):
            raise ValueError(
                '`derivatives` must give names of functions for "jvp" or "vjp", but '
                f"{mode!r}: {name!r} arrived."
            )
    kinds = [arg.intent for arg in args if arg.intent in ("inout", "return")]
    if given and (kinds or not is_c):
        what = f"an argument with intent {kinds[0]!r}" if kinds else "another language"
        raise ValueError(
            f"`derivatives` are for C and C++ functions of operands and results, but {what} "
            'arrived; use the intents "in" and "out".'
        )
    return given


def _checked(arg: Arg, value: Any) -> Any:
    """Return an array, or raise if its dtype does not convert."""
    array = value if hasattr(value, "dtype") else np.asarray(value)
    if array.dtype != arg.dtype and not np.can_cast(array.dtype, arg.dtype, "safe"):
        # Python's numbers, traced or not, take the type that is wanted.
        is_number = not hasattr(value, "dtype") or getattr(value, "weak_type", False)
        if not (is_number and np.can_cast(array.dtype, arg.dtype, "same_kind")):
            raise TypeError(
                f"argument {arg.name} must be {arg.dtype}, but {array.dtype} arrived; convert it."
            )
    return array


def _for_numpy(arg: Arg, value: Any) -> np.ndarray:
    return np.asarray(_checked(arg, value), arg.dtype)


def _for_jax(arg: Arg, value: Any) -> Array:
    out = jnp.asarray(_checked(arg, value), arg.dtype)
    if out.dtype != arg.dtype:
        raise TypeError(
            f"argument {arg.name} must be {arg.dtype}, which JAX does not have until "
            'jax.config.update("jax_enable_x64", True) is called.'
        )
    return out


def function(
    source: Any,
    symbol: str,
    signature: Sequence[Arg],
    language: str = "c++",
    *,
    include: Sequence[str | os.PathLike[str]] = (),
    define: Mapping[str, Any] | None = None,
    flags: Sequence[str] = (),
    derivatives: Mapping[Literal["jvp", "vjp"], str] | None = None,
    is_parallel: bool = False,
    timeout: float = 120.0,
) -> ForeignFunction:
    """Return a function written in C, C++, Fortran, Rust or LLVM IR as one that JAX differentiates.

    The code and its derivatives are compiled by Enzyme in a process of its own and kept on disk.

    Args:
        source: Text of the code, a `pathlib.Path` of a file, or a list of these.
        symbol: Name of the function.
        signature: Its arguments in order.
        language: "c++", "c", "fortran", "rust" or "llvm".
        include: Folders with header files, for C and C++.
        define: Macros, for C and C++; None defines one without a value.
        flags: Further flags of the code's own compiler; for C and C++ those of `clang -cc1`.
        derivatives: Names of functions in the same code that are derivatives written by hand, for
            C and C++. They take the arguments of the function, each `active` one followed by a
            pointer to its tangent ("jvp") or cotangent ("vjp"): a "jvp" writes the tangents of the
            results; a "vjp" adds to the cotangents of the operands, which are zero at first. They
            cannot rely on the results. Second derivatives are those of the code of the first ones.
        is_parallel: Whether the entries of a batch (`jax.vmap`) may run on several threads at once:
            the code must not write to variables that calls share.
        timeout: Seconds for compiling.

    Raises:
        ForeignError: The code does not compile; the message holds the compiler's own words. A
            derivative that does not compile is told of when it is asked for.
        ForeignMissing: Enzyme or a compiler is not installed.
        TypeError: An argument is of the wrong kind.
        ValueError: The signature contradicts itself, or the language is unknown.

    Differentiation:
        Forward and reverse mode, to second order, exact up to rounding, with respect to arguments
        of real dtype that are `active`.
    """
    if language not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise ValueError(f"`language` must be one of {known}, but {language!r} arrived.")
    if not isinstance(symbol, str) or not symbol:
        raise TypeError(f"`symbol` must be the name of the function, but {symbol!r} arrived.")
    args = tuple(signature)
    for arg in args:
        if not isinstance(arg, Arg):
            raise TypeError(f"`signature` must hold foreign.Arg, but {arg!r} arrived.")
    argv = [word for path in include for word in ("-I", os.fspath(path))]
    for name, value in (define or {}).items():
        argv += ["-D", name if value is None else f"{name}={value}"]
    is_c = language in ("c", "c++")
    sources = tuple(source) if isinstance(source, list | tuple) else (source,)
    code = Code(sources, language, (*argv, *flags) if is_c else (), () if is_c else tuple(flags))
    given = _checked_derivatives(derivatives, args, is_c)
    whole = Signature(args)
    program = compile_program(code, symbol, whole, given, timeout, bool(is_parallel))
    return ForeignFunction(program)
