"""Code that a user hands over, in any language, as something that the shim can call."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from pullback.foreign import prelude
from pullback.foreign.errors import ForeignError, ForeignMissing
from pullback.foreign.signature import Signature

__all__ = ["LANGUAGES", "Code", "Prepared"]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Code in a folder.

    Attributes:
        text: What the shim begins with: it defines or declares the function.
        argv: Flags for Enzyme's compiler.
        hashes: Of everything that the text does not hold.
    """

    text: str
    argv: tuple[str, ...]
    hashes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Code:
    """What a user hands over.

    Attributes:
        sources: Texts or files.
        language: What they are written in.
        argv: Flags for Enzyme's compiler.
        flags: Flags for the compiler of another language.
    """

    sources: tuple[Any, ...]
    language: str
    argv: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def prepare(self, folder: Path, symbol: str, signature: Signature) -> Prepared:
        """Write what is needed into a folder.

        Raises:
            ForeignError: A compiler of another language refused the code.
            ForeignMissing: There is no such compiler.
        """
        return LANGUAGES[self.language](self, folder, symbol, signature)


def _file(source: Any, folder: Path, name: str) -> Path:
    """Return a file with the source: the user's own, or one with the text."""
    if isinstance(source, os.PathLike):
        return Path(source).resolve(strict=True)
    if not isinstance(source, str):
        raise TypeError(
            "`source` must be the text of the code or a path of a file, but a "
            f"{type(source).__name__} arrived; wrap file names in pathlib.Path."
        )
    path = folder / name
    path.write_text(source, encoding="utf-8")
    return path


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _included(code: Code, folder: Path, suffix: str) -> tuple[list[str], list[str]]:
    files = [_file(s, folder, f"source{i or ''}{suffix}") for i, s in enumerate(code.sources)]
    return [f'#include "{path}"' for path in files], [_hash(path) for path in files]


def _cpp(code: Code, folder: Path, symbol: str, signature: Signature) -> Prepared:
    lines, hashes = _included(code, folder, ".cpp")
    return Prepared("\n".join([prelude.CPP, *lines]), code.argv, tuple(hashes))


def _c(code: Code, folder: Path, symbol: str, signature: Signature) -> Prepared:
    lines, hashes = _included(code, folder, ".c")
    text = "\n".join([prelude.C_BEGIN, *lines, prelude.C_END])
    return Prepared(text, code.argv, tuple(hashes))


def _declaration(symbol: str, signature: Signature) -> str:
    """Return the C declaration of a function that is linked."""

    def passed(arg: Any) -> str:
        pointer = "" if arg.is_value or signature.is_length(arg) else "*"
        return f"{arg.c_type}{pointer}"

    args = ", ".join(passed(arg) for arg in signature.args if arg.intent != "return")
    kinds = [arg.c_type for arg in signature.args if arg.intent == "return"]
    return f'extern "C" {kinds[0] if kinds else "void"} {symbol}({args});'


def _linked(code: Code, files: Sequence[Path], symbol: str, signature: Signature) -> Prepared:
    argv = list(code.argv)
    for path in files:
        argv += ["-mlink-bitcode-file", str(path)]
    hashes = tuple(_hash(path) for path in files)
    # Paths of temporary files would make each key another one.
    return Prepared(_declaration(symbol, signature), tuple(argv), hashes)


def _llvm(code: Code, folder: Path, symbol: str, signature: Signature) -> Prepared:
    return _linked(
        code, [_bitcode(s, folder, i) for i, s in enumerate(code.sources)], symbol, signature
    )


def _bitcode(source: Any, folder: Path, index: int) -> Path:
    """Return a file of bitcode for a file or a text of LLVM IR."""
    path = _file(source, folder, f"source{index or ''}.ll")
    if path.read_bytes()[:2] == b"BC":
        return path
    try:
        data = llvm.parse_assembly(path.read_text(encoding="utf-8")).as_bitcode()
    except (RuntimeError, UnicodeDecodeError) as error:
        raise ForeignError(f"`source` is not LLVM IR that can be read: {error}") from error
    made = folder / f"source{index or ''}.bc"
    made.write_bytes(data)
    return made


def _with(
    names: Sequence[str], flags: Sequence[str], suffix: str, install: str
) -> Callable[[Code, Path, str, Signature], Prepared]:
    """Return how to prepare code that another compiler turns into bitcode."""

    def prepare(code: Code, folder: Path, symbol: str, signature: Signature) -> Prepared:
        path = next(filter(None, map(shutil.which, names)), None)
        if path is None:
            raise ForeignMissing(
                f"code in the language {code.language} needs {' or '.join(names)}: {install}."
            )
        files = []
        for i, source in enumerate(code.sources):
            given = _file(source, folder, f"source{i or ''}{suffix}")
            made = folder / f"source{i or ''}.bc"
            command = [path, *flags, *code.flags, str(given), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
            if done.returncode or not made.exists():
                told = done.stderr.strip().replace(f"{folder}{os.sep}", "")[-3000:]
                raise ForeignError(f"{Path(path).name} refused the code of `{symbol}`: {told}")
            files.append(made)
        return _linked(code, files, symbol, signature)

    return prepare


LANGUAGES: Mapping[str, Callable[[Code, Path, str, Signature], Prepared]] = {
    "c++": _cpp,
    "c": _c,
    "llvm": _llvm,
    "fortran": _with(
        ("flang-new-19", "flang-new", "flang"),
        ("-O1", "-emit-llvm", "-c"), ".f90",
        "install LLVM's Fortran compiler, for example with `apt install flang-19`; gfortran makes"
        " no LLVM IR",
    ),
    "rust": _with(
        ("rustc",),
        ("--crate-type=lib", "-C", "opt-level=3", "-C", "panic=abort", "-C", "no-vectorize-loops",
         "-C", "no-vectorize-slp", "--emit=llvm-bc"), ".rs",
        "install Rust, for example with rustup",
    ),
}  # fmt: skip
