"""A compiled foreign function: a kernel for each mode, or why there is none."""

from __future__ import annotations

import dataclasses
import functools
import platform
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from pullback import native
from pullback.foreign.code import Code
from pullback.foreign.compiler import compile_units, headers_of_compiler
from pullback.foreign.errors import ForeignError
from pullback.foreign.kept import finished, hashes_of, read, write
from pullback.foreign.kernel_ir import KERNEL
from pullback.foreign.modes import MODES, Mode
from pullback.foreign.shim import unit
from pullback.foreign.signature import Signature
from pullback.foreign.slots import Slots
from pullback.native.cache import cache_key

__all__ = ["Program", "compile_program"]

# Part of the key of what is kept on disk.
_VERSION = 1
_SERIAL = 1 << 62
_ARGV = [
    # Lines of the user's files in diagnostics.
    "-debug-info-kind=line-tables-only",
    "-dwarf-version=4",
    "-fgnuc-version=4.2.1",  # headers of the C library ask for it
    "-Dnoinline=unused",  # the attribute crashes Enzyme
]
_OPTIONS = native.CompileOptions(codegen_level=3, speed_level=0)


@dataclasses.dataclass(frozen=True)
class Program:
    """A foreign function and what was made of it; equal by content.

    Attributes:
        key: Hash of everything that it was made from, and of the result.
        symbol: Name of the function.
        signature: Its arguments.
        kernels: Text of each mode that there is.
        failures: Why the other modes are missing.
        is_parallel: Whether a batch may run on several threads.
    """

    key: str
    symbol: str
    signature: Signature = dataclasses.field(compare=False, repr=False)
    kernels: Mapping[Mode, str] = dataclasses.field(compare=False, repr=False)
    failures: Mapping[Mode, str] = dataclasses.field(compare=False, repr=False)
    is_parallel: bool = False

    def require(self, mode: Mode) -> None:
        """Raise where a mode is missing.

        Raises:
            ForeignError: It is; the message holds the compiler's reason.
        """
        if mode not in self.kernels:
            raise ForeignError(
                f"{_WHAT[mode]} of the foreign function `{self.symbol}` could not be compiled: "
                f"{self.failures[mode]}"
            )

    @functools.cache  # noqa: B019  (programs are kept for as long as the process lives)
    def slots(self, mode: Mode) -> Slots:
        """Return where a mode finds its arrays."""
        return Slots(self.signature, mode)

    def target(
        self, mode: Mode, counted: int, count_size: int, scratch_bytes: int
    ) -> native.KernelTarget:
        """Register a mode's kernel.

        Args:
            mode: Which.
            counted: The result whose size tells the length of the batch.
            count_size: Its elements for each entry of the batch.
            scratch_bytes: Scratch memory of a call.
        """
        self.require(mode)
        slots = self.slots(mode)
        n_args = len(slots.operands) + 1
        return native.register_kernel(
            native.KernelSource(
                ir=self.kernels[mode],
                entry=KERNEL,
                n_args=n_args,
                n_results=len(slots.results),
                count_buffer=n_args + counted,
                count_size=count_size,
                scratch_bytes=max(scratch_bytes, 8),
                min_per_thread=1 if self.is_parallel else _SERIAL,
            ),
            _OPTIONS,
        )


_WHAT: dict[Mode, str] = {
    "f": "the function itself",
    "jvp": "the derivative in forward mode",
    "vjp": "the derivative in reverse mode",
    "hvp": "the second derivative, forward over reverse,",
    "jj": "the second derivative in forward mode",
}


def compile_program(
    code: Code,
    symbol: str,
    signature: Signature,
    given: Mapping[Mode, str],
    timeout: float,
    is_parallel: bool,
) -> Program:
    """Compile a function, or find what an earlier process made of it.

    Args:
        code: Where it is.
        symbol: Its name.
        signature: Its arguments.
        given: Names of functions of the user's that are its derivatives.
        timeout: Seconds for compiling.
        is_parallel: Whether a batch may run on several threads.

    Raises:
        ForeignError: The function itself does not compile.
        ForeignMissing: A tool is missing.
    """
    native.require_not_forked()
    with tempfile.TemporaryDirectory(prefix="pullback-foreign-") as name:
        folder = Path(name)
        prepared = code.prepare(folder, symbol, signature)
        units: dict[Mode, str] = {}
        for mode in MODES:
            units[mode] = unit(signature, symbol, mode, prepared.text, given)
        versions = [metadata.version(p) for p in ("llvmlite",)] + [_enzyme_version()]
        host = [native.cpu_name(), ",".join(sorted(native.cpu_features())), platform.machine()]
        argv = [flag.replace(name, "") for flag in prepared.argv]
        parts = [str(_VERSION), *_ARGV, *versions, *host, *argv, *prepared.hashes]
        key = cache_key(*parts, *(text.replace(name, "") for text in units.values()))
        kept = read(key)
        if kept is None:
            argv = [*headers_of_compiler(), "-target-cpu", native.cpu_name(), *_ARGV]
            depends = folder / "dependencies"
            argv += ["-dependency-file", str(depends), "-MT", "x", *prepared.argv]
            made = compile_units(units, folder, argv, timeout)
            kept = finished(made, name)
            if kept.kernels:
                write(key, kept, hashes_of(depends, name))
    if "f" not in kept.kernels:
        why = kept.failures["f"]
        raise ForeignError(f"the foreign function `{symbol}` does not compile: {why}")
    # Header files are not in the key; what was made of them is.
    content = cache_key(key, *kept.kernels.values())
    return Program(content, symbol, signature, kept.kernels, kept.failures, is_parallel)


def _enzyme_version() -> str:
    try:
        return metadata.version("enzyme-ad")
    except metadata.PackageNotFoundError:
        return "none"
