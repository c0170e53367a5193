"""Lossless compression of a row.

Each array is cut into pieces. A piece is compressed after its bytes have been sorted by
significance (all first bytes, then all second bytes, ...), because neighbouring numbers share
their leading bytes; what does not shrink stays as it is. The row is a table of lengths and then
the pieces, so it is never longer than the table and the arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from pullback.checkpoint.disk.optional import import_optional

__all__ = ["CompressionName", "RowCodec", "make_codec"]

CompressionName: TypeAlias = Literal["zstd", "blosc"]

# Bounds how long a compressor holds up other threads, and stays far below its 2 GB limit.
_PIECE = 1 << 22
_LENGTH = np.dtype("<i8")


class _Compressor(ABC):
    @abstractmethod
    def compress(self, piece: np.ndarray, itemsize: int) -> bytes:
        """Compress bytes that are numbers of `itemsize` bytes."""

    @abstractmethod
    def decompress(self, data: bytes, n_bytes: int, itemsize: int) -> np.ndarray:
        """Return `n_bytes` bytes."""


class _Zstd(_Compressor):
    def __init__(self) -> None:
        module = import_optional("zstandard", 'compression="zstd"', "disk")
        self._make = module.ZstdCompressor, module.ZstdDecompressor

    def compress(self, piece: np.ndarray, itemsize: int) -> bytes:
        by_significance = np.ascontiguousarray(piece.reshape(-1, itemsize).T)
        return self._make[0](level=1).compress(by_significance)

    def decompress(self, data: bytes, n_bytes: int, itemsize: int) -> np.ndarray:
        flat = np.frombuffer(self._make[1]().decompress(data, max_output_size=n_bytes), np.uint8)
        return flat.reshape(itemsize, -1).T.reshape(-1)


class _Blosc(_Compressor):
    def __init__(self) -> None:
        self._module: Any = import_optional("blosc2", 'compression="blosc"', "disk")

    def compress(self, piece: np.ndarray, itemsize: int) -> bytes:
        codec, shuffle = self._module.Codec.LZ4, [self._module.Filter.SHUFFLE]
        return self._module.compress2(
            piece.tobytes(), typesize=itemsize, codec=codec, filters=shuffle, filters_meta=[0],
            nthreads=1,
        )  # fmt: skip

    def decompress(self, data: bytes, n_bytes: int, itemsize: int) -> np.ndarray:
        return np.frombuffer(self._module.decompress2(data, nthreads=1), np.uint8)


_COMPRESSORS: dict[str, type[_Compressor]] = {"zstd": _Zstd, "blosc": _Blosc}


class RowCodec:
    """Turns the arrays of a row into bytes and back.

    Attributes:
        name: What the user calls it.
    """

    def __init__(self, name: CompressionName) -> None:
        self.name = name
        self._compressor = _COMPRESSORS[name]()

    def capacity(self, arrays: Sequence[tuple[int, int]]) -> int:
        """Return the most bytes that arrays of given sizes and item sizes in bytes may take."""
        return sum(n for n, _ in arrays) + _LENGTH.itemsize * sum(1 for _ in _cuts(arrays))

    def encode(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Return the bytes of a row."""
        flat = [array.reshape(-1).view(np.uint8) for array in arrays]
        sizes = [(array.nbytes, array.itemsize) for array in arrays]
        pieces: list[Any] = []
        for i, start, stop in _cuts(sizes):
            piece = flat[i][start:stop]
            small = self._compressor.compress(piece, arrays[i].itemsize)
            pieces.append(np.frombuffer(small, np.uint8) if len(small) < piece.size else piece)
        lengths = np.array([piece.size for piece in pieces], _LENGTH).view(np.uint8)
        return np.concatenate([lengths, *pieces])

    def decode(self, row: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
        """Fill arrays with what `encode` made a row of."""
        sizes = [(array.nbytes, array.itemsize) for array in arrays]
        cuts = list(_cuts(sizes))
        at = _LENGTH.itemsize * len(cuts)
        lengths = row[:at].view(_LENGTH)
        for (i, start, stop), length in zip(cuts, lengths.tolist(), strict=True):
            piece = row[at : at + length]
            if length < stop - start:
                itemsize = arrays[i].itemsize
                piece = self._compressor.decompress(piece.tobytes(), stop - start, itemsize)
            arrays[i].reshape(-1).view(np.uint8)[start:stop] = piece
            at += length


def make_codec(name: CompressionName | None) -> RowCodec | None:
    """Return the codec of a name."""
    if name is None:
        return None
    if name not in _COMPRESSORS:
        raise ValueError(
            f'`compression`: expected None, "zstd" or "blosc", got {name!r}. Give one.'
        )
    return RowCodec(name)


def _cuts(arrays: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield array number, first byte and end of each piece; pieces hold whole items."""
    for i, (n_bytes, itemsize) in enumerate(arrays):
        size = max(_PIECE // itemsize, 1) * itemsize
        for start in range(0, n_bytes, size):
            yield i, start, min(start + size, n_bytes)
