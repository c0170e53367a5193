"""What is kept on disk of a compiled foreign function, under the key of what it was made from.

The key does not know the header files that the code includes: their hashes are kept beside.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pullback.foreign.compiler import Compiled
from pullback.foreign.ir_fixes import parsed
from pullback.foreign.kernel_ir import kernel_text
from pullback.foreign.modes import Mode
from pullback.native.cache import read_entry, write_entry

__all__ = ["Kept", "finished", "hashes_of", "read", "write"]


class Kept(NamedTuple):
    """What is kept on disk of a program.

    Attributes:
        kernels: Text of each mode that there is.
        failures: Why the others are missing.
        calls: Functions of this process that the kernels call.
    """

    kernels: dict[Mode, str]
    failures: dict[Mode, str]
    calls: list[str]


_RUNTIMES = ("libstdc++.so.6", "libgcc_s.so.1")


def finished(made: Mapping[Mode, Compiled], folder: str) -> Kept:
    """Return what became of the units that were compiled in a folder."""
    kept = Kept({}, {}, [])
    for mode, compiled in made.items():
        if compiled.text is None:
            kept.failures[mode] = (compiled.failure or "").replace(folder + os.sep, "")
            continue
        names: list[str] = []
        text = kernel_text(parsed(compiled.text), names)
        missing = _missing(names)
        if missing:
            why = f"it calls {', '.join(missing)}, which this process does not have"
            kept.failures[mode] = why
        else:
            kept.kernels[mode] = text
            kept.calls.extend(names)
    return kept


def _missing(names: list[str]) -> list[str]:
    """Return which functions there are not, with the C++ runtime loaded if one of them is its."""
    process = ctypes.CDLL(None)
    missing = [name for name in names if not hasattr(process, name)]
    if missing:
        for library in _RUNTIMES:
            try:
                ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue
    return [name for name in missing if not hasattr(process, name)]


def hashes_of(depends: Path, folder: str) -> dict[str, str]:
    """Return hashes of all files that the code includes, but the temporary ones."""
    if not depends.exists():
        return {}
    words = depends.read_text(encoding="utf-8").replace("\\\n", " ").split()[1:]
    return {path: _hash(path) for path in words if not path.startswith(folder)}


def _hash(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return "none"


def read(key: str) -> Kept | None:
    """Return what is kept under a key; None if there is nothing, or a header file has changed."""
    data = read_entry(key)
    if data is None:
        return None
    kept = json.loads(zlib.decompress(data))
    if any(_hash(path) != digest for path, digest in kept.pop("files").items()):
        return None
    found = Kept(**kept)
    return None if _missing(found.calls) else found


def write(key: str, kept: Kept, files: dict[str, str]) -> None:
    """Keep something under a key, with the hashes of the files that it depends on."""
    content = {**kept._asdict(), "files": files}
    write_entry(key, zlib.compress(json.dumps(content).encode(), 3))
