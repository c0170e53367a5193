"""A forked child has none of XLA's threads: calls there end with one clear error."""

from __future__ import annotations

import os

from pullback.native import process
from pullback.native.handler_ir import FORKED

_is_forked = False


def require_not_forked() -> None:
    """Raise `RuntimeError` in a child forked from a process that had used kernels."""
    if _is_forked:
        raise RuntimeError(FORKED)


def _mark_child() -> None:
    global _is_forked
    loaded = process.loaded_runtime()
    if loaded is not None:
        _is_forked = True
        loaded.words["is_forked"] = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_child)
