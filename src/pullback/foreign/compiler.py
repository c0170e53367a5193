"""Runs Enzyme's compiler in a process of its own; what goes wrong there becomes a sentence."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pullback.foreign.errors import ForeignError, ForeignMissing
from pullback.foreign.modes import Mode
from pullback.foreign.shim import ENTRY

__all__ = ["Compiled", "compile_units"]

# Enzyme tells of what it cannot differentiate here only, and goes on to make code that crashes.
_FATAL = re.compile(r"(?m)^.*(?:\berror: |Enzyme: (?:No|Cannot) ).*$")
_NOISE = re.compile(r"freeing without malloc|warning: ")
_HINTS = " Known to crash it: OpenMP in forward mode, and calls into libraries without source."


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What became of a unit.

    Attributes:
        text: LLVM IR as Enzyme's own LLVM writes it; None if there is none.
        failure: Why there is none.
    """

    text: str | None
    failure: str | None = None


def compile_units(
    units: Mapping[Mode, str], folder: Path, argv: list[str], timeout: float
) -> dict[Mode, Compiled]:
    """Compile units; one that fails leaves the others alone.

    Args:
        units: The text of each.
        folder: Where to put files.
        argv: Flags, as of clang's -cc1.
        timeout: Seconds for each process.

    Raises:
        ForeignMissing: enzyme-ad is not installed.
    """
    if importlib.util.find_spec("enzyme_ad") is None:
        raise ForeignMissing(
            "foreign functions need Enzyme: install it with `pip install pullback[foreign]`."
        )
    out: dict[Mode, Compiled] = {}
    left: Mapping[Mode, str] = units
    while left:
        found = _one_process(left, folder, argv, timeout)
        out |= found
        if "f" in out and out["f"].text is None:
            break  # what does not compile has no derivatives
        left = {mode: text for mode, text in left.items() if mode not in found}
    return out


def _one_process(
    units: Mapping[Mode, str], folder: Path, argv: list[str], timeout: float
) -> dict[Mode, Compiled]:
    """Return what became of units up to the first that ended the process."""
    jobs = []
    for mode, text in units.items():
        source, result = folder / f"{mode}.cpp", folder / f"{mode}.ll"
        source.write_text(text, encoding="utf-8")
        jobs.append({"mode": mode, "source": str(source), "result": str(result)})
    job = folder / "job.json"
    job.write_text(json.dumps({"units": jobs, "argv": argv, "entry": ENTRY}), encoding="utf-8")
    worker = Path(__file__).with_name("worker.py")
    process = subprocess.Popen(
        [sys.executable, "-P", str(worker), str(job)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", cwd=folder,
        env={**os.environ, "JAX_PLATFORMS": "cpu"}, start_new_session=True,
    )  # fmt: skip
    late = False
    try:
        said, told = process.communicate(timeout=timeout)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        said, told = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        late = True
    begun = re.findall(r"(?m)^@@begin (\w+)$", said)
    ended = re.findall(r"(?m)^@@end (\w+)$", said)
    if not begun:
        raise ForeignError(f"Enzyme's compiler did not start: {told.strip()[-2000:]}")
    parts = (part.partition("\n") for part in told.split("\n@@begin ")[1:])
    diagnostics = {mode: text for mode, _, text in parts}
    out: dict[Mode, Compiled] = {}
    for mode in units:
        if mode not in begun:
            break
        why = _fatal(diagnostics.get(mode, ""))
        if mode not in ended:
            why = _ending(process.returncode, late, timeout, why)
        text = None if why else (folder / f"{mode}.ll").read_text(encoding="utf-8")
        out[mode] = Compiled(text, why)
    return out


def _fatal(diagnostics: str) -> str | None:
    """Return the compiler's own words if they tell of a failure."""
    before = diagnostics.split("\nSource:")[0].replace("/enzyme_call/source.cpp", "shim")
    lines = [line for line in before.splitlines() if not _NOISE.search(line)]
    if not _FATAL.search("\n".join(lines)):
        return None
    first = next(i for i, line in enumerate(lines) if _FATAL.search(line))
    return "\n".join(lines[first : first + 12]).strip()


def _ending(code: int, late: bool, timeout: float, why: str | None) -> str:
    if why:
        return why
    if late:
        return f"it was not compiled within {timeout:g} s; pass a larger `timeout=`"
    if code < 0:
        name = signal.Signals(-code).name
        return f"the compiler crashed ({name}).{_HINTS}"
    return f"the compiler ended with code {code} and said nothing"


def headers_of_compiler() -> list[str]:
    """Return flags for the headers that every C compiler brings itself and Enzyme's lacks.

    Raises:
        ForeignMissing: There is no C compiler.
    """
    for name in ("gcc", "clang", "cc"):
        path = shutil.which(name)
        if path is None:
            continue
        asked = [path, "-print-file-name=include"]
        found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        if os.path.isdir(found):
            return ["-isystem", found]
    raise ForeignMissing(
        "foreign functions need the header files of a C and C++ compiler: install one, for "
        "example with `apt install g++`."
    )
