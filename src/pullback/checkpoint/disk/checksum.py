"""Checksums of what is written: XXH3 where it is installed, else CRC-32."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from pullback.checkpoint.disk.optional import import_optional

__all__ = ["CRC32", "checksum", "is_known", "preferred_algorithm"]

# Far apart, so that damage does not turn one into the other: "CRC32" and "XXH3" in ASCII.
CRC32, XXH3 = 0x4352433332, 0x58584833
# Long calls would hold up Python's other threads.
_PIECE = 1 << 20
_Pieces: TypeAlias = Iterable[memoryview]


def preferred_algorithm() -> int:
    """Return the number of the fastest algorithm that is installed."""
    try:
        _xxhash()
    except ImportError:
        return CRC32
    return XXH3


def is_known(algorithm: int) -> bool:
    """Whether there is an algorithm of this number."""
    return algorithm in _ALGORITHMS


def checksum(algorithm: int, head: bytes, arrays: Iterable[np.ndarray]) -> int:
    """Return a checksum of a head and contiguous arrays, below 2**63.

    Raises:
        ImportError: The algorithm needs a package that is not installed.
    """
    return _ALGORITHMS[algorithm](_pieces(head, arrays)) & (2**63 - 1)


def _pieces(head: bytes, arrays: Iterable[np.ndarray]) -> Iterable[memoryview]:
    yield memoryview(head)
    for array in arrays:
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, _PIECE):
            yield flat[start : start + _PIECE].data


def _crc32(pieces: _Pieces) -> int:
    value = 0
    for piece in pieces:
        value = zlib.crc32(piece, value)
    return value


def _xxh3(pieces: _Pieces) -> int:
    state = _xxhash().xxh3_64()
    for piece in pieces:
        state.update(piece)
    return state.intdigest()


def _xxhash() -> Any:
    return import_optional("xxhash", "Disk", "disk")


_ALGORITHMS: dict[int, Callable[[_Pieces], int]] = {CRC32: _crc32, XXH3: _xxh3}
