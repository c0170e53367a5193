"""How far a run is: steps forward, steps back, memory and disk."""

from __future__ import annotations

import resource
import sys
from types import TracebackType
from typing import Any, Self

from tqdm import tqdm

from pullback.checkpoint.schedules import AbstractScheme
from pullback.checkpoint.storage import AbstractStorage

__all__ = ["ProgressBar"]

# Linux counts in KiB, macOS in bytes.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class ProgressBar:
    """A bar over all steps that the scheme predicts, forward and back.

    Args:
        is_shown: Whether there is a bar at all.
        scheme: Predicts the steps.
        n_blocks: What it predicts them for.
        block: Steps of a block.
        n_tail: Steps after the last block; they are run forward and back once.
        storage: Tells how much disk is used.
    """

    def __init__(
        self, is_shown: bool, scheme: AbstractScheme, n_blocks: int, block: int, n_tail: int,
        storage: AbstractStorage,
    ) -> None:  # fmt: skip
        self._storage = storage
        self._forward = self._back = 0
        self._bar: Any = None
        if is_shown:
            # The last block is run forward once more, for the loss.
            predicted = scheme.cost(n_blocks).forward_steps + n_blocks + (n_blocks > 0)
            self._bar = tqdm(total=predicted * block + 2 * n_tail, unit="step", unit_scale=True)

    def count(self, forward: int = 0, back: int = 0) -> None:
        """Add steps that are done."""
        if self._bar is None:
            return
        self._forward += forward
        self._back += back
        self._bar.set_postfix_str(
            f"forward {self._forward}, back {self._back}, memory {_memory()},"
            f" disk {_text(self._storage.bytes_on_disk())}",
            refresh=False,
        )
        self._bar.update(forward + back)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def _memory() -> str:
    return _text(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT)


def _text(n_bytes: int) -> str:
    return tqdm.format_sizeof(n_bytes, "B", 1000)
